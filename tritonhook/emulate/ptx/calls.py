"""Calls of functions of the module: arguments in local memory, a stack of return addresses for each thread.

Each function has one set of registers. A function that may call itself again gets it back, with its local memory, when
the call returns.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from tritonhook.emulate.errors import Fault
from tritonhook.emulate.machine import Group, Machine, Step
from tritonhook.emulate.ptx.kernel import read_variable
from tritonhook.emulate.ptx.site import Array, Site, opcode
from tritonhook.ptx.module import split_operands
from tritonhook.ptx.program import Function

MOST_CALLS = 256  # that one thread may be in


@dataclass(frozen=True, slots=True)
class _Call:
    """A place that calls. behind: the index of the instruction behind it. results: where in local memory a result is,
    where it goes, and how many bytes it has. kept: the caller's saved registers; None: none are saved."""

    behind: int
    results: tuple[tuple[int, int, int], ...]
    kept: tuple[Array, ...] | None


@dataclass(eq=False)
class Stack:
    """Return addresses of the threads of a run.

    depth: calls that each thread is in. A kernel without calls takes no memory for them. It does not refer to the
    decoder: the two would keep each other in memory.
    """

    machine: Machine
    calls: list[_Call] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.depth = self.machine.registers(1, np.int64)[0]
        self._saved: dict[tuple[int, int], list[Array]] = {}  # by depth and call

    @cached_property
    def _numbers(self) -> Array:
        return self.machine.registers(MOST_CALLS, np.int64)

    def push(self, g: Group, number: int) -> None:
        depth, lanes = self.depth[g.s], np.flatnonzero(g.active) + g.s.start
        if int(depth[g.active].max()) >= MOST_CALLS:
            raise Fault(f"more than {MOST_CALLS} calls within one another", int(lanes[0]))
        self._numbers[self.depth[lanes], lanes] = number
        if self.calls[number].kept is not None:
            rows = self._kept(number)
            for one in np.unique(self.depth[lanes]):
                some = lanes[self.depth[lanes] == one]
                saved = self._saved.setdefault((int(one), number), [np.zeros_like(row) for row in rows])
                for row, copy in zip(rows, saved, strict=True):
                    copy[..., some] = row[..., some]
        self.depth[lanes] += 1

    def _kept(self, number: int) -> list[Array]:
        memory = self.machine.memory
        local = memory.local.data[: len(self.depth) * memory.local_bytes].reshape(len(self.depth), -1).T
        return [*(self.calls[number].kept or ()), local]

    def pop(self, g: Group) -> None:
        """Send threads back to where they were called from."""
        lanes = np.flatnonzero(g.active) + g.s.start
        self.depth[lanes] -= 1
        depth = self.depth[lanes]
        numbers, memory = self._numbers[depth, lanes], self.machine.memory
        local = memory.local.data[: len(self.depth) * memory.local_bytes].reshape(len(self.depth), -1)
        for number in np.unique(numbers):
            call = self.calls[int(number)]
            here = lanes[numbers == number]
            found = [local[here, begin : begin + size].copy() for begin, _, size in call.results]
            if call.kept is not None:
                for one in np.unique(depth[numbers == number]):
                    some = here[self.depth[here] == one]
                    for row, copy in zip(self._kept(int(number)), self._saved[int(one), int(number)], strict=True):
                        row[..., some] = copy[..., some]
            for (_, to, size), values in zip(call.results, found, strict=True):
                local[here, to : to + size] = values
        places = np.zeros(g.size, np.int64)
        places[lanes - g.s.start] = [self.calls[int(number)].behind for number in numbers]
        g.scatter(places)


def _names(text: str) -> list[str]:
    return [one.strip() for one in split_operands(text.strip()[1:-1])] if text.strip("() ") else []


def result_of(function: Function) -> list[str]:
    """Return the declarations of a function's results."""
    _, _, listed = function.linkage.partition("(")
    return split_operands(listed.rstrip(") ")) if listed.strip(") ") else []


def address_of(begin: int) -> int:
    """Return the address of the function that begins with this instruction: nobody can read what lies there."""
    return 16 * (begin + 1)


@opcode("call", moves=True)
def call(site: Site) -> Step:
    """Make the step of a call. By a register: of the function whose address each thread has there, among those that
    take as many arguments."""
    site.known("uni")
    decoder, operands = site.decoder, [*site.operands]
    results = _names(operands.pop(0)) if operands[0].startswith("(") else []
    name, *rest = operands
    given = _names(rest[0]) if rest else []
    functions = decoder.kernel.functions
    function = next((one for one in functions if one.name == name), None)
    if function is not None and len(rest) < 2:
        return _call_of(site, function, given, results)
    if not name.startswith("%rd") or not rest:
        raise site.refuse(f"a call of {name}")
    counts = len(given), len(results)
    fitting = [one for one in functions[1:] if (len(one.parameters or ()), len(result_of(one))) == counts]
    steps = {address_of(decoder.begins[one.name]): _call_of(site, one, given, results) for one in fitting}
    row = site.row(name, "u64")

    def step(g: Group) -> None:
        begin, addresses = g.s.start, row[g.s].copy()
        for address in np.unique(addresses[g.active]):
            if (of_one := steps.get(int(address))) is None:
                raise Fault(f"a call of {address:#x}, where no function with such arguments begins", int(g.numbers[0]))
            part = g.part(addresses[g.s.start - begin : g.s.stop - begin] == address)  # the group becomes smaller
            assert part is not None
            of_one(part)
            if part is g:
                return

    return step


def _call_of(site: Site, function: Function, given: list[str], results: list[str]) -> Step:
    decoder, name = site.decoder, function.name
    to = [read_variable(one) for one in function.parameters or ()]
    of = [read_variable(one) for one in result_of(function)]
    if len(to) != len(given) or len(of) != len(results):
        raise site.refuse("operands")
    caller = decoder.function.name
    places: list[tuple[int | None, int | None, int]] = [
        (decoder.slot(caller, one), decoder.slot(name, variable.name), variable.size)
        for one, variable in zip(given, to, strict=True)
    ]
    places += [
        (decoder.slot(name, variable.name), decoder.slot(caller, one), variable.size)
        for one, variable in zip(results, of, strict=True)
    ]
    known = [(begin, end, size) for begin, end, size in places if begin is not None and end is not None]
    if len(known) < len(places):
        raise site.refuse("an argument in a register")
    copies, back = known[: len(to)], tuple(known[len(to) :])
    target = decoder.begins[name]
    again = caller in decoder.kernel.reached[name]
    stack, memory = decoder.stack, site.machine.memory
    number, behind = len(stack.calls), decoder.index + 1
    stack.calls.append(_Call(behind, back, tuple(decoder.files.values()) if again else None))
    decoder.targets.update((target, behind))

    def step(g: Group) -> None:
        stack.push(g, number)
        lanes = np.flatnonzero(g.active) + g.s.start
        local = memory.local.data[: len(stack.depth) * memory.local_bytes].reshape(len(stack.depth), -1)
        for begin, end, size in copies:
            local[lanes, end : end + size] = local[lanes, begin : begin + size]
        g.jump(target)

    return step
