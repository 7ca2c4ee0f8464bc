"""ClusterToCta ("tma-cta"): a rewrite that removes the driver syscall from TMA loads on sm_12x. Works on Ptx values.

For a bulk copy with destination `.shared::cluster`, ptxas generates a test whether the address belongs to another CTA,
and a call of `__cuda_syscall_...` for that case, on GPUs of compute capability 12.x. With destination `.shared::cta`,
neither is needed. Both forms mean the same if destination and barrier are in the CTA's own shared memory. The rewrite
proves that for each load; a load without a proof stays unchanged, and `TmaLoad.refusal` is the reason. A load can be
rewritten if:

* the copy goes from global to shared memory, without `.multicast::cluster` and `.cta_group`;
* the module contains no `mapa`, and no entry has `.explicitcluster` or a `.reqnctapercluster` above 1;
* both addresses are a `.shared` symbol plus offsets made of constants, thread indices and loop counters; they do not
  depend on a parameter, a loaded value, or a CTA or cluster index (PTX ISA, "State Spaces": the shared::cta window
  lies within the shared::cluster window, so that the symbol's address is in this CTA);
* the module's PTX ISA version is 8.6 or newer; older versions lack the `.shared::cta` form.

The proof shows which memory the addresses belong to; it does not bound the offsets: an address outside the symbol's
memory is out of bounds in both forms. But bits 24 and up of an address are the CTA's rank in the cluster, and an offset
could change them. So the rewrite tracks the highest bit that each offset can have through shifts, products and
constants (`reach`). It refuses operations that could set bit 24 or a higher bit: shifts by a register, instructions
that place bits freely (`prmt`, `shf`, `brev`, `bmsk`), and floats.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tritonhook._util.versions import version_key
from tritonhook.ptx.dataflow import Declarations, names_of, number, places_of, settle
from tritonhook.ptx.module import Body, Ptx, Statement, bodies, edited, line_numbers, statements
from tritonhook.ptx.tokens import Span

NAME = "tma-cta"
_CLUSTER, _CTA = "shared::cluster", "shared::cta"
_MINIMUM_VERSION = (8, 6)
_RANK_BIT = 24  # bits 24 and up of an address in the cluster's shared window are the CTA's rank
_THREAD_BITS = 10  # highest bit of a thread index (up to 1023) or a number of threads (up to 1024)
_COUNTER_BITS = 8  # assumed highest bit of a loop counter: more pipeline stages than any kernel has
_THREAD = frozenset({"%tid", "%ntid", "%laneid", "%warpid", "%nwarpid", "WARP_SZ"})
# Instructions that copy their first source; shfl copies it from a thread of the same warp.
_COPIES = frozenset({"mov", "cvt", "cvta", "shfl"})
_ARITHMETIC = frozenset(
    {"add", "sub", "mul", "mul24", "mad", "mad24", "sad", "div", "rem", "min", "max", "neg", "abs", "setp"}
    | {"shl", "shr", "and", "or", "xor", "not", "lop3", "bfe", "bfi", "szext", "popc", "clz", "fns"}
)
_FLOATS = frozenset({"f16", "f16x2", "bf16", "bf16x2", "tf32", "f32", "f32x2", "f64"})
_PLUS = re.compile(r"(?<=[\w$\s])\+", re.ASCII)


@dataclass(frozen=True, slots=True)
class TmaLoad:
    """One TMA load to `.shared::cluster`. line: from 1. refusal: why the load cannot be rewritten; None if it can."""

    function: str
    line: int
    opcode: str
    position: int = field(repr=False)
    refusal: str | None = None

    @property
    def sentence(self) -> str:
        fate = "can be .shared::cta" if self.refusal is None else f"stays: {self.refusal}"
        return f"{self.function}, line {self.line}: {self.opcode.partition('.mbarrier')[0]} {fate}"


@dataclass(frozen=True, slots=True)
class ClusterToCta:
    """Rewrites each TMA load for which `.shared::cta` is proved to mean the same. Other loads stay; `sites` returns the
    reasons."""

    @property
    def key(self) -> str:
        return f"{NAME}-1"

    def apply(self, ptx: Ptx) -> Ptx:
        """Change each load that has a proof to `.shared::cta`, and return the module; the same object if no load
        changes."""
        changing = [site.position + site.opcode.index(_CLUSTER) for site in sites(ptx) if site.refusal is None]
        return edited(ptx, [(Span(_CLUSTER, start), _CTA) for start in changing])

    def remarks(self, ptx: Ptx) -> tuple[str, ...]:
        """Describe the rewrite: one line with the number of changed loads, and one line for each load that stays."""
        loads = sites(ptx)
        changed = sum(site.refusal is None for site in loads)
        name = ", ".join(dict.fromkeys(site.function for site in loads))
        first = (f"{name}: {changed} TMA load{'' if changed == 1 else 's'} to .shared::cta",) if changed else ()
        return (*first, *(site.sentence for site in loads if site.refusal is not None))


def sites(ptx: Ptx) -> tuple[TmaLoad, ...]:
    """Find the TMA loads from global memory to `.shared::cluster`, in order. `refusal` is the reason if a load must
    stay."""
    if _CLUSTER not in ptx.text:
        return ()
    code = list(statements(ptx))
    loads = [item for item in code if _is_load(item)]
    if not loads:
        return ()
    by_name = bodies(ptx)
    line = line_numbers(ptx)
    module = _module_refusal(ptx, code, by_name, line)
    flows = _flows(code, by_name, {item.function for item in loads})
    return tuple(
        TmaLoad(item.function, line(item.position), item.opcode, item.position, module or _refusal(item, flows))
        for item in loads
    )


def _flows(code: Sequence[Statement], by_name: dict[str, Body], wanted: set[str]) -> dict[str, _Flow]:
    """Compute the kinds of the registers of each function in `wanted`."""
    parts: dict[str, list[Statement]] = {name: [] for name in wanted}
    module = Declarations()
    for item in code:
        if not item.function:
            module.add(item)
        elif item.function in wanted:
            parts[item.function].append(item)
    return {name: _Flow(name, parts[name], module, by_name[name].header) for name in wanted}


def _is_load(item: Statement) -> bool:
    parts = item.parts
    if parts[:3] != ("cp", "async", "bulk") or _CLUSTER not in parts:
        return False
    return "global" in parts[parts.index(_CLUSTER) :]  # the destination precedes the source


def _module_refusal(
    ptx: Ptx, code: Sequence[Statement], by_name: Mapping[str, Body], line: Callable[[int], int]
) -> str | None:
    if version_key(ptx.version) < _MINIMUM_VERSION:
        return f"PTX ISA {ptx.version} has no .shared::cta destination; PTX ISA 8.6 introduced it"
    if (unread := next((item for item in code if not item.opcode), None)) is not None:
        return f"line {line(unread.position)} of the module could not be read"
    if any(item.parts[0] == "mapa" for item in code):
        return "the module maps addresses to other CTAs (mapa)"
    for name, body in by_name.items():
        if match := re.search(r"\.reqnctapercluster\s+([\d\s,]+)", body.header):
            if any(int(number) != 1 for number in re.findall(r"\d{1,9}", match[1])):
                return f"{name} runs in clusters of several CTAs (.reqnctapercluster {match[1].strip()})"
        elif ".explicitcluster" in body.header:
            return f"{name} is launched in clusters (.explicitcluster)"
    return None


def _refusal(item: Statement, flows: Mapping[str, _Flow]) -> str | None:
    for part in item.parts:
        if part.startswith("multicast"):
            return "it writes to several CTAs (.multicast::cluster)"
        if part.startswith("cta_group"):
            return f"it signals a barrier of a CTA pair (.{part})"
    tensor = "tensor" in item.parts
    addresses = [(name, at) for name, at in (("destination", 0), ("barrier", 2 if tensor else 3))]
    for name, at in addresses:
        if at >= len(item.operands) or not item.operands[at].startswith("["):
            return f"its {name} could not be read"
        reason = flows[item.function].why_not_own(item.operands[at].strip("[] \t\n"), item)
        if reason is not None:
            return f"its {name} is not proved to be this CTA's shared memory: {reason}"
    return None


# --- where an address comes from -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _AddressKind:
    """Kind of a value: an address in this CTA's shared memory (`own`), an offset, or something else (`why_else`).

    reach: highest bit that can be set in an offset. Carries of sums are ignored; shifts, products and constants count.
    why_else: why the value is neither an address nor an offset.
    """

    own: bool = False
    reach: int = 0
    why_else: str | None = None


_OWN = _AddressKind(own=True)


class _Flow:
    """The kinds of the values in one function's registers. The order of the statements does not matter: a register
    counts as an address in this CTA only if each value that any statement writes to it is such an address."""

    def __init__(self, function: str, body: Sequence[Statement], module: Declarations, header: str) -> None:
        self.module = module
        self.own = Declarations(re.findall(r"[\w$%]+", header, re.ASCII))  # parameters hide .shared symbols
        for item in body:
            self.own.add(item)
        code = [item for item in body if not item.opcode.startswith(".")]
        names = [names_of(item.opcode, item.operands) for item in code]
        self.results = [self._registers(used.writes, item) for item, used in zip(code, names, strict=True)]
        self.written = {register for registers in self.results for register in registers}
        self.kinds: dict[tuple[int, str], _AddressKind] = {}  # no entry while the kind is unknown
        self.function = function
        self.code = code
        reads = (self._registers(used.reads + used.addresses, item) for item, used in zip(code, names, strict=True))
        settle(len(code), places_of(reads), self._judge)

    def why_not_own(self, address: str, item: Statement) -> str | None:
        kind = self._value(address, item)
        if kind is None or kind.why_else is not None:
            return kind.why_else if kind is not None else f"{address} is never written"
        return None if kind.own else f"{address} does not come from a .shared symbol"

    def _is_shared(self, name: str) -> bool:
        tables = (self.own, self.module)
        return any(name in table.shared for table in tables) and not any(name in table.others for table in tables)

    def _resolve(self, name: str, item: Statement) -> tuple[int, str] | None:
        """Resolve a register name in a statement to the innermost scope that declared it before this statement."""
        for scope in item.scope.numbers:
            if (self.own if scope else self.module).register(scope, name, item.position):
                return scope, name
        return None

    def _registers(self, names: Iterable[str], item: Statement) -> set[tuple[int, str]]:
        return {register for name in names if (register := self._resolve(name, item))}

    def _judge(self, step: int) -> Iterator[tuple[int, str]]:
        """Update the kind of each register that a statement writes, and yield the changed ones. A kind changes in one
        direction: unknown, then address or offset, then (if two kinds meet) something else."""
        for register in self.results[step]:
            old = self.kinds.get(register)
            new = _either(old, self._made_by(self.code[step]), register[1])
            if new is not None and new != old:
                self.kinds[register] = new
                yield register

    def _made_by(self, item: Statement) -> _AddressKind | None:
        name, sources = item.parts[0], item.operands[1:]
        if len(sources) < (3 if name in ("selp", "slct") else 1):
            return _AddressKind(why_else=f"{item.opcode} could not be read")
        if "{" in item.operands[0]:
            return _AddressKind(why_else=f"{item.opcode} writes a vector")
        if name == "setp":
            return _AddressKind()
        if _FLOATS.intersection(item.parts):
            return _AddressKind(why_else=f"{item.operands[0]} is a float, the result of {item.opcode}")
        if name in _COPIES:
            return self._value(sources[0], item)
        if name == "selp" or name == "slct":
            return _either(self._value(sources[0], item), self._value(sources[1], item), item.operands[0])
        if name not in _ARITHMETIC:
            return _AddressKind(why_else=f"{item.operands[0]} is the result of {item.opcode}")
        return self._arithmetic(name, sources, item)

    def _arithmetic(self, name: str, sources: Sequence[str], item: Statement) -> _AddressKind | None:
        kinds = [self._value(source, item) for source in sources]
        if (bad := next((k for k in kinds if k is not None and k.why_else), None)) is not None:
            return bad
        known = [kind for kind in kinds if kind is not None]
        if len(known) < len(kinds):
            return None
        owns = [kind.own for kind in known]
        reach = _reach(name, sources, [kind.reach for kind in known])
        if reach is None:
            return _AddressKind(why_else=f"{item.opcode} {', '.join(item.operands)} shifts by a register")
        if reach >= _RANK_BIT:
            return _AddressKind(why_else=f"{item.opcode} {', '.join(item.operands)} reaches the bits of the CTA's rank")
        if not any(owns):
            return _AddressKind(reach=reach)
        adds = name in ("add", "or") or (name == "sub" and not any(owns[1:])) or (name == "mad" and not any(owns[:2]))
        if adds and sum(owns) == 1:
            return _OWN
        return _AddressKind(why_else=f"{item.opcode} is applied to an address")

    def _sum(self, terms: Sequence[str], item: Statement) -> _AddressKind | None:
        """Compute the kind of a sum of a symbol or register and constants, e.g. of an address operand."""
        kinds = [self._term(term.strip(), item) for term in terms]
        if any(kind is None for kind in kinds):
            return None
        known = [kind for kind in kinds if kind is not None]
        bad = next((kind for kind in known if kind.why_else), None)
        if bad or len(known) == 1:
            return bad or known[0]
        owns = sum(kind.own for kind in known)
        if owns > 1:
            return _AddressKind(why_else="two addresses are added")
        return _OWN if owns else _AddressKind(reach=max(kind.reach for kind in known))

    def _value(self, text: str, item: Statement) -> _AddressKind | None:
        """Compute the kind of one operand; None if it is not known yet, e.g. because a later statement of a loop writes
        the register."""
        return self._sum(_PLUS.split(text), item)

    def _term(self, text: str, item: Statement) -> _AddressKind | None:
        if (constant := number(text)) is not None:
            reach = constant.bit_length() - 1
            if reach >= _RANK_BIT:
                return _AddressKind(why_else=f"the constant {text} reaches the bits of the CTA's rank")
            return _AddressKind(reach=max(0, reach))
        if register := self._resolve(text, item):
            if register in self.written:
                return self.kinds.get(register)
            return _AddressKind(why_else=f"{text} is never written in {self.function}")
        if text.partition(".")[0] in _THREAD:
            return _AddressKind(reach=_THREAD_BITS)
        if self._is_shared(text):
            return _OWN
        return _AddressKind(why_else=f"{text} is neither a register, a thread index nor a .shared symbol")


def _reach(name: str, sources: Sequence[str], reaches: Sequence[int]) -> int | None:
    """Compute the highest bit that can be set in the result of an operation; None for a shift by a variable amount.
    reaches: the highest bits of its sources."""
    constants = [number(source) for source in sources]
    last = constants[-1]
    if name == "shl":
        return None if last is None else reaches[0] + last
    if name == "shr" and last is not None:
        return max(0, reaches[0] - last)
    if name == "bfi":
        place = constants[2] if len(constants) == 4 else None
        return None if place is None else max(reaches[1], reaches[0] + place)
    if name in ("mul", "mul24"):
        return sum(reaches[:2])
    if name in ("mad", "mad24"):
        return max(sum(reaches[:2]), reaches[-1])
    if name == "and" and any(constant is not None and constant >= 0 for constant in constants):
        return min(reaches)
    if name in ("add", "sub"):
        return max(_COUNTER_BITS, *reaches)  # the sum may be a loop counter
    return max(reaches)


def _either(a: _AddressKind | None, b: _AddressKind | None, register: str) -> _AddressKind | None:
    """Merge the kinds of two values that the same register can hold."""
    if a is None or b is None or a == b:
        return a or b
    if a.why_else or b.why_else:
        return a if a.why_else else b
    if a.own == b.own:
        return _AddressKind(reach=max(a.reach, b.reach))
    return _AddressKind(why_else=f"{register} is an address on one path and a number on another")
