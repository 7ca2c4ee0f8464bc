"""Products of sm_100 with factors of blocks, and copies from shared to tensor memory: from PTX and from machine code.

The kernels are Triton's, so that the layout of factors and of narrow numbers is not ours; what they store is compared
with float64, and machine code with its PTX.
"""

from __future__ import annotations

import re
from functools import cache

import pytest

np = pytest.importorskip("numpy")
pytest.importorskip("triton", reason="requires triton")

from blackwell_kernels import Scaled  # noqa: E402
from emulated import launch_of, module_of  # noqa: E402

from tritonhook.cubin.image import Cubin  # noqa: E402
from tritonhook.emulate.run import Run, run_ptx  # noqa: E402
from tritonhook.emulate.sanitizer.run import sanitize  # noqa: E402
from tritonhook.errors import NotUnderstood  # noqa: E402
from tritonhook.ptx.module import Ptx  # noqa: E402
from tritonhook.ptxas.toolchain import Assembled, assemble  # noqa: E402
from tritonhook.verify.cpu import run_cubin  # noqa: E402

CASES = {
    "mxf8f6f4": (("e4m3", "e5m2"), 32),
    "mxf4": (("e2m1", "e2m1"), 32),
    "mxf4nvf4": (("e2m1", "e2m1"), 16),
    "padded": (("e4m3", "e2m1"), 32),
}
RUN = (0,)


@pytest.fixture(scope="module")
def scaled(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton-cache")))
        yield cache(lambda name: Scaled(*CASES[name]))


def stored(one, text=None):
    return run_ptx(Ptx(text or one.made.asm["ptx"]), Run(one.launch, RUN), one.contents).contents


@pytest.mark.parametrize("name", CASES)
def test_products_are_what_float64_says(scaled, name):
    one = scaled(name)
    assert f"kind::{name if name != 'padded' else 'mxf8f6f4'}.block_scale" in one.made.asm["ptx"]
    found, run = stored(one), Run(one.launch, RUN)
    assert one.error(found) < 2e-6
    assert run_cubin(Cubin.from_bytes(one.made.asm["cubin"]), "scaled", run, one.contents).contents == found
    assert sanitize(Ptx(one.made.asm["ptx"]), run, one.contents).findings == ()


def test_a_factor_that_is_nan_makes_its_row_nan(scaled):
    one = scaled("mxf8f6f4")
    contents = [bytearray(part) for part in one.contents]
    contents[1][5 * 8 + 3] = 255  # of row 5
    found = run_ptx(Ptx(one.made.asm["ptx"]), Run(one.launch, RUN), [bytes(part) for part in contents]).contents
    found = np.isnan(np.frombuffer(found[-1], np.float32).reshape(128, 128))
    assert found[5].all() and not np.delete(found, 5, 0).any()


@pytest.mark.parametrize(
    ("name", "old", "new", "why"),
    [
        ("mxf4nvf4", "scale_vec::4X", "scale_vec::1X", "mxf4nvf4"),
        ("mxf8f6f4", ".block_scale.scale_vec::1X", "", "kind::mxf8f6f4"),
    ],
)  # fmt: skip
def test_what_is_not_known_is_not_guessed(scaled, name, old, new, why):
    one = scaled(name)
    assert old in one.made.asm["ptx"]
    with pytest.raises(NotUnderstood, match=why):
        stored(one, one.made.asm["ptx"].replace(old, new))


def test_factors_have_to_be_the_same_for_all_warps(scaled):
    one = scaled("mxf8f6f4")
    text = one.made.asm["ptx"]
    thread = re.search(r"mov\.u32\s+(%r\d+), %tid\.x", text)[1]
    changed = re.sub(r"(x4\.b32 \[%r\d+ \+ 0\], \{)%r\d+", rf"\g<1>{thread}", text)
    assert changed != text
    with pytest.raises(NotUnderstood, match="not the same in the lanes of all warps"):
        stored(one, changed)


# --- tcgen05.cp ------------------------------------------------------------------------------------

ROOM = ".shared .align 1024 .b8 room[4096]; .shared .align 8 .b64 gate; .shared .align 4 .b32 begin;"
# Each thread stores its 32 bytes; then all lanes of eight columns are read. Rows of 16 bytes, 8 of them together; the
# second 16 bytes of a row lie 2,048 behind.
COPY = """setp.lt.u32 %p1, %r20, 32; mov.u32 %r27, begin; setp.eq.u32 %p3, %r20, 0; mov.u32 %r5, room;
mov.u32 %r8, gate; @%p1 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r27], 32;
mad.lo.u32 %r6, %r20, 16, %r5; add.u32 %r1, %r20, 1000; add.u32 %r2, %r20, 2000; add.u32 %r3, %r20, 3000;
st.shared.v4.b32 [%r6], {%r20, %r1, %r2, %r3}; add.u32 %r7, %r20, 4000;
st.shared.v4.b32 [%r6+2048], {%r7, %r7, %r7, %r7};
@%p3 mbarrier.init.shared.b64 [gate], 1; fence.proxy.async; bar.sync 0; ld.shared.b32 %r10, [begin];
shr.u32 %r5, %r5, 4; cvt.u64.u32 %rd1, %r5; mov.u64 %rd2, 0x0000400800800000; add.u64 %rd1, %rd1, %rd2;
and.b32 %r11, %r20, 96; shl.b32 %r11, %r11, 16; add.u32 %r11, %r11, %r10; mov.u32 %r9, 0;
tcgen05.st.sync.aligned.32x32b.x8.b32 [%r11], {%r9, %r9, %r9, %r9, %r9, %r9, %r9, %r9};
tcgen05.wait::st.sync.aligned; tcgen05.fence::before_thread_sync; bar.sync 0;
@%p3 tcgen05.cp.cta_group::1.SHAPE [%r10], %rd1;
@%p3 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r8];
WAIT: mbarrier.try_wait.parity.shared.b64 %p5, [gate], 0; @!%p5 bra WAIT; tcgen05.fence::after_thread_sync;
tcgen05.ld.sync.aligned.32x32b.x8.b32 {%r1, %r2, %r3, %r4, %r12, %r13, %r14, %r15}, [%r11];
tcgen05.wait::ld.sync.aligned; bar.sync 0; @%p1 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r10, 32;
mad.wide.u32 %rd9, %r20, 32, %rd20; st.global.v4.b32 [%rd9], {%r1, %r2, %r3, %r4};
st.global.v4.b32 [%rd9+16], {%r12, %r13, %r14, %r15};"""


def copied(shape, tools=None):
    out = np.zeros(1024, np.uint32)
    ptx, run = module_of(COPY.replace("SHAPE", shape), 1, "sm_100a", ROOM), Run(launch_of(out, threads=128), RUN)
    if tools is None:
        assert sanitize(ptx, run, [out.tobytes()]).findings == ()
        found = run_ptx(ptx, run, [out.tobytes()])
    else:
        made = assemble(tools.ptxas, ptx, ["-O3"])
        assert isinstance(made, Assembled), made
        found = run_cubin(made.cubin, "k", run, [out.tobytes()])
    return np.frombuffer(found.contents[0], np.uint32).reshape(128, 8)


@pytest.mark.parametrize(("shape", "rows"), [("32x128b.warpx4", 32), ("128x128b", 128), ("128x256b", 128)])
def test_rows_of_shared_memory_come_to_lanes(shape, rows, tools):
    row = np.arange(128)[:, None] % rows
    wanted = np.hstack([row, row + 1000, row + 2000, row + 3000, *[row + 4000 if "256" in shape else 0 * row] * 4])
    assert (copied(shape) == wanted).all()
    assert (copied(shape, tools) == wanted).all()


def test_other_copies_are_not_understood():
    for shape in ("4x256b", "64x128b.warpx2::02_13", "32x128b", "128x256b.warpx4"):
        with pytest.raises(NotUnderstood, match=shape.partition(".")[0]):
            copied(shape)
    text = COPY.replace("cta_group::1.SHAPE", "128x128b")  # not said how many CTAs work together
    with pytest.raises(NotUnderstood, match="128x128b"):
        run_ptx(
            module_of(text, 1, "sm_100a", ROOM), Run(launch_of(np.zeros(1024, "u4"), threads=128), RUN), [bytes(4096)]
        )


def test_a_copy_that_is_not_waited_for_is_a_race():
    wait = COPY[COPY.index("WAIT:") : COPY.index("tcgen05.fence::after")]
    ptx, out = module_of(COPY.replace("SHAPE", "128x128b").replace(wait, ""), 1, "sm_100a", ROOM), np.zeros(1024, "u4")
    (one,) = sanitize(ptx, Run(launch_of(out, threads=128), RUN), [out.tobytes()]).findings
    assert one.kind == "race" and "tensor memory" in one.text
