"""Read a PTX kernel for execution: its parameters, its variables with their offsets, its functions."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain

from tritonhook.cubin.resources import reserved_in_image
from tritonhook.errors import NotUnderstood, PtxError
from tritonhook.ptx.module import Ptx, line_numbers, split_operands
from tritonhook.ptx.program import Function, Program, read_program, register_counts, registers_in

SIZES = {
    **dict.fromkeys(("b8", "u8", "s8", "e4m3", "e5m2"), 1),
    **dict.fromkeys(("b16", "u16", "s16", "f16", "bf16", "e4m3x2", "e5m2x2"), 2),
    **dict.fromkeys(("b32", "u32", "s32", "f32", "f16x2", "bf16x2", "u16x2", "s16x2", "tf32"), 4),
    **dict.fromkeys(("b64", "u64", "s64", "f64", "f32x2"), 8),
    "b128": 16,
}
_VARIABLE = re.compile(
    r"(?P<linkage>(?:\.(?:visible|extern|weak|common)\s+)*)\.(?P<space>shared|global|const|local|param)(?:::\w+)?"
    r"(?P<align>\s*\.align\s+(?P<by>\d+))?\s+\.(?P<type>\w+)(?:\s+\.ptr(?:\s+\.\w+)*?(?:\s+\.align\s+\d+)?)?"
    r"\s+(?P<name>[\w$%]+)(?P<extents>(?:\s*\[[^\]]*\])*)(?:\s*=\s*(?P<values>.*?))?;?$",
    re.DOTALL | re.ASCII,
)
_FUNCTION = re.compile(r"\.func\b")


@dataclass(frozen=True, slots=True)
class Variable:
    """A declared variable. align, size: in bytes; size 0 for an array without an extent. values: text of its
    initialiser; "": none."""

    name: str
    space: str
    type: str
    align: int
    size: int
    values: str = ""

    @property
    def contents(self) -> bytes:
        """The initial bytes of the variable, with zeros for addresses of other variables."""
        unit = SIZES[self.type]
        try:
            found = b"".join(bytes(unit) if _named(word) else _bytes_of(word, self.type, unit) for word in self._words)
        except ValueError:
            raise NotUnderstood(f".{self.space}", why=f"the initialiser of {self.name}") from None
        return found.ljust(self.size, b"\0")

    @property
    def pointers(self) -> list[tuple[int, str, int]]:
        """The addresses of variables in the initialiser: offset in this variable, name of the other one, and the bytes
        added to its address."""
        found = [(number * SIZES[self.type], _named(word)) for number, word in enumerate(self._words)]
        return [(offset, match[1], int(match[2] or 0)) for offset, match in found if match is not None]

    @property
    def _words(self) -> list[str]:
        return [word for word in re.split(r"[{},\s]+", self.values) if word]


def _named(word: str) -> re.Match[str] | None:
    """Match `name`, `name+8` or `generic(name)+8`: an address. For global memory, generic(...) changes nothing."""
    return re.fullmatch(r"(?:generic\()?([A-Za-z_$%][\w$]*)\)?(?:\+(\d+))?", word)


def _bytes_of(word: str, kind: str, unit: int) -> bytes:
    if word[:2].lower() in ("0f", "0d"):
        return int(word[2:], 16).to_bytes(unit, "little")
    if kind in ("f32", "f64"):
        return struct.pack("<f" if unit == 4 else "<d", float(word))
    return (int(word.rstrip("U"), 0) & (1 << 8 * unit) - 1).to_bytes(unit, "little")


def read_variable(text: str) -> Variable:
    """Read a declaration, e.g. `.shared .align 16 .b8 name[1024]`. Raises NotUnderstood."""
    match = _VARIABLE.match(text.strip())
    if match is None or match["type"] not in SIZES:
        raise NotUnderstood(" ".join(text.split())[:60], why="a declaration")
    unit, extents = SIZES[match["type"]], re.findall(r"\[\s*(\d*)\s*\]", match["extents"])
    size = unit * math.prod(int(extent or 0) for extent in extents)
    begins = " ".join((match["values"] or "").split())
    return Variable(match["name"], match["space"], match["type"], int(match["by"] or unit), size, begins)


@dataclass(frozen=True, slots=True)
class Placed:
    """Variables with their offsets. begin: bytes reserved before the first variable. size: bytes of all variables,
    reserved bytes included."""

    variables: tuple[tuple[Variable, int], ...]
    size: int
    begin: int = 0

    def offset(self, name: str) -> int:
        return next(offset for variable, offset in self.variables if variable.name == name)

    @property
    def names(self) -> set[str]:
        return {variable.name for variable, _ in self.variables}


def place(variables: Iterable[Variable], begin: int = 0) -> Placed:
    """Give variables consecutive offsets from `begin` on, with their alignments."""
    placed, at = [], begin
    for one in variables:
        at = -(-at // one.align) * one.align
        placed.append((one, at))
        at += one.size
    return Placed(tuple(placed), at, begin)


@dataclass(frozen=True)
class Kernel:
    """One entry of a module, with the variables and functions that it uses.

    target: e.g. "sm_90a". parameters: the entry's parameters, with offsets. shared: static variables, then dynamic
    ones, which all begin after the static ones. local: local memory of a thread: variables and arguments of functions,
    named "function/name". module: global and constant variables. function: the entry. functions: the entry and the
    functions that it calls. line: converts a position in the text to a line number.
    """

    entry: str
    target: str
    parameters: Placed
    shared: Placed
    local: Placed
    module: tuple[Variable, ...]
    function: Function
    functions: tuple[Function, ...]
    line: Callable[[int], int] = field(repr=False)

    @cached_property
    def reached(self) -> Mapping[str, frozenset[str]]:
        """The functions that each function calls, directly or not."""
        return {one.name: frozenset(_called([one], self.functions)) for one in self.functions}

    @cached_property
    def text(self) -> str:
        """The opcodes and operands of the entry, separated by blanks."""
        return " ".join(chain.from_iterable((item.opcode, *item.operands) for item in self.function.items))

    @cached_property
    def register_prefixes(self) -> Sequence[str]:
        """The prefix of each register of the entry, e.g. "rd"."""
        return tuple(dict(registers_in(self.function.items)).values())

    @cached_property
    def registers(self) -> Mapping[str, Mapping[str, int]]:
        """The number of registers by function and prefix."""
        return {one.name: register_counts(one.items) for one in self.functions}

    @property
    def major(self) -> int:
        """The major number of the architecture, e.g. 9 for sm_90a."""
        return int(re.sub(r"\D", "", self.target)) // 10


def read_kernel(ptx: Ptx, entry: str | None = None) -> Kernel:
    """Read one entry of a module. Raises PtxError, NotUnderstood."""
    name = ptx.only_entry(entry)
    try:
        program = read_program(ptx)
    except PtxError as error:
        raise NotUnderstood(name, why=str(error)) from None
    main = next((one for one in program.functions if one.name == name), None)
    if main is None:
        raise NotUnderstood(name, why="an entry without a body")
    functions = (main, *_called([main], program.functions).values())
    outside = _outer(program)
    both = outside + [one for function in functions for one in _inner(function)]
    local = [
        replace(one, name=f"{function.name}/{one.name}", space="local")
        for function in functions
        for one in _own(function)
    ]
    begin = reserved_in_image(int(re.sub(r"\D", "", program.target)))
    shared = sorted((v for v in both if v.space == "shared"), key=lambda v: not v.size)
    return Kernel(
        name,
        program.target,
        place(read_variable(text) for text in main.parameters or ()),
        place(shared, begin),
        place(local),
        tuple(v for v in outside if v.space in ("global", "const")),
        main,
        functions,
        line_numbers(ptx),
    )


def _outer(program: Program) -> list[Variable]:
    return [
        read_variable(text)
        for text in program.declarations
        if text.lstrip().startswith((".visible", ".extern", ".weak", ".shared", ".global", ".const", ".common"))
        and not _FUNCTION.search(text)
        and ".entry" not in text
    ]


def _inner(function: Function) -> list[Variable]:
    declared = (item for item in function.items if item.opcode in (".shared", ".local", ".param"))
    return [read_variable(f"{item.opcode} {', '.join(item.operands)}") for item in declared]


def _own(function: Function) -> list[Variable]:
    """List a function's variables in local memory: its own, the arguments of its calls and, unless it is an entry, its
    parameters and results."""
    found = [one for one in _inner(function) if one.space in ("local", "param")]
    if function.is_entry:
        return found
    returned = function.linkage.partition("(")[2].rstrip(") ")
    texts = [*(function.parameters or ()), *(split_operands(returned) if returned else ())]
    return [*found, *map(read_variable, texts)]


def _called(begin: Iterable[Function], functions: Iterable[Function]) -> dict[str, Function]:
    """Return the functions that the functions in `begin` call, directly or indirectly, by name."""
    by_name, found, left = {one.name: one for one in functions}, dict[str, Function](), list(begin)
    while left:
        for item in left.pop().items:
            for name in item.operands:
                if name in by_name and name not in found:
                    found[name] = by_name[name]
                    left.append(by_name[name])
    return found


def list_of(operand: str) -> list[str]:
    """Return the elements of a vector operand in braces."""
    return split_operands(operand[1:-1]) if operand.startswith("{") else [operand]
