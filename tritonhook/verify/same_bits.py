"""Compare the bits that several executions stored, and give a verdict. The executions are: one launch in several
orders, several configurations of a kernel, calls of a function with different numbers of rows, or stages of a
compilation. children/bits.py writes the executions.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from tritonhook.capture.dry_run.gpu import CONFIGS, NUDGED, ORDERS, RESULT, ROWS, STAGES
from tritonhook.capture.launches.contents import FLOATS
from tritonhook.capture.launches.record import DTYPE_BYTES
from tritonhook.errors import listed
from tritonhook.ptx.module import Ptx
from tritonhook.verify.contents import difference
from tritonhook.verify.judgement import ATOMICS_SHARE, CONTRACTED_SHARE, apart, latitude_of
from tritonhook.verify.model import Difference

if TYPE_CHECKING:
    from tritonhook.verify.schema import Execution, Kept

# A larger difference, as a share of the largest value, is WRONG. Sums in another order, rounded to 8 or 16 bits, differ
# by less.
WRONG_SHARE = 0.02
_NUDGES = 32  # rounding may change a result by this many times the change that 2 ulp in the inputs cause
_HAS_FLOATS = re.compile(r"\.(?:bf16|f16|f32|f64|tf32|e4m3|e5m2)(?:x\d)?\b")


class BitsVerdict(str, Enum):
    """The verdict on the executions of one kernel, the worst first."""

    NONDETERMINISTIC = "NONDETERMINISTIC"  # other bits in another order
    WRONG = "WRONG"  # a configuration differs from the largest group, or a stage from the stage before it
    UNDEFINED = "UNDEFINED"  # a result depends on a value that Triton does not define
    BATCH_VARIANT = "BATCH VARIANT"  # results of a row depend on the number of rows
    OTHER_BITS = "OTHER BITS"  # configurations differ, within rounding
    NOT_JUDGED = "NOT JUDGED"
    ROUNDING = "ROUNDING"  # stages differ, within rounding
    SAME = "SAME"


@dataclass(frozen=True, slots=True)
class Member:
    """One of the compared executions.

    group: number of the group of executions that stored the same bits. Group 1 is the largest; if stages are compared,
    group 1 is that of the first stage. None: not executed, for `reason`. difference: largest difference from group 1;
    if stages are compared, from the stage before. text: describes the difference."""

    label: str
    group: int | None
    reason: str = ""
    text: str = ""
    difference: Difference | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """The verdict on one kernel. question: kind of comparison: orders, configs, rows or stages. why: describes the
    difference, or why nothing was judged; "" if all are the same. members: the executions."""

    kernel: str
    question: str
    launch: str
    verdict: BitsVerdict
    why: str
    members: tuple[Member, ...]

    @property
    def groups(self) -> int:
        return len({member.group for member in self.members} - {None})


def judge_all(folder: Path, executions: Sequence[Execution]) -> list[Judged]:
    """Judge each call of each kernel. Calls of a kernel with the same verdict and groups are listed once."""
    by_call: dict[tuple[str, str, int], list[Execution]] = {}
    for one in executions:
        if one.kind in (ORDERS, CONFIGS, STAGES):
            by_call.setdefault((one.kind, one.kernel, one.call), []).append(one)
    judged = [(_judge_stages if kind == STAGES else _judge)(folder, own) for (kind, *_), own in by_call.items()]
    if any(one.kind == RESULT for one in executions):
        judged.append(_judge_rows(folder, executions))
    first: dict[object, Judged] = {}
    for each in judged:
        labels = tuple((member.label, member.group) for member in each.members)
        first.setdefault((each.kernel, each.question, each.launch, each.verdict, labels), each)
    return list(first.values())


# --- orders and configurations -------------------------------------------------------------------


def _judge(folder: Path, several: Sequence[Execution]) -> Judged:
    """Group executions by the bits of all their buffers, and compare each with the largest group."""
    first = several[0]
    stored = [one for one in several if not one.reason]
    keys = [tuple((buffer.name, buffer.data) for buffer in one.buffers) for one in stored]
    numbers = {key: number for number, (key, _) in enumerate(Counter(keys).most_common(), 1)}
    reference = next((one for one, key in zip(stored, keys, strict=True) if numbers[key] == 1), None)
    groups = dict(zip(map(id, stored), map(numbers.__getitem__, keys), strict=True))
    members = []
    for one in several:
        if one.reason or reference is None:
            members.append(Member(one.label, None, one.reason))
            continue
        changes = list(_differences(folder, reference.buffers, one.buffers)) if groups[id(one)] > 1 else []
        worst = max(changes, key=lambda pair: _share(pair[1]), default=None)
        text = "" if worst is None else f"{worst[0].name}: {apart([worst[1]])}"
        members.append(Member(one.label, groups[id(one)], "", text, None if worst is None else worst[1]))
    return _with_verdict(first, members, [buffer for one in several for buffer in one.buffers])


def _differences(folder: Path, a: Sequence[Kept], b: Sequence[Kept]) -> Iterator[tuple[Kept, Difference]]:
    for one, other in zip(a, b, strict=False):
        first, second = (folder / one.data).read_bytes(), (folder / other.data).read_bytes()
        if len(first) == len(second) and (change := difference(0, one.dtype, first, second)) is not None:
            yield other, change


def _share(change: Difference) -> float:
    """Return the distance as a share of the largest value; for integers, the share of elements that differ; infinity if
    one side has a NaN or an infinity."""
    if change.dtype in FLOATS:
        return 0.0 if change.only_nans else float("inf") if change.share is None else change.share
    return change.differing / max(change.elements, 1)


def _with_verdict(first: Execution, members: Sequence[Member], buffers: Sequence[Kept]) -> Judged:
    executed = [member for member in members if member.group is not None]
    far = [member for member in executed if member.difference is not None]
    verdict, why = BitsVerdict.SAME, ""
    if far:
        worst = max(far, key=lambda member: _share(member.difference) if member.difference else 0.0)
        assert worst.difference is not None
        verdict = BitsVerdict.OTHER_BITS if _share(worst.difference) <= WRONG_SHARE else BitsVerdict.WRONG
        why = f"{worst.label}: {worst.text}"
        if first.kind == ORDERS:
            verdict = BitsVerdict.NONDETERMINISTIC
            name = worst.text.partition(":")[0]
            why += next((f"; {buffer.at}" for buffer in buffers if buffer.name == name and buffer.at), "")
    elif len(executed) < 2:
        verdict, why = BitsVerdict.NOT_JUDGED, _reasons(members) or "only one was executed"
    return Judged(first.kernel, first.kind, first.launch, verdict, why, tuple(members))


def _reasons(members: Sequence[Member]) -> str:
    reasons = dict.fromkeys(member.reason for member in members if member.reason)
    return listed(list(reasons)) if reasons else ""


# --- stages of a compilation ---------------------------------------------------------------------


def _judge_stages(folder: Path, several: Sequence[Execution]) -> Judged:
    """Compare each stage with the previous executed stage. The reason names the first stage with the worst verdict."""
    nudged = [one for one in several if one.label == NUDGED]
    stages = [one for one in several if one.label != NUDGED]
    ptx = Ptx(next(one.ptx for one in stages if one.ptx))
    latitude, has_floats = latitude_of(ptx), _HAS_FLOATS.search(ptx.text) is not None
    of_code = max(latitude.share, CONTRACTED_SHARE * latitude.contraction, ATOMICS_SHARE * latitude.float_atomics)
    moved: dict[str, float] = {}  # by buffer, how much it changes if the inputs change by 2 ulp
    for each in nudged:
        for buffer, change in _differences(folder, stages[0].buffers, each.buffers):
            moved[buffer.name] = max(moved.get(buffer.name, 0.0), _share(change))
    numbers: dict[object, int] = {}
    before: Execution | None = None
    members, verdict, why = list[Member](), BitsVerdict.SAME, ""
    for one in stages:
        if one.reason:
            members.append(Member(one.label, None, one.reason))
            continue
        group = numbers.setdefault(tuple(buffer.data for buffer in one.buffers), len(numbers) + 1)
        found = list[tuple[BitsVerdict, str, Difference | None]]()
        found += [(BitsVerdict.UNDEFINED, _undefined(place), None) for place in one.undefined]
        for buffer, change in _differences(folder, before.buffers, one.buffers) if before is not None else ():
            interpreted = before is not None and before.label == stages[0].label
            allowed = WRONG_SHARE * has_floats if interpreted else of_code
            if allowed:
                allowed = max(allowed, _NUDGES * moved.get(buffer.name, 0.0))
            found.append((*_of_step(f"{buffer.name}: {apart([change])}", change, allowed), change))
        text = "; ".join(text for _, text, _ in found)
        worst = max((own for *_, own in found if own is not None), key=_share, default=None)
        members.append(Member(one.label, group, "", text, worst))
        for own, text, _ in found:
            if _RANK.index(own) < _RANK.index(verdict):
                verdict, why = own, f"{one.label}: {text}"
        before = one
    if len([member for member in members if member.group is not None]) < 2:
        verdict, why = BitsVerdict.NOT_JUDGED, _reasons(members)
    first = stages[0]
    return Judged(first.kernel, STAGES, first.launch, verdict, why, tuple(members))


def _of_step(text: str, change: Difference, allowed: float) -> tuple[BitsVerdict, str]:
    """Judge the difference of one buffer from the stage before. allowed: difference that rounding may cause, as a share
    of the largest value; 0 if nothing rounds."""
    if change.dtype in FLOATS and (change.only_nans or (allowed and change.ulps is not None and change.ulps <= 1)):
        return BitsVerdict.ROUNDING, text
    if not allowed:
        return BitsVerdict.WRONG, text
    if change.dtype not in FLOATS:
        return BitsVerdict.NOT_JUDGED, f"{text}: integers, which may come from rounded numbers"
    if change.share is None:
        return BitsVerdict.NOT_JUDGED, f"{text}: a number against a NaN or an infinity, which rounding may decide"
    return (BitsVerdict.ROUNDING if change.share <= allowed else BitsVerdict.WRONG), text


def _undefined(place: str) -> str:
    return f"uses values of {place} where the mask is false and the load has no `other`: 0 on NVIDIA, else not defined"


_RANK = list(BitsVerdict)


# --- numbers of rows -----------------------------------------------------------------------------


def _judge_rows(folder: Path, executions: Sequence[Execution]) -> Judged:
    """Compare the results of each call with those of the call that has most rows, in the rows that both have. Calls
    that could not be executed are left out."""
    *results, again = [one for one in executions if one.kind == RESULT]
    first = next((one for one in results if one.rows == again.rows), again)
    if [one.data for one in first.buffers] != [one.data for one in again.buffers]:
        why = f"{first.label}: two calls with the same seeds give other bits, so that rows cannot be compared"
        return Judged(first.kernel, ROWS, "", BitsVerdict.NOT_JUDGED, why, ())
    ended = [one for one in results if not one.reason]
    reference = max(ended, key=lambda one: one.rows, default=None)
    members, compared, culprits = [], 0, dict[str, str]()
    for one in results:
        if one.reason or reference is None:
            members.append(Member(one.label, None, one.reason))
            continue
        pairs = list(_pairs(one, reference)) if one is not reference else []
        compared += len(pairs)
        changes = [(name, change) for name, change in _common(folder, pairs, one, reference) if change is not None]
        worst = max(changes, key=lambda pair: _share(pair[1]), default=None)
        text = "" if worst is None else f"{worst[0]}: {apart([worst[1]])}"
        if worst is not None:
            culprits |= [_culprit(folder, executions, one, reference)]
        members.append(Member(one.label, 1 if worst is None else 2, "", text, None if worst is None else worst[1]))
    name = results[0].kernel
    if culprits:
        return Judged(name, ROWS, "", BitsVerdict.BATCH_VARIANT, "; ".join(culprits.values()), tuple(members))
    if not compared:
        why = _reasons(members) or "no result has a dimension whose size is the number of rows"
        return Judged(name, ROWS, "", BitsVerdict.NOT_JUDGED, why, tuple(members))
    return Judged(name, ROWS, "", BitsVerdict.SAME, "", tuple(members))


def _pairs(one: Execution, other: Execution) -> Iterator[tuple[Kept, Kept, int]]:
    """Yield (buffer, buffer, dimension) for buffers of two executions whose shapes differ in one dimension: the
    rows."""
    for a, b in zip(one.buffers, other.buffers, strict=False):
        if a.name != b.name or a.dtype != b.dtype or len(a.shape) != len(b.shape):
            continue
        differ = [dim for dim, sizes in enumerate(zip(a.shape, b.shape, strict=True)) if sizes[0] != sizes[1]]
        if len(differ) == 1 and a.shape[differ[0]] == one.rows and b.shape[differ[0]] == other.rows:
            yield a, b, differ[0]


def _common(
    folder: Path, pairs: Sequence[tuple[Kept, Kept, int]], one: Execution, other: Execution
) -> Iterator[tuple[str, Difference | None]]:
    rows = min(one.rows, other.rows)
    for a, b, dim in pairs:
        yield a.name, difference(0, a.dtype, _rows(folder, b, dim, rows), _rows(folder, a, dim, rows))


def _rows(folder: Path, kept: Kept, dim: int, rows: int) -> bytes:
    import numpy as np

    width, data = DTYPE_BYTES[kept.dtype], (folder / kept.data).read_bytes()
    elements = np.frombuffer(data, f"V{width}", offset=kept.offset, count=(len(data) - kept.offset) // width)
    strides = kept.stride or tuple(int(np.prod(kept.shape[at + 1 :], dtype=np.int64)) for at in range(len(kept.shape)))
    shape = tuple(rows if at == dim else size for at, size in enumerate(kept.shape))
    viewed = np.lib.stride_tricks.as_strided(elements, shape, tuple(width * stride for stride in strides))
    return bytes(viewed.tobytes())


def _culprit(folder: Path, executions: Sequence[Execution], one: Execution, other: Execution) -> tuple[str, str]:
    """Find the first kernel that stores other bits in the rows that both executions have. Returns its name, and a
    description with its settings."""
    mine, others = ([each for each in executions if each.kind == ROWS and each.rows == r.rows] for r in (one, other))
    for a, b in zip(mine, others, strict=False):
        if a.kernel != b.kernel:
            return a.kernel, f"{a.kernel} is launched with {one.rows} rows, {b.kernel} with {other.rows}"
        changed = [pair for pair in _pairs(a, b) if pair[0].changed or pair[1].changed]
        if any(change is not None for _, change in _common(folder, changed, a, b)):
            settings = [each.settings.split(", ") for each in (a, b)]
            own, rest = ([word for word in x if word not in y] for x, y in (settings, settings[::-1]))
            how = f": {listed(own)} with {one.rows} rows, {listed(rest)} with {other.rows}" if own and rest else ""
            return a.kernel, f"{a.kernel} stores other bits{how}"
    return "", "an operation outside of Triton kernels stores other bits"
