"""Program: a PTX module as a list of items, which can be removed or changed and written as PTX again.

The written PTX is uniform: no comments, no debug information, no inner blocks; registers are named by size (%r0, %rd1),
labels L0, L1. Registers, labels and variables of inner blocks get unique names, so that the blocks are not needed.
Functions take and return .param variables only: registers that are parameters or results are replaced by .param
variables, with loads and stores in the function and around its calls. dataflow.py interprets the instructions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from tritonhook.errors import PtxError
from tritonhook.ptx.module import Ptx, pieces, split_operands
from tritonhook.ptx.tokens import Head

# A register's prefix depends on its size only, since every instruction accepts registers of the untyped bit types.
_PREFIX = {"pred": "p", "8": "rb", "16": "rs", "32": "r", "64": "rd", "128": "rq"}
_TYPE_OF = {"p": "pred", "rb": "b8", "rs": "b16", "r": "b32", "rd": "b64", "rq": "b128"}
REGISTER = re.compile(r"%(p|rb|rs|rd|rq|r)\d+\b", re.ASCII)
LABEL = re.compile(r"\bL\d+\b", re.ASCII)
_WORD = re.compile(r"(?<![\w$%.])[%$A-Za-z_][\w$%]*(?:\.[A-Za-z_]\w*)*", re.ASCII)
_LABEL_HERE = re.compile(r"\s*([A-Za-z_$%][\w$]*)\s*:(?!:)", re.ASCII)
_GUARD = re.compile(r"\s*@\s*(!?)\s*([\w$%]+)\s+", re.ASCII)
_OPCODE = re.compile(r"\s*([a-z_.][\w.:]*)", re.ASCII)
_COUNTED = re.compile(r"([\w$%]+)<(\d+)>", re.ASCII)
_DECLARED = re.compile(r"(?:^|[\s,])([%$A-Za-z_][\w$]*)\s*(?:\[[^\]]*\]\s*)*(?:=|,|$)", re.ASCII)
_DIRECTIVE = re.compile(r"\.[a-z_]+[^.]*", re.ASCII)
_STRING = re.compile(r'"[^"]*"')
_TAKEN = re.compile(r"\.reg\s+(\.\w+)\s+([\w$%]+)", re.ASCII)
VARIABLES = (".local", ".shared", ".param", ".global", ".const")


@dataclass(frozen=True, slots=True)
class Item:
    """One label, declaration or instruction of a body. guard: "@%p0", "@!%p0" or "". position: offset of the opcode in
    the module's text; -1 for an item that was added."""

    opcode: str = ""
    operands: tuple[str, ...] = ()
    guard: str = ""
    label: str = ""
    position: int = field(default=-1, compare=False)

    @property
    def text(self) -> str:
        if self.label:
            return f"{self.label}:"
        words = [self.guard, self.opcode, ", ".join(self.operands)]
        return "\t" + " ".join(word for word in words if word) + ";"


@dataclass(frozen=True, slots=True)
class Function:
    """One entry or function with a body.

    linkage: the text before the name, e.g. ".visible .entry".
    parameters: declarations of the parameters; None if there are no parentheses.
    directives: directives after the parameters, e.g. ".reqntid 128".
    """

    linkage: str
    name: str
    parameters: tuple[str, ...] | None
    directives: tuple[str, ...]
    items: tuple[Item, ...]

    @property
    def is_entry(self) -> bool:
        return self.linkage.split()[-1] == ".entry"

    @property
    def text(self) -> str:
        listed = "" if self.parameters is None else f"({', '.join(self.parameters)})"
        head = "\n".join([f"{self.linkage} {self.name}{listed}", *self.directives])
        return "\n".join([head, "{", *_declarations(self.items), *(item.text for item in self.items), "}"])


@dataclass(frozen=True, slots=True)
class Program:
    """One module. options: options of `.target`. declarations: text of the module's variables and of functions without
    a body, with semicolons."""

    version: str
    target: str
    options: tuple[str, ...]
    declarations: tuple[str, ...]
    functions: tuple[Function, ...]

    @property
    def text(self) -> str:
        target = ", ".join([self.target, *self.options])
        head = [f".version {self.version}", f".target {target}", ".address_size 64"]
        return "\n".join([*head, *self.declarations, *(function.text for function in self.functions), ""])

    def with_function(self, changed: Function) -> Program:
        """Return the program with the function of the same name replaced."""
        functions = tuple(changed if function.name == changed.name else function for function in self.functions)
        return replace(self, functions=functions)


def parameter_name(declaration: str) -> str:
    """Parse the name of a parameter: `.param .align 64 .b8 k_param_0[128]` gives k_param_0."""
    return str(_WORD.findall(declaration.partition("[")[0])[-1])


def read_program(ptx: Ptx) -> Program:
    """Parse a module into a Program. Raises PtxError if a statement cannot be parsed."""
    declarations: list[str] = []
    functions: list[Function] = []
    body: _Body | None = None
    for start, end, mark, head in pieces(ptx):
        text = ptx.tokens.code[start:end]
        if mark == "{":
            if body is None and head is not None:
                body = _Body(_header(text, start, head))
            elif body is not None:
                body.add(text, ptx.text[start:end], start)
                body.open()
        elif body is None:
            if text.strip():
                declarations.append(" ".join(text.split()) + ";")
        else:
            body.add(text, ptx.text[start:end], start)
            if mark == "}" and body.close():
                functions.append(body.function())
                body = None
    options = tuple(option for option in ptx.tokens.options if option != "debug")
    return Program(ptx.version, ptx.target, options, tuple(declarations), tuple(functions))


def _header(text: str, start: int, head: Head) -> Function:
    """Make a Function from its head; it has no items yet."""
    linkage, rest = text[: head.start - start], text[head.end - start :]
    written = text[head.start - start : head.end - start]
    before = re.split(rf"(?<![\w$]){re.escape(head.name)}(?![\w$])", written, maxsplit=1)[0]
    listed = [" ".join(part.split()) for part in (head.listed or "").split(",")]
    parameters = None if head.listed is None else tuple(filter(None, listed))
    directives = tuple(" ".join(directive.split()) for directive in _DIRECTIVE.findall(rest))
    return Function(" ".join(f"{linkage} {before}".split()), head.name, parameters, directives, ())


@dataclass(slots=True)
class _Block:
    """A block whose `}` has not been read yet.

    names: new names of its variables, and of those of its registers that have been used so far.
    registers: new prefix of each register that is declared by its full name.
    counted: for registers declared as in `%r<100>`: old prefix -> number and new prefix.
    """

    names: dict[str, str] = field(default_factory=dict)
    registers: dict[str, str] = field(default_factory=dict)
    counted: dict[str, tuple[int, str]] = field(default_factory=dict)

    def prefix(self, word: str) -> str | None:
        """Return the new prefix of a register that this block declares; None for any other token."""
        if word in self.registers:
            return self.registers[word]
        match = re.fullmatch(r"(.*?)(\d+)", word)
        number, prefix = self.counted.get(match[1], (0, None)) if match else (0, None)
        return prefix if match and int(match[2]) < number else None


class _Body:
    """Parser for the body of one function. Labels can be used before they are declared, so they are renamed at the
    end."""

    def __init__(self, header: Function) -> None:
        self.blocks = [_Block()]
        self.items: list[tuple[Item, tuple[int, ...]]] = []  # (item, numbers of its blocks, innermost last)
        self.numbers = [0]
        self.labels: dict[tuple[int, str], str] = {}
        self.count = dict.fromkeys(_TYPE_OF, 0)
        self.opened = self.variables = 0
        taken = [_TAKEN.findall(" ".join(one)) for one in ((header.linkage,), header.parameters or ())]
        self.header = replace(
            header,
            linkage=header.linkage.replace(".reg ", ".param "),
            parameters=header.parameters and tuple(one.replace(".reg ", ".param ") for one in header.parameters),
        )
        for type_, name in chain(*taken):
            self.declare_registers(f"{type_} {name}")
        self.results, self.given = ([(self.named(name), name) for _, name in several] for several in taken)

    def open(self) -> None:
        self.opened += 1
        self.blocks.append(_Block())
        self.numbers.append(self.opened)

    def close(self) -> bool:
        """Close the innermost block. Returns True if that block was the function's body."""
        self.blocks.pop()
        self.numbers.pop()
        return not self.blocks

    def add(self, code: str, text: str, start: int) -> None:
        at = 0
        while match := _LABEL_HERE.match(code, at):
            new = self.labels.setdefault((self.numbers[-1], match[1]), f"L{len(self.labels)}")
            self.items.append((Item(label=new), tuple(self.numbers)))
            at = match.end()
        guard = ""
        if match := _GUARD.match(code, at):
            guard, at = f"@{match[1]}{self.named(match[2])}", match.end()
        if not code[at:].strip():
            return
        if (match := _OPCODE.match(code, at)) is None:
            raise PtxError(f"{self.header.name}: cannot read the statement {' '.join(code[at:].split())!r}")
        opcode, rest = match[1], code[match.end() :].strip()
        if opcode == ".reg":
            self.declare_registers(rest)
        elif opcode.startswith(VARIABLES):
            self.declare_variable(opcode, rest)
        elif opcode == ".pragma":
            self.items.append((Item(opcode, tuple(_STRING.findall(text))), tuple(self.numbers)))
        elif opcode != ".loc":
            operands = tuple(_compact(self.renamed(operand)) for operand in split_operands(rest))
            position = start + match.start(1)
            self.items.append((Item(opcode, operands, guard, position=position), tuple(self.numbers)))

    def declare_registers(self, rest: str) -> None:
        """Parse `.reg .b32 %r<100>` or `.reg .pred p, q`."""
        type_, _, names = rest.partition(" ") if " " in rest else rest.partition("\t")
        size = type_.strip().lstrip(".")
        size = "pred" if size == "pred" else _SIZE_OF.get(size, re.sub(r"\D", "", size))
        if size not in _PREFIX:
            raise PtxError(f"{self.header.name}: cannot read the registers {rest!r}")
        for name in names.split(","):
            if match := _COUNTED.fullmatch(name.strip()):
                self.blocks[-1].counted[match[1]] = int(match[2]), _PREFIX[size]
            else:
                self.blocks[-1].registers[name.strip()] = _PREFIX[size]

    def declare_variable(self, opcode: str, rest: str) -> None:
        (name,) = _DECLARED.findall(rest)[:1] or [""]
        new = name
        if len(self.blocks) > 1 or name in self.blocks[0].names:
            self.variables += 1
            new = f"{name}_{self.variables}"
        self.blocks[-1].names[name] = new
        written = re.sub(rf"(?<![\w$%]){re.escape(name)}(?![\w$])", lambda _: new, rest, count=1)
        self.items.append((Item(opcode, (" ".join(written.split()),)), tuple(self.numbers)))

    def named(self, word: str) -> str:
        """Return the new name of a register or variable; any other token is returned unchanged."""
        for block in reversed(self.blocks):
            if word in block.names:
                return block.names[word]
            if prefix := block.prefix(word):
                self.count[prefix] += 1
                block.names[word] = f"%{prefix}{self.count[prefix] - 1}"
                return block.names[word]
        return word

    def renamed(self, operand: str) -> str:
        def new(match: re.Match[str]) -> str:
            head, dot, tail = match[0].partition(".")
            return self.named(head) + dot + tail

        return _WORD.sub(new, operand)

    def function(self) -> Function:
        items = [self._with_labels(item, numbers) for item, numbers in self.items]
        stores = [_moved("st", *both) for both in self.results]
        if stores and (not items or items[-1].opcode.split(".")[0] != "ret"):
            items.append(Item("ret"))
        found = [_moved("ld", *both) for both in self.given]
        for item in items:
            if item.opcode.split(".")[0] == "ret":
                found += stores
            found += self._call(item) if item.opcode.split(".")[0] == "call" else [item]
        return replace(self.header, items=tuple(found))

    def _call(self, item: Item) -> list[Item]:
        """Replace registers among the arguments and results of a call by .param variables, with loads and stores."""
        before, behind, operands = list[Item](), list[Item](), list[str]()
        for number, operand in enumerate(item.operands):
            names = [one.strip() for one in operand[1:-1].split(",")] if operand.startswith("(") else []
            for place, register in enumerate(names):
                if REGISTER.fullmatch(register):
                    self.variables += 1
                    names[place] = name = f"{self.header.name}_{self.variables}_"
                    before.append(Item(".param", (f".{register_type(register)} {name}",)))
                    if number == 0:
                        behind.append(replace(_moved("ld", register, name), guard=item.guard))
                    else:
                        before.append(_moved("st", register, name))
            operands.append(f"({', '.join(names)})" if names else operand)
        return [*before, replace(item, operands=tuple(operands)), *behind]

    def _with_labels(self, item: Item, numbers: tuple[int, ...]) -> Item:
        if item.label or not item.operands or not self.labels:
            return item

        def new(match: re.Match[str]) -> str:
            return next(
                (self.labels[number, match[0]] for number in reversed(numbers) if (number, match[0]) in self.labels),
                match[0],
            )

        return replace(item, operands=tuple(_WORD.sub(new, operand) for operand in item.operands))


def _moved(how: str, register: str, name: str) -> Item:
    """Make the instruction that loads ("ld") a register from a .param variable or stores ("st") it there."""
    operands = (register, f"[{name}]") if how == "ld" else (f"[{name}]", register)
    return Item(f"{how}.param.{register_type(register)}", operands)


_SIZE_OF = {"f16x2": "32", "bf16x2": "32", "f32x2": "64", "bf16": "16", "tf32": "32"}


def _compact(operand: str) -> str:
    """Remove blanks and zero offsets from an operand: `[ %rd0 + 0 ]` becomes `[%rd0]`."""
    if operand[1:].isalnum():  # fast path: most operands are single registers
        return operand
    written = re.sub(r"\s*([,{}\[\]+])\s*", r"\1", " ".join(operand.split()))
    return written.replace("+0]", "]").replace(",", ", ")


def registers_in(items: Iterable[Item]) -> Iterator[tuple[str, str]]:
    """Yield each register in these items with its prefix, in order of appearance, with repetitions."""
    for item in items:
        for text in (item.guard, *item.operands):
            for match in REGISTER.finditer(text):
                yield match[0], match[1]


def register_counts(items: Iterable[Item]) -> dict[str, int]:
    """Compute the register count to declare for each prefix: the highest register number plus one."""
    highest: dict[str, int] = {}
    for name, prefix in set(registers_in(items)):
        highest[prefix] = max(highest.get(prefix, 0), int(name[1 + len(prefix) :]) + 1)
    return highest


def _declarations(items: Sequence[Item]) -> list[str]:
    highest = register_counts(items)
    return [f"\t.reg .{_TYPE_OF[prefix]} %{prefix}<{highest[prefix]}>;" for prefix in _TYPE_OF if prefix in highest]


def register_type(name: str) -> str:
    """Derive the type of a register from its name: "pred", "b8", "b16", "b32", "b64" or "b128"."""
    match = REGISTER.fullmatch(name)
    if match is None:
        raise PtxError(f"{name!r} is not a register of a Program, e.g. %r0 or %rd1")
    return _TYPE_OF[match[1]]


def renumbered(function: Function) -> Function:
    """Renumber registers and labels of a function in order of appearance."""
    names: dict[str, str] = {}
    counts = dict.fromkeys(_TYPE_OF, 0)
    for name, prefix in registers_in(function.items):
        if name not in names:
            names[name] = f"%{prefix}{counts[prefix]}"
            counts[prefix] += 1
    labels = [item.label for item in function.items if item.label]
    names.update({label: f"L{number}" for number, label in enumerate(labels)})

    def new(match: re.Match[str]) -> str:
        return names.get(match[0], match[0])

    def written(text: str) -> str:
        return LABEL.sub(new, REGISTER.sub(new, text))

    items = (
        Item(i.opcode, tuple(map(written, i.operands)), written(i.guard), written(i.label)) for i in function.items
    )
    return replace(function, items=tuple(items))
