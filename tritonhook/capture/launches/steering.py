"""Find buffers whose contents a kernel uses in an address or a branch. All other buffers may be filled with any values.

The analysis follows data through registers and memory, and ignores the order of statements. So it may find too many
buffers, but not too few.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from contextlib import suppress
from operator import or_
from typing import NamedTuple

from tritonhook.capture.launches.record import Launch, buffers_of
from tritonhook.errors import PtxError
from tritonhook.ptx.dataflow import names_of, places_of, settle
from tritonhook.ptx.module import Ptx, Statement, statements

_LOADS = frozenset({"ld", "ldu", "atom", "ldmatrix", "tex", "suld", "multimem"})
_STORES = frozenset({"st", "stmatrix", "red"})
_FROM_SHARED = frozenset({"wgmma", "tcgen05"})  # read shared memory through descriptors
# A name, like those of registers and parameters, for all memory of a block: shared, local, tensor memory.
_MEMORY = "[memory]"


class _StatementFlow(NamedTuple):
    """Effects of one statement, as names of registers, parameters and [memory]. results: names that are written.
    sources: names whose values flow into the results. loaded: pointers to buffers whose contents flow into the results.
    steers: names used as an address or a branch condition."""

    results: tuple[str, ...]
    sources: tuple[str, ...]
    loaded: tuple[str, ...] = ()
    steers: tuple[str, ...] = ()


def steering_parameters(ptx: Ptx, entry: str) -> frozenset[int]:
    """Find the parameters, by number, whose buffers' contents are used in an address or a branch of the entry point."""
    parameters = ptx.parameters(entry)
    # Bits of each name. Lower half: the parameters whose buffers it may point into. Upper half: the parameters whose
    # buffers' contents flow into it.
    bits = {name: 1 << number for number, name in enumerate(parameters)}
    pointers = (1 << len(parameters)) - 1
    functions = (entry, *ptx.functions)
    code = [item for item in statements(ptx) if item.function in functions and not item.opcode.startswith(".")]
    flows = [flow for item in code for flow in _flows(item, frozenset(parameters))]

    def of(names: Iterable[str]) -> int:
        return functools.reduce(or_, (bits.get(name, 0) for name in names), 0)

    def judge(step: int) -> Iterator[str]:
        flow = flows[step]
        made = of(flow.sources) | (of(flow.loaded) & pointers) << len(parameters)
        for name in flow.results:
            if made & ~bits.get(name, 0):
                bits[name] = bits.get(name, 0) | made
                yield name

    settle(len(flows), places_of({*flow.sources, *flow.loaded} for flow in flows), judge)
    contents = of(name for flow in flows for name in flow.steers) >> len(parameters)
    return frozenset(number for number in range(len(parameters)) if contents >> number & 1)


def _flows(item: Statement, parameters: frozenset[str]) -> Iterator[_StatementFlow]:
    parts = item.parts
    root = parts[0]
    results, sources, addresses = names_of(item.opcode, item.operands, item.guard)
    if item.opcode.startswith("ld.param"):
        is_of_entry = not parameters.isdisjoint(addresses)  # else a parameter of a called function
        yield _StatementFlow(results, addresses if is_of_entry else (_MEMORY,))
    elif root == "cp":
        yield _StatementFlow((_MEMORY,), (), (*addresses, *sources), addresses)
    elif root in _LOADS:
        is_memory = not any(part.startswith(("global", "const")) for part in parts)
        written = (*results, _MEMORY) if root == "atom" and is_memory else results
        yield _StatementFlow(written, (*sources, _MEMORY) if is_memory else sources, addresses, addresses)
    elif (root in _STORES or parts[:2] == ("tcgen05", "st")) and "global" not in parts:
        yield _StatementFlow((_MEMORY,), sources, (), addresses)
    elif root in _FROM_SHARED:
        yield _StatementFlow(results, (*sources, _MEMORY), (), addresses)
    elif root in ("bra", "brx", "call", "exit", "ret", "trap"):
        yield _StatementFlow(results, (_MEMORY,), (), sources)
    elif root != "mbarrier":  # the state of a barrier does not depend on contents of buffers
        yield _StatementFlow(results, sources, (), addresses)


def steering_buffers(kernel: str, launch: Launch, ptx: Ptx | None) -> tuple[int, ...]:
    """Find the buffers of a launch whose contents the kernel uses in an address or a branch. Without PTX, or if it
    cannot be read, return all buffers that an argument points into."""
    numbers: Iterable[int] = range(len(launch.parameters))
    if ptx is not None:
        with suppress(PtxError):
            numbers = steering_parameters(ptx, kernel)
    pointed = (launch.parameters[number] for number in numbers if number < len(launch.parameters))
    return tuple(sorted({buffer for parameter in pointed for buffer in buffers_of(parameter)}))
