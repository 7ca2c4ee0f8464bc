"""ClusterToCta: the rewrite that removes the driver syscall from TMA loads on sm_12x. Works on Ptx values.

For GPUs of compute capability 12.x, ptxas turns a bulk copy to `.shared::cluster` into a test whether the address
is another CTA's, and a call of `__cuda_syscall_...` for that case. With `.shared::cta` as destination there is no
such case and no call. Both forms mean the same if destination and barrier are the CTA's own shared memory. This is
proved for each load (a Site), or the load stays as it is and its Site gives the reason. A load can be rewritten if:

* the copy goes from global to shared memory, without `.multicast::cluster` and `.cta_group`;
* the module has no `mapa`, and its entries no `.reqnctapercluster` above 1 and no `.explicitcluster`;
* both addresses are a `.shared` symbol, plus offsets made of constants, thread indices and loop counters; no
  parameter, loaded value, CTA or cluster index goes into them (PTX ISA, "State Spaces": the shared::cta window
  lies within the shared::cluster window, so that the symbol's own address is this CTA's);
* PTX ISA 8.6 or newer, which has the `.shared::cta` form.

The proof covers where the addresses come from, not how far the offsets reach: an address outside the symbol's own
memory is out of bounds in both forms.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tritonhook._util.versions import version_key
from tritonhook.ptx.module import Ptx
from tritonhook.ptx.statements import Statement, headers, line_of, statements

NAME = "tma-cta"
_CLUSTER, _CTA = "shared::cluster", "shared::cta"
_MINIMUM_VERSION = (8, 6)
_NOT_LOADS = frozenset({"prefetch", "commit_group", "wait_group"})
_WINDOW = 1 << 24  # bytes of one CTA's shared window within the cluster's: bits 24 and up are the CTA's rank
_COUNTED = re.compile(r"([\w$%]+)<(\d+)>", re.ASCII)
_TOKEN = re.compile(r"%?[A-Za-z_$][\w$]*(?:\.[xyzw])?|%[\w$.]+", re.ASCII)
_NUMBER = re.compile(r"[-+]?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|0[0-7]*|[1-9]\d*)U?", re.ASCII)
_THREAD = frozenset({"%tid", "%ntid", "%laneid", "%warpid", "%nwarpid", "WARP_SZ"})
# Instructions whose result is a copy of their first source; of shfl, in some thread of the same warp.
_COPIES = frozenset({"mov", "cvt", "cvta", "shfl"})
_ARITHMETIC = frozenset(
    {"add", "sub", "mul", "mul24", "mad", "mad24", "sad", "div", "rem", "min", "max", "neg", "abs", "setp", "set"}
    | {"shl", "shr", "shf", "and", "or", "xor", "not", "lop3", "prmt", "bfe", "bfi", "bmsk", "szext"}
    | {"popc", "clz", "brev", "fns"}
)


@dataclass(frozen=True, slots=True)
class Site:
    """One load to `.shared::cluster`. line: from 1. refusal: why it cannot be rewritten; None if it can."""

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
    """Rewrites every load whose two forms are proved to mean the same. Others stay; `sites` gives the reasons."""

    @property
    def key(self) -> str:
        return f"{NAME}-1"

    def apply(self, ptx: Ptx) -> Ptx:
        """Return the module with these loads to `.shared::cta`; the same object if there are none."""
        chosen = [site for site in sites(ptx) if site.refusal is None]
        text, done, pieces = ptx.text, 0, []
        for site in chosen:
            at = site.position + site.opcode.index(_CLUSTER)
            pieces += [text[done:at], _CTA]
            done = at + len(_CLUSTER)
        return Ptx("".join([*pieces, text[done:]])) if chosen else ptx

    def remarks(self, ptx: Ptx) -> tuple[str, ...]:
        """How many loads change, and a line for each that stays."""
        found = sites(ptx)
        changed = sum(site.refusal is None for site in found)
        name = ", ".join(dict.fromkeys(site.function for site in found))
        first = (f"{name}: {changed} TMA load{'' if changed == 1 else 's'} to .shared::cta",) if changed else ()
        return (*first, *(site.sentence for site in found if site.refusal is not None))


def sites(ptx: Ptx) -> tuple[Site, ...]:
    """Find the loads from global memory to `.shared::cluster`, in order, each with the reason if it must stay."""
    if _CLUSTER not in ptx.text:
        return ()
    code = list(statements(ptx))
    loads = [item for item in code if _is_load(item)]
    if not loads:
        return ()
    module = _module_refusal(ptx, code)
    heads = headers(ptx)
    flows = {name: _Flow(name, code, heads.get(name, "")) for name in {item.function for item in loads}}
    return tuple(
        Site(item.function, line_of(ptx, item.position), item.opcode, item.position, module or _refusal(item, flows))
        for item in loads
    )


def _is_load(item: Statement) -> bool:
    parts = item.parts
    if parts[:3] != ("cp", "async", "bulk") or _NOT_LOADS & set(parts) or _CLUSTER not in parts:
        return False
    return "global" in parts[parts.index(_CLUSTER) :]  # the destination comes first


def _module_refusal(ptx: Ptx, code: Sequence[Statement]) -> str | None:
    if version_key(ptx.version) < _MINIMUM_VERSION:
        return f"PTX ISA {ptx.version} has no .shared::cta destination; it came with 8.6"
    if (unread := next((item for item in code if not item.opcode), None)) is not None:
        return f"line {line_of(ptx, unread.position)} of the module could not be read"
    if any(item.parts[0] == "mapa" for item in code):
        return "the module maps addresses to other CTAs (mapa)"
    for name, header in headers(ptx).items():
        if match := re.search(r"\.reqnctapercluster\s+([\d\s,]+)", header):
            if any(int(number) != 1 for number in re.findall(r"\d+", match[1])):
                return f"{name} runs in clusters of several CTAs (.reqnctapercluster {match[1].strip()})"
        elif ".explicitcluster" in header:
            return f"{name} is launched in clusters (.explicitcluster)"
    return None


def _refusal(item: Statement, flows: dict[str, _Flow]) -> str | None:
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
    """What a value is: an offset, an address in this CTA's shared memory, or something else, with the reason."""

    own: bool = False
    why_else: str | None = None


_OFFSET, _OWN = _AddressKind(), _AddressKind(own=True)


class _Flow:
    """Where the values of one function's registers come from. The order of the statements does not matter: a register
    holds an address of this CTA only if everything that is ever written to it is one."""

    def __init__(self, function: str, code: Sequence[Statement], header: str) -> None:
        # Registers by scope and name, and where each is declared: before that, the name means an outer register.
        self.declared: dict[tuple[int, str], int] = {}
        self.counted: dict[tuple[int, str], tuple[int, int]] = {}  # `%r<8>`: by scope and stem, the number and where
        self.shared: set[str] = set()
        others = set(re.findall(r"([\w$%]+)\s*(?:\[[^\]]*\]\s*)?(?=[,)])", header, re.ASCII))  # parameters hide symbols
        self.written: dict[tuple[int, str], list[Statement]] = {}
        body = [item for item in code if item.function in ("", function)]
        for item in body:
            self._declare(item, others)
        self.shared -= others
        for item in body:
            if item.function == function and not item.opcode.startswith("."):
                for register in self._results(item):
                    self.written.setdefault(register, []).append(item)
        self.kinds = self._solve()

    def why_not_own(self, address: str, item: Statement) -> str | None:
        kind = self._sum(re.split(r"(?<=[\w$\s])\+", address), item)
        if kind is None or kind.why_else is not None:
            return kind.why_else if kind is not None else f"{address} is never written"
        return None if kind.own else f"{address} does not come from a .shared symbol"

    def _declare(self, item: Statement, others: set[str]) -> None:
        """Note what a directive declares. others: takes the names of variables outside shared memory."""
        if not item.opcode.startswith("."):
            return
        scope = item.scopes[-1] if item.scopes else 0
        if item.parts[1:2] == ("reg",):
            for name in item.operands:
                word = name.split()[-1] if name.split() else ""
                if match := _COUNTED.fullmatch(word):
                    self.counted[scope, match[1]] = int(match[2]), item.position
                else:
                    self.declared[scope, word] = item.position
            return
        shared = "shared" in item.parts or (item.operands and re.search(r"\.shared\b(?!::)", item.operands[0]))
        for name in item.operands:
            if match := re.search(r"([A-Za-z_$%][\w$]*)\s*(?:\[[^\]]*\]\s*)*(?:=.*)?$", name, re.ASCII | re.DOTALL):
                (self.shared if shared else others).add(match[1])

    def _resolve(self, name: str, item: Statement) -> tuple[int, str] | None:
        """The register that a name means in a statement: of the innermost scope that declared it before."""
        stem = name.rstrip("0123456789")
        number = name[len(stem) :]
        for scope in reversed((0, *item.scopes)):
            if self.declared.get((scope, name), item.position) < item.position:
                return scope, name
            count, position = self.counted.get((scope, stem), (0, 0))
            if number and position < item.position and int(number) < count:
                return scope, name
        return None

    def _results(self, item: Statement) -> Iterator[tuple[int, str]]:
        """Registers that a statement may write: all those in its first operand outside brackets."""
        if item.operands:
            for name in _TOKEN.findall(re.sub(r"\[[^\]]*\]", " ", item.operands[0])):
                if register := self._resolve(name, item):
                    yield register

    def _solve(self) -> dict[tuple[int, str], _AddressKind | None]:
        """The kind of each register, by iteration: None until something is known of it; then address or offset, and at
        last, if two kinds meet, something else."""
        kinds: dict[tuple[int, str], _AddressKind | None] = dict.fromkeys(self.written)
        self.kinds = kinds
        changed = True
        while changed:
            changed = False
            for register, items in self.written.items():
                new = kinds[register]
                for item in items:
                    new = _either(new, self._made_by(item), register[1])
                if new != kinds[register]:
                    kinds[register], changed = new, True
        return kinds

    def _made_by(self, item: Statement) -> _AddressKind | None:
        name, sources = item.parts[0], item.operands[1:]
        if len(sources) < (2 if name in ("selp", "slct") else 1):
            return _AddressKind(why_else=f"{item.opcode} could not be read")
        if "{" in item.operands[0]:
            return _AddressKind(why_else=f"{item.opcode} writes a vector")
        if name in _COPIES:
            return self._value(sources[0], item)
        if name == "selp" or name == "slct":
            return _either(self._value(sources[0], item), self._value(sources[1], item), item.operands[0])
        if name not in _ARITHMETIC:
            return _AddressKind(why_else=f"{item.operands[0]} is the result of {item.opcode}")
        if name in ("setp", "set"):
            return _OFFSET
        return self._arithmetic(name, sources, item)

    def _arithmetic(self, name: str, sources: Sequence[str], item: Statement) -> _AddressKind | None:
        if name in ("shl", "bfi") and any(_is_rank_shift(source) for source in sources[1:]):
            return _AddressKind(why_else=f"{item.opcode} {', '.join(item.operands)} reaches the bits of the CTA's rank")
        kinds = [self._value(source, item) for source in sources]
        if (bad := next((k for k in kinds if k is not None and k.why_else), None)) is not None:
            return bad
        known = [kind for kind in kinds if kind is not None]
        if len(known) < len(kinds):
            return None
        owns = [kind.own for kind in known]
        if not any(owns):
            return _OFFSET
        adds = name in ("add", "or") or (name == "sub" and not any(owns[1:])) or (name == "mad" and not any(owns[:2]))
        if adds and sum(owns) == 1:
            return _OWN
        return _AddressKind(why_else=f"{item.opcode} is done to an address")

    def _sum(self, terms: Sequence[str], item: Statement) -> _AddressKind | None:
        """The kind of a sum, as in an address: symbol or register, plus constants."""
        kinds = [self._value(term.strip(), item) for term in terms]
        if any(kind is None for kind in kinds):
            return None
        bad = next((kind for kind in kinds if kind is not None and kind.why_else), None)
        owns = sum(kind.own for kind in kinds if kind is not None)
        return bad or (_OWN if owns == 1 else _OFFSET if not owns else _AddressKind(why_else="two addresses are added"))

    def _value(self, text: str, item: Statement) -> _AddressKind | None:
        """The kind of one operand; None if nothing is known yet, as of a register that a loop writes."""
        if _NUMBER.fullmatch(text):
            large = abs(_integer(text)) >= _WINDOW
            return (
                _AddressKind(why_else=f"the constant {text} reaches the bits of the CTA's rank") if large else _OFFSET
            )
        if "+" in text:
            return self._sum(re.split(r"(?<=[\w$\s])\+", text), item)
        if register := self._resolve(text, item):
            if register in self.written:
                return self.kinds[register]
            return _AddressKind(why_else=f"{text} is never written in {item.function}")
        if text.partition(".")[0] in _THREAD:
            return _OFFSET
        if text in self.shared:
            return _OWN
        return _AddressKind(why_else=f"{text} is neither a register, a thread index nor a .shared symbol")


def _is_rank_shift(text: str) -> bool:
    return _NUMBER.fullmatch(text) is not None and _integer(text) >= 16


def _integer(text: str) -> int:
    """A PTX integer; a leading 0 makes it octal."""
    return int(re.sub(r"^([-+]?)0(?=[0-7])", r"\g<1>0o", text.rstrip("U")), 0)


def _either(a: _AddressKind | None, b: _AddressKind | None, register: str) -> _AddressKind | None:
    """The kind of a register that can have either value."""
    if a is None or b is None or a == b:
        return a or b
    if a.why_else or b.why_else:
        return a if a.why_else else b
    return _AddressKind(why_else=f"{register} is an address on one path and a number on another")
