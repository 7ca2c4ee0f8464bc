"""Calls of functions of the module: arguments in local memory, a stack of return addresses for each thread.

Each function has one set of registers. If a function may call itself, directly or not, a call saves its registers and
its local memory, and the return restores them.
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

MOST_CALLS = 256  # deepest nesting of calls


@dataclass(frozen=True, slots=True)
class _Call:
    """A call instruction. behind: index of the next instruction. results: for each result, its offset in local
    memory, the offset to copy it to, and its bytes. kept: registers of the caller that the call saves; None: it
    saves nothing."""

    behind: int
    results: tuple[tuple[int, int, int], ...]
    kept: tuple[Array, ...] | None


@dataclass(eq=False)
class Stack:
    """Return addresses of the threads of a run.

    calls: the call instructions of the kernel. depth: nesting of calls of each thread. A kernel without calls takes no
    memory for return addresses. A Stack holds no reference to the decoder, to avoid a reference cycle.
    """

    machine: Machine
    calls: list[_Call] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.depth = self.machine.registers(1, np.int64)[0]
        self._saved: dict[tuple[int, int], list[Array]] = {}  # registers and local memory, by depth and call

    @cached_property
    def _numbers(self) -> Array:
        return self.machine.registers(MOST_CALLS, np.int64)

    @property
    def local(self) -> Array:
        """Local memory, shape (threads, bytes of a thread)."""
        memory = self.machine.memory
        return memory.local.data[: len(self.depth) * memory.local_bytes].reshape(len(self.depth), -1)

    def push(self, g: Group, number: int) -> None:
        """Begin call `number` in these threads. Raises Fault if calls are nested too deeply."""
        depth, lanes = self.depth[g.s], g.numbers
        if int(depth[g.active].max()) >= MOST_CALLS:
            raise Fault(f"more than {MOST_CALLS} nested calls", int(lanes[0]))
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
        return [*(self.calls[number].kept or ()), self.local.T]

    def pop(self, g: Group) -> None:
        """Return from a call: copy results, restore what was saved, and jump after the call."""
        lanes = g.numbers
        self.depth[lanes] -= 1
        depth = self.depth[lanes]
        numbers, local = self._numbers[depth, lanes], self.local
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
    """Return the address of a function, from the index of its first instruction. Memory there cannot be read."""
    return 16 * (begin + 1)


@opcode("call", moves=True)
def call(site: Site) -> Step:
    """Make the step of a call. If the operand is a register, each thread calls the function at the address in its
    register. This function must have as many arguments and results as the call."""
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
                raise Fault(f"a call of {address:#x}, where no function with such parameters begins", int(g.numbers[0]))
            part = g.part(addresses[g.s.start - begin : g.s.stop - begin] == address)  # part() may shrink the slice
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
    stack, number, behind = decoder.stack, len(decoder.stack.calls), decoder.index + 1
    stack.calls.append(_Call(behind, back, tuple(decoder.files.values()) if again else None))
    decoder.targets.update((target, behind))

    def step(g: Group) -> None:
        stack.push(g, number)
        lanes, local = g.numbers, stack.local
        for begin, end, size in copies:
            local[lanes, end : end + size] = local[lanes, begin : begin + size]
        g.jump(target)

    return step
