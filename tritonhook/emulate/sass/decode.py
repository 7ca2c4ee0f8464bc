"""Decode the machine code of a kernel into steps for the emulator's machine, once before a run."""

from __future__ import annotations

import re
from functools import partial

import numpy as np

from tritonhook.cubin.sass import INSTRUCTION_BYTES, Instruction
from tritonhook.emulate.machine import Code, Machine
from tritonhook.emulate.machine import Instruction as Decoded
from tritonhook.emulate.opcodes import Array, Reader, guarded, refusing
from tritonhook.emulate.sass import (
    control,
    conversions,
    floats,
    integers,
    matrices,
    memory,
    tensor_memory,
    transactions,
    warps,
)
from tritonhook.emulate.sass.kernel import SassKernel
from tritonhook.emulate.sass.origin import origin
from tritonhook.emulate.sass.site import OPCODES, Site, any_of_warp
from tritonhook.errors import NotUnderstood

# Each module registers its opcodes when it is imported.
MODULES = (control, conversions, floats, integers, matrices, memory, tensor_memory, transactions, warps)
_REGISTERS, _FLAGS, _BARRIERS = 256, 16, 16


class Decoder:
    """Registers, predicates and constants of one run, which its instructions share.

    constants: constant bank 0, made by SassKernel.constants. targets: indices of instructions that are jump targets.
    garbage: seed of the values in unwritten registers. If a kernel reads one, runs with different seeds may differ.
    """

    def __init__(self, kernel: SassKernel, machine: Machine, constants: bytes, garbage: int = 0) -> None:
        self.kernel, self.machine, self.constants, self.garbage = kernel, machine, constants, garbage
        self.zeros = np.broadcast_to(np.uint32(0), machine.threads)
        self.true, self.false = (np.broadcast_to(one, machine.threads) for one in (np.True_, np.False_))
        self.targets: set[int] = set()
        self.convergence = machine.registers(_BARRIERS, np.uint32)
        self._rows: dict[tuple[bool, int], Array] = {}
        self._flags: dict[tuple[bool, int], Array] = {}
        self._constants: dict[int, Array] = {0: self.zeros}

    def row(self, is_uniform: bool, number: int) -> Array:
        """Return the values of a register: a uint32 array with one element per thread."""
        if number >= _REGISTERS:
            raise NotUnderstood(f"register {number}")
        if (is_uniform, number) not in self._rows:
            value = self.garbage * 0x9E37_79B1 * (number + 1) & 0xFFFF_FFFF
            self._rows[is_uniform, number] = self.machine.keep(np.full(self.machine.threads, value, np.uint32))
        return self._rows[is_uniform, number]

    def flag(self, is_uniform: bool, number: int) -> Array:
        """Return the values of a predicate: a bool array with one element per thread."""
        if number >= _FLAGS:
            raise NotUnderstood(f"predicate {number}")
        if (is_uniform, number) not in self._flags:
            self._flags[is_uniform, number] = self.machine.keep(np.full(self.machine.threads, bool(self.garbage & 1)))
        return self._flags[is_uniform, number]

    def constant(self, value: int) -> Array:
        """Return a uint32 array that has the same value for each thread."""
        if value not in self._constants:
            self._constants[value] = np.broadcast_to(np.uint32(value), self.machine.threads)
        return self._constants[value]

    def bank(self, site: Site, number: int, at: int, size: int = 4) -> int:
        """Read bytes of a constant bank as one little-endian number. Raises NotUnderstood if they are unknown."""
        if number == 0:
            data = self.constants
            if not all(self.kernel.is_known_constant(at + part) for part in range(0, size, 4)):
                raise site.refuse(f"c[0x0][{at:#x}]")
        elif number in self.kernel.banks:
            data = self.kernel.banks[number]
        else:
            raise site.refuse(f"constant bank {number}")
        if at < 0 or at + size > len(data):
            raise site.refuse(f"c[{number:#x}][{at:#x}]")
        return int.from_bytes(data[at : at + size], "little")

    def predicate(self, site: Site, text: str) -> Reader:
        """Make the reader of a predicate, e.g. P0, !UP1 or PT, or of the sign of a register, e.g. R6.SIGN."""
        inverted, name = text.startswith("!"), text.lstrip("!")
        if name.endswith(".SIGN"):
            signs = site.register(name.removesuffix(".SIGN"))
            return lambda g: (signs[g.s] >> np.uint32(31) != 0) != inverted
        is_uniform, number = name.startswith("U"), name.lstrip("UP")
        if not name.lstrip("U").startswith("P") or not (number == "T" or number.isdigit()):
            raise site.refuse(f"predicate {text}")
        row = self.true if number == "T" else self.flag(is_uniform, int(number))
        if number == "T" and inverted:
            row, inverted = self.false, False
        return (lambda g: ~row[g.s]) if inverted else lambda g: row[g.s]

    def index(self, site: Site, text: str) -> int:
        """Return the index of the instruction at an address or function name, and add it to `targets`."""
        name = text.strip("`()")
        if name not in self.kernel.functions and not re.fullmatch("-?0x[0-9a-f]+", name):
            raise site.refuse(f"target {text}")
        at = self.kernel.functions[name] if name in self.kernel.functions else int(name, 16)
        index, rest = divmod(at, INSTRUCTION_BYTES)
        if rest or not 0 <= index < len(self.kernel.sass.instructions):
            raise site.refuse(f"target {text}")
        self.targets.add(index)
        return index

    def instruction(self, one: Instruction, immediate: int) -> Decoded:
        site = Site(self, one, immediate)
        step, moves = OPCODES.step(site.base, site), site.base in OPCODES.moves
        read = None
        if one.predicate.startswith("@"):  # for P2R and R2P, `predicate` is "PR", which is no guard
            read = self.predicate(site, one.predicate.removeprefix("@"))
            if site.base == "BRA" and "ANY" in site.modifiers:
                read = any_of_warp(read)
            step = guarded(step, read, moves)
        return Decoded(step, f"{one.predicate} {one.opcode} {one.operands}".strip(), one.offset, moves, read)


def decode(
    kernel: SassKernel, machine: Machine, constants: bytes, garbage: int = 0
) -> tuple[Code, tuple[NotUnderstood, ...]]:
    """Decode a kernel; return its code and the errors of instructions that are not understood. Such an instruction
    raises its error when a thread executes it."""
    decoder = Decoder(kernel, machine, constants, garbage)
    code = kernel.sass.instructions
    last = max((number for number, one in enumerate(code) if one.opcode != "NOP"), default=-1)
    decoder.targets.update(at // INSTRUCTION_BYTES for at in kernel.sass.indirect_targets)
    unknown: list[NotUnderstood] = []
    decoded = []
    for one, immediate in zip(code[: last + 1], kernel.immediates, strict=False):
        try:
            decoded.append(decoder.instruction(one, immediate))
        except NotUnderstood as error:
            unknown.append(error)
            decoded.append(Decoded(refusing(error), one.opcode, one.offset, True))
    stack = decoder.row(False, 1)
    stack[:] = kernel.stack
    return Code(decoded, frozenset(decoder.targets), origin=partial(origin, code, constants)), tuple(unknown)
