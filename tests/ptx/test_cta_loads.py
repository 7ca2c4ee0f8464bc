"""ClusterToCta: which loads are rewritten, which stay and why, and what ptxas makes of both forms."""

from __future__ import annotations

import pytest

from tritonhook._util.versions import version_key
from tritonhook.cubin.image import Cubin
from tritonhook.ptx import cta_loads
from tritonhook.ptx.cta_loads import ClusterToCta, sites
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.tool import available_ptxas, targets
from tritonhook.ptxas.toolchain import Assembled, assemble
from tritonhook.rename import Rename, Rewrite, Rewrites

FIX = ClusterToCta()
LOAD = (
    "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r2], [%rd1, {%r3, %r3}], [%r1];"
)
BULK = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%rd1], 128, [%r1];"


def module(load: str = LOAD, *, before: str = "", head: str = "", body: str = "", version: str = "8.8") -> Ptx:
    """A kernel with one load. %r1: the barrier, %r2: the destination, %r3: a coordinate."""
    return Ptx(
        f""".version {version}
.target sm_120a
.address_size 64
.extern .shared .align 128 .b8 smem[];
{head}
.visible .entry load(.param .u64 load_param_0, .param .u32 load_param_1)
{before}
{{
    .reg .pred %p<4>; .reg .b32 %r<16>; .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [load_param_0];
    ld.param.u32 %r9, [load_param_1];
    mov.u32 %r1, smem;
    add.u32 %r2, %r1, 128;
    mov.u32 %r3, 0;
    {body}
    {load}
    ret;
}}
"""
    )


def refusal(ptx: Ptx) -> str | None:
    (site,) = sites(ptx)
    changed = FIX.apply(ptx)
    assert (changed is ptx) == (site.refusal is not None)
    return site.refusal


# --- what is rewritten ---------------------------------------------------------------------------


def test_one_token_changes_and_nothing_else() -> None:
    before = module(f"// shared::cluster.global stays in a comment\n    {LOAD} /* .shared::cluster */")
    after = FIX.apply(before)
    assert after.text == before.text.replace("2d.shared::cluster.global.tile", "2d.shared::cta.global.tile")
    assert after.text.count("shared::cluster") == 2  # the comments
    assert FIX.apply(after) is after


FORMS = [
    *(
        f"cp.async.bulk.tensor.{n}d.shared::cluster.global{mode}.mbarrier::complete_tx::bytes"
        f" [%r2], [%rd1, {{{', '.join(['%r3'] * n)}}}], [%r1];"
        for n, mode in ((1, ".tile"), (2, ""), (3, ".tile"), (4, ""), (5, ".tile"))
    ),
    LOAD.replace("bytes [", "bytes.L2::cache_hint [").replace("[%r1];", "[%r1], %rd1;"),
    "cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes"
    " [%r2], [%rd1, {%r3, %r3, %r3}], [%r1], {%rs1};",
    BULK,
    BULK.replace("bytes [", "bytes.L2::cache_hint [").replace("[%r1];", "[%r1], %rd1;"),
    "@%p1 " + LOAD,
    "AGAIN: @!%p1 " + LOAD,
]


@pytest.mark.parametrize("load", FORMS)
def test_every_form_of_load_is_rewritten(load: str) -> None:
    ptx = module(load, body=".reg .b16 %rs<2>; mov.u16 %rs1, 0; setp.eq.u32 %p1, %r9, 0;")
    assert refusal(ptx) is None
    changed = FIX.apply(ptx)
    assert changed.text.count("shared::cluster") == 0
    for tool in newest():
        made = [assemble(tool, side, ()) for side in (ptx, changed)]
        assert all(isinstance(m, Assembled) for m in made), made
        syscalls = [m.cubin.resources["load"].syscalls for m in made]  # type: ignore[union-attr]
        assert len(syscalls[0]) == 1 and syscalls[1] == ()


def newest() -> list:
    tools = sorted(available_ptxas(), key=lambda tool: version_key(tool.version))
    return tools[-1:]


OTHERS = [
    "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd1, {%r3, %r3}], [%r2];",
    "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r2], [%r1], 128, [%r1];",
    "cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r2], 128;",
    "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd1], [%r2], 128;",
    "cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%rd1, {%r3, %r3}];",
    LOAD.replace("::cluster", "::cta"),
    "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r1];",
]


@pytest.mark.parametrize("other", OTHERS)
def test_what_is_no_load_to_the_cluster_is_no_site(other: str) -> None:
    ptx = module(other)
    assert sites(ptx) == ()
    assert FIX.apply(ptx) is ptx


PROVED = {
    "an offset of thread indices": "mov.u32 %r4, %tid.x; shl.b32 %r5, %r4, 7; add.u32 %r2, %r1, %r5;",
    "disjoint or": "mov.u32 %r4, %laneid; or.b32 %r2, %r1, %r4;",
    "a select of two own addresses": "selp.b32 %r2, %r1, %r2, %p1;",
    "a broadcast within the warp": "shfl.sync.idx.b32 %r2, %r2, 0, 31, -1;",
    "a loop counter": "mov.u32 %r5, 0; NEXT: add.u32 %r5, %r5, 1; mul.lo.u32 %r6, %r5, 4096; add.u32 %r2, %r1, %r6;",
    "a stage that wraps": "mov.u32 %r5, 0; add.u32 %r6, %r5, 1; selp.b32 %r5, 0, %r6, %p1;"
    " mad.lo.u32 %r2, %r5, 64, %r1;",
    "an address carried round a loop": "AGAIN: add.u32 %r2, %r2, 128; @%p1 bra AGAIN;",
    "through 64 bits": "cvt.u64.u32 %rd2, %r2; add.u64 %rd2, %rd2, 16; cvt.u32.u64 %r2, %rd2;",
    "generic and back": "cvt.u64.u32 %rd2, %r2; cvta.shared.u64 %rd3, %rd2; cvta.to.shared.u64 %rd4, %rd3;"
    " cvt.u32.u64 %r2, %rd4;",
    "an octal and a binary offset": "add.u32 %r2, %r1, 0200; add.u32 %r2, %r2, 0b10000000;",
    "registers declared in one statement": ".reg .b32 a, b; mov.u32 a, %r2; mov.u32 %r2, a;",
    "a loop counter times a stage of 32 KiB": "mov.u32 %r5, 0; NEXT: add.u32 %r5, %r5, 1; shl.b32 %r6, %r5, 15;"
    " add.u32 %r2, %r1, %r6;",
    "a masked thread index times 64 KiB": "mov.u32 %r4, %tid.x; and.b32 %r5, %r4, 3; shl.b32 %r6, %r5, 16;"
    " add.u32 %r2, %r1, %r6;",
    "a warp's index times 16 KiB": "mov.u32 %r4, %tid.x; shr.u32 %r5, %r4, 5; mul.lo.u32 %r6, %r5, 16384;"
    " add.u32 %r2, %r1, %r6;",
    "a bit field": "mov.u32 %r4, %laneid; bfi.b32 %r5, %r4, 0, 4, 5; add.u32 %r2, %r1, %r5;",
    "a number in a register": "mov.u32 %r4, 4096; add.u32 %r2, %r1, %r4;",
    "small negative numbers": "add.s32 %r2, %r1, -128; sub.s32 %r2, %r2, -16777215;",
    "an address less a number": "sub.u32 %r2, %r1, 128;",
    "a select by a sign": "slct.b32.s32 %r2, %r2, %r1, %r9;",
    "a number of bits": "mov.u32 %r4, %laneid; popc.b32 %r5, %r4; add.u32 %r2, %r1, %r5;",
    "up to the last bit below the rank": "mov.u32 %r4, %tid.x; shl.b32 %r5, %r4, 13; mul.lo.u32 %r6, %r5, 1;"
    " add.u32 %r2, %r1, %r6;",
    "an unsigned constant": "add.u32 %r2, %r1, 128U;",
    "a constant of 70 characters": f"add.u32 %r2, %r1, 0x{1:068x};",
    "a register of an inner block": "{ .reg .b32 %r2; ld.shared.u32 %r2, [%r1]; }",
}


@pytest.mark.parametrize("body", PROVED.values(), ids=PROVED)
def test_own_addresses_are_proved(body: str) -> None:
    assert refusal(module(body=body)) is None


def test_the_symbol_itself_with_an_offset() -> None:
    assert refusal(module(LOAD.replace("[%r2]", "[smem+256]").replace("[%r1]", "[smem]"))) is None
    assert refusal(module(LOAD.replace("[%r2]", "[ %r2 + 256 ]"))) is None


def test_a_shared_variable_of_the_function_itself() -> None:
    ptx = module(body=".shared .align 128 .b8 tile[4096]; mov.u32 %r2, tile;")
    assert refusal(ptx) is None


# --- what is refused -----------------------------------------------------------------------------

NOT_OWN = "its destination is not proved to be this CTA's shared memory"
WHY = {
    LOAD.replace("bytes [", "bytes.multicast::cluster ["): "it writes to several CTAs (.multicast::cluster)",
    LOAD.replace(".tile", ".tile.cta_group::2"): "it signals a barrier of a CTA pair (.cta_group::2)",
    LOAD.replace("[%r2]", "%r2"): "its destination could not be read",
    LOAD.replace(", [%r1]", ""): "its barrier could not be read",
    LOAD.replace("[%r1]", "%r1"): "its barrier could not be read",
    BULK.replace(", [%r1]", ""): "its barrier could not be read",
    BULK.replace("[%r2]", "[%r3+%r3]"): f"{NOT_OWN}: %r3+%r3 does not come from a .shared symbol",
    BULK.replace("[%r2]", "[%r1+%r2]"): f"{NOT_OWN}: two addresses are added",
    BULK.replace("[%r2]", "[%r7]"): f"{NOT_OWN}: %r7 is never written in load",
    BULK.replace("[%r2]", "[far]"): f"{NOT_OWN}: far is neither a register, a thread index nor a .shared symbol",
    BULK.replace("[%r2]", "[smem+0x1000000]"): f"{NOT_OWN}: the constant 0x1000000 reaches the bits of the CTA's rank",
}
BODIES = {
    "mov.u32 %r2;": "mov.u32 could not be read",
    "selp.b32 %r2, %r1, %r1;": "selp.b32 could not be read",
    "mov.b64 {%r2, %r3}, %rd1;": "mov.b64 writes a vector",
    "add.f32 %r2, %r1, %r3;": "%r2 is a float, the result of add.f32",
    "prmt.b32 %r2, %r1, %r3, 0;": "%r2 is the result of prmt.b32",
    "mul.lo.u32 %r2, %r1, 2;": "mul.lo.u32 is done to an address",
    "sub.u32 %r2, %r3, %r1;": "sub.u32 is done to an address",
    "add.u32 %r2, %r1, %r1;": "add.u32 is done to an address",
    "mad.lo.u32 %r2, %r1, 2, %r3;": "mad.lo.u32 is done to an address",
    "shl.b32 %r2, %r3, %r3;": "shl.b32 %r2, %r3, %r3 shifts by a register",
    "mov.u32 %r4, %tid.x; shl.b32 %r2, %r4, 14;": "shl.b32 %r2, %r4, 14 reaches the bits of the CTA's rank",
    "mov.u32 %r2, 5;": "%r2 is an address on one path and a number on another",
    "mov.u32 %r2, %r8; mov.u32 %r8, %r2; mov.u32 %r8, %clock;": "%clock is neither a register, a thread index"
    " nor a .shared symbol",
}


@pytest.mark.parametrize(
    ("load", "body", "why"),
    [
        *((load, "", why) for load, why in WHY.items()),
        *((BULK, body, f"{NOT_OWN}: {why}") for body, why in BODIES.items()),
    ],
)
def test_a_load_that_stays_says_why(load: str, body: str, why: str) -> None:
    ptx = module(load, body=body)
    assert refusal(ptx) == why
    line = ptx.text[: ptx.text.index(load)].count("\n") + 1
    assert FIX.remarks(ptx) == (f"load, line {line}: {load.partition('.mbarrier')[0]} stays: {why}",)


REFUSED = {
    "multicast": (
        {"load": LOAD.replace("bytes [", "bytes.multicast::cluster [").replace("[%r1];", "[%r1], %rs1;")},
        "several CTAs",
    ),
    "a pair's barrier": ({"load": LOAD.replace(".tile", ".tile.cta_group::2")}, "CTA pair"),
    "mapa": ({"body": "mapa.shared::cluster.u32 %r2, %r1, 1;"}, "mapa"),
    "mapa of something else": ({"body": "mapa.shared::cluster.u32 %r7, %r1, 1;"}, "mapa"),
    "clusters": ({"before": ".explicitcluster .reqnctapercluster 2, 1, 1"}, "clusters of several CTAs"),
    "clusters at launch": ({"before": ".explicitcluster"}, "launched in clusters"),
    "old PTX": ({"version": "8.5"}, "PTX ISA 8.5"),
    "a loaded address": ({"body": "ld.shared.u32 %r2, [%r1];"}, "%r2 is the result of ld.shared.u32"),
    "a loaded offset": ({"body": "ld.shared.u32 %r5, [%r1]; add.u32 %r2, %r1, %r5;"}, "result of ld.shared.u32"),
    "a parameter": ({"body": "add.u32 %r2, %r1, %r9;"}, "result of ld.param.u32"),
    "a parameter moved about": ({"body": "mov.u32 %r5, %r9; shl.b32 %r6, %r5, 2; add.u32 %r2, %r6, %r1;"}, "ld.param"),
    "the CTA's rank": ({"body": "mov.u32 %r5, %cluster_ctarank; add.u32 %r2, %r1, %r5;"}, "%cluster_ctarank"),
    "the CTA's index": ({"body": "mov.u32 %r5, %ctaid.x; add.u32 %r2, %r1, %r5;"}, "%ctaid.x"),
    "a rank by constant": ({"body": "add.u32 %r2, %r1, 16777216;"}, "bits of the CTA's rank"),
    "a rank by a negative constant": ({"body": "add.s32 %r2, %r1, -16777216;"}, "constant -16777216 reaches the bits"),
    "a rank less a constant": ({"body": "sub.u32 %r2, %r1, 0x1000000;"}, "bits of the CTA's rank"),
    "a rank in the load's address": ({"load": BULK.replace("[%r2]", "[%r2+16777216]")}, "bits of the CTA's rank"),
    "a negative rank in the load's address": ({"load": BULK.replace("[%r2]", "[%r2+-16777216]")}, "CTA's rank"),
    "a rank in a register": ({"body": "mov.u32 %r4, 0x1000000; add.u32 %r2, %r1, %r4;"}, "bits of the CTA's rank"),
    "a shift by a register": (
        {"body": "mov.u32 %r4, %tid.x; mov.u32 %r5, 24; shl.b32 %r6, %r4, %r5; add.u32 %r2, %r1, %r6;"},
        "shifts by a register",
    ),
    "a rank by two shifts": (
        {"body": "mov.u32 %r4, %tid.x; shl.b32 %r5, %r4, 12; shl.b32 %r6, %r5, 12; add.u32 %r2, %r1, %r6;"},
        "reaches the bits of the CTA's rank",
    ),
    "a rank by two shifts of one register": (
        {"body": "mov.u32 %r4, %laneid; shl.b32 %r4, %r4, 7; add.u32 %r2, %r1, %r4;"}, "CTA's rank"
    ),
    "a rank by two products": (
        {"body": "mov.u32 %r4, %tid.x; mul.lo.u32 %r5, %r4, 4096; mul.lo.u32 %r6, %r5, 4096; add.u32 %r2, %r1, %r6;"},
        "CTA's rank",
    ),
    "a rank by shift and product": (
        {"body": "mov.u32 %r4, %tid.x; shl.b32 %r5, %r4, 12; mad.lo.u32 %r2, %r5, 4096, %r1;"}, "CTA's rank"
    ),
    "a rank by a counter": (
        {"body": "mov.u32 %r5, 0; NEXT: add.u32 %r5, %r5, 1; shl.b32 %r6, %r5, 16; add.u32 %r2, %r1, %r6;"}, "rank"
    ),
    "a rank by a sum of shifts": (
        {"body": "mov.u32 %r4, %tid.x; shl.b32 %r5, %r4, 8; add.u32 %r5, %r5, 4; shl.b32 %r6, %r5, 8;"
         " add.u32 %r2, %r1, %r6;"}, "rank"
    ),
    "a rank by a value that was shifted right": (
        {"body": "mov.u32 %r4, %tid.x; shl.b32 %r5, %r4, 13; shr.u32 %r6, %r5, 2; shl.b32 %r7, %r6, 4;"
         " add.u32 %r2, %r1, %r7;"}, "CTA's rank"
    ),
    "a rank by a bit field": (
        {"body": "mov.u32 %r4, %laneid; bfi.b32 %r5, %r4, 0, 24, 3; add.u32 %r2, %r1, %r5;"}, "CTA's rank"
    ),
    "a bit field at a register": (
        {"body": "mov.u32 %r4, %laneid; bfi.b32 %r5, %r4, 0, %r4, 3; add.u32 %r2, %r1, %r5;"}, "by a register"
    ),
    "a rank by a wide bit field": (
        {"body": "mov.u32 %r4, %tid.x; bfi.b32 %r5, %r4, 0, 14, 10; add.u32 %r2, %r1, %r5;"}, "CTA's rank"
    ),
    "a bit field without a length": ({"body": "bfi.b32 %r5, %r3, 0, 4; add.u32 %r2, %r1, %r5;"}, "by a register"),
    "a rank by what is added to a product": (
        {"body": "mov.u32 %r4, %tid.x; shl.b32 %r5, %r4, 10; mad.lo.u32 %r6, %r4, 1, %r5; shl.b32 %r7, %r6, 8;"
         " add.u32 %r2, %r1, %r7;"}, "CTA's rank"
    ),
    "a rank by bytes": ({"body": "mov.u32 %r4, %tid.x; prmt.b32 %r5, %r4, 0, 0x0444; or.b32 %r2, %r1, %r5;"}, "prmt"),
    "a rank by a funnel": ({"body": "shf.l.wrap.b32 %r5, 0, %tid.x, 8; add.u32 %r2, %r1, %r5;"}, "shf"),
    "a rank by a mask": ({"body": "bmsk.clamp.b32 %r5, 24, 1; add.u32 %r2, %r1, %r5;"}, "bmsk"),
    "a rank by reversed bits": ({"body": "mov.u32 %r4, %tid.x; brev.b32 %r5, %r4; add.u32 %r2, %r1, %r5;"}, "brev"),
    "the bits of a float": ({"body": "mov.u32 %r4, %tid.x; cvt.rn.f32.u32 %r5, %r4; add.u32 %r2, %r1, %r5;"}, "float"),
    "a number less an address": ({"body": "sub.u32 %r2, 4096, %r1;"}, "sub.u32 is done to an address"),
    "an address plus an address": ({"body": "add.u32 %r2, %r1, %r1;"}, "add.u32 is done to an address"),
    "an address less an address": ({"body": "sub.u32 %r2, %r2, %r1;"}, "sub.u32 is done to an address"),
    "an address times a number": ({"body": "mad.lo.u32 %r2, %r1, 2, 128;"}, "mad.lo.u32 is done to an address"),
    "the sum of two addresses": ({"load": BULK.replace("[%r2]", "[%r2+smem]")}, "two addresses are added"),
    "two signs": ({"load": BULK.replace("[%r2]", "[%r2++%r3]")}, "neither a register"),
    "a number of 5,000 digits": ({"body": f"add.u32 %r2, %r1, {'9' * 5000};"}, "bits of the CTA's rank"),
    "a register of 5,000 digits": ({"body": f"mov.u32 %r2, %r{'9' * 5000};"}, "neither a register"),
    "a rank by shift": ({"body": "mov.u32 %r5, %tid.x; shl.b32 %r5, %r5, 24; add.u32 %r2, %r1, %r5;"}, "CTA's rank"),
    "a masked address": ({"body": "and.b32 %r2, %r1, 1024;"}, "done to an address"),
    "an address on one path only": ({"body": "@%p1 mov.u32 %r2, %r9;"}, "ld.param"),
    "a number on one path": ({"body": "@%p1 mov.u32 %r2, 4096;"}, "an address on one path and a number on another"),
    "no address at all": ({"body": "mov.u32 %r2, 4096;"}, "path and a number"),
    "a number for the address": ({"load": BULK.replace("[%r2]", "[4096]")}, "4096 does not come from a .shared symbol"),
    "a sum of numbers": ({"load": BULK.replace("[%r2]", "[%r3+128]")}, "%r3+128 does not come from a .shared symbol"),
    "a register of itself": (
        {"body": "mov.u32 %r4, %r4;", "load": BULK.replace("[%r2]", "[%r4]")}, "%r4 is never written"
    ),
    "a register that is not declared": ({"body": "mov.u32 %q0, smem; mov.u32 %r2, %q0;"}, "%q0 is neither a register"),
    "a select without its condition": ({"body": "selp.b32 %r2, %r1, %r1;"}, "selp.b32 could not be read"),
    "a vector load": ({"body": "ld.shared.v2.u32 {%r2, %r5}, [%r1];"}, "vector"),
    "an atomic": ({"body": "atom.shared.add.u32 %r2, [%r1], 1;"}, "result of atom"),
    "an unknown instruction": ({"body": "getctarank.shared::cluster.u32 %r2, %r1;"}, "result of getctarank"),
    "a guard with a space": ({"body": "@ %p1 mov.u32 %r2, %r9;"}, "ld.param"),
    "a guard with two spaces": ({"body": "@ ! %p1 mov.u32 %r2, %r9;"}, "ld.param"),
    "mapa behind such a guard": ({"body": "@ %p1 mapa.shared::cluster.u32 %r7, %r1, 1;"}, "mapa"),
    "mapa on the line of a .loc": ({"body": "\n.loc 1 5 0 mapa.shared::cluster.u32 %r7, %r1, 1;\n"}, "mapa"),
    "mapa below a .loc that begins no line": ({"body": ".loc 1 5 0\nmapa.shared::cluster.u32 %r7, %r1, 1;\n"}, "mapa"),
    "an inlined .loc before it": (
        {"body": ".loc 1 5 0, function_name $L + 3, inlined_at 1 6 2 mov.u32 %r2, %r9;"}, "ld.param"
    ),
    "an outer register before one hides it": (
        {"body": "{ mov.u32 %r2, %r9; .reg .b32 %r2; mov.u32 %r2, smem; }"}, "ld.param"
    ),
    "a symbol hidden by another space's": ({"body": "{ .local .b32 smem; mov.u32 %r2, smem; }"}, "neither a register"),
    "what cannot be read": ({"body": "?!;"}, "could not be read"),
    "an instruction without source": ({"body": "mov.u32 %r2;"}, "mov.u32 could not be read"),
    "the barrier alone": ({"load": LOAD.replace("[%r1]", "[%r9]")}, "its barrier is not proved"),
    "a bulk copy's barrier alone": ({"load": BULK.replace("[%r1]", "[%r9]")}, "its barrier is not proved"),
    "the destination alone": ({"load": BULK.replace("[%r2]", "[%r9]")}, "its destination is not proved"),
    "a global address": ({"load": LOAD.replace("[%r2]", "[%rd1]")}, "ld.param.u64"),
    "never written": ({"load": LOAD.replace("[%r2]", "[%r15]")}, "%r15 is never written in load"),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_proved_stays_and_says_why(changes: dict[str, str], reason: str) -> None:
    found = refusal(module(**changes))
    assert found is not None and reason in found, found


@pytest.mark.parametrize(
    ("parameter", "body"),
    [
        (".reg .b32 q", "mov.u32 %r2, q;"),
        (".reg .b32 q", "ld.shared.u32 q, [smem]; mov.u32 %r2, q;"),  # `shared` in an opcode declares nothing
        (".reg .b32 smem", "mov.u32 %r2, smem;"),  # hides the symbol
        (".reg .b32 %tid_off", "add.u32 %r2, %r1, %tid_off;"),
        (".param .b32 q", "ld.param.u32 %r2, [q];"),
    ],
)
def test_what_a_function_is_passed_is_not_its_own(parameter: str, body: str) -> None:
    code = f".reg .b32 %r<9>; .reg .b64 %rd<9>; mov.u32 %r1, other; mov.u32 %r3, 0; mov.u64 %rd1, 0; {body}"
    head = f".extern .shared .align 128 .b8 other[];\n.func f({parameter})\n{{\n {code}\n {LOAD}\n ret;\n}}"
    found = refusal(module("ret;", head=head))
    assert found is not None and "its destination is not proved" in found, found


def test_one_refusal_leaves_the_other_loads() -> None:
    ptx = module(f"{LOAD}\n    {LOAD.replace('[%r2]', '[%r9]')}")
    good, bad = sites(ptx)
    assert (good.refusal, bad.refusal is None) == (None, False)
    changed = FIX.apply(ptx)
    assert changed.text.count("2d.shared::cta.global") == 1
    assert changed.text.index("shared::cta.global") < changed.text.index("shared::cluster.global")
    summary, why = FIX.remarks(ptx)
    assert summary == "load: 1 TMA load to .shared::cta"
    assert f"load, line {bad.line}:" in why and "ld.param.u32" in why
    assert ptx.text.splitlines()[bad.line - 1].strip().startswith("cp.async")


def test_a_cluster_of_one_is_no_cluster() -> None:
    assert refusal(module(before=".reqnctapercluster 1, 1, 1")) is None


def test_registers_of_two_functions_do_not_mix() -> None:
    other = ".func other()\n{\n .reg .b32 %r<4>;\n ld.shared.u32 %r2, [smem];\n ret;\n}"
    assert refusal(module(head=other)) is None


# --- as a rewrite --------------------------------------------------------------------------------


def test_it_is_a_rewrite_with_a_constant_key() -> None:
    assert isinstance(FIX, Rewrite)
    assert ClusterToCta().key == FIX.key == "tma-cta-1"
    both = Rewrites((Rename(prefix="a_"), FIX))
    changed = both.apply(module())
    assert changed.entries == ("a_load",)
    assert "shared::cta.global" in changed.text
    assert Rewrites((FIX, Rename(prefix="a_"))).apply(module()) == changed
    assert both.without_renames == Rewrites((FIX,))
    assert both.key != Rewrites((FIX,)).key != Rewrites().key


# --- what Triton emits ---------------------------------------------------------------------------


def triton_cases() -> list[str]:
    pytest.importorskip("triton", minversion="3.6")
    from tma_kernels import CASES

    return list(CASES)


@pytest.mark.parametrize("arch", [pytest.param(120, marks=pytest.mark.nightly), 121])
def test_tritons_kernels_lose_their_syscalls_under_every_ptxas(arch: int, triton_cache) -> None:
    names = triton_cases()
    import triton
    from tma_kernels import CASES, compile_tma

    if tuple(map(int, triton.__version__.split(".")[:2])) > (3, 6):
        pytest.skip("Triton 3.7 and newer emits .shared::cta itself")
    tools = {tool.version: tool for tool in available_ptxas() if f"sm_{arch}a" in targets(tool)}
    done = 0
    for name in names if arch == 120 else names[:1]:
        kernel, constants, options = CASES[name]
        ptx = Ptx(compile_tma(kernel, constants, options, arch).asm["ptx"])
        assert ptx.target == f"sm_{arch}a"
        assert sites(ptx) and all(site.refusal is None for site in sites(ptx)), name
        changed = FIX.apply(ptx)
        for version, tool in tools.items():
            if version.startswith("12.8"):  # reads PTX up to 8.7
                ptx, changed = (Ptx(p.text.replace(".version 8.8", ".version 8.7")) for p in (ptx, changed))
            a, b = (made(tool, side) for side in (ptx, changed))
            before, after = a.resources[kernel.__name__], b.resources[kernel.__name__]
            assert before.syscalls and not after.syscalls, (name, version)
            assert (before.stack, after.stack) == (8, 0), (name, version)
            assert len(b.text(kernel.__name__)) < len(a.text(kernel.__name__)), (name, version)
            done += 1
    assert done >= 1


def made(tool, ptx: Ptx) -> Cubin:
    result = assemble(tool, ptx, ("-O3",))
    assert isinstance(result, Assembled), result.summary
    return result.cubin


def test_both_forms_are_the_same_code_on_sm_90a(tools, triton_cache) -> None:
    triton_cases()
    from tma_kernels import CASES, compile_tma

    kernel, constants, options = CASES["matmul w4 s3"]
    ptx = Ptx(compile_tma(kernel, constants, options, 90).asm["ptx"])
    changed = FIX.apply(ptx)
    if "shared::cta.global" in ptx.text:
        pytest.skip("Triton 3.7 and newer emits .shared::cta itself")
    assert changed is not ptx
    assert made(tools.ptxas, ptx).text("matmul") == made(tools.ptxas, changed).text("matmul")


def test_a_plain_kernel_is_left_as_it_is(triton_cache) -> None:
    triton_cases()
    from tma_kernels import compile_tma, copy_plain

    ptx = Ptx(compile_tma(copy_plain, {"BLOCK_M": 64, "BLOCK_N": 64}).asm["ptx"])
    assert FIX.apply(ptx) is ptx
    assert FIX.remarks(ptx) == ()


def test_the_work_grows_as_the_module(monkeypatch: pytest.MonkeyPatch) -> None:
    judged = []
    one = cta_loads._Flow._judge
    monkeypatch.setattr(cta_loads._Flow, "_judge", lambda flow, step: judged.append(step) or one(flow, step))

    def work(loads: int) -> int:
        judged.clear()
        body = f"add.u32 %r2, %r2, 128; {LOAD}\n" * loads + "".join(f"L{n}: " for n in range(loads))
        assert len(sites(module(body=body))) == loads + 1
        return len(judged)

    assert work(400) < 2.2 * work(200) < 2.2 * 200 * 8
