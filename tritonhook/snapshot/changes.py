"""Compare two sets of facts: find new, missing and changed kernels, figures that got worse, and the cause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import count, groupby

from tritonhook.capture.model import Stage, front_end_name
from tritonhook.cubin.loaded import PARTS
from tritonhook.cubin.resources import occupancy
from tritonhook.ptx.normal_form import lasting_name
from tritonhook.snapshot.facts import BUILT, COUNTERS, FIGURES, MAKERS, Identity, KernelFacts

_OCCUPY = frozenset(("registers", "shared"))
_MOST_PAIRS = 250_000  # for more pairs of kernels with the same name, not every pair is compared
_CODE = "code"


class ChangeStatus(str, Enum):
    """Status of a kernel in the comparison."""

    SAME = "same"
    CHANGED = "changed"
    NEW = "new"
    GONE = "gone"
    UNKNOWN = "not known"
    FAILED = "not assembled"


class By(str, Enum):
    """Cause of a changed value: the PTX, or ptxas with its options."""

    PTX = "the PTX alone"
    PTXAS = "ptxas alone"
    EITHER = "each of them alone"
    TOGETHER = "only both together"
    BOTH = "both, each in part"


@dataclass(frozen=True, slots=True)
class Crossed:
    """The crossed builds of a kernel. new_ptx: new PTX, assembled by the old ptxas with the old options. new_ptxas: old
    PTX, assembled by the new ptxas with the new options."""

    new_ptx: KernelFacts
    new_ptxas: KernelFacts


@dataclass(frozen=True, slots=True)
class Values:
    """One figure, or the hash of the code, of the four builds. None: not known.

    old: old PTX, old ptxas. new_ptx: new PTX, old ptxas. new_ptxas: old PTX, new ptxas. new: new PTX, new ptxas.
    """

    old: int | str | None
    new_ptx: int | str | None
    new_ptxas: int | str | None
    new: int | str | None

    @property
    def by(self) -> By | None:
        """The cause of the change; None if a value is not known or all are equal."""
        crossed = self.new_ptx, self.new_ptxas
        if None in (self.old, self.new, *crossed):
            return None
        if crossed == (self.old, self.old):
            return None if self.new == self.old else By.TOGETHER
        known = {(self.new, self.old): By.PTX, (self.old, self.new): By.PTXAS, (self.new, self.new): By.EITHER}
        return known.get(crossed, By.BOTH)


@dataclass(frozen=True, slots=True)
class Change:
    """The facts of one kernel before (old) and after (new) an upgrade; None if the kernel did not exist then. crossed:
    the crossed builds, if both PTX and ptxas (or its options) differ and the builds could be made."""

    old: KernelFacts | None
    new: KernelFacts | None
    crossed: Crossed | None = None

    @property
    def identity(self) -> Identity:
        facts = self.new or self.old
        assert facts is not None
        return facts.identity

    @property
    def status(self) -> ChangeStatus:
        if self.old is None:
            return ChangeStatus.NEW
        if self.new is None:
            return ChangeStatus.GONE
        if self.new.failure:
            return ChangeStatus.FAILED
        if not self.old.codes or not self.new.codes:
            return ChangeStatus.UNKNOWN
        changed = self.code_changed or self.deltas or self.bounds_changed or self.loaded_changed or self.edited
        return ChangeStatus.CHANGED if changed else ChangeStatus.SAME

    @property
    def code_changed(self) -> bool:
        """Whether old and new have no machine code in common. False if the code of one of them is not known."""
        if self.old is None or self.new is None:
            return False
        known = bool(self.old.codes) and (bool(self.new.codes) or bool(self.new.failure))
        return known and set(self.old.codes).isdisjoint(self.new.codes)

    @property
    def bounds_changed(self) -> bool:
        """Whether the launch bounds (threads per block, cluster size) of old and new differ. False if one has no known
        code."""
        if self.old is None or self.new is None or not (self.old.codes and self.new.codes):
            return False
        return self.old.launch_bounds != self.new.launch_bounds

    @property
    def loaded_changed(self) -> tuple[str, ...]:
        """Names of the data that differ, among the data that the driver loads besides the code. If the code differs,
        only parameters are compared, since other code usually has other data. Empty if old or new has no such facts,
        as in an old lock."""
        if self.old is None or self.new is None or not (self.old.loaded and self.new.loaded):
            return ()
        parts = PARTS[:1] if self.code_changed else PARTS
        return tuple(part for part in parts if self.old.loaded.get(part) != self.new.loaded.get(part))

    @property
    def bits_changed(self) -> bool:
        """Whether the hash of the stored bits differs, or only the old hash is known. False if the old is not known."""
        both = self.old is not None and self.new is not None and self.old.bits is not None
        return both and self.old.bits != self.new.bits  # type: ignore[union-attr]

    @property
    def edited(self) -> frozenset[str]:
        """The values of the configuration (specialisation) that only old or only new has."""
        if self.old is None or self.new is None:
            return frozenset()
        return frozenset(self.old.identity.specialisation) ^ frozenset(self.new.identity.specialisation)

    @property
    def is_different(self) -> bool:
        """Whether anything differs: configuration, code, figures, launch bounds, parameters or data."""
        return self.status is not ChangeStatus.SAME

    @property
    def deltas(self) -> dict[str, tuple[int, int]]:
        """Figures that differ and are known of both: name -> (old, new)."""
        if self.old is None or self.new is None:
            return {}
        pairs = ((name, *self.figure(name)) for name in FIGURES)
        return {name: (a, b) for name, a, b in pairs if a is not None and b is not None and a != b}

    def figure(self, name: str) -> tuple[int | None, int | None]:
        """Return a figure's old and new value. If the launches differ in shape, the new value of a counter is None."""
        old, new = (None if facts is None else facts.figures.get(name) for facts in (self.old, self.new))
        is_other = self.old is not None and self.new is not None and self.old.launch != self.new.launch
        return old, None if name in COUNTERS and is_other else new

    @property
    def compile_us(self) -> tuple[int, int] | None:
        """Compile times in microseconds, old and new; None if one is not known."""
        if self.old is None or self.new is None or None in (self.old.compile_us, self.new.compile_us):
            return None
        return self.old.compile_us or 0, self.new.compile_us or 0

    @property
    def blocks(self) -> tuple[int, int] | None:
        """Number of blocks that an SM can hold, old and new; None if not known."""
        resident = [None if facts is None else blocks_of(facts) for facts in (self.old, self.new)]
        return None if resident[0] is None or resident[1] is None else (resident[0], resident[1])

    @property
    def warps(self) -> tuple[int, int] | None:
        """Number of warps that an SM can hold, old and new; None if not known."""
        blocks = self.blocks
        if blocks is None or self.old is None or self.new is None:
            return None
        old, new = (-(-(facts.threads or 0) // 32) for facts in (self.old, self.new))
        return blocks[0] * old, blocks[1] * new

    @property
    def threads(self) -> tuple[int, int] | None:
        """Threads per block, old and new; None if they are equal or not known."""
        if self.old is None or self.new is None or self.old.threads == self.new.threads:
            return None
        return (self.old.threads, self.new.threads) if self.old.threads and self.new.threads else None

    @property
    def worse(self) -> tuple[str, ...]:
        """Names of figures that grew, the most important first. Registers and shared memory count only if fewer warps
        fit on an SM. If the number of threads differs, other figures are not judged, since they are per thread."""
        grown = tuple(name for name, (a, b) in self.deltas.items() if b > a)
        if self.threads:
            grown = tuple(name for name in grown if name in _OCCUPY and self.warps is not None)
        if not _OCCUPY.isdisjoint(grown) and (warps := self.warps) is not None and warps[1] >= warps[0]:
            return tuple(name for name in grown if name not in _OCCUPY)
        return grown

    @property
    def blame(self) -> str:
        """Cause of the change: the compiler step after the last stage that is equal in old and new, or ptxas, or both.
        If both are possible, the crossed builds decide."""
        if self.old is None or self.new is None or self.status in (ChangeStatus.SAME, ChangeStatus.UNKNOWN):
            return ""
        if self.new.failure:
            return self.new.failure
        if edited := self.edited:
            sides = (facts.identity.specialisation for facts in (self.old, self.new))
            step = " -> ".join(", ".join(it for it in side if it in edited) or "none" for side in sides)
            return " and ".join([step, *_tools_changed(self.old, self.new)])
        if not self.code_changed and self.old.dynamic_shared != self.new.dynamic_shared:
            return "the launch's dynamic shared memory"
        if self.identity.front_end == BUILT:
            return " and ".join(["its build", *_tools_changed(self.old, self.new)])
        if Stage.PTX.value not in self.old.stages or Stage.PTX.value not in self.new.stages:
            return "not known: there is no PTX"
        step, tools = self._step, " and ".join(_tools_changed(self.old, self.new))
        if not step:
            other = "resources" if self.deltas or not self.loaded_changed else " and ".join(self.loaded_changed)
            return _assemblers(
                self.old, self.new, "another code" if self.code_changed else f"equal code with other {other}"
            )
        by = None if self.crossed is None else self.values(self.leading).by
        if not tools or by is By.PTX:
            return step
        if by is By.PTXAS:
            return tools
        return f"{step} and {tools}, {by.value}" if by else f"{step} or {tools}: not known which"

    @property
    def _step(self) -> str:
        """The compiler step or the rewrite that changed the PTX; "" if the PTX is equal."""
        assert self.old is not None and self.new is not None
        differs = None
        for stage in reversed([stage for stage in self.old.stages if stage in self.new.stages]):
            if self.new.stages[stage] == self.old.stages[stage]:
                break
            differs = stage
        if differs is None:
            return ""
        if differs == Stage.PTX.value and self.old.rewrites != self.new.rewrites:
            return f"tritonhook's rewrite {self.old.rewrites or 'none'} -> {self.new.rewrites or 'none'}"
        front_end = self.identity.front_end
        maker = MAKERS.get(differs, "") if front_end == "Triton" else front_end_name(front_end)
        return f"{maker} ({differs})"

    @property
    def has_two_steps(self) -> bool:
        """Whether the PTX differs and also ptxas or its options, so that each of them can be the cause."""
        if self.old is None or self.new is None or self.status is not ChangeStatus.CHANGED:
            return False
        stages = (facts.stages.get(Stage.PTX.value) for facts in (self.old, self.new))
        return len({*stages, None}) == 3 and bool(_tools_changed(self.old, self.new))

    @property
    def leading(self) -> str:
        """Name of the figure for which the cause is determined: the most important figure that got worse, else that
        changed; "code" if no figure changed."""
        return next(iter((*self.worse, *self.deltas)), _CODE)

    def values(self, name: str) -> Values:
        """Return a figure, or "code", of the four builds. `crossed` must not be None."""
        assert self.old is not None and self.new is not None and self.crossed is not None
        builds = self.old, self.crossed.new_ptx, self.crossed.new_ptxas, self.new
        if name != _CODE:
            return Values(*(facts.figures.get(name) for facts in builds))
        known: dict[str, str] = {}  # if ptxas makes several codes from one input: each code -> the first of them
        for facts in (self.new, self.old):
            known |= dict.fromkeys(facts.codes, facts.codes[0] if facts.codes else "")
        return Values(*(next((known.get(code, code) for code in facts.codes), None) for facts in builds))

    @property
    def rank(self) -> tuple[object, ...]:
        """Sort key, the worst change first: by the figure that grew, then by its growth."""
        deltas, worse = self.deltas, self.worse
        grown = [deltas[name][1] - deltas[name][0] if name in worse else 0 for name in FIGURES]
        status, shrunk = self.status, any(b < a for a, b in deltas.values())
        return (
            status is not ChangeStatus.FAILED,
            *(-by for by in grown),
            status is ChangeStatus.SAME,
            not shrunk,
            self.identity,
        )


def _tools_changed(old: KernelFacts, new: KernelFacts) -> list[str]:
    """List the changes of ptxas and its options, e.g. "ptxas 12.8.93 -> 13.5.37"."""
    reasons = []
    if old.ptxas != new.ptxas:
        reasons.append(f"ptxas {old.ptxas or 'not known'} -> {new.ptxas or 'not known'}")
    if old.options != new.options:
        sides = old.options or (), new.options or ()
        lists = zip(("added", "removed"), sides, reversed(sides), strict=True)
        parts = [f"{' '.join(left)} {what}" for what, a, b in lists if (left := [o for o in b if o not in a])]
        reasons.append(f"ptxas options {', '.join(parts) or 'in another order'}")
    return reasons


def _assemblers(old: KernelFacts, new: KernelFacts, what: str) -> str:
    """Describe why equal PTX has other code or figures: the differences between the two runs of ptxas."""
    reasons = _tools_changed(old, new)
    if lasting_name(old.entry) != lasting_name(new.entry):
        reasons.append(f"its name {old.entry} -> {new.entry}")
    return " and ".join(reasons) or f"ptxas, which made {what} from the same input"


def blocks_of(facts: KernelFacts) -> int | None:
    """Compute the number of blocks that an SM can hold; None if it is not known."""
    figures = facts.figures
    resident = occupancy(
        facts.identity.arch, figures.get("registers"), facts.threads, figures.get("shared"), facts.dynamic_shared
    )
    return None if resident is None else resident.blocks


def compare(old: Sequence[KernelFacts], new: Sequence[KernelFacts]) -> list[Change]:
    """Match kernels by identity, and return the changes, the worst first. A missing and a new kernel of the same name
    count as one kernel with an edited configuration."""
    before, after = ({facts.identity: facts for facts in side} for side in (old, renumbered(old, new)))
    changes = [Change(before.get(identity), after.get(identity)) for identity in {**before, **after}]
    return sorted(_edited(changes), key=lambda change: change.rank)


def _edited(changes: Sequence[Change]) -> list[Change]:
    """Merge a missing and a new kernel of the same name into one change; the most similar specialisations first."""
    apart: dict[tuple[str, ...], list[Change]] = {}
    for change in changes:
        one = change.identity
        both = change.old is not None and change.new is not None
        key = (one.text,) if both else one.lasting
        apart.setdefault(key, []).append(change)
    paired = []
    for group in apart.values():
        gone = [it.old for it in group if it.old is not None and it.new is None]
        came = [it.new for it in group if it.new is not None and it.old is None]
        pairs = dict(_likest(gone, came)) if len(gone) * len(came) <= _MOST_PAIRS else {}
        paired += [Change(gone[i], came[j]) for i, j in pairs.items()]
        paired += [Change(old, None) for i, old in enumerate(gone) if i not in pairs]
        paired += [Change(None, new) for j, new in enumerate(came) if j not in pairs.values()]
        paired += [it for it in group if it.old is not None and it.new is not None]
    return paired


def _likest(gone: Sequence[KernelFacts], came: Sequence[KernelFacts]) -> Iterator[tuple[int, int]]:
    """Pair kernels by the similarity of their specialisations; yield pairs of indices.

    A kernel that is equally similar to two others is omitted, since it is not known which of them it became."""
    left, right = ([set(facts.identity.specialisation) for facts in side] for side in (gone, came))
    pairs = sorted((len(a ^ b), i, j) for i, a in enumerate(left) for j, b in enumerate(right))
    used: tuple[set[int], set[int]] = set(), set()
    for _, group in groupby(pairs, key=lambda pair: pair[0]):
        near = [(i, j) for _, i, j in group if i not in used[0] and j not in used[1]]
        times = [Counter(places) for places in zip(*near, strict=True)]
        yield from ((i, j) for i, j in near if times[0][i] == times[1][j] == 1)
        for side, places in zip(used, times, strict=False):
            side.update(places)


def renumbered(old: Sequence[KernelFacts], new: Sequence[KernelFacts]) -> list[KernelFacts]:
    """Return the new kernels, in the same order, with numbers that match the old kernels.

    Kernels whose identities differ only in the number get the number of an old kernel: of one with equal PTX, else with
    equal code, else with most equal stages, else with the most similar figures."""
    groups: dict[Identity, tuple[list[KernelFacts], list[KernelFacts]]] = {}
    for side, kernels in enumerate((old, new)):
        for facts in kernels:
            groups.setdefault(replace(facts.identity, number=1), ([], []))[side].append(facts)
    numbers = {facts.identity: number for group in groups.values() for facts, number in _numbers(*group)}
    return [replace(facts, identity=replace(facts.identity, number=numbers[facts.identity])) for facts in new]


def _numbers(old: Sequence[KernelFacts], new: Sequence[KernelFacts]) -> Iterator[tuple[KernelFacts, int]]:
    left: tuple[dict[int, None], dict[int, None]] = dict.fromkeys(range(len(old))), dict.fromkeys(range(len(new)))
    for keys in (_ptx_of, _codes_of, lambda facts: [""]):
        buckets: dict[str, tuple[list[int], list[int]]] = {}
        for side, kernels in enumerate((old, new)):
            for place in left[side]:
                for key in keys(kernels[place]):
                    buckets.setdefault(key, ([], []))[side].append(place)
        for bucket in buckets.values():
            for i, j in _nearest(old, new, *bucket):
                if i in left[0] and j in left[1]:
                    del left[0][i], left[1][j]
                    yield new[j], old[i].identity.number
    taken = {facts.identity.number for facts in old}
    yield from zip((new[j] for j in left[1]), (number for number in count(1) if number not in taken), strict=False)


def _nearest(
    old: Sequence[KernelFacts], new: Sequence[KernelFacts], i: Sequence[int], j: Sequence[int]
) -> Iterable[tuple[int, int]]:
    """Pair kernels `i` of old with `j` of new, the most similar first. For too many pairs, sort both by figures and
    pair them in this order."""
    if len(i) * len(j) <= _MOST_PAIRS:
        return [(a, b) for _, a, b in sorted((_distance(old[a], new[b]), a, b) for a in i for b in j)]
    return list(zip(sorted(i, key=lambda a: _figures(old[a])), sorted(j, key=lambda b: _figures(new[b])), strict=False))


def _ptx_of(facts: KernelFacts) -> Sequence[str]:
    return [facts.stages[Stage.PTX.value]] if Stage.PTX.value in facts.stages else []


def _codes_of(facts: KernelFacts) -> Sequence[str]:
    return facts.codes


def _figures(facts: KernelFacts) -> tuple[int, ...]:
    return tuple(facts.figures.get(name) or 0 for name in FIGURES)


def _distance(a: KernelFacts, b: KernelFacts) -> tuple[bool, int, float]:
    """Compute how different two kernels are: first by code, then by the number of equal stages, then by figures. With a
    new compiler, often only the first stages are equal."""
    pairs = zip(_figures(a), _figures(b), strict=True)
    return (
        not set(a.codes) & set(b.codes),
        -sum(b.stages.get(stage) == of_a for stage, of_a in a.stages.items()),
        sum(abs(x - y) / (x + y) for x, y in pairs if x + y),
    )


def commands_of(kernels: Iterable[KernelFacts]) -> frozenset[str]:
    return frozenset(command for facts in kernels for command in facts.commands)


def not_judged(old: Sequence[KernelFacts], new: Sequence[KernelFacts]) -> frozenset[Identity]:
    """Return the missing old kernels whose commands did not run this time, so that they do not count as gone. Empty if
    a new command ran, since it may be a renamed old one. new: kernels with the numbers of `renumbered`."""
    ran = commands_of(new)
    if not ran or not ran <= commands_of(old):
        return frozenset()
    there = {facts.identity for facts in new}
    return frozenset(it.identity for it in old if it.commands and ran.isdisjoint(it.commands)) - there
