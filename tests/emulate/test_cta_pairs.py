"""tcgen05 of two CTAs that work together: from PTX, from machine code, and under the sanitizer."""

from __future__ import annotations

import pytest

np = pytest.importorskip("numpy")

from emulated import launch_of, module_of  # noqa: E402

from tritonhook.cubin.image import Cubin  # noqa: E402
from tritonhook.emulate.errors import Hang  # noqa: E402
from tritonhook.emulate.numbers import decode, encode  # noqa: E402
from tritonhook.emulate.run import Run, run_ptx  # noqa: E402
from tritonhook.emulate.sanitizer.run import sanitize  # noqa: E402
from tritonhook.ptx.module import Ptx  # noqa: E402
from tritonhook.ptxas.toolchain import Assembled, assemble  # noqa: E402
from tritonhook.verify.cpu import run_cubin  # noqa: E402

ROOM = ".shared .align 1024 .b8 room[4608]; .shared .align 8 .b64 gate; .shared .align 4 .b32 begin;"
# D (2 ROWS, 16) = A B of f16: each CTA has ROWS of A and 8 columns of B, in tiles of 8 rows of 16 bytes. Its first
# thread begins the product for both. Each thread reads 16 columns of its lane.
PRODUCT = """mov.u32 %r19, %tid.x; setp.lt.u32 %p1, %r19, 32; mov.u32 %r27, begin; mov.u32 %r5, room; mov.u32 %r8, gate;
mov.u32 %r18, %cluster_ctarank; or.b32 %r17, %r18, %r19; setp.eq.u32 %p3, %r17, 0; setp.eq.u32 %p6, %r19, 0;
@%p1 tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%r27], 32; mad.lo.u32 %r6, %r19, 16, %r5;
mad.lo.u32 %r7, %r18, 272, %r19; mad.wide.u32 %rd9, %r7, 16, %rd21;
ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd9]; st.shared.v4.b32 [%r6], {%r1, %r2, %r3, %r4};
ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd9+2048]; st.shared.v4.b32 [%r6+2048], {%r1, %r2, %r3, %r4};
setp.lt.u32 %p2, %r19, 16; @%p2 ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd9+4096];
@%p2 st.shared.v4.b32 [%r6+4096], {%r1, %r2, %r3, %r4};
@%p6 mbarrier.init.shared.b64 [gate], 1; fence.proxy.async; bar.sync 0; ld.shared.b32 %r10, [begin];
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
shr.u32 %r5, %r5, 4; cvt.u64.u32 %rd1, %r5; mov.u64 %rd2, 0x0000401000080000; add.u64 %rd1, %rd1, %rd2;
add.u64 %rd2, %rd1, 256; mov.pred %p4, 0; mov.u32 %r7, DESCRIPTOR; mov.u16 %rs1, 3;
@%p3 tcgen05.mma.cta_group::2.kind::f16 [%r10], %rd1, %rd2, %r7, %p4;
@%p3 tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%r8], %rs1;
WAIT: mbarrier.try_wait.parity.shared.b64 %p5, [gate], 0; @!%p5 bra WAIT; tcgen05.fence::after_thread_sync;
and.b32 %r11, %r19, 96; shl.b32 %r11, %r11, 16; add.u32 %r11, %r11, %r10; mad.wide.u32 %rd9, %r20, 64, %rd20;
tcgen05.ld.sync.aligned.32x32b.x8.b32 {%r1, %r2, %r3, %r4, %r12, %r13, %r14, %r15}, [%r11];
tcgen05.wait::ld.sync.aligned; st.global.v4.b32 [%rd9], {%r1, %r2, %r3, %r4};
st.global.v4.b32 [%rd9+16], {%r12, %r13, %r14, %r15};
tcgen05.ld.sync.aligned.32x32b.x8.b32 {%r1, %r2, %r3, %r4, %r12, %r13, %r14, %r15}, [%r11 + 8];
tcgen05.wait::ld.sync.aligned; st.global.v4.b32 [%rd9+32], {%r1, %r2, %r3, %r4};
st.global.v4.b32 [%rd9+48], {%r12, %r13, %r14, %r15};
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
@%p1 tcgen05.dealloc.cta_group::2.sync.aligned.b32 %r10, 32;"""
MULTICAST = ".shared::cluster.multicast::cluster.b64 [%r8], %rs1;"
PAIR = (2, 1, 1)


class Product:
    """A launch of PRODUCT. rows: of each CTA, 128 or 64."""

    def __init__(self, rows: int, body: str = PRODUCT) -> None:
        draw, self.rows = np.random.default_rng(1), rows
        self.a, self.b = (encode(draw.standard_normal((2, count, 16)), "f16").astype("u2") for count in (rows, 8))
        given = np.zeros((2, 272, 8), np.uint16)
        for cta in range(2):
            for begin, matrix in ((0, self.a[cta]), (256, self.b[cta])):
                tiles = matrix.reshape(-1, 8, 2, 8).transpose(0, 2, 1, 3).reshape(-1, 8)
                given[cta, begin : begin + len(tiles)] = tiles
        self.arrays = [np.zeros(2 * 128 * 16, np.float32), given.view(np.uint32)]
        bits = {128: "0x10040010", 64: "0x08040010"}[rows]
        text = module_of(body.replace("DESCRIPTOR", bits), 2, "sm_100a", ROOM).text
        self.ptx = Ptx(text.replace(") {\n.reg", ") .explicitcluster .reqnctapercluster 2 {\n.reg"))
        self.contents = [one.tobytes() for one in self.arrays]
        self.run = Run(launch_of(*self.arrays, threads=128, grid=2, cluster=PAIR), (0,), most_steps=200_000)

    def stored(self, tools=None):
        """(CTA, row, column)."""
        if tools is None:
            found = run_ptx(self.ptx, self.run, self.contents)
        else:
            made = assemble(tools.ptxas, self.ptx, ["-O3"])
            assert isinstance(made, Assembled), made
            found = run_cubin(made.cubin, "k", self.run, self.contents)
        lanes = np.frombuffer(found.contents[0], np.float32).reshape(2, 128, 16)
        return lanes if self.rows == 128 else np.concatenate([lanes[:, :64, :8], lanes[:, 64:, :8]], 2)

    @property
    def wanted(self):
        return decode(self.a, "f16") @ decode(self.b, "f16").reshape(16, 16).T


@pytest.mark.parametrize("rows", [128, 64])
def test_each_cta_has_its_rows_and_both_have_the_columns(rows, tools):
    one = Product(rows)
    assert np.abs(one.stored() - one.wanted).max() < 1e-5
    assert (one.stored(tools) == one.stored()).all()
    assert sanitize(one.ptx, one.run, one.contents).findings == ()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (MULTICAST, ".shared::cluster.b64 [%r8];"),  # the other CTA waits for ever
        ("mov.u16 %rs1, 3", "mov.u16 %rs1, 2"),  # this one does
    ],
)
def test_each_cta_of_the_mask_is_told(old, new, tools):
    assert old in PRODUCT
    for tool in (None, tools):
        with pytest.raises(Hang):
            Product(128, PRODUCT.replace(old, new)).stored(tool)


def test_what_one_cta_stores_is_ordered_by_the_cluster_s_barrier():
    barrier = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\nshr"
    assert barrier in PRODUCT
    one = Product(128, PRODUCT.replace(barrier, "shr"))
    found = sanitize(one.ptx, one.run, one.contents)
    assert found.findings or found.error


def test_triton_s_product_is_what_float64_says(tmp_path, monkeypatch):
    pytest.importorskip("triton", reason="requires triton")
    import blackwell_kernels

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    kernel, sizes = blackwell_kernels.product, (256, 128, 64)
    made = blackwell_kernels.compiled(kernel, "f16", sizes, 4, ctas=2)
    launch, contents, wanted = blackwell_kernels.launched(made, "product", "f16", sizes)
    assert "tcgen05.mma.cta_group::2" in made.asm["ptx"]
    ptx, run = Ptx(made.asm["ptx"]), Run(launch, (0,))
    stored = run_ptx(ptx, run, contents).contents
    assert np.abs(np.frombuffer(stored[2], np.float32).reshape(wanted.shape) - wanted).max() < 5e-5
    assert run_cubin(Cubin.from_bytes(made.asm["cubin"]), "product", run, contents).contents == stored
    assert sanitize(ptx, run, contents).findings == ()
