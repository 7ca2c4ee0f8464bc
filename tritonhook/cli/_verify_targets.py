"""What `tritonhook verify` runs: the kernels of a target, each with a launch, and how its builds are made."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path

from tritonhook._util.versions import version_key
from tritonhook.capture.launches.record import Launch
from tritonhook.capture.store import CaptureFolder, RecordedLaunch, read_launch
from tritonhook.cli._inputs import Input, chosen_arguments, chosen_ptxas, load_input, load_pair
from tritonhook.cli._recording import is_function, is_script, record_launches, why_no_gpu
from tritonhook.cli.ab.launches import launch_of
from tritonhook.errors import DeviceError, TritonHookError, UsageError
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.discovery import available_ptxas, find_ptxas
from tritonhook.ptxas.tool import Tool
from tritonhook.ptxas.toolchain import toolchain_of
from tritonhook.verify.builds import Built, Recipe, build_all, recipes
from tritonhook.verify.latitude import Latitude, latitude_of
from tritonhook.verify.model import Build


@dataclass(frozen=True, slots=True)
class Subject:
    """A kernel, a launch of it, and where its builds come from: recipes for its PTX, or cubins as they are.

    folder: of the launch's recorded contents.
    """

    kernel: str
    launch: Launch
    folder: Path | None
    latitude: Latitude
    ptx: Ptx | None = None
    recipes: tuple[Recipe, ...] = ()
    cubins: tuple[Build, ...] = ()

    def build(self, folder: Path, pool: Executor) -> Built:
        """Make the builds. Raises UsageError if the reference cannot be made."""
        if self.ptx is None:
            return Built(self.cubins, (), ())
        return build_all(self.ptx, self.kernel, self.recipes, folder, pool)


@dataclass(frozen=True, slots=True)
class Skip:
    """A kernel that cannot be run, with the reason."""

    kernel: str
    reason: str


def subjects_of(arguments: argparse.Namespace, folder: Path) -> Iterator[Subject | Skip]:
    """The kernels of the target. folder: for captures and cubins, as long as the verification lasts.

    Raises TritonHookError if there is nothing to run.
    """
    first, *rest = arguments.target
    if is_function(first) or is_script(first):
        if arguments.args:
            raise UsageError(f"--args: not allowed here: {first} is run to record its launches")
        captures = folder / "captures"
        record_launches([first, *rest, *(arguments.rest or ())], captures, "nothing was verified")
        yield from _of_captures(argparse.Namespace(**{**vars(arguments), "trust": True}), captures)
    elif len(rest) == 1:
        yield _of_cubins(arguments, first, rest[0], folder)
    elif rest:
        raise UsageError(f"{' '.join(rest)}: not understood; give one target, two builds of one kernel, or a script")
    elif (Path(first) / "index").is_dir() and not arguments.args:
        yield from _of_captures(arguments, Path(first))
    else:
        yield _of_file(arguments, first)


def check_gpu() -> None:
    """Raises DeviceError where there is no GPU, with what can be done without one."""
    if (why := why_no_gpu()) is not None:
        raise DeviceError(
            f"{why}; verify runs kernels. Without a GPU, `tritonhook verify --known FILE|CAPTURES` searches "
            "the PTX for the patterns of known bugs of ptxas"
        )


# --- kinds of target -----------------------------------------------------------------------------


def _of_captures(arguments: argparse.Namespace, path: Path) -> Iterator[Subject | Skip]:
    """Each kernel of a capture folder with its most frequent launch; autotuning's losers are left out."""
    captures = CaptureFolder.open(path)
    found = False
    for record in captures.records:
        if record in captures.lost:
            continue
        try:
            capture = captures.capture(record)
            launches = [one for one in captures.launches(record) if one.key.startswith(arguments.launch or "")]
            kernel = capture.kernel
        except TritonHookError as error:
            yield Skip(record, str(error))
            continue
        if arguments.entry not in (None, kernel):
            continue
        found = True
        yield _of_record(arguments, captures, record, kernel, launches)
    if not found:
        what = f"no kernel {arguments.entry!r}" if arguments.entry else "no kernels"
        raise UsageError(f"{path}: {what} in this capture folder")


def _of_record(
    arguments: argparse.Namespace,
    captures: CaptureFolder,
    record: str,
    kernel: str,
    launches: Sequence[RecordedLaunch],
) -> Subject | Skip:
    if not launches:
        reasons = [note for note in captures.notes if "was not recorded" in note and kernel in note]
        record_it = "record with `tritonhook run --launches`, or give one with --args and --entry"
        why = reasons[0] if reasons else f"no launch of it was recorded; {record_it}"
        return Skip(kernel, why)
    try:
        given = load_input(str(captures.path / "kernels" / record), None)
        return _subject(arguments, given, launches[0].launch, launches[0].folder)
    except TritonHookError as error:
        return Skip(kernel, str(error))


def _of_file(arguments: argparse.Namespace, path: str) -> Subject:
    """A PTX file, a capture, or one kernel of a capture folder."""
    given = load_input(path, arguments.entry)
    launch = launch_of(arguments.args, arguments.launch, [path])
    return _subject(arguments, given, read_launch(launch), launch.parent)


def _subject(arguments: argparse.Namespace, given: Input, launch: Launch, folder: Path) -> Subject:
    if given.ptx is None:
        raise UsageError(
            f"{given.label}: no PTX to assemble anew; give a second build of it, to compare the two as they are"
        )
    own = chosen_ptxas(arguments, [given])
    options = chosen_arguments(arguments.options, [given])
    latitude = latitude_of(given.ptx)
    wanted = recipes(own, options, latitude, _others(arguments))
    if arguments.against:
        wanted = _against(wanted, own)
    return Subject(given.entry, launch, folder, latitude, given.ptx, wanted)


def _others(arguments: argparse.Namespace) -> list[Tool]:
    """The ptxas of --against, else all that are here."""
    if not arguments.against:
        return list(available_ptxas())
    return [find_ptxas(version) for version in arguments.against]


def _against(wanted: Sequence[Recipe], own: Tool) -> tuple[Recipe, ...]:
    """Every version that was asked for on its own, instead of the oldest and the newest that take the kernel."""
    flat = [one for recipe in wanted for one in ((recipe, *recipe.others) if recipe.ptxas != own else (recipe,))]
    single = [Recipe(one.label, one.ptxas, one.options, one.others if one.ptxas == own else ()) for one in flat]
    mine, others = [r for r in single if r.ptxas == own], [r for r in single if r.ptxas != own]
    return (*mine[:2], *sorted(others, key=lambda recipe: version_key(recipe.ptxas.version)), *mine[2:])


def _of_cubins(arguments: argparse.Namespace, a: str, b: str, folder: Path) -> Subject:
    """Two builds as they are: cubins, captures of other compilers or options, PTX files."""
    launch = launch_of(arguments.args, arguments.launch, [a, b])
    given = load_pair(a, b, arguments.entry)
    builds = tuple(_as_it_is(arguments, one, folder / f"{n}.cubin") for n, one in enumerate(given))
    ptx = next((one.ptx for one in given if one.ptx is not None), None)
    latitude = replace(Latitude(contraction=True) if ptx is None else latitude_of(ptx), contracted=True)
    return Subject(given[0].entry, read_launch(launch), launch.parent, latitude, None, (), builds)


def _as_it_is(arguments: argparse.Namespace, given: Input, path: Path) -> Build:
    cubin = given.cubin
    if cubin is None:
        assert given.ptx is not None
        made = toolchain_of(chosen_ptxas(arguments, [given]))
        cubin = made.assemble_or_raise(given.ptx, chosen_arguments(arguments.options, [given])).cubin
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(cubin.data)
    return Build(given.label, path, given.entry, given.ptxas)
