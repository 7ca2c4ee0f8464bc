"""tcgen05 and tensor memory of sm_100: from PTX, from machine code, and under the sanitizer.

No sm_100 card has run these kernels for us: what they store is compared with float64, and machine code with its PTX.
"""

from __future__ import annotations

import re

import pytest

np = pytest.importorskip("numpy")

from emulated import launch_of, module_of, run_body  # noqa: E402

from tritonhook.cubin.image import Cubin  # noqa: E402
from tritonhook.emulate.errors import Fault  # noqa: E402
from tritonhook.emulate.numbers import decode, encode  # noqa: E402
from tritonhook.emulate.run import Run, run_ptx  # noqa: E402
from tritonhook.emulate.sanitizer.run import sanitize  # noqa: E402
from tritonhook.errors import NotUnderstood  # noqa: E402
from tritonhook.ptx.module import Ptx  # noqa: E402
from tritonhook.ptxas.toolchain import Assembled, assemble  # noqa: E402
from tritonhook.verify.cpu import run_cubin  # noqa: E402

ROOM = ".shared .align 1024 .b8 room[4096]; .shared .align 8 .b64 gate; .shared .align 4 .b32 begin;"
ALLOCATE = """setp.lt.u32 %p1, %r20, 32; mov.u32 %r27, begin;
@%p1 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r27], 64; bar.sync 0; ld.shared.b32 %r10, [begin];
and.b32 %r11, %r20, 96; shl.b32 %r11, %r11, 16; add.u32 %r11, %r11, %r10;
"""
FREE = "bar.sync 0; @%p1 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r10, 64;"
OUT = "mad.wide.u32 %rd9, %r20, 16, %rd20; st.global.v4.b32 [%rd9], {%r1, %r2, %r3, %r4};"
# D (64, 8) = 1 + A (64, 16) B (16, 8) of f16, in tiles without a swizzle: 8 rows of 16 bytes are together.
PRODUCT = (
    ALLOCATE
    + """mov.u32 %r9, 0x3f800000;
tcgen05.st.sync.aligned.16x32bx2.x4.b32 [%r11], 4, {%r9, %r9, %r9, %r9};
tcgen05.wait::st.sync.aligned;
mad.wide.u32 %rd9, %r20, 16, %rd21; ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd9];
mov.u32 %r5, room; mad.lo.u32 %r6, %r20, 16, %r5; st.shared.v4.b32 [%r6], {%r1, %r2, %r3, %r4};
setp.lt.u32 %p2, %r20, 16; @%p2 ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd9+2048];
@%p2 st.shared.v4.b32 [%r6+2048], {%r1, %r2, %r3, %r4};
setp.eq.u32 %p3, %r20, 0; @%p3 mbarrier.init.shared.b64 [gate], 1;
fence.proxy.async;
bar.sync 0;
shr.u32 %r5, %r5, 4; cvt.u64.u32 %rd1, %r5; mov.u64 %rd2, 0x0000401000080000; add.u64 %rd1, %rd1, %rd2;
add.u64 %rd2, %rd1, 128; mov.u32 %r7, 0x04020010; mov.pred %p4, -1;
@%p3 tcgen05.mma.cta_group::1.kind::f16 [%r10], %rd1, %rd2, %r7, %p4;
mov.u32 %r8, gate; cvt.u64.u32 %rd3, %r8;
@%p3 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r8];
WAIT: mbarrier.try_wait.parity.shared.b64 %p5, [gate], 0; @!%p5 bra WAIT;
tcgen05.fence::after_thread_sync;
tcgen05.ld.sync.aligned.16x32bx2.x4.b32 {%r1, %r2, %r3, %r4}, [%r11], 4;
tcgen05.wait::ld.sync.aligned;
"""
    + FREE
    + OUT
)
WAIT = "WAIT: mbarrier.try_wait.parity.shared.b64 %p5, [gate], 0; @!%p5 bra WAIT;"

LOADED = "tcgen05.wait::ld.sync.aligned;"
AGAIN = "@%p3 tcgen05.mma.cta_group::1.kind::f16 [%r10], %rd1, %rd2, %r7, %p4;"


class Product:
    """A launch of PRODUCT, perhaps with another text."""

    def __init__(self, body: str = PRODUCT) -> None:
        draw = np.random.default_rng(1)
        self.a, self.b = (encode(draw.standard_normal(shape), "f16").astype(np.uint16) for shape in ((64, 16), (8, 16)))
        tiles = [one.reshape(-1, 8, 2, 8).transpose(0, 2, 1, 3) for one in (self.a, self.b)]
        given = np.concatenate([one.reshape(-1) for one in tiles]).view(np.uint32)
        arrays = np.zeros(512, np.uint32), given
        self.ptx, self.launch = module_of(body, 2, "sm_100a", ROOM), launch_of(*arrays, threads=128)
        self.contents, self.run = [one.tobytes() for one in arrays], Run(self.launch, (0,))

    @property
    def wanted(self):
        """What the threads store: those of each warp's lower half have four columns of 16 rows, the others the rest."""
        d = 1 + decode(self.a, "f16") @ decode(self.b, "f16").T
        return d.reshape(4, 16, 2, 4).transpose(0, 2, 1, 3)

    def error(self, contents) -> float:
        found = np.frombuffer(contents[0], np.float32).reshape(self.wanted.shape)
        return float(np.nan_to_num(np.abs(found - self.wanted), nan=np.inf).max())


def changed_product(old: str, new: str) -> Product:
    assert old in PRODUCT
    return Product(PRODUCT.replace(old, new))


def code_of(ptx: Ptx, tools, level: str = "-O3") -> Cubin:
    made = assemble(tools.ptxas, ptx, [level])
    assert isinstance(made, Assembled), made
    return made.cubin


def test_a_product_with_a_sum_in_tensor_memory(tools):
    one = Product()
    stored = run_ptx(one.ptx, one.run, one.contents)
    assert one.error(stored.contents) < 1e-5 and stored.unknown == ()
    for level in ("-O0", "-O3"):
        assert run_cubin(code_of(one.ptx, tools, level), "k", one.run, one.contents).contents == stored.contents


def test_a_sum_of_f16_lies_in_the_lower_halves_of_columns(tools):
    """Two of them are in a register that is stored or loaded."""
    body = PRODUCT.replace("0x3f800000", "0x3c003c00").replace("0x04020010", "0x04020000")
    for old, new in (("st.sync", "unpack"), ("ld.sync", "pack")):
        body = re.sub(
            rf"({old}.aligned.16x32bx2).x4.b32(.*)%r., %r., (%r., %r.)}}", rf"\1.x2.{new}::16b.b32\2\3}}", body
        )
    one = Product(body)
    stored = run_ptx(one.ptx, one.run, one.contents)
    codes = np.frombuffer(stored.contents[0], np.uint16).reshape(*one.wanted.shape[:3], 8)[..., 4:]
    assert np.abs(decode(codes, "f16") - one.wanted).max() < 2**-8, "half a unit in the last place of 8"
    assert (
        stored.unknown == ()
        and run_cubin(code_of(one.ptx, tools), "k", one.run, one.contents).contents == stored.contents
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("mov.pred %p4, -1", "mov.pred %p4, 0"),  # the sum that was there is lost
        ("0x0000401000080000", "0x0000400800100000"),  # strides of the tiles: those of rows and columns are changed
        ("0x04020010", "0x04020490"),  # bf16 instead of f16
        ("%rd1, 128", "%rd1, 120"),  # where B begins
    ],
)
def test_each_part_of_the_descriptors_counts(old, new):
    one = changed_product(old, new)
    assert one.error(run_ptx(one.ptx, one.run, one.contents).contents) > 0.1


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("0x04020010", "0x04020014", "instruction descriptor 0x4020014"),  # sparse
        ("0x04020010", "0x04020480", "instruction descriptor"),  # a sum of f16 of bf16
        ("0x04020010", "0x04022010", "instruction descriptor"),  # a negated A
        ("0x0000401000080000", "0x8002401000080000", "matrix descriptor"),  # a base offset
        ("0x0000401000080000", "0x2000401000080000", "matrix descriptor"),  # pieces of 32 bytes change places
        ("0x0000401000080000", "0x0000001000080000", "matrix descriptor"),  # one of sm_90
        ("cta_group::1.kind", "cta_group::1.ws.kind", "ws"),
        ("kind::f16 [", "kind::i8 [", "kind::i8"),
        ("16x32bx2.x4.b32 {", "16x64b.x4.b32 {", ".16x64b.x4 of 4 registers"),
        ("x4.b32 [%r11]", "x4.pack::16b.b32 [%r11]", "pack::16b"),  # of a store
    ],
)
def test_what_is_not_known_is_not_guessed(old, new, why):
    one = changed_product(old, new)
    with pytest.raises(NotUnderstood, match=re.escape(why)) as error:
        run_ptx(one.ptx, one.run, one.contents)
    assert error.value.line is not None


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("shl.b32 %r11, %r11, 16;", "mov.u32 %r11, 0;", "outside of the 32 lanes that this warp can access"),
        ("[%r11], 4, {", "[%r11 + 60], 4, {", "column 64 of tensor memory, which is not allocated"),
        ("%rd1, 128", "%rd1, 1000", "outside of shared memory"),
        ("b32 %r10, 64;", "b32 %r10, 128;", "dealloc of 128 columns"),
        ("cta_group::1.kind", "cta_group::2.kind", "for a pair of CTAs, in a cluster with an odd number"),
    ],
)
def test_what_lies_outside_is_a_fault(old, new, why):
    one = changed_product(old, new)
    with pytest.raises(Fault, match=why):
        run_ptx(one.ptx, one.run, one.contents)


def test_each_thread_has_a_lane_and_halves_of_a_warp_share_them(tools):
    body = """add.u32 %r1, %r20, 1000;
    tcgen05.st.sync.aligned.32x32b.x2.b32 [%r11 + 3], {%r20, %r1}; tcgen05.wait::st.sync.aligned;
    tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r1}, [%r11 + 4];
    add.u32 %r5, %r11, 0x100000; tcgen05.ld.sync.aligned.16x32bx2.x1.b32 {%r2}, [%r5 + 3], 1;
    tcgen05.ld.sync.aligned.16x32bx2.x2.b32 {%r3, %r4}, [%r11 + 3], 0; tcgen05.wait::ld.sync.aligned;"""
    text, out = ALLOCATE + body + FREE + OUT, np.zeros(512, np.uint32)
    found = run_body(text, out, target="sm_100a", declarations=ROOM, threads=128)[0].reshape(128, 4).T
    thread = np.arange(128)
    lane = thread // 32 * 32 + thread % 16
    assert found[0].tolist() == (thread + 1000).tolist()
    assert found[1].tolist() == (lane + 16 + thread // 16 % 2 * 1000).tolist()
    assert found[2:].tolist() == [lane.tolist(), (lane + 1000).tolist()]
    launch = launch_of(out, threads=128)
    stored = run_cubin(code_of(module_of(text, 1, "sm_100a", ROOM), tools), "k", Run(launch, (0,)), [out.tobytes()])
    assert stored.contents[0] == found.T.tobytes()


def test_columns_that_are_free_again_are_allocated_again(tools):
    body = """mov.u32 %r27, begin; setp.ge.u32 %p1, %r20, 32; @%p1 bra ALL;
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r27], 32; ld.shared.b32 %r1, [begin];
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r27], 256; ld.shared.b32 %r2, [begin];
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r27], 64; ld.shared.b32 %r3, [begin];
    tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r1, 32; tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r3, 64;
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r27], 256; ld.shared.b32 %r4, [begin];
    tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r2, 256; tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r4, 256;
    tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned; ALL:"""
    out, run = np.zeros(512, np.uint32), Run(launch_of(np.zeros(512, np.uint32), threads=128), (0,))
    ptx = module_of(body + OUT, 1, "sm_100a", ROOM)
    stored = run_ptx(ptx, run, [out.tobytes()]).contents[0]
    assert np.frombuffer(stored, np.uint32)[:4].tolist() == [0, 256, 64, 0]
    assert run_cubin(code_of(ptx, tools), "k", run, [out.tobytes()]).contents[0][:512] == stored[:512]


@pytest.mark.parametrize(
    ("line", "new", "kind", "first", "second"),
    [
        (WAIT, "", "race", "write of", "read by"),
        ("tcgen05.wait::st.sync.aligned;", "", "race", "write of", "product"),
        ("fence.proxy.async;\n", "", "missing proxy fence", "write by", "read of tcgen05.mma"),
        ("tcgen05.fence::after_thread_sync;", "st.shared.b32 [%r6], 0;", None, "", ""),
        (WAIT, "st.shared.b32 [%r6], 0;" + WAIT, "race", "asynchronous read", "write by"),
        (LOADED, "", None, "", ""),
        (LOADED, LOADED + "bar.sync 0;" + AGAIN, None, "", ""),
        (LOADED, LOADED + AGAIN, "race", "read of tensor memory by warp", "product"),
        (LOADED, "bar.sync 0;" + AGAIN + LOADED, "race", "read of tensor memory by warp", "product"),
    ],
)
def test_what_is_not_waited_for_is_a_finding(line, new, kind, first, second):
    one = changed_product(line, new)
    found = sanitize(one.ptx, one.run, one.contents).findings
    assert {finding.kind for finding in found} == ({kind} if kind else set())
    for finding in found:
        assert finding.places[0].what.startswith(first) and finding.places[-1].what.startswith(second)


def test_warps_that_write_other_lanes_of_one_column_are_no_race():
    apart = "shr.u32 %r1, %r20, 7; shl.b32 %r1, %r1, 20; add.u32 %r11, %r11, %r1;"
    body = f"""{ALLOCATE} {apart} tcgen05.st.sync.aligned.16x32bx2.x1.b32 [%r11], 1, {{%r20}};
    tcgen05.wait::st.sync.aligned;"""
    run, out = Run(launch_of(np.zeros(4, np.uint32), threads=256), (0,)), [bytes(16)]
    assert sanitize(module_of(body + FREE, 1, "sm_100a", ROOM), run, out).findings == ()
    (one,) = sanitize(module_of(body.replace(apart, "") + FREE, 1, "sm_100a", ROOM), run, out).findings
    assert one.kind == "race" and "column 0 of tensor memory" in one.text


# --- what Triton compiles ------------------------------------------------------------------------

F16 = ("product", "f16", (128, 64, 32), 4)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    pytest.importorskip("triton", reason="requires triton")
    import blackwell_kernels

    kept = {}

    def give(name, kind, sizes, warps):
        key = name, kind, sizes, warps
        if key not in kept:
            made = blackwell_kernels.compiled(getattr(blackwell_kernels, name), kind, sizes, warps)
            kept[key] = made, *blackwell_kernels.launched(made, name, kind, sizes)
        return kept[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton-cache")))
        yield give


def error_of(made, launch, contents, wanted, run=run_ptx) -> float:
    stored = run(Ptx(made.asm["ptx"]), Run(launch, (0,)), contents).contents
    found = np.frombuffer(stored[2], np.float32).reshape(wanted.shape)
    return float(np.nan_to_num(np.abs(found - wanted), nan=np.inf).max())


@pytest.mark.parametrize(
    ("case", "most"),
    [
        (F16, 2e-5),
        (("product", "e4m3", (128, 64, 64), 4), 2e-5),
        (("chain", "f16", (64, 64, 64), 4), 2e-3),
        pytest.param(("product", "f16", (64, 128, 64), 4), 5e-5, marks=pytest.mark.nightly),
        pytest.param(("product", "bf16", (256, 128, 64), 8), 5e-5, marks=pytest.mark.nightly),
        pytest.param(("product", "e5m2", (128, 16, 64), 4), 5e-5, marks=pytest.mark.nightly),
        pytest.param(("product", "tf32", (128, 64, 32), 4), 5e-5, marks=pytest.mark.nightly),
        pytest.param(("chain", "bf16", (128, 128, 128), 8), 5e-2, marks=pytest.mark.nightly),
        pytest.param(("chain", "e4m3", (128, 64, 128), 4), 5e-1, marks=pytest.mark.nightly),
    ],
    ids=lambda value: "-".join(map(str, value)) if isinstance(value, tuple) else "",
)
def test_triton_s_products_are_what_float64_says(compiled, case, most):
    made, launch, contents, wanted = compiled(*case)
    assert "tcgen05.mma" in made.asm["ptx"]
    assert error_of(made, launch, contents, wanted) < most
    stored = run_ptx(Ptx(made.asm["ptx"]), Run(launch, (0,)), contents).contents
    assert run_cubin(Cubin.from_bytes(made.asm["cubin"]), case[0], Run(launch, (0,)), contents).contents == stored
    assert sanitize(Ptx(made.asm["ptx"]), Run(launch, (0,)), contents).findings == ()
