"""A PTX kernel before it is executed: its parameters, its variables and where they lie, its instructions with lines."""

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
    """A declared variable. size: in bytes; 0 for an array without an extent. values: of its initialiser; "": none."""

    name: str
    space: str
    type: str
    align: int
    size: int
    values: str = ""

    @property
    def contents(self) -> bytes:
        """The bytes it begins with."""
        unit = SIZES[self.type]
        try:
            found = b"".join(bytes(unit) if _named(word) else _bytes_of(word, self.type, unit) for word in self._words)
        except ValueError:
            raise NotUnderstood(f".{self.space}", why=f"the initialiser of {self.name}") from None
        return found.ljust(self.size, b"\0")

    @property
    def pointers(self) -> list[tuple[int, str, int]]:
        """Where it begins with addresses of variables: the offset, whose, and how many bytes behind its begin."""
        found = [(number * SIZES[self.type], _named(word)) for number, word in enumerate(self._words)]
        return [(offset, match[1], int(match[2] or 0)) for offset, match in found if match is not None]

    @property
    def _words(self) -> list[str]:
        return [word for word in re.split(r"[{},\s]+", self.values) if word]


def _named(word: str) -> re.Match[str] | None:
    """Match the address of a variable, in its own or among generic addresses: alike for global memory."""
    return re.fullmatch(r"(?:generic\()?([A-Za-z_$%][\w$]*)\)?(?:\+(\d+))?", word)


def _bytes_of(word: str, kind: str, unit: int) -> bytes:
    if word[:2].lower() in ("0f", "0d"):
        return int(word[2:], 16).to_bytes(unit, "little")
    if kind in ("f32", "f64"):
        return struct.pack("<f" if unit == 4 else "<d", float(word))
    return (int(word.rstrip("U"), 0) & (1 << 8 * unit) - 1).to_bytes(unit, "little")


def read_variable(text: str) -> Variable:
    """Read a declaration: `.shared .align 16 .b8 name[1024]`."""
    match = _VARIABLE.match(text.strip())
    if match is None or match["type"] not in SIZES:
        raise NotUnderstood(" ".join(text.split())[:60], why="a declaration")
    unit, extents = SIZES[match["type"]], re.findall(r"\[\s*(\d*)\s*\]", match["extents"])
    size = unit * math.prod(int(extent or 0) for extent in extents)
    begins = " ".join((match["values"] or "").split())
    return Variable(match["name"], match["space"], match["type"], int(match["by"] or unit), size, begins)


@dataclass(frozen=True, slots=True)
class Placed:
    """Variables with the offsets they lie at. size: of all, with what is reserved before `begin`."""

    variables: tuple[tuple[Variable, int], ...]
    size: int
    begin: int = 0

    def offset(self, name: str) -> int:
        return next(offset for variable, offset in self.variables if variable.name == name)

    @property
    def names(self) -> set[str]:
        return {variable.name for variable, _ in self.variables}


def place(variables: Iterable[Variable], begin: int = 0) -> Placed:
    """Lay out variables behind one another, each as it is aligned."""
    placed, at = [], begin
    for one in variables:
        at = -(-at // one.align) * one.align
        placed.append((one, at))
        at += one.size
    return Placed(tuple(placed), at, begin)


@dataclass(frozen=True)
class Kernel:
    """One entry of a module, and what it needs.

    parameters: of the entry, as they lie in its parameter space. shared: static variables, then the dynamic ones, which
    all begin at its end. local: of a thread: variables and arguments of functions, as "function/name". module: of
    global and constant memory. function: the entry's body. functions: it, and those that are called.
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
        """By function, those that it calls, and those call."""
        return {one.name: frozenset(_called([one], self.functions)) for one in self.functions}

    @cached_property
    def text(self) -> str:
        """Opcodes and operands of the entry."""
        return " ".join(chain.from_iterable((item.opcode, *item.operands) for item in self.function.items))

    @cached_property
    def register_prefixes(self) -> Sequence[str]:
        """The prefix of each register of the entry."""
        return tuple(dict(registers_in(self.function.items)).values())

    @cached_property
    def registers(self) -> Mapping[str, Mapping[str, int]]:
        """By function and prefix, the number of registers."""
        return {one.name: register_counts(one.items) for one in self.functions}

    @property
    def major(self) -> int:
        """The architecture's first number: 9 for sm_90a."""
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
    """List a function's variables in local memory: its variables, the arguments of its calls; its own, if it is
    called."""
    found = [one for one in _inner(function) if one.space in ("local", "param")]
    if function.is_entry:
        return found
    returned = function.linkage.partition("(")[2].rstrip(") ")
    texts = [*(function.parameters or ()), *(split_operands(returned) if returned else ())]
    return [*found, *map(read_variable, texts)]


def _called(begin: Iterable[Function], functions: Iterable[Function]) -> dict[str, Function]:
    """Those of the functions that others name, to call them, and that these name."""
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
