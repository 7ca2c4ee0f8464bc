"""Reductions that make a kernel with its launch (Parts) smaller: each lists units to remove, and removes some of them.

The result may compute something else, or be invalid for ptxas: minimise.py checks whether it still has the difference.
Reductions that would make a pointer invalid are omitted, because a launch that crashes costs a new process.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tritonhook.capture.launches.record import Launch, buffers_of, with_buffers
from tritonhook.ptx.dataflow import cleaned, flow_of, is_branch, target
from tritonhook.ptx.program import REGISTER, Function, Item, Program, parameter_name, register_type, renumbered

_CONSTANTS = {"b16": ("0", "1"), "b32": ("0", "1", "0x3F800000"), "b64": ("0", "1"), "pred": ("0", "1")}
_LITERAL = re.compile(r"(?<![\w$%.])(?:0[fFdD][0-9a-fA-F]+|-?0[xX][0-9a-fA-F]+|-?\d+)U?(?![\w$.])", re.ASCII)
_VECTOR = re.compile(r"\.v(\d)(?=\.|$)")
_POINTS_ON = frozenset({"add", "sub", "mov", "cvta", "mad", "selp", "max", "min", "or", "and", "shfl"})
_SIZED_WHOLE = re.compile(r"(\.(?:reqntid|maxntid)\b).*")
_MODIFIER = re.compile(r"ftz|sat|uni|volatile|relaxed|weak|gpu|sys|cta|nc|evict_\w+|no_allocate|L[12]::\w+|relu|noftz")
_ZERO_PIECES = 64  # a buffer is set to zero in at most this many pieces


@dataclass(frozen=True, slots=True)
class Parts:
    """A kernel to reduce. entry: its name. launch: None if it is not launched. contents: contents of the buffers."""

    program: Program
    entry: str
    launch: Launch | None = None
    contents: tuple[bytes, ...] = ()

    @property
    def function(self) -> Function:
        return next(function for function in self.program.functions if function.name == self.entry)

    @property
    def items(self) -> tuple[Item, ...]:
        return self.function.items

    @property
    def weight(self) -> tuple[int, int, int, int]:
        """Size, for comparisons: numbers of statements, of characters, of threads, of bytes that are not zero."""
        count = sum(len(function.items) for function in self.program.functions)
        threads = 0
        if self.launch is not None:
            for extent in (*self.launch.grid, *self.launch.block):
                threads += extent
        return count, len(self.program.text), threads, sum(len(data) - data.count(0) for data in self.contents)

    def with_items(self, items: Iterable[Item]) -> Parts:
        """Replace the kernel's statements, and remove those whose results nothing uses then."""
        return self.with_function(replace(self.function, items=cleaned(items)))

    def with_function(self, function: Function) -> Parts:
        return replace(self, program=self.program.with_function(function))


@dataclass(frozen=True, slots=True)
class Reduction:
    """One way to make a kernel smaller. units: lists what can be removed, in order. without: removes some of these."""

    name: str
    units: Callable[[Parts], Sequence[Any]]
    without: Callable[[Parts, frozenset[Any]], Parts]


# --- statements ----------------------------------------------------------------------------------


def _effects(parts: Parts) -> list[int]:
    """List statements with an effect, such as stores. Statements that only these need are removed with them."""
    items = parts.items
    last = max((number for number, item in enumerate(items) if item.opcode == "ret"), default=None)
    return [
        number
        for number, item in enumerate(items)
        if flow_of(item).has_effect and not flow_of(item).writes and not item.label and number != last
    ]


def _results(parts: Parts) -> list[int]:
    """List statements that write a register."""
    return [number for number, item in enumerate(parts.items) if flow_of(item).writes]


def _without_items(parts: Parts, units: frozenset[int]) -> Parts:
    return parts.with_items(item for number, item in enumerate(parts.items) if number not in units)


def _guarded_jumps(parts: Parts) -> list[int]:
    return [number for number, item in enumerate(parts.items) if item.guard and is_branch(item)]


def _guarded(parts: Parts) -> list[int]:
    return [number for number, item in enumerate(parts.items) if item.guard and not is_branch(item)]


def _without_guards(parts: Parts, units: frozenset[int]) -> Parts:
    return parts.with_items(
        replace(item, guard="") if number in units else item for number, item in enumerate(parts.items)
    )


def _pragmas(parts: Parts) -> list[int]:
    return [number for number, item in enumerate(parts.items) if item.opcode == ".pragma"]


# --- values --------------------------------------------------------------------------------------


def _pointers(items: Sequence[Item]) -> frozenset[str]:
    """Find the 64-bit registers that may hold an address computed from a parameter."""
    pointers: set[str] = set()
    while True:
        count = len(pointers)
        for item in items:
            base = item.opcode.partition(".")[0]
            of_parameter = item.opcode.startswith("ld.param") and item.opcode.endswith("64")
            if of_parameter or (base in _POINTS_ON and pointers & flow_of(item).reads):
                pointers.update(name for name in flow_of(item).writes if register_type(name) == "b64")
        if len(pointers) == count:
            return frozenset(pointers)


def _constant(number: int) -> Reduction:
    """Make the reduction that replaces results by constant `number` of their type, as in _CONSTANTS."""

    def units(parts: Parts) -> list[int]:
        pointers = _pointers(parts.items)
        return [
            place
            for place, item in enumerate(parts.items)
            if (writes := flow_of(item).writes)
            and not writes & pointers
            and all(number < len(_CONSTANTS.get(register_type(name), ())) for name in writes)
            and not _is_constant(item)
        ]

    def without(parts: Parts, chosen: frozenset[int]) -> Parts:
        return parts.with_items(
            new
            for place, item in enumerate(parts.items)
            for new in (_set_to(item, number) if place in chosen else (item,))
        )

    return Reduction(f"results to constants ({number})", units, without)


def _is_constant(item: Item) -> bool:
    return item.opcode.startswith("mov") and len(item.operands) == 2 and bool(_LITERAL.fullmatch(item.operands[1]))


def _set_to(item: Item, number: int) -> Iterator[Item]:
    for name in sorted(flow_of(item).writes):
        type_ = register_type(name)
        yield Item(f"mov.{type_}", (name, _CONSTANTS[type_][number]), item.guard)


def _sources(parts: Parts) -> list[tuple[int, str]]:
    """List (statement, register) where the register is a source of the statement that can replace its result: both have
    the same type."""
    sources, pointers = [], _pointers(parts.items)
    for number, item in enumerate(parts.items):
        flow = flow_of(item)
        if len(flow.writes) != 1 or (item.opcode.startswith("mov.") and len(item.operands) == 2):
            continue
        (name,) = flow.writes
        for match in REGISTER.finditer(" ".join(item.operands[1:])):
            same = register_type(match[0]) == register_type(name) and match[0] != name
            if same and (match[0] in pointers or name not in pointers):
                sources.append((number, match[0]))
    return list(dict.fromkeys(sources))


def _by_source(parts: Parts, units: frozenset[tuple[int, str]]) -> Parts:
    chosen = dict(sorted(units, reverse=True))
    return parts.with_items(
        _copied(item, chosen[number]) if number in chosen else item for number, item in enumerate(parts.items)
    )


def _copied(item: Item, source: str) -> Item:
    (name,) = flow_of(item).writes
    return Item(f"mov.{register_type(name)}", (name, source), item.guard)


def _copies(parts: Parts) -> list[int]:
    """List `mov` statements whose register can be replaced by the moved value: nothing else writes the register."""
    writers: dict[str, int] = {}
    for item in parts.items:
        for name in flow_of(item).writes:
            writers[name] = writers.get(name, 0) + 1
    return [
        number
        for number, item in enumerate(parts.items)
        if item.opcode.startswith("mov.")
        and not item.guard
        and len(item.operands) == 2
        and REGISTER.fullmatch(item.operands[0])
        and writers[item.operands[0]] == 1
        and all(writers.get(name, 0) < 2 for name in flow_of(item).reads)
        and "{" not in item.operands[1]
    ]


def _propagated(parts: Parts, units: frozenset[int]) -> Parts:
    values = {parts.items[number].operands[0]: parts.items[number].operands[1] for number in units}

    def value(match: re.Match[str]) -> str:
        seen, word = {match[0]}, match[0]
        while word in values and values[word] not in seen:
            word = values[word]
            seen.add(word)
        return word

    return parts.with_items(
        replace(item, operands=tuple(REGISTER.sub(value, operand) for operand in item.operands))
        for number, item in enumerate(parts.items)
        if number not in units
    )


def _lanes(parts: Parts) -> list[tuple[int, int]]:
    """List (statement, element): the vector load or store can be narrowed to this element."""
    lanes = []
    for number, item in enumerate(parts.items):
        match = _VECTOR.search(item.opcode)
        if match and item.opcode.startswith(("ld.", "st.")) and len(item.operands) == 2:
            lanes += [(number, lane) for lane in range(int(match[1]))]
    return lanes


def _one_lane(parts: Parts, units: frozenset[tuple[int, int]]) -> Parts:
    chosen = dict(sorted(units, reverse=True))
    return parts.with_items(
        _narrowed(item, chosen[number]) if number in chosen else item for number, item in enumerate(parts.items)
    )


def _narrowed(item: Item, lane: int) -> Item:
    def element(operand: str) -> str:
        inside = operand.strip("{}").split(",")
        return inside[lane].strip() if operand.startswith("{") and lane < len(inside) else operand

    return replace(item, opcode=_VECTOR.sub("", item.opcode), operands=tuple(map(element, item.operands)))


# --- constants and modifiers ---------------------------------------------------------------------


def _literal_to(new: str) -> Reduction:
    """Make the reduction that replaces number literals by `new`."""

    def units(parts: Parts) -> list[tuple[int, int, int]]:
        return [
            (number, place, match.start())
            for number, item in enumerate(parts.items)
            if not item.opcode.startswith(".") and not target(item)
            for place, operand in enumerate(item.operands)
            for match in _LITERAL.finditer(operand)
            if match[0] not in _simpler(new) and (place or not operand.startswith("["))
        ]

    def without(parts: Parts, chosen: frozenset[tuple[int, int, int]]) -> Parts:
        items = list(parts.items)
        for number, place, start in sorted(chosen, reverse=True):
            operands = list(items[number].operands)
            match = _LITERAL.match(operands[place], start)
            assert match is not None
            word = f"{match[0][:2]}{'0' * (len(match[0]) - 2)}" if match[0][1:2] in tuple("fFdD") else new
            operands[place] = operands[place][:start] + word + operands[place][match.end() :]
            items[number] = replace(items[number], operands=tuple(operands))
        return parts.with_items(items)

    return Reduction(f"literals to {new}", units, without)


def _simpler(new: str) -> tuple[str, ...]:
    return ("0", "0x0", "0f00000000", "0d0000000000000000") if new == "0" else ("0", "1", "0f00000000")


def _modifiers(parts: Parts) -> list[tuple[int, int]]:
    return [
        (number, part)
        for number, item in enumerate(parts.items)
        for part, name in enumerate(item.opcode.split("."))
        if _MODIFIER.fullmatch(name)
    ]


def _without_modifiers(parts: Parts, units: frozenset[tuple[int, int]]) -> Parts:
    return parts.with_items(
        replace(
            item, opcode=".".join(part for at, part in enumerate(item.opcode.split(".")) if (number, at) not in units)
        )
        for number, item in enumerate(parts.items)
    )


# --- the module and the launch -------------------------------------------------------------------


def _around(parts: Parts) -> list[str]:
    """List the other functions, by name, and the declarations."""
    return [*(function.name for function in parts.program.functions if function.name != parts.entry), *_declared(parts)]


def _declared(parts: Parts) -> tuple[str, ...]:
    return parts.program.declarations


def _without_around(parts: Parts, units: frozenset[str]) -> Parts:
    program = parts.program
    functions = tuple(function for function in program.functions if function.name not in units)
    declarations = tuple(text for text in program.declarations if text not in units)
    return replace(parts, program=replace(program, functions=functions, declarations=declarations))


def _directives(parts: Parts) -> list[str]:
    return [*parts.program.options, *parts.function.directives]


def _without_directives(parts: Parts, units: frozenset[str]) -> Parts:
    options = tuple(option for option in parts.program.options if option not in units)
    kept = tuple(text for text in parts.function.directives if text not in units)
    return replace(parts, program=replace(parts.program, options=options)).with_function(
        replace(parts.function, directives=kept)
    )


def _unused_parameters(parts: Parts) -> list[int]:
    declared = parts.function.parameters or ()
    if parts.launch is not None and len(parts.launch.parameters) != len(declared):
        return []
    used = {word for item in parts.items for operand in item.operands for word in re.findall(r"[\w$]+", operand)}
    return [number for number, text in enumerate(declared) if parameter_name(text) not in used]


def _without_parameters(parts: Parts, units: frozenset[int]) -> Parts:
    """Remove parameters from kernel and launch, and the buffers into which no argument points then."""
    kept = tuple(text for number, text in enumerate(parts.function.parameters or ()) if number not in units)
    parts = parts.with_function(replace(parts.function, parameters=kept))
    if parts.launch is None:
        return parts
    arguments = [p for number, p in enumerate(parts.launch.parameters) if number not in units]
    needed = sorted({buffer for parameter in arguments for buffer in buffers_of(parameter)})
    places = {old: new for new, old in enumerate(needed)}
    moved = tuple(with_buffers(parameter, places) for parameter in arguments)
    buffers = tuple(parts.launch.buffers[number] for number in needed)
    contents = tuple(parts.contents[number] for number in needed) if parts.contents else ()
    return replace(parts, launch=replace(parts.launch, parameters=moved, buffers=buffers), contents=contents)


def _extents(parts: Parts) -> list[tuple[str, int, int]]:
    """List (grid or block, dimension, extent) with smaller extents: 1, 32 and half of the present one."""
    if parts.launch is None:
        return []
    return [
        (what, axis, new)
        for what in ("grid", "block")
        for axis, old in enumerate(getattr(parts.launch, what))
        for new in (1, 32, old // 2)
        if new and new < old and parts.launch.cluster == (1, 1, 1)
    ]


def _with_extents(parts: Parts, units: frozenset[tuple[str, int, int]]) -> Parts:
    assert parts.launch is not None
    launch = parts.launch
    for what, axis, new in sorted(units, reverse=True):
        extent = list(getattr(launch, what))
        extent[axis] = new
        changed = (extent[0], extent[1], extent[2])
        launch = replace(launch, grid=changed) if what == "grid" else replace(launch, block=changed)
    block = ", ".join(map(str, launch.block))
    directives = [_SIZED_WHOLE.sub(rf"\g<1> {block}", text) for text in parts.function.directives]
    return replace(parts, launch=launch).with_function(replace(parts.function, directives=tuple(directives)))


def _pieces(parts: Parts) -> list[tuple[int, int, int]]:
    """List (buffer, offset, bytes): pieces of the buffers' contents that are not zero yet."""
    pieces = []
    for number, data in enumerate(parts.contents):
        size = max(16, -(-len(data) // _ZERO_PIECES) + 15 & ~15)
        starts = range(0, len(data), size)
        pieces += [(number, start, size) for start in starts if any(data[start : start + size])]
    return pieces


def _with_zeros(parts: Parts, units: frozenset[tuple[int, int, int]]) -> Parts:
    contents = [bytearray(data) for data in parts.contents]
    for number, start, size in units:
        end = min(start + size, len(contents[number]))
        contents[number][start:end] = bytes(end - start)
    return replace(parts, contents=tuple(map(bytes, contents)))


def renamed(parts: Parts) -> Parts:
    """Rename the kernel to `k`, its parameters to p0, p1, ..., and number registers and labels in order of
    appearance."""
    function = renumbered(parts.function)
    names = {parameter_name(text): f"p{number}" for number, text in enumerate(function.parameters or ())}
    names[parts.entry] = "k"
    word = re.compile(r"(?<![\w$%.])[A-Za-z_$][\w$]*", re.ASCII)

    def written(text: str) -> str:
        return word.sub(lambda match: names.get(match[0], match[0]), text)

    items = tuple(replace(item, operands=tuple(map(written, item.operands))) for item in function.items)
    parameters = None if function.parameters is None else tuple(map(written, function.parameters))
    new = replace(function, name="k", parameters=parameters, items=items)
    functions = tuple(new if old.name == parts.entry else old for old in parts.program.functions)
    launch = None if parts.launch is None else replace(parts.launch, kernel="k")
    return replace(parts, program=replace(parts.program, functions=functions), entry="k", launch=launch)


COARSE = (
    Reduction("other functions and declarations", _around, _without_around),
    Reduction("statements with an effect", _effects, _without_items),
)
FINE = (
    Reduction("statements with an effect", _effects, _without_items),
    Reduction("guards of jumps", _guarded_jumps, _without_guards),
    _constant(0),
    _constant(1),
    _constant(2),
    Reduction("results to one of their sources", _sources, _by_source),
    Reduction("results", _results, _without_items),
    Reduction("copies", _copies, _propagated),
    Reduction("vectors to one element", _lanes, _one_lane),
    Reduction("guards", _guarded, _without_guards),
    Reduction("pragmas", _pragmas, _without_items),
    Reduction("other functions and declarations", _around, _without_around),
    Reduction("parameters", _unused_parameters, _without_parameters),
    Reduction("grid and block", _extents, _with_extents),
)
LAST = (
    Reduction("directives", _directives, _without_directives),
    Reduction("buffers to zeros", _pieces, _with_zeros),
    _literal_to("0"),
    _literal_to("1"),
    Reduction("modifiers", _modifiers, _without_modifiers),
)
