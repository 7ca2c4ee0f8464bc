"""Normal form of PTX: operations that can be spelled in several ways become one operation, so that the pattern of a bug
needs only one form.

Moves are removed, and equal computations become one value. Constants are folded, also through registers, and are the
last operand of commutative operations. Equivalent operations become one. Each line names the resulting operation, then
the operations that become it:

* `neg`: `0 - x`, a product with -1, and `not` plus 1; `sub`: the sum with a negation
* `shl`: a product with a power of two, and a number added to itself
* a product and a sum: `mad`
* `or`, `and`, `xor`, `not`: `bfi`, and sums of numbers that have no 1 bit in common
* `max` and `min`: `setp` with `selp` or with a guarded `mov`; `selp`: a guarded statement
* `setp.lt` and `setp.le`: `gt` and `ge` with exchanged operands; `cnot`: `setp.eq` with `selp`

Forms that ptxas unifies only after the pass with the bug stay separate: `lop3`, `bfe`, `shf`, `and` of 64 bits.

Types are b16 to b64 if the sign makes no difference, else s16 to u64. Constants are unsigned: -1 in 32 bits is
0xffffffff. Any other operation keeps its name, its qualifiers and its operands.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from tritonhook.ptx.dataflow import Chain, Operation, Part, Source, only_maker, operations
from tritonhook.ptx.module import Ptx, Statement

_WARP_SIZE = 32
_DEPTH = 4  # the search for constant bits follows at most so many operations back
_TYPE = re.compile(r"[sub](8|16|32|64)")
_FLOAT = re.compile(r"0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}")  # a floating-point constant, written as its bits
_SIGNLESS = frozenset(
    {"add", "sub", "neg", "mul.lo", "mad.lo", "shl", "and", "or", "xor", "not", "selp", "cnot", "mov"}
)
_COMMUTES = frozenset({"add", "mul.lo", "and", "or", "xor", "min", "max", "setp.eq", "setp.ne", "add.cc", "mul.wide"})
_COMPARISONS = {
    **{"setp.gt": ("setp.lt", True), "setp.ge": ("setp.le", True), "setp.hi": ("setp.lt", True)},
    **{"setp.hs": ("setp.le", True), "setp.lo": ("setp.lt", False), "setp.ls": ("setp.le", False)},
}
_NOT = {"setp.lt": ("setp.le", True), "setp.le": ("setp.lt", True), "setp.eq": ("setp.ne", False)}
_NOT["setp.ne"] = ("setp.eq", False)
_FOLDS: dict[str, Callable[[int, int, int], int]] = {
    "add": lambda a, b, bits: a + b,
    "sub": lambda a, b, bits: a - b,
    "mul.lo": lambda a, b, bits: a * b,
    "and": lambda a, b, bits: a & b,
    "or": lambda a, b, bits: a | b,
    "xor": lambda a, b, bits: a ^ b,
    "shl": lambda a, b, bits: a << min(b, bits),
    "neg": lambda a, _, bits: -a,
    "not": lambda a, _, bits: ~a,
    "mov": lambda a, _, bits: a,
}
# Operations that copy the first operand if the second is this number.
_SAME = {"add": 0, "sub": 0, "or": 0, "xor": 0, "shl": 0, "shr": 0, "mul.lo": 1}


def normal_operations(ptx: Ptx) -> Iterator[list[Operation]]:
    """Yield the operations of each function in normal form, in order."""
    return operations(ptx, NormalChain)


class NormalChain(Chain):
    """The operations of one function in normal form. Operations that compute equal values share their list of
    readers."""

    def __init__(self, body: Sequence[Statement]) -> None:
        self.known: dict[tuple[object, ...], Operation] = {}
        self.is_move = False
        super().__init__(body)

    def add(self, statement: Statement, targets: Sequence[str], operands: Sequence[str]) -> None:
        self.is_move = statement.opcode.startswith("mov.")  # in a `mov`, a float constant stands for its bits
        super().add(statement, targets, operands)

    def source(self, text: str) -> Source:
        if _FLOAT.fullmatch(text):
            return int(text[2:], 16) if self.is_move else text
        return _WARP_SIZE if text == "WARP_SZ" else super().source(text)

    def values(self, operation: Operation, targets: Sequence[str]) -> Sequence[Source]:
        statement, sources = operation.statement, operation.sources
        name, type_ = _named(operation)
        if is_pure(name) and len(sources) < _fewest(name):
            operation.name = f"?{name}"  # invalid PTX: with this name, no rule and no pattern matches it
            return list(super().values(operation, targets))
        if len(targets) == 2 and name in (*_NOT, *_COMPARISONS):
            made = [self.make(statement, name, type_, *sources)]
            made.append(self.make(statement, "not", "pred", made[0]))
        elif len(targets) == 1 and is_pure(name):
            made = [self.make(statement, name, type_, *sources)]
        else:
            operation.name = "@" * bool(statement.guard) + name  # with "@", no pattern matches a guarded operation
            made = list(super().values(operation, targets))
        if not statement.guard:
            return made
        return [self.chosen(statement, new, target) for new, target in zip(made, targets, strict=True)]

    def chosen(self, statement: Statement, new: Source, target: str) -> Source:
        """Compute the value of a register after a guarded statement: a `selp` of the new and the old value."""
        pair = new, self.source(target)
        is_negated = statement.guard.startswith("!")
        guard = self.source(statement.guard.lstrip("! "))
        return self.make(statement, "selp", "b32", *(pair[::-1] if is_negated else pair), guard)

    def make(self, statement: Statement, name: str, type_: str, *sources: Source) -> Source:
        """Return the value of an operation: fold it to a number, reuse an equal operation, or make a new one."""
        if name.startswith("set.") and _bits(name.rpartition(".")[2]):
            compared = self.make(statement, f"setp.{name.split('.')[1]}", type_, *sources)
            return self.make(statement, "selp", "b32", (1 << _bits(name.split(".")[-1])) - 1, 0, compared)
        if name in _COMPARISONS:
            name, swapped = _COMPARISONS[name]
            sources = sources[::-1] if swapped else sources
        rule = _Rule(self, statement, name, type_)
        if rule.bits:
            sources = tuple(source & rule.ones if isinstance(source, int) else source for source in sources)
        if name in _COMMUTES and isinstance(sources[0], int):
            sources = sources[1], sources[0], *sources[2:]
        value = rule.value(sources)
        return self.new(statement, name, type_, sources) if value is None else value

    def new(self, statement: Statement, name: str, type_: str, sources: tuple[Source, ...]) -> Source:
        operation = Operation(statement, name, type_, sources)
        key = name, type_, frozenset(sources) if name in _COMMUTES else sources
        before = self.known.setdefault(key, operation)
        operation.readers = before.readers
        self.keep(operation)
        return Part(before, 0)


def _named(operation: Operation) -> tuple[str, str]:
    """Normalise the name and the type of an operation: types for which the result is the same become one type."""
    name, type_ = operation.name, operation.type
    if name in _SIGNLESS and _bits(type_):
        return name, f"b{_bits(type_)}"
    if name == "mov":
        return name, f"b{type_[1:]}"
    if name in ("shr", "setp.hi", "setp.hs", "setp.lo", "setp.ls") or name.startswith("add.cc"):
        return name, type_.replace("b", "u")
    return name, type_


def _bits(type_: str) -> int:
    """Parse the size of an integer type in bits; 0 for other types."""
    match = _TYPE.fullmatch(type_)
    return int(match[1]) if match else 0


def is_pure(name: str) -> bool:
    """Return True if the operation has no side effects, and equal operands give equal results."""
    return name.partition(".")[0] in _PURE


def _fewest(name: str) -> int:
    """Return the minimum number of operands of an operation."""
    return _OPERANDS.get(name) or (2 if name.partition(".")[0] in ("add", "mul", "mad", "set", "setp", "slct") else 1)


def zeros(value: Source, bits: int, depth: int = _DEPTH) -> int:
    """Compute the mask of the bits of a value that are always 0. depth: how many operations back to search."""
    ones = (1 << bits) - 1
    if isinstance(value, int):
        return ~value & ones
    made = only_maker(value)
    if made is None or not depth:
        return 0
    constant = made.number(1)
    if made.is_a("and") and constant is not None:
        return ~constant & ones | zeros(made.sources[0], bits, depth - 1)
    if made.is_a("shl") and constant is not None:
        return (zeros(made.sources[0], bits, depth - 1) << constant | (1 << min(constant, bits)) - 1) & ones
    if made.is_a("shr", f"u{bits}") and constant is not None:
        return ones & ~(ones >> min(constant, bits))
    if made.is_a("mul.lo") and constant:
        return (constant & -constant) - 1
    if made.is_a("or") or made.is_a("selp"):
        return zeros(made.sources[0], bits, depth - 1) & zeros(made.sources[1], bits, depth - 1)
    if made.is_a("cnot"):
        return ones & ~1
    if made.name in ("cvt.u32", "cvt.u64") and (narrow := _bits(made.type)) and made.type[0] in "ub":
        return ones & ~((1 << narrow) - 1)
    return 0


class _Rule:
    """Rewrites one operation to its normal form. The method `_<opcode>` returns the value that replaces it, or None."""

    def __init__(self, chain: NormalChain, statement: Statement, name: str, type_: str) -> None:
        self.chain, self.statement, self.name, self.type = chain, statement, name, type_
        self.bits = _bits(type_)
        self.ones = (1 << self.bits) - 1

    def make(self, name: str, *sources: Source, type_: str = "") -> Source:
        return self.chain.make(self.statement, name, type_ or self.type, *sources)

    def value(self, sources: tuple[Source, ...]) -> Source | None:
        """Return the value that replaces the operation: the source of a copy, a constant, or the result of the method
        for its opcode. None if the operation already has normal form."""
        name = self.name
        numbers = [source for source in sources if isinstance(source, int)]
        if name == "mov" and len(numbers) == len(sources) > 1:
            size = int(self.type[1:]) // len(sources)
            return sum((number & (1 << size) - 1) << size * at for at, number in enumerate(numbers))
        if name == "mov" and len(parts := {one.operation for one in sources if isinstance(one, Part)}) == 1:
            (made,) = parts  # a value that was split into parts and joined again
            if made.name == "mov" and list(sources) == [Part(made, at) for at in range(made.results)] and sources[1:]:
                return made.sources[0]
        if self.bits and len(numbers) == len(sources) and name in _FOLDS:
            return _FOLDS[name](numbers[0], numbers[-1], self.bits) & self.ones
        if len(sources) == 2 and sources[1] == _SAME.get(name) and not (name in ("or", "xor") and self.bits == 64):
            return sources[0]  # not `or` and `xor` of 64 bits: ptxas first splits them into halves
        if len(sources) != _OPERANDS.get(name) or not (self.bits or name in _OF_ANY_TYPE):
            return None
        rule: Callable[..., Source | None] | None = getattr(self, "_" + name.partition(".")[0], None)
        return rule(*sources) if rule else None

    def _mov(self, a: Source) -> Source | None:
        return a

    def _add(self, a: Source, b: Source) -> Source | None:
        inner, other = only_maker(a), only_maker(b)
        if a == b:
            return self.make("shl", a, 1)
        if isinstance(b, int):
            if inner is not None and inner.is_a("add") and isinstance(inner.sources[1], int):
                return self.make("add", inner.sources[0], inner.sources[1] + b)
            if inner is not None and inner.is_a("sub") and isinstance(inner.sources[0], int):
                return self.make("sub", inner.sources[0] + b, inner.sources[1])
            if b == 1 and inner is not None and inner.is_a("not"):
                return self.make("neg", inner.sources[0])
        if zeros(a, self.bits) | zeros(b, self.bits) == self.ones:
            return self.make("or", a, b)
        if other is not None and other.is_a("neg"):
            return self.make("sub", a, other.sources[0])
        if inner is not None and inner.is_a("neg"):
            return self.make("sub", b, inner.sources[0])
        return None

    def _sub(self, a: Source, b: Source) -> Source | None:
        inner = only_maker(b)
        if isinstance(b, int):
            return self.make("add", a, -b)
        if a == 0:
            return self.make("neg", b)
        if inner is not None and inner.is_a("neg"):
            return self.make("add", a, inner.sources[0])
        if a == self.ones:
            return self.make("not", b)
        return None

    def _neg(self, a: Source) -> Source | None:
        inner = only_maker(a)
        if inner is not None and inner.is_a("neg"):
            return inner.sources[0]
        if inner is not None and inner.is_a("sub"):
            return self.make("sub", *inner.sources[::-1])
        return None

    def _not(self, a: Source) -> Source | None:
        inner = only_maker(a)
        if inner is None:
            return None
        if inner.name in _NOT and _bits(inner.type):  # floats excluded: for NaN both comparisons are false
            name, swapped = _NOT[inner.name]
            return self.make(name, *(inner.sources[::-1] if swapped else inner.sources), type_=inner.type)
        if inner.is_a("not") and self.bits < 64:
            return inner.sources[0]
        if inner.is_a("add") and inner.sources[1] == self.ones:
            return self.make("neg", inner.sources[0])
        if inner.name in ("and", "or"):
            negated = [self._negated(source) for source in inner.sources]
            if all(source is not None for source in negated):
                return self.make({"and": "or", "or": "and"}[inner.name], *(s for s in negated if s is not None))
        return None

    def _negated(self, value: Source) -> Source | None:
        """Return x if this value is `not x`, else None."""
        made = only_maker(value)
        return ~value & self.ones if isinstance(value, int) else made.sources[0] if made and made.is_a("not") else None

    def _mul(self, a: Source, b: Source) -> Source | None:
        if b == 0:
            return 0
        if b == self.ones:
            return self.make("neg", a)
        if isinstance(b, int) and b & (b - 1) == 0:
            return self.make("shl", a, b.bit_length() - 1)
        return None

    def _mad(self, a: Source, b: Source, c: Source) -> Source | None:
        return self.make("add", self.make("mul.lo", a, b), c)

    def _and(self, a: Source, b: Source) -> Source | None:
        inner = only_maker(a)
        if a == b or (b == self.ones and self.bits < 64):
            return a
        if b == 0:
            return 0
        if isinstance(b, int) and inner is not None and inner.is_a("and") and isinstance(inner.sources[1], int):
            return self.make("and", inner.sources[0], inner.sources[1] & b)
        return None

    def _or(self, a: Source, b: Source) -> Source | None:
        inner = only_maker(a)
        if a == b:
            return a
        if isinstance(b, int) and inner is not None and inner.is_a("or") and isinstance(inner.sources[1], int):
            return self.make("or", inner.sources[0], inner.sources[1] | b)
        return None

    def _xor(self, a: Source, b: Source) -> Source | None:
        if a == b:
            return 0
        if b == self.ones:
            return self.make("not", a)
        if zeros(a, self.bits) | zeros(b, self.bits) == self.ones:
            return self.make("or", a, b)
        return None

    def _shl(self, a: Source, b: Source) -> Source | None:
        """Merge two shifts into one, if the result keeps any bits."""
        inner = only_maker(a)
        before = inner.number(1) if inner is not None and inner.is_a("shl") else None
        if inner is not None and before is not None and isinstance(b, int) and before + b < self.bits:
            return self.make("shl", inner.sources[0], before + b)
        # For 64 bits ptxas does not fold all of these shifts to 0.
        return 0 if isinstance(b, int) and self.bits <= b and self.bits < 64 else None

    def _shr(self, a: Source, b: Source) -> Source | None:
        inner = only_maker(a)
        if self.type[0] != "u" or not isinstance(b, int):
            return None
        if isinstance(a, int) or b >= self.bits:
            return a >> b if isinstance(a, int) else 0
        if inner is not None and inner.is_a("shl") and inner.sources[1] == b:
            return self.make("and", inner.sources[0], self.ones >> b, type_=f"b{self.bits}")
        return None

    def _div(self, a: Source, b: Source) -> Source | None:
        if self.type[0] == "u" and isinstance(b, int) and b and b & (b - 1) == 0:
            return self.make("shr", a, b.bit_length() - 1)
        return None

    def _min(self, a: Source, b: Source) -> Source | None:
        return a if a == b else None

    _max = _min

    def _selp(self, a: Source, b: Source, c: Source) -> Source | None:
        made = only_maker(c)
        if a == b:
            return a
        if made is None or len(made.sources) != 2:
            return None
        pair, unit, other = {a, b}, *made.sources
        if made.name in ("setp.lt", "setp.le") and _bits(made.type) and pair == {unit, other}:
            return self.make("min" if a == unit else "max", a, b, type_=made.type)
        if (made.name, a, b) in (("setp.eq", 1, 0), ("setp.ne", 0, 1)) and other == 0 and _bits(made.type) == 32:
            return self.make("cnot", unit, type_="b32")
        return None

    def _bfi(self, a: Source, b: Source, c: Source, d: Source) -> Source | None:
        """Replace `bfi` with constant position and length, if it inserts a constant or a field that ends at the top
        bit."""
        if not isinstance(c, int) or not isinstance(d, int) or not 0 <= c < c + d <= self.bits:
            return None
        field = ((1 << d) - 1) << c
        if isinstance(a, int):
            return self.make("or", self.make("and", b, ~field), a << c & field)
        if c + d == self.bits and c:
            return self.make("or", self.make("shl", a, c), self.make("and", b, ~field))
        return None

    def _cvt(self, a: Source) -> Source | None:
        to = self.name.partition(".")[2]
        size = _bits(to)
        if not size or not self.bits or "f" in to + self.type:
            return None
        if isinstance(a, int):
            is_negative = self.type[0] == "s" and a >> self.bits - 1 & 1
            return (a & self.ones) - (is_negative << self.bits) & (1 << size) - 1
        inner = only_maker(a)
        if inner is not None and inner.name.startswith("cvt.") and size == _bits(inner.type) < self.bits:
            return inner.sources[0]
        if inner is not None and self.type[0] in "ub" and self.bits < size == _bits(inner.type):
            return self.make("and", a, self.ones, type_=f"b{size}")
        return a if size == self.bits else None


_PURE = frozenset(
    {"mov", "add", "sub", "neg", "not", "mul", "mad", "and", "or", "xor", "shl", "shr", "shf", "div", "min", "max"}
    | {"selp", "set", "setp", "bfe", "bfi", "prmt", "lop3", "cvt", "cnot", "slct"}
)
_OF_ANY_TYPE = ("mov", "selp", "not")
_OPERANDS = {
    **dict.fromkeys(("mov", "neg", "not"), 1),
    **dict.fromkeys(("add", "sub", "mul.lo", "and", "or", "xor", "shl", "shr", "div", "min", "max"), 2),
    **dict.fromkeys(("setp.eq", "setp.ne"), 2),
    **dict.fromkeys(("mad.lo", "selp", "bfe", "prmt"), 3),
    **dict.fromkeys(("bfi", "lop3"), 4),
    **{f"cvt.{sign}{bits}": 1 for sign in "sub" for bits in (8, 16, 32, 64)},
}
