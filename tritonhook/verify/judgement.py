"""Give a verdict on what the builds of a kernel stored. The verdict takes account of differences that PTX allows: by
contraction, by approximate instructions and by the order of atomics. Pure functions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tritonhook.capture.launches.contents import FLOATS, NORMAL, RECORDED, SPECIAL
from tritonhook.capture.launches.record import Launch
from tritonhook.ptx.module import Ptx, statements
from tritonhook.verify.model import Difference, FailureKind, Ran, Verdict

_FLOATS = frozenset({"f16", "f16x2", "bf16", "bf16x2", "f32", "f32x2", "f64"})
_ROUNDINGS = frozenset({"rn", "rz", "rm", "rp", "rna", "rs"})
_CONTRACTED = frozenset({"add", "sub", "mul"})
# Largest relative error of approximate instructions (PTX ISA, "Floating Point Instructions"), as log2.
# The PTX ISA gives absolute errors for sin, cos and lg2; these count as errors of a value of 1.
_ERRORS: Mapping[str, int] = {"div": -22, "rcp": -23, "sqrt": -22, "rsqrt": -22, "ex2": -22, "lg2": -22, "sin": -20}
_ERRORS = {**_ERRORS, "cos": -20, "tanh": -10}
_HALF_ERRORS: Mapping[str, int] = {"ex2": -7, "tanh": -8}  # log2 of the error; of f16 or bf16, whichever is larger
_PROPAGATED = 64  # a result may add up the errors of this many approximate instructions, relative to its largest value


@dataclass(frozen=True, slots=True)
class Latitude:
    """Differences that PTX allows between two correct builds of one kernel.

    contraction: the PTX lets ptxas fuse a multiplication and an addition, unless `--fmad=false` forbids it.
    contracted: builds may be made without `--fmad=false`, e.g. cubins from elsewhere.
    pairs: ptxas may fuse products and sums of .f32x2: up to version 13.0.88 it ignores `--fmad=false` and .rn for them.
    approximate: opcodes of approximate instructions. share: how far results may differ because of these, as a share of
    a buffer's largest magnitude; 0 without them. float_atomics: atomics add floating-point numbers, in any order.
    """

    contraction: bool = False
    contracted: bool = False
    pairs: bool = False
    approximate: tuple[str, ...] = ()
    share: float = 0.0
    float_atomics: bool = False


def latitude_of(ptx: Ptx) -> Latitude:
    """Determine the differences that the instructions of a module allow, including those of inline assembly and of
    called functions."""
    contraction, atomics, errors, of_pairs = False, False, dict[str, float](), set[str]()
    for opcode in _opcodes(ptx):
        root, *rest = opcode.split(".")
        if root in _CONTRACTED and "f32x2" in rest and not _ROUNDINGS - {"rn"} & set(rest):
            of_pairs.add("mul" if root == "mul" else "add")
        if root in _CONTRACTED and _FLOATS & set(rest) and not _ROUNDINGS & set(rest):
            contraction = True
        elif root in ("atom", "red") and "add" in rest and any(part.lstrip("v248.") in _FLOATS for part in rest):
            atomics = True
        elif root in _ERRORS and ({"approx", "full"} & set(rest) or root == "tanh"):
            half = any(part.startswith(("f16", "bf16")) for part in rest)
            errors[opcode] = 2.0 ** (_HALF_ERRORS.get(root, -10) if half else _ERRORS[root])
    share = min(_PROPAGATED * max(errors.values(), default=0.0), 0.05)
    pairs = of_pairs == {"add", "mul"}
    return Latitude(contraction, pairs=pairs, approximate=tuple(sorted(errors)), share=share, float_atomics=atomics)


def _opcodes(ptx: Ptx) -> Iterator[str]:
    return (item.opcode for item in statements(ptx) if item.opcode and not item.opcode.startswith("."))


# --- the verdict ----------------------------------------------------------------------------------


# Differences that are allowed, as shares of the largest value:
CONTRACTED_SHARE = 0.02  # if each multiply-add is fused, which omits a rounding
ATOMICS_SHARE = 0.01  # if floating-point additions have another order
_PAIRS_SHARE = _PROPAGATED * 2.0**-23  # if the roundings of _PROPAGATED products of .f32x2 are omitted
_SPREAD = 8.0  # builds may differ this many times as much as two runs of one build do
_LARGE = 1e-3  # if runs differ, builds may differ by this share anyway: half precision can exceed _SPREAD by chance
_RANK = list(Verdict)


@dataclass(frozen=True, slots=True)
class Observation:
    """A finding on one input. build: its label; None if all builds have the finding.

    difference: difference from the reference; None for findings of other kinds, such as a crash.
    """

    verdict: Verdict
    text: str
    input: str
    build: str | None = None
    difference: Difference | None = None


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict on a kernel, and its findings, the worst first. unfit: inputs on which no build finished."""

    verdict: Verdict
    findings: tuple[Observation, ...] = ()
    unfit: tuple[str, ...] = ()

    @property
    def worst(self) -> Observation | None:
        return self.findings[0] if self.findings else None


def judge(ran: Sequence[Ran], launch: Launch, latitude: Latitude, as_used: Collection[str] = ()) -> Judgement:
    """Judge all inputs together; the worst finding is the verdict. as_used: labels of the builds that may contract,
    because they were made with the options of the capture; all other builds were made with `--fmad=false`."""
    by_input: dict[str, list[Ran]] = {}
    for run in ran:
        by_input.setdefault(run.input, []).append(run)
    findings, unfit = list[Observation](), list[str]()
    usable = False
    for name, several in by_input.items():
        ended = [run for run in several if run.failure is None]
        failed = [run for run in several if run.failure and run.failure.kind in (FailureKind.CRASH, FailureKind.HANG)]
        findings += _not_understood(name, several)
        if not ended and failed and name not in (RECORDED, NORMAL):
            unfit.append(name)  # the contents of the buffers are the cause, not a build
            continue
        usable = usable or len(ended) > 1
        findings += _failures(name, failed, everywhere=not ended)
        findings += _writes_outside(name, ended, launch)
        findings += _differences(name, ended, launch, latitude, as_used)
    findings.sort(key=lambda finding: _RANK.index(finding.verdict))
    if findings:
        return Judgement(findings[0].verdict, tuple(findings), tuple(unfit))
    return Judgement(Verdict.SAME if usable else Verdict.SKIPPED, (), tuple(unfit))


def _not_understood(name: str, several: Sequence[Ran]) -> Iterable[Observation]:
    for ran in several:
        if ran.failure is not None and ran.failure.kind is FailureKind.NOT_UNDERSTOOD:
            yield Observation(Verdict.NOT_UNDERSTOOD, f"{ran.build}: {ran.failure.text}", name, ran.build)


def _failures(name: str, failed: Sequence[Ran], everywhere: bool) -> Iterable[Observation]:
    for ran in failed[:1] if everywhere else failed:
        assert ran.failure is not None
        verdict = Verdict.HANG if ran.failure.kind is FailureKind.HANG else Verdict.CRASH
        whose = "every build" if everywhere else ran.build
        yield Observation(verdict, f"{whose}: {ran.failure.text}", name, None if everywhere else ran.build)


def _writes_outside(name: str, ended: Sequence[Ran], launch: Launch) -> Iterable[Observation]:
    wrote = [ran for ran in ended if ran.outside]
    everywhere = len(wrote) == len(ended)
    for ran in wrote[:1] if everywhere else wrote:
        first = ran.outside[0]
        which = buffer_name(launch, first.buffer)
        where = f"{first.offset - first.size} bytes beyond its end" if first.offset >= 0 else "before its start"
        text = f"{'every build' if everywhere else ran.build} writes outside of {which} ({first.size:,} bytes), {where}"
        yield Observation(Verdict.CRASH, text, name, None if everywhere else ran.build)


def _differences(
    name: str, ended: Sequence[Ran], launch: Launch, latitude: Latitude, as_used: Collection[str]
) -> Iterable[Observation]:
    """Yield differences between runs of one build, then differences between builds."""
    unsteady: dict[int, list[Difference]] = {}
    for ran in ended:
        for change in ran.unsteady:
            unsteady.setdefault(change.buffer, []).append(change)
    for number, several in unsteady.items():
        builds = [ran.build for ran in ended if any(change.buffer == number for change in ran.unsteady)]
        text = f"{buffer_name(launch, number)} differs between runs of {' and of '.join(builds)}: {apart(several)}"
        text += "".join(f"; {place}" for change in several for place in change.at)
        yield Observation(Verdict.NONDETERMINISTIC, text, name, builds[0])
    for ran in ended:
        for change in ran.differences:
            contracted = latitude.contracted or ran.build in as_used
            verdict, why = _of_difference(change, unsteady, replace(latitude, contracted=contracted), name == SPECIAL)
            if change.buffer in ran.by_nans:
                verdict, why = Verdict.ROUNDING, "it comes from the bits of NaNs, which PTX leaves open"
            text = f"{ran.build}: {buffer_name(launch, change.buffer)}: {apart([change])}{f' ({why})' if why else ''}"
            yield Observation(verdict, text, name, ran.build, change)


def _of_difference(
    change: Difference, unsteady: Mapping[int, Sequence[Difference]], latitude: Latitude, special: bool
) -> tuple[Verdict, str]:
    """Judge the difference of one buffer of one build. Returns the verdict and its reason. unsteady: by buffer, the
    differences between runs. special: whether the input is SPECIAL, which has the largest numbers."""
    is_float = change.dtype in FLOATS
    share = change.share
    if is_float and change.only_nans:
        return Verdict.ROUNDING, "the NaNs have other payloads, which PTX leaves open"
    if change.buffer in unsteady:
        spreads = [difference.share for difference in unsteady[change.buffer]]
        spread = max((spread for spread in spreads if spread is not None), default=0.0)
        if not is_float or share is None or None in spreads or share <= max(_SPREAD * spread, _LARGE):
            return Verdict.NONDETERMINISTIC, "its runs differ, too"
        return Verdict.DIFFERENT, f"its runs differ by only {spread:.2g}"
    if is_float and special and latitude.contracted:
        return Verdict.ROUNDING, "contraction: a product that overflows alone may not overflow within a multiply-add"
    if not is_float or share is None:
        return Verdict.DIFFERENT, ""
    if latitude.float_atomics and share <= ATOMICS_SHARE:
        return Verdict.NONDETERMINISTIC, "atomics add in any order"
    if latitude.contracted and share <= CONTRACTED_SHARE:
        return Verdict.ROUNDING, "contraction"
    if latitude.pairs and share <= _PAIRS_SHARE:
        return Verdict.ROUNDING, "contraction of mul.f32x2 and add.f32x2, in spite of --fmad=false and .rn"
    if latitude.approximate and share <= latitude.share:
        return Verdict.ROUNDING, f"PTX allows it for {', '.join(latitude.approximate)}"
    return Verdict.DIFFERENT, ""


def buffer_name(launch: Launch, number: int) -> str:
    """Name a buffer by the first argument that points into it."""
    names = (getattr(p, "name", "") for p in launch.parameters if getattr(p, "buffer", None) == number)
    name = next(names, "")
    return f"argument {name}" if name else f"buffer {number}"


def apart(several: Sequence[Difference]) -> str:
    """Describe the largest of several differences in words."""
    worst = max(several, key=lambda difference: (difference.share or 0.0, difference.differing))
    text = f"{worst.differing:,} of {worst.elements:,} elements"
    if worst.ulps is not None and worst.share is not None:
        text += f", by up to {worst.ulps:,} ulp and {worst.share:.2g} of the largest value"
    return text
