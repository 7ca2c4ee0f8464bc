"""Result of `diff MODULE MODULE`: what differs between two modules, kernel by kernel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from msgspec import UNSET, UnsetType

from tritonhook._util.schema import Count, Fields
from tritonhook.compare import modules
from tritonhook.compare.diff import WORSE_WHEN_GROWING, CodeVerdict
from tritonhook.cubin.image import Cubin
from tritonhook.report.result import Result, Summary, Table, Tone, both, count, number, short
from tritonhook.report.results.diff import KnownCounts

_MOST_KERNELS = 50
_RESOURCES = ("threads", "registers", "stack", "shared", "spill_stores", "spill_loads")
_CODE_BYTES = "code_bytes"
_COLUMNS = {"registers": "registers", "stack": "stack", "spill_stores": "spill stores", _CODE_BYTES: "code, bytes"}
_CODE = {
    CodeVerdict.DIFFERENT_CODE: "different",
    CodeVerdict.SCHEDULING: "scheduling",
    CodeVerdict.LOADED_OTHERWISE: "same, loaded otherwise",
}


class ModuleFields(Fields):
    """A module with several kernels. kernels: how many it has. file_bytes: size of the cubin. sha256: hash of the
    cubin."""

    arch: str
    ptxas: str | None
    kernels: Count
    file_bytes: Count
    sha256: str

    @classmethod
    def of(cls, cubin: Cubin, ptxas: str | None) -> ModuleFields:
        made_by = cubin.ptxas_version or ptxas
        return cls(f"sm_{cubin.arch}", made_by, len(cubin.kernels), len(cubin.data), cubin.sha256)


class KernelPair(Fields):
    """A kernel that both modules have. a, b: its name in each. summary: how its code differs, in brief; null if the
    code is the same. resources: those of both kernels, by name."""

    a: str
    b: str
    verdict: CodeVerdict
    summary: str | None
    resources: dict[str, KnownCounts]

    @classmethod
    def of(cls, kernel: modules.KernelDelta) -> KernelPair:
        a, b = kernel.a_resources, kernel.b_resources
        resources = {name: KnownCounts(getattr(a, name), getattr(b, name)) for name in _RESOURCES}
        resources[_CODE_BYTES] = KnownCounts(kernel.a_code_bytes, kernel.b_code_bytes)
        return cls(kernel.a, kernel.b, kernel.verdict, kernel.summary, resources)

    @property
    def growth(self) -> int:
        """Difference in code size, in bytes."""
        size = self.resources[_CODE_BYTES]
        return abs((size.b or 0) - (size.a or 0))

    @property
    def is_worse(self) -> bool:
        pairs = [self.resources[name] for name in WORSE_WHEN_GROWING if name in self.resources]
        threads = self.resources.get("threads")  # older versions wrote documents without it
        if threads is not None and threads.a != threads.b:
            return False
        return any(pair.a is not None and pair.b is not None and pair.b > pair.a for pair in pairs)

    @property
    def row(self) -> tuple[str, ...]:
        figures = (both(self.resources[name].a, self.resources[name].b) for name in _COLUMNS)
        return short(self.a), short(self.b) if self.b != self.a else "", _CODE[self.verdict], *figures


class ModuleDiffResult(Result, tag="module diff"):
    """Two modules compared.

    same_code: whether both have the same kernels with the same code. only_a, only_b: names of kernels on one side only.
    notes: ptxas and options used.
    """

    verbs: ClassVar = "diff MODULE MODULE"

    same_code: bool
    a: ModuleFields
    b: ModuleFields
    kernels: tuple[KernelPair, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    notes: tuple[str, ...] | UnsetType = UNSET

    @classmethod
    def of(
        cls, diff: modules.ModuleDiff, a_ptxas: str | None, b_ptxas: str | None, notes: Sequence[str]
    ) -> ModuleDiffResult:
        """Build from a ModuleDiff. a_ptxas, b_ptxas: each side's version of ptxas, for images that do not name it."""
        return cls(
            same_code=diff.identical_code,
            a=ModuleFields.of(diff.a, a_ptxas),
            b=ModuleFields.of(diff.b, b_ptxas),
            kernels=tuple(map(KernelPair.of, diff.kernels)),
            only_a=diff.only_a,
            only_b=diff.only_b,
            notes=tuple(notes),
        )

    def summary(self) -> Summary:
        changed = [kernel for kernel in self.kernels if kernel.verdict is not CodeVerdict.SAME_CODE]
        what = "the code of " if any(kernel.verdict is not CodeVerdict.LOADED_OTHERWISE for kernel in changed) else ""
        differing = f"{what}{len(changed):,} of {count(len(self.kernels), 'kernel')} differs"
        is_worse = any(kernel.is_worse for kernel in changed)
        return Summary(
            "Diff of modules",
            "",
            CodeVerdict.SAME_CODE.value if self.same_code else differing,
            Tone.BAD if is_worse else Tone.GOOD if self.same_code else Tone.CHANGED,
            tuple(self._facts(len(self.kernels) - len(changed))),
            (self._sides(), *([_kernels(changed)] if changed else ())),
            tuple(self.notes or ()),
        )

    def _facts(self, same: int) -> Iterator[str]:
        if same:
            yield f"{count(same, 'kernel')} with the same code"
        sides: Mapping[str, Sequence[str]] = {"a": self.only_a, "b": self.only_b}
        for side, names in sides.items():
            if names:
                more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
                yield f"{count(len(names), 'kernel')} only in {side}: {', '.join(map(short, names[:3]))}{more}"

    def _sides(self) -> Table:
        a, b = self.a, self.b
        rows = (
            ("kernels", number(a.kernels), number(b.kernels)),
            ("target", a.arch, b.arch),
            ("ptxas", number(a.ptxas), number(b.ptxas)),
            ("file, bytes", number(a.file_bytes), number(b.file_bytes)),
        )
        return Table("Sides", ("", "a", "b"), rows, 3)


def _kernels(changed: Sequence[KernelPair]) -> Table:
    """Make a row for each kernel that differs. Kernels with other instructions come before the rest; in each group, the
    kernel whose code grew most comes first."""
    ordered = sorted(changed, key=lambda k: (k.verdict is not CodeVerdict.DIFFERENT_CODE, -k.growth, k.a))
    shown = ordered[:_MOST_KERNELS]
    title = f"Kernels whose code differs ({len(changed):,})"
    if len(changed) > len(shown):
        title += f", the first {len(shown)}; --json has all"
    columns, rows = ("kernel", "in b", "code", *_COLUMNS.values()), tuple(kernel.row for kernel in shown)
    tones = tuple(Tone.BAD if kernel.is_worse else Tone.NEUTRAL for kernel in shown)
    return Table(title, columns, rows, 3, tones, one_line=True)
