"""Miscompilations of matrix instructions."""

from __future__ import annotations

from tritonhook.ptx.dataflow import Operation, Part, Source, elements
from tritonhook.ptx.miscompiles.record import Miscompilation, Range


def _shares_a_descriptor(operation: Operation) -> bool:
    """Match a `wgmma` with A in registers whose descriptor of B equals the descriptor of A in another `wgmma`."""
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
    """Return the source of a scalar operand. place: its position."""
    behind = sum(len(elements(operand)) for operand in operation.statement.operands[place:])
    return operation.source(len(operation.sources) - behind)


def _adds_to_itself(operation: Operation) -> bool:
    """Match an `mma` of fp8 numbers that writes its result into the registers of its addend."""
    statement = operation.statement
    is_fp8 = operation.name.startswith("mma.") and {"e4m3", "e5m2"} & set(statement.parts)
    if not is_fp8 or len(statement.operands) < 4:
        return False
    result, added = (elements(statement.operands[at]) for at in (0, 3))
    return list(result) == list(added)


MATRICES = (
    Miscompilation(
        name="wgmma-shared-descriptor",
        does="multiplies by the wrong matrix in a `wgmma` with A in registers, if its descriptor of B is also the "
        "descriptor of A in another `wgmma`",
        instead="store the tile twice in shared memory",
        sources=(),
        ranges=(Range(("sm_90a",), "12.0.140", "12.6.85"),),
        words=(("wgmma.mma_async",),),
        matches=_shares_a_descriptor,
        executed=True,
    ),
    Miscompilation(
        name="fp8-mma-in-place",
        does="adds the product to itself instead of to the addend, in an fp8 `mma` that writes its result to the "
        "addend's registers",
        instead="use separate registers for the result",
        sources=(),
        ranges=(Range(("sm_90a",), "12.4.131", "12.4.131"),),
        words=(("mma.sync",), ("e4m3", "e5m2")),
        matches=_adds_to_itself,
        executed=True,
        unoptimised=True,
    ),
)
