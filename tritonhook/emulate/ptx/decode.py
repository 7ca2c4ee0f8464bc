"""Decode a PTX kernel for a machine: each instruction becomes a closure (its step) on arrays of registers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from tritonhook.cubin.resources import SHARED_UNIT
from tritonhook.emulate import memory as spaces
from tritonhook.emulate.compiled import MANY
from tritonhook.emulate.machine import Code, Instruction, Machine, Step
from tritonhook.emulate.memory import Allocation
from tritonhook.emulate.opcodes import Array, guarded, refusing
from tritonhook.emulate.ptx import (
    asynchronous,
    atomics,
    calls,
    control,
    conversions,
    floats,
    integers,
    matrices,
    memory,
    tensor_memory,
    video,
    warps,
)
from tritonhook.emulate.ptx.kernel import Kernel
from tritonhook.emulate.ptx.origin import Part, origin
from tritonhook.emulate.ptx.site import FILES, OPCODES, Site
from tritonhook.errors import NotUnderstood
from tritonhook.ptx.program import REGISTER, VARIABLES, Function, Item

# Modules that register opcodes when they are imported.
MODULES = (
    *(control, calls, integers, floats, conversions, memory, atomics),
    *(warps, matrices, asynchronous, tensor_memory, video),
)
_IGNORED = (".pragma", ".loc", ".noreturn", ".callprototype", ".calltargets", *VARIABLES)


def decode(
    kernel: Kernel, machine: Machine, parameters: Allocation, variables: Mapping[str, Allocation],
    dynamic_shared: int = 0, garbage: int = 0, other_nan: int = 0,
) -> tuple[Code, tuple[NotUnderstood, ...]]:  # fmt: skip
    """Decode a kernel. Return its code, and the errors of instructions that are not understood; the steps of these
    instructions raise the error.

    parameters: the entry's parameters in global memory. variables: global and constant variables, by name, in global
    memory. dynamic_shared: bytes of dynamic shared memory. garbage: value of each byte of a register until it is
    written. other_nan: see Run.
    """
    decoder = Decoder(kernel, machine, parameters, variables, dynamic_shared, garbage, other_nan)
    return decoder.code(), tuple(decoder.unknown)


@dataclass(eq=False)
class Decoder:
    """Decodes one kernel.

    unknown: errors of instructions that are not understood. labels: index of the instruction after each label. tables:
    lists of branch targets (.branchtargets). targets: indices of the instructions that others jump to. begins: index of
    each function's first instruction. files: registers of the function that is decoded now, by prefix. carry: the carry
    bit of the condition code register. items: the entry's instructions.
    """

    kernel: Kernel
    machine: Machine
    parameters: Allocation
    variables: Mapping[str, Allocation]
    dynamic_shared: int
    garbage: int
    other_nan: int = 0
    unknown: list[NotUnderstood] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    tables: dict[str, tuple[str, ...]] = field(default_factory=dict)
    targets: set[int] = field(default_factory=set)
    begins: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.files: dict[str, Array] = {}
        self.function, self.index, self.stack = self.kernel.function, 0, calls.Stack(self.machine)
        self.items: Sequence[Item] = ()
        self._constants: dict[tuple[int, str], Array] = {}
        self._addresses: dict[str, Array] = {}
        self.specials = self.machine.specials
        shared, reserved = self.kernel.shared, self.kernel.shared.begin
        total = -(-(shared.size - reserved + self.dynamic_shared) // SHARED_UNIT) * SHARED_UNIT
        sizes = {"dynamic": self.dynamic_shared, "total": total, "aggr": shared.size + self.dynamic_shared}
        self.specials |= {
            f"%{name}_smem_size": self.constant(size, np.dtype(np.uint32)) for name, size in sizes.items()
        }
        self.carry = self.machine.registers(1, np.bool_)[0]
        has_many = self.kernel.text.count("fma.rn.f32 ") >= MANY
        # Argument of compiled.fma32; None: the kernel has too few fma to compile code for them.
        self.everyone = np.ones(self.machine.threads, bool) if has_many else None

    def code(self) -> Code:
        """Decode the entry, then the functions that it calls, each with a return at its end."""
        listed, made = list[tuple[Any, ...]](), list[Instruction]()
        parts: list[Part] = []  # a local variable, no attribute of the decoder, to avoid a reference cycle
        for function in self.kernel.functions:
            self.begins[function.name] = sum(len(items) for items, *_ in listed)
            listed.append(self._items(function, self.begins[function.name]))
        self.items = listed[0][0]
        for function, (items, labels, tables) in zip(self.kernel.functions, listed, strict=True):
            self.function, self.labels, self.tables = function, labels, tables
            self.files, self._addresses = self._new_files(function), {}
            parts.append(Part(len(made), items, partial(self._row, self.files), self._parameter))
            for item in items:
                self.index = len(made)
                made.append(self._instruction(item))
        decoder = self if len(parts) == 1 else None
        return Code(made, frozenset(self.targets), origin=partial(origin, parts), decoder=decoder)

    def again(self, item: Item, rows: Mapping[str, Array]) -> Step:
        """Decode an instruction of the entry once more, with other arrays for some registers. rows: these arrays, by
        register name."""
        other = copy(self)
        other.named = lambda name: rows[name] if name in rows else self.named(name)  # type: ignore[method-assign]
        return other._instruction(item).step

    def _items(self, function: Function, begin: int) -> tuple[list[Item], dict[str, int], dict[str, tuple[str, ...]]]:
        """Return a function's instructions, the positions of its labels, and its lists of branch targets."""
        items, labels, tables = list[Item](), dict[str, int](), dict[str, tuple[str, ...]]()
        for number, item in enumerate(function.items):
            if item.label:
                labels[item.label] = begin + len(items)
                following = function.items[number + 1 : number + 2]
                if following and following[0].opcode == ".branchtargets":
                    tables[item.label] = following[0].operands
            elif not item.opcode.startswith("."):
                items.append(item)
            elif item.opcode != ".branchtargets" and not item.opcode.startswith(_IGNORED):
                self.unknown.append(NotUnderstood(item.opcode, self.kernel.line(item.position)))
        return [*items, Item("ret", position=-1)], labels, tables

    def _instruction(self, item: Item) -> Instruction:
        line = self.kernel.line(item.position) if item.position >= 0 else 0
        text = " ".join(filter(None, (item.guard, item.opcode, ", ".join(item.operands))))
        try:
            site = Site(self, item, line)
            step, moves = OPCODES.step(site.name, site), site.name in OPCODES.moves
            if item.guard:
                step = guarded(step, site.predicate(item.guard[1:]), moves)
        except NotUnderstood as error:
            known = NotUnderstood(error.opcode if error.line else item.opcode, line, error.why or _other(error, item))
            self.unknown.append(known)
            step, moves = refusing(known), False
        return Instruction(step, text, line, moves)

    def _new_files(self, function: Function) -> dict[str, Array]:
        counts = self.kernel.registers[function.name]
        files = {p: self.machine.registers(count, FILES[p]) for p, count in counts.items() if p in FILES}
        for prefix, rows in files.items() if self.garbage else ():  # untouched arrays of zeros take no memory
            rows.view(np.uint8)[:] = prefix == "p" or self.garbage
        return files

    # --- arrays of operands ------------------------------------------------------------------

    def register(self, name: str, prefix: str) -> Array:
        """Return the array of a register. Raises NotUnderstood if the prefix of its name is unknown."""
        if prefix not in self.files:
            raise NotUnderstood(name, why=f"register {name}")
        return self.named(name)

    def named(self, name: str) -> Array:
        """Return the array of a register of the function that is decoded now."""
        match = REGISTER.fullmatch(name)
        assert match is not None
        return self._row(self.files, name, match[1])

    @staticmethod
    def _row(files: Mapping[str, Array], name: str, prefix: str) -> Array:
        return files[prefix][int(name[1 + len(prefix) :])]

    def _parameter(self, operand: str) -> int | None:
        """Return the 8 bytes of the entry's parameters that an operand addresses; None if it does not address a
        parameter."""
        match = re.fullmatch(r"\[\s*([\w$%]+)\s*(?:\+\s*(\d+))?\s*\]", operand)
        if match is None or match[1] not in self.kernel.parameters.names:
            return None
        at = self.parameters.begin + self.kernel.parameters.offset(match[1]) + int(match[2] or 0)
        return int(self.machine.memory.global_.data[at : at + 8].view(np.uint64)[0])

    def constant(self, value: int, kind: Array) -> Array:
        """Return an array with one value for all threads. value: its bits. kind: dtype."""
        key = value, kind.str
        if key not in self._constants:
            one = np.array(bool(value)) if kind == np.bool_ else np.array(value, f"u{kind.itemsize}").view(kind)
            self._constants[key] = np.broadcast_to(one, self.machine.threads)
        return self._constants[key]

    def address_of(self, name: str) -> Array | None:
        """Return the address of a variable in its own space; None if there is no such variable."""
        if name not in self._addresses and (row := self._address(name)) is not None:
            self._addresses[name] = row
        return self._addresses.get(name)

    def slot(self, function: str, name: str) -> int | None:
        """Return the offset of a function's variable or argument in local memory; None if there is no such name."""
        known = f"{function}/{name}"
        return self.kernel.local.offset(known) if known in self.kernel.local.names else None

    def _address(self, name: str) -> Array | None:
        kernel = self.kernel
        if name in kernel.shared.names:
            rank = self.machine.rank << np.uint32(spaces.RANK_SHIFT) if kernel.major >= 9 else np.uint32(0)
            return rank + self.constant(kernel.shared.offset(name), np.dtype(np.uint32))
        if (slot := self.slot(self.function.name, name)) is not None:
            return self.constant(slot, np.dtype(np.uint64))
        if name in self.variables:
            return self.constant(self.variables[name].address, np.dtype(np.uint64))
        if name in self.begins:
            return self.constant(calls.address_of(self.begins[name]), np.dtype(np.uint64))
        if name in kernel.parameters.names:
            return self.constant(self.parameters.address + kernel.parameters.offset(name), np.dtype(np.uint64))
        return None


def _other(error: NotUnderstood, item: Item) -> str:
    """Return the operand that an error names, or "" if it names the opcode."""
    return error.opcode if error.opcode != item.opcode else ""
