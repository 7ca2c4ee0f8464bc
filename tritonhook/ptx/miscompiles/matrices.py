"""Miscompilations of matrix instructions."""

from __future__ import annotations

from struct import pack

from tritonhook.ptx.dataflow import Operation, Part, Source, elements
from tritonhook.ptx.miscompiles.record import Example, Miscompilation, Range


def _shares_a_descriptor(operation: Operation) -> bool:
    """Match `wgmma` with A in registers and B's descriptor equal to A's descriptor in a `wgmma` with both in shared
    memory."""
    if not _is_wgmma(operation) or operation.statement.operands[1][:1] != "{":
        return False
    shared = _descriptor(operation, 2)
    if not isinstance(shared, Part):
        return False
    readers = (reader for _, reader in shared.operation.readers if _is_wgmma(reader))
    return any(_descriptor(reader, 1) == shared for reader in readers)


def _is_wgmma(operation: Operation) -> bool:
    return operation.name.startswith("wgmma.mma_async.") and len(operation.statement.operands) > 2


def _descriptor(operation: Operation, place: int) -> Source | None:
    """Look up the value of an operand; None for a vector."""
    behind = sum(len(elements(operand)) for operand in operation.statement.operands[place:])
    return operation.source(len(operation.sources) - behind)


def _adds_to_itself(operation: Operation) -> bool:
    """Match an `mma` on fp8 numbers that writes its result into the registers of its addend."""
    statement = operation.statement
    is_fp8 = operation.name.startswith("mma.") and {"e4m3", "e5m2"} & set(statement.parts)
    if not is_fp8 or len(statement.operands) < 4:
        return False
    result, added = (elements(statement.operands[at]) for at in (0, 3))
    return list(result) == list(added)


_TILES = """.shared .align 128 .b8 tiles[256];
ld.global.b32 %r0, [%in]; ld.global.b32 %r1, [%in+4]; ld.global.b32 %r2, [%in+8];
mov.u32 %r3, tiles; mov.u32 %r4, %tid.x; and.b32 %r4, %r4, 7; mad.lo.u32 %r5, %r4, 16, %r3;
st.shared.v4.b32 [%r5], {%r1, %r1, %r1, %r1}; st.shared.v4.b32 [%r5+128], {%r2, %r2, %r2, %r2};
fence.proxy.async.shared::cta; bar.sync 0;
bfe.u32 %r6, %r3, 4, 14; cvt.u64.u32 %d0, %r6; add.s64 %d1, %d0, 8;
wgmma.fence.sync.aligned;
"""
_WGMMA = "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16"
_OF_REGISTERS = f"""{_WGMMA} {{%f0, %f1, %f2, %f3}}, {{%r0, %r0, %r0, %r0}}, %d0, 0, 1, 1, 0;
wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
st.global.f32 [%out], %f0; st.global.f32 [%out+4], %f4;"""

_FP8_MMA = "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"
_SUM = "ld.global.b32 %r0, [%in]; ld.global.f32 %f0, [%in+4];\nmov.f32 %f1, %f0; mov.f32 %f2, %f0; mov.f32 %f3, %f0;\n"

MATRICES = (
    Miscompilation(
        name="wgmma-shared-descriptor",
        does="multiplies by the wrong matrix in a `wgmma` with A in registers, if its descriptor of B is that of A "
        "in another one",
        instead="keep the tile twice in shared memory",
        sources=(),
        ranges=(Range(("sm_90a",), "12.0.140", "12.6.85"),),
        words=(("wgmma.mma_async",),),
        matches=_shares_a_descriptor,
        example=Example(
            f"{_TILES}{_WGMMA} {{%f4, %f5, %f6, %f7}}, %d0, %d1, 0, 1, 1, 0, 0;\n{_OF_REGISTERS}",
            pack("<6H", *[0x3F80] * 2, *[0x4000] * 2, *[0x4040] * 2),  # A: 1; the tiles: 2 and 3
            pack("<ff", 16 * 1 * 2, 16 * 2 * 3),
            f"{_TILES}{_WGMMA} {{%f4, %f5, %f6, %f7}}, %d1, %d0, 0, 1, 1, 0, 0;\n{_OF_REGISTERS}",
            pack("<ff", 16 * 1 * 2, 16 * 2 * 3),
            threads=128,
        ),
        executed=True,
    ),
    Miscompilation(
        name="fp8-mma-in-place",
        does="adds the product to itself, not to the sum, in an fp8 `mma` whose result takes the registers of its sum",
        instead="give the result registers of its own",
        sources=(),
        ranges=(Range(("sm_90a",), "12.4.131", "12.4.131"),),
        words=(("mma.sync",), ("e4m3", "e5m2")),
        matches=_adds_to_itself,
        example=Example(
            f"{_SUM}{_FP8_MMA} {{%f0, %f1, %f2, %f3}}, {{%r0, %r0, %r0, %r0}}, {{%r0, %r0}}, {{%f0, %f1, %f2, %f3}};\n"
            "st.global.f32 [%out], %f0;",
            pack("<If", 0x38383838, 5),  # A and B: 1
            pack("<f", 32 * 1 * 1 + 5),
            f"{_SUM}{_FP8_MMA} {{%f4, %f5, %f6, %f7}}, {{%r0, %r0, %r0, %r0}}, {{%r0, %r0}}, {{%f0, %f1, %f2, %f3}};\n"
            "st.global.f32 [%out], %f4;",
            pack("<f", 32 * 1 * 1 + 5),
            threads=32,
        ),
        executed=True,
        unoptimised=True,
    ),
)
