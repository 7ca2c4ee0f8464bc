"""Copies by descriptor and mbarriers: the PTX of a kernel and its machine code do the same."""

from __future__ import annotations

import pytest

np = pytest.importorskip("numpy")

from tritonhook.emulate import tma  # noqa: E402
from tritonhook.emulate.machine import Geometry, Machine  # noqa: E402
from tritonhook.emulate.memory import Memory  # noqa: E402
from tritonhook.emulate.ptx.decode import decode as decode_ptx  # noqa: E402
from tritonhook.emulate.ptx.kernel import read_kernel  # noqa: E402
from tritonhook.emulate.sass.decode import decode as decode_sass  # noqa: E402
from tritonhook.emulate.sass.kernel import read_sass_kernel  # noqa: E402
from tritonhook.ptx.module import Ptx  # noqa: E402
from tritonhook.ptxas.toolchain import (  # noqa: E402
    Assembled,
    assemble,
    reading_toolchain,
)

THREADS = 128
KERNEL = """.version 8.4
.target sm_90a
.address_size 64
.visible .entry k(.param .align 64 .b8 map[128], .param .u64 out) {
.shared .align 128 .b8 tile[1024]; .shared .align 8 .b64 bar;
.reg .pred %p<5>; .reg .b32 %r<12>; .reg .b64 %rd<6>;
mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 0; mov.u32 %r2, bar; mov.u32 %r3, tile;
mov.b64 %rd1, map; cvta.param.u64 %rd1, %rd1; mov.u32 %r4, 4; mov.u32 %r5, 8;
@%p1 bra ALL;
mbarrier.init.shared::cta.b64 [%r2], 1;
fence.proxy.async.shared::cta;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 512;
cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r3], [%rd1, {%r5, %r4}], [%r2];
ALL: bar.sync 0;
WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r2], 0;
@!%p2 bra WAIT;
bar.sync 0;
@%p1 bra AGAIN;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 512;
cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r3], [%rd1, {%r4, %r5}], [%r2];
AGAIN: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r2], 1;
@!%p3 bra AGAIN;
shl.b32 %r6, %r1, 2; add.u32 %r7, %r3, %r6; ld.shared.u32 %r8, [%r7];
ld.param.u64 %rd2, [out]; cvt.u64.u32 %rd3, %r6; add.u64 %rd2, %rd2, %rd3; st.global.u32 [%rd2], %r8;
@%p1 bra END;
mbarrier.inval.shared::cta.b64 [%r2];
mov.u32 %r9, 16; mov.u32 %r10, 1;
mov.u64 %rd4, 0;
cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group.L2::cache_hint [%rd1, {%r9, %r10}], [%r3], %rd4;
cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
END: ret; }
"""


class Loading:
    """A launch of one CTA: two boxes of 8 by 16 words of a matrix of 20 by 20, the second over the first. It is stored
    elsewhere in the matrix, over its right edge."""

    def __init__(self) -> None:
        self.matrix = np.arange(400, dtype=np.uint32) + 1
        self.memory = Memory(4096)
        self.data = data = self.memory.allocate(self.matrix.tobytes())
        self.out = self.memory.allocate(4 * THREADS)
        box = tma.TensorMap(data.address, 4, (20, 20), (4, 80), (8, 16))
        self.arguments = tma.register(self.memory, box), self.out.address.to_bytes(8, "little")

    def machine(self) -> Machine:
        return Machine(Geometry((1, 1, 1), (THREADS, 1, 1), (0,)), self.memory)

    @property
    def stored(self) -> np.ndarray:
        return np.frombuffer(self.memory.contents(self.out), np.uint32).reshape(16, 8)

    @property
    def expected(self) -> np.ndarray:
        padded = np.zeros((40, 40), np.uint32)
        padded[:20, :20] = self.matrix.reshape(20, 20)
        return padded[8:24, 4:12]

    @property
    def is_stored_back(self) -> bool:
        wanted = self.matrix.reshape(20, 20).copy()
        wanted[1:17, 16:] = self.expected[:, :4]
        return bool((np.frombuffer(self.memory.contents(self.data), np.uint32).reshape(20, 20) == wanted).all())


@pytest.mark.parametrize("address", ["mov.b64 %rd1, map;", "mov.b32 %r11, map; cvt.u64.u32 %rd1, %r11;"])
def test_the_ptx_copies_a_box(address: str) -> None:
    """The second takes the lower half of the parameter's address, as Triton 3.9 does."""
    loading = Loading()
    kernel = read_kernel(Ptx(KERNEL.replace("mov.b64 %rd1, map;", address)))
    given = loading.arguments[0] + loading.arguments[1]
    parameters = loading.memory.allocate(given, "the parameters")
    machine = loading.machine()
    code, unknown = decode_ptx(kernel, machine, parameters, {})
    machine.run(code)
    assert not unknown and (loading.stored == loading.expected).all() and loading.is_stored_back


def test_the_machine_code_copies_a_box(tools) -> None:
    made = assemble(tools.ptxas, Ptx(KERNEL), ["-O3"])
    assert isinstance(made, Assembled), made
    kernel = read_sass_kernel(made.cubin, reading_toolchain().disassemble(made.cubin, ["k"])["k"])
    opcodes = {one.opcode for one in kernel.sass.instructions}
    assert {"UTMALDG.2D", "SYNCS.EXCH.64", "SYNCS.CCTL.IV", "UTMASTG.2D"} <= opcodes
    loading = Loading()
    parameters = kernel.pack(loading.arguments)
    address = loading.memory.allocate(parameters, "the parameters").address
    machine = loading.machine()
    code, unknown = decode_sass(kernel, machine, kernel.constants(machine.geometry, parameters, address))
    machine.run(code)
    assert not unknown and (loading.stored == loading.expected).all() and loading.is_stored_back
