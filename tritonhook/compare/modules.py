"""Compare two modules kernel by kernel: match the kernels, and compare the code of each pair.

Only kernels whose bytes differ are disassembled: if one of a thousand kernels changed, one is disassembled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tritonhook.compare.diff import (
    CodeVerdict,
    check_architectures,
    diff,
    has_same_code,
    loaded_changed,
    resource_deltas,
)
from tritonhook.cubin.image import Cubin
from tritonhook.cubin.loaded import image_of, loaded_parts
from tritonhook.cubin.resources import Resources
from tritonhook.ptxas.threads import tool_threads
from tritonhook.ptxas.toolchain import Toolchain
from tritonhook.rename import TRIGGER, strip_word


@dataclass(frozen=True, slots=True)
class KernelDelta:
    """One kernel in both modules. a, b: its name in each. summary: see CubinDiff.summary; None for equal code."""

    a: str
    b: str
    verdict: CodeVerdict
    a_resources: Resources
    b_resources: Resources
    a_code_bytes: int
    b_code_bytes: int
    summary: str | None = None


@dataclass(frozen=True, slots=True)
class ModuleDiff:
    """Comparison of two modules. kernels: kernels in both, in the order of a. only_a, only_b: names of kernels in only
    one module."""

    a: Cubin
    b: Cubin
    kernels: tuple[KernelDelta, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]

    @property
    def identical_code(self) -> bool:
        """Whether both modules have the same kernels, with equal code and equal data that the driver loads."""
        return not (self.changed or self.only_a or self.only_b)

    @property
    def changed(self) -> tuple[KernelDelta, ...]:
        return tuple(kernel for kernel in self.kernels if kernel.verdict is not CodeVerdict.SAME_CODE)


def pair_kernels(a: Sequence[str], b: Sequence[str]) -> dict[str, str]:
    """Pair the kernels of both sides: name in a -> name in b.

    Equal names are paired first, then names that are equal without the trigger "cutlass". If then one kernel remains on
    each side, these two are paired.
    """
    pairs: dict[str, str] = {}
    for key in (str, _without_trigger):
        left_a, left_b = _left(a, pairs), _left(b, pairs.values())
        pairs |= _unique_pairs(left_a, left_b, key)
    left_a, left_b = _left(a, pairs), _left(b, pairs.values())
    if len(left_a) == len(left_b) == 1:
        pairs[left_a[0]] = left_b[0]
    return {name: pairs[name] for name in a if name in pairs}


def _left(names: Sequence[str], taken: object) -> list[str]:
    there = set(taken)  # type: ignore[call-overload]
    return [name for name in names if name not in there]


def _unique_pairs(a: Sequence[str], b: Sequence[str], key: Callable[[str], str]) -> dict[str, str]:
    """Pair names with equal keys, if each side has exactly one name with that key."""
    sides: list[dict[str, list[str]]] = [{}, {}]
    for names, by_key in zip((a, b), sides, strict=True):
        for name in names:
            by_key.setdefault(key(name), []).append(name)
    return {
        names[0]: sides[1][k][0] for k, names in sides[0].items() if [len(names), len(sides[1].get(k, ()))] == [1, 1]
    }


def _without_trigger(name: str) -> str:
    return strip_word(name) if TRIGGER in name else name


def diff_modules(a: Cubin, b: Cubin, toolchain: Toolchain) -> ModuleDiff:
    """Compare two modules. Raises CubinError or ToolError."""
    check_architectures(a, b)
    pairs = pair_kernels(a.kernels, b.kernels)
    images = image_of(a.data), image_of(b.data)

    def is_same(x: str, y: str) -> bool:
        a_loaded, b_loaded = loaded_parts(images[0], x), loaded_parts(images[1], y)
        resources = resource_deltas(a.resources[x], b.resources[y])
        return has_same_code(a, b, x, y) and not loaded_changed(a_loaded, b_loaded, resources)

    changed = {x: y for x, y in pairs.items() if not is_same(x, y)}
    deltas = _changed(a, b, changed, toolchain) if changed else {}
    both = set(pairs.values())
    return ModuleDiff(
        a,
        b,
        tuple(deltas.get(x) or _delta(a, b, x, y) for x, y in pairs.items()),
        tuple(name for name in a.kernels if name not in pairs),
        tuple(name for name in b.kernels if name not in both),
    )


def _changed(a: Cubin, b: Cubin, pairs: Mapping[str, str], toolchain: Toolchain) -> dict[str, KernelDelta]:
    with tool_threads(2) as pool:
        a_code, b_code = pool.map(toolchain.disassemble, (a, b), ([*pairs], [*pairs.values()]))
    deltas = {}
    for x, y in pairs.items():
        result = diff(a, b, a_code[x], b_code[y])
        deltas[x] = _delta(a, b, x, y, result.verdict, result.summary)
    return deltas


def _delta(
    a: Cubin, b: Cubin, x: str, y: str, verdict: CodeVerdict = CodeVerdict.SAME_CODE, summary: str | None = None
) -> KernelDelta:
    return KernelDelta(x, y, verdict, a.resources[x], b.resources[y], len(a.text(x)), len(b.text(y)), summary)
