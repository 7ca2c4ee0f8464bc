"""The cubins of a timed comparison of PTX or cubins, descriptions of their differences, and names of the sides.

The cubins are assembled here once, so that all processes time the same code; replay.py launches them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tritonhook.capture.model import Capture, Stage
from tritonhook.capture.settings import rewrite_by_name
from tritonhook.capture.store import CaptureFolder, read_launch
from tritonhook.compare.names import compare_names, diff_cubins
from tritonhook.cubin.image import Cubin
from tritonhook.cubin.resources import dynamic_shared
from tritonhook.errors import TritonHookError
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.toolchain import Assembled, AssembleError, Toolchain
from tritonhook.rename import Rename, control_name
from tritonhook.timing.plan import Compared, Plan, Prepared, SideImage
from tritonhook.timing.statistics import CANDIDATE, CONTROL, REFERENCE

_DESCRIBED = 8  # kernels whose difference is described: each costs two runs of nvdisasm


@dataclass(frozen=True, slots=True)
class KernelImage:
    """A kernel in a cubin. image: the cubin. entry: the kernel's name in it. ptxas: version of the ptxas that made it,
    or None."""

    image: bytes
    entry: str
    ptxas: str | None = None


@dataclass(frozen=True, slots=True)
class Sides:
    """The three sides of a comparison. The control is the reference under another name, with the same code unless
    ptxas makes other code under that name."""

    kernel: str
    reference: KernelImage
    candidate: KernelImage
    control: KernelImage

    def write(self, folder: Path) -> tuple[SideImage, ...]:
        """Write the cubins to files for the timing processes."""
        folder.mkdir(parents=True, exist_ok=True)
        codes = {REFERENCE: self.reference, CANDIDATE: self.candidate, CONTROL: self.control}
        for side, code in codes.items():
            (folder / f"{side}.cubin").write_bytes(code.image)
        return tuple(
            SideImage(side, str(folder / f"{side}.cubin"), code.entry, self.kernel, code.ptxas)
            for side, code in codes.items()
        )


@dataclass(frozen=True, slots=True)
class CandidateChange:
    """What the candidate changes, compared with the reference. Both are made from the same PTX.

    rewrites: names of rewrites. toolchain: another ptxas, or None. options: further options for ptxas.
    """

    rename: Rename | None = None
    rewrites: tuple[str, ...] = ()
    toolchain: Toolchain | None = None
    options: tuple[str, ...] = ()

    @property
    def is_rename(self) -> bool:
        """Whether only the kernel's name changes."""
        return self.rename is not None and not (self.rewrites or self.toolchain or self.options)


def sides_of_ptx(
    ptx: Ptx, entry: str, change: CandidateChange, toolchain: Toolchain, arguments: Sequence[str]
) -> Sides:
    """Assemble the three sides. Raises UsageError if nothing changes, and AssembleError if ptxas makes no cubin."""
    if change.is_rename and change.rename is not None:
        named = compare_names(ptx, change.rename, toolchain, arguments, entry)
        tools = (toolchain, toolchain, toolchain)
        builds = [(build.kernel, build.result) for build in (named.original, named.renamed, named.control)]
    else:
        other = ptx if change.rename is None else ptx.rename_entries({entry: change.rename.new_name(entry)})
        new = entry if change.rename is None else change.rename.new_name(entry)
        for name in change.rewrites:
            other, _ = rewrite_by_name(other, name)
        # If the candidate keeps the reference's name, ptxas must handle the control's name like this name.
        neutral = f"control_{entry}" if new == entry else control_name(entry, new)
        again = ptx.rename_entries({entry: neutral})
        tools = (toolchain, change.toolchain or toolchain, toolchain)
        builds = [
            (entry, toolchain.assemble(ptx, arguments)),
            (new, tools[1].assemble(other, (*arguments, *change.options))),
            (neutral, toolchain.assemble(again, arguments)),
        ]
    codes = []
    for (kernel, result), tool in zip(builds, tools, strict=True):
        if not isinstance(result, Assembled):
            raise AssembleError(result)
        codes.append(KernelImage(result.cubin.data, kernel, tool.ptxas.version))
    return Sides(entry, *codes)


def sides_of_cubins(reference: KernelImage, candidate: KernelImage) -> Sides:
    """Make the sides for two cubins. The control is the reference's cubin, loaded a second time."""
    return Sides(reference.entry, reference, candidate, reference)


def describe_images(images: Sequence[SideImage], launch: Path | None, toolchain: Toolchain) -> dict[str, str]:
    """Describe how the candidate differs from the reference: kernel -> sentence. launch: file of their launch."""
    by_side = {image.side: image for image in images}
    a, b = (by_side[side] for side in (REFERENCE, CANDIDATE))
    cubins = [Cubin.from_bytes(Path(image.path).read_bytes(), image.path) for image in (a, b)]
    dynamic = None if launch is None else read_launch(launch).shared
    difference = diff_cubins(cubins[0], cubins[1], toolchain, a.entry, b.entry)
    return {a.kernel: difference.with_launches(dynamic, dynamic).summary}


def describe_captures(out: Path, changed: Sequence[str], toolchain: Toolchain) -> dict[str, str]:
    """Describe the differences between the captures of reference and candidate below `out`: kernel -> sentence.
    changed: kernels to describe. Kernels that were compiled more than once on a side are omitted."""
    sides = [_by_own_name(out / side) for side in (REFERENCE, CANDIDATE)]
    told: dict[str, str] = {}
    for name in changed[:_DESCRIBED]:
        pairs = [side.get(name, []) for side in sides]
        if [len(pair) for pair in pairs] == [1, 1]:
            a, b = pairs[0][0], pairs[1][0]
            try:
                a_cubin, b_cubin = (Cubin.from_bytes(side.cubin, side.kernel) for side in (a, b))
                diff = diff_cubins(a_cubin, b_cubin, toolchain, a.kernel, b.kernel)
                shared = (dynamic_shared(side.metadata.get("shared"), side.text(Stage.PTX)) for side in (a, b))
                told[name] = diff.with_launches(*shared).summary
            except TritonHookError as error:
                told[name] = f"not known: {error}"
    return told


def _by_own_name(folder: Path) -> dict[str, list[Capture]]:
    by_name: dict[str, list[Capture]] = {}
    captures = CaptureFolder.open(folder)
    for capture in map(captures.capture, captures.running):
        by_name.setdefault(capture.rewritten_from or capture.kernel, []).append(capture)
    return by_name


# --- the names of the sides -----------------------------------------------------------------------


def compared_sides(plan: Plan, report: Prepared) -> dict[str, Compared]:
    """Describe each side for reports. report: the answer of a timing process to Prepare."""
    compiled = report.compiled
    names = plan.names
    if names is None and plan.candidate is not None:
        names = (plan.target, plan.candidate)
    if names is None:
        own = list(report.kernels[REFERENCE])
        names = change_names(own, plan.target, plan.rename, plan.rewrites, plan.candidate_options)
    versions = [", ".join(compiled[side].ptxas) for side in (REFERENCE, CANDIDATE)]
    if all(versions) and versions[0] != versions[1]:
        names = (f"{names[0]} by ptxas {versions[0]}", f"{names[1]} by ptxas {versions[1]}")
    elif plan.candidate_ptxas is not None and not all(versions):
        names = (names[0], f"{names[1]} by another ptxas")
    control = ", ".join(compiled[CONTROL].kernels) or names[0]
    by_side = {REFERENCE: names[0], CANDIDATE: names[1], CONTROL: control}
    return {side: Compared(compiled[side].kernels, compiled[side].ptxas, name) for side, name in by_side.items()}


def change_names(
    kernels: Sequence[str], target: str, rename: Rename | None, rewrites: Sequence[str], options: str | None
) -> tuple[str, str]:
    """Make the names of reference and candidate in reports, if the candidate launches the same kernels with changes."""
    if len(kernels) == 1:
        before = kernels[0]
        after = before if rename is None else rename.new_name(before)
    else:
        before = f"{len(kernels):,} kernels of {target}"
        after = before if rename is None else f"{before} {_described(rename)}"
    changes = [*rewrites, *([options] if options else [])]
    return before, f"{after} with {' and '.join(changes)}" if changes else after


def _described(rename: Rename) -> str:
    """Describe how a rename changes several kernels."""
    parts = [f"without {rename.strip!r} in their names"] if rename.strip else []
    parts += [f"with the prefix {rename.prefix}"] if rename.prefix else []
    return " and ".join(parts) or "under other names"
