"""Inputs on the command line: files, kernels, captures by path or short id, folders of captures."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritonhook._util.demangle import function_name
from tritonhook._util.files import read_given
from tritonhook.capture.model import Assembler, Capture, Stage
from tritonhook.capture.selection import KernelSelector, fits, launch_of, settings_of, titles_of
from tritonhook.capture.settings import default_out
from tritonhook.capture.store import CaptureFolder, read_capture
from tritonhook.capture.store.ids import FEWEST, is_id, is_short_of_id
from tritonhook.cli._parser import Group, argument, flag, option, seconds
from tritonhook.cli._progress import working
from tritonhook.cubin.image import Cubin
from tritonhook.cubin.resources import dynamic_shared
from tritonhook.errors import CaptureError, CubinError, PtxError, UsageError, listed
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.tool import Tool, file_at, find_ptxas, find_recorded, is_same_file
from tritonhook.ptxas.toolchain import DEFAULT_ARGUMENTS, toolchain_of
from tritonhook.report.result import count

if TYPE_CHECKING:
    from tritonhook.snapshot.folders import Kernels

_MOST_BYTES = 1 << 32  # largest file with code that is read; torch's shared libraries have 2 GiB


def place(**settings: Any) -> Any:
    """Declare a positional argument for one or several kernels, each a path or an id."""
    return argument(_places, **settings)


def _launch_place(text: str | None) -> str | None:
    """Resolve the id of a captured launch, `b4af31` or `FOLDER/b4af31`, to the launch's file. Resolve other texts as
    `_place` does."""
    path = Path(text or "")
    if text is None or path.exists() or not is_id(path.name):
        return _place(text)
    folder = path.parent if len(path.parts) > 1 else Path(default_out())
    found = [*folder.glob(f"kernels/*/launches/{path.name}*.json")]
    if len({one.stem for one in found}) > 1:
        ids = listed([it.stem for it in found])
        raise UsageError(f"{text}: {len(found)} launches have an id that begins like this: {ids}")
    return str(found[0]) if found else _place(text)


def _places(given: Any) -> Any:
    from tritonhook.cli._programs import is_script

    if not isinstance(given, tuple):
        return _place(given)
    return given if given and is_script(given[0]) else tuple(map(_place, given))  # a script's arguments stay unchanged


def _place(text: str | None) -> str | None:
    """Resolve an id or a selector, `a1b2c3` or `FOLDER/matmul[BM=64]`, to the kernel's folder; return other texts
    unchanged.

    An id without a folder is looked up in the default folder of `tritonhook run`.
    """
    if text is None or Path(text).exists() or is_folder(text):
        return text
    path = Path(text)
    if is_short_of_id(path.name):
        raise UsageError(f"{text}: no such file or folder, and too short for an id: give {FEWEST} digits or more")
    folder = path.parent if len(path.parts) > 1 else Path(default_out())
    if not is_id(path.name):
        return _selected(text, path.name, folder)
    try:
        record = CaptureFolder.open(folder).find(path.name)
    except CaptureError as error:
        raise UsageError(f"{text}: no such file or folder; looked up as an id: {error}") from None
    if record is None:
        why = f"{text}: no such file or folder, and no kernel in {folder} has an id that begins like this"
        raise UsageError(why + kernels_there(folder))
    return str(folder / record)


def _selected(text: str, name: str, folder: Path) -> str:
    """Resolve a record's name or a selector, `matmul[BM=64]` or `FOLDER/matmul[BM=64]`, to a kernel's folder; return
    other texts unchanged. Raises UsageError if several kernels match, or if none has the bracketed configuration."""
    selector = KernelSelector.of(name)
    if selector is None or not is_folder(str(folder)):
        return text
    if (folder / "kernels" / name).is_dir():
        return str(folder / "kernels" / name)
    opened = captures_at(folder)
    captures = {record: c for record, c in opened.captures().items() if isinstance(c, Capture)}
    called = titles_of(captures)
    fitting = [record for record, c in captures.items() if selector.fits(c.kernel, c.options)]
    if len(fitting) == 1:
        return str(opened.path / "kernels" / fitting[0])
    if not fitting and not selector.settings:
        if name != text or "." in name or ":" in name:  # a path, or MODULE:FUNCTION
            return text
        raise UsageError(
            f"{text}: no such file or folder (`tritonhook run --out {text} script.py` makes a capture folder), and no "
            f"such kernel in {folder}; the kernels there are:\n  {_ids(opened, captures, called)}"
        )
    alike = fitting or [record for record, c in captures.items() if selector.name == function_name(c.kernel)]
    what = f"{len(fitting)} kernels match; add settings, or give an id" if fitting else "no such kernel; there are"
    raise UsageError(f"{text}: {what}:\n  {_ids(opened, alike, called)}")


def _ids(folder: CaptureFolder, records: Iterable[str], called: Mapping[str, str]) -> str:
    """List kernels, one line for each: its id and its title."""
    return listed([f"{folder.ids[record]}  {called[record]}" for record in records], "\n  ")


def kernels_there(folder: str | Path | None = None) -> str:
    """List the kernels of the latest run in a folder, for the text of an error; "" if there are none. folder: by
    default the folder that `tritonhook run` writes to."""
    folder = folder or default_out()
    if not is_folder(str(folder)):
        return ""
    opened = captures_at(folder)
    captures = {record: c for record, c in opened.captures().items() if isinstance(c, Capture)}
    called = titles_of(captures)
    return f"; the latest run in {folder} has:\n  {_ids(opened, captures, called)}" if captures else ""


# --- files and kernels ----------------------------------------------------------------------------


def read_bytes(path: Path, most: int = _MOST_BYTES) -> bytes:
    """Read a file with code or a result. Raises UsageError if it cannot be read, has more than `most` bytes, or is a
    lock."""
    from tritonhook.snapshot.lockfile import begins_a_lock

    try:
        data = read_given(path, most)
    except IsADirectoryError:
        raise UsageError(f"{path}: a folder; give a file or a capture (OUT/kernels/NAME-HASH)") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot read: {error.strerror}") from None
    if begins_a_lock(path, data):
        raise UsageError(
            f"{path}: a lock; `tritonhook show {path}` lists its kernels, `tritonhook check {path} CAPTURES` compares "
            "captures with it"
        )
    return data


@dataclass(frozen=True, slots=True)
class Input:
    """One kernel. A capture has PTX, a cubin, or both; a file has only one of them.

    label: the path from the command line. entry: the kernel's name in the file. assembler: the capture's ptxas and its
    options. capture: the captured kernel; None for a file.
    """

    label: str
    entry: str
    ptx: Ptx | None = None
    cubin: Cubin | None = None
    assembler: Assembler | None = None
    capture: Capture | None = None

    @property
    def dynamic_shared(self) -> int | None:
        """Bytes of shared memory that a launch adds; None if unknown."""
        if self.capture is None:
            return None
        return dynamic_shared(self.capture.metadata.get("shared"), None if self.ptx is None else self.ptx.text)

    @property
    def settings(self) -> dict[str, str]:
        """Settings of the captured kernel's configuration, by name; empty for a file."""
        return {} if self.capture is None else settings_of(self.capture.options)

    @property
    def ptxas(self) -> str | None:
        """Version of the ptxas that made the cubin; None if neither the capture nor the cubin names it."""
        if self.assembler is not None and self.assembler.version:
            return self.assembler.version
        return self.cubin.ptxas_version if self.cubin is not None else None


@dataclass(frozen=True, slots=True)
class KernelFile:
    """A PTX file or a cubin. label: the path from the command line."""

    label: str
    content: Ptx | Cubin

    @property
    def kernels(self) -> tuple[str, ...]:
        return self.content.kernels if isinstance(self.content, Cubin) else self.content.entries

    def kernel(self, entry: str | None) -> Input:
        """Return the kernel named `entry`; if there is only one kernel, return it whatever its name, because `entry`
        may be a name of another input. Raises CubinError or PtxError."""
        wanted = entry if entry in self.kernels or len(self.kernels) > 1 else None
        try:
            if isinstance(self.content, Cubin):
                return Input(self.label, self.content.only_kernel(wanted), cubin=self.content)
            return Input(self.label, self.content.only_entry(wanted), ptx=self.content)
        except (CubinError, PtxError) as error:
            raise type(error)(f"{self.label}: {error}") from None


def load_input(path: str, entry: str | None) -> Input:
    """Read a kernel. entry: its name, required if there are several.

    Raises UsageError, PtxError, CubinError or CaptureError; each message has the path.
    """
    opened = _opened(path, entry)
    return opened.kernel(entry) if isinstance(opened, KernelFile) else opened


def load_pair(a: str, b: str, entry: str | None) -> list[Input]:
    """Read one kernel of each side. entry: its name, or both names as A:B; required if a side has several kernels.

    If the two files name the kernel differently, `pair_kernels` matches the names. Raises the errors of load_input.
    """
    first, is_pair, second = (entry or "").partition(":")
    names = (first, second) if is_pair else (entry, entry)
    sides = [_opened(a, names[0]), _opened(b, names[1])]
    files = [side.kernels for side in sides if isinstance(side, KernelFile)]
    if entry is not None and not is_pair and len(files) == 2:
        from tritonhook.compare.modules import pair_kernels

        names = next((pair for pair in pair_kernels(*files).items() if entry in pair), names)
    inputs = [
        side.kernel(name) if isinstance(side, KernelFile) else side for side, name in zip(sides, names, strict=True)
    ]
    for name, own in ((first, inputs[:1]), (second, inputs[1:])) if is_pair else ((entry, inputs),):
        check_entry(name, own)
    return inputs


def _opened(path: str, entry: str | None) -> KernelFile | Input:
    """Read a file, or the captured kernel `entry` of a folder."""
    place = Path(path)
    if not place.is_dir():
        return load_file(path)
    if (place / "capture.json").exists():
        return input_of(path, read_capture(place))
    everything = CaptureFolder.open(place).captures()
    captures = {record: outcome for record, outcome in everything.items() if isinstance(outcome, Capture)}
    if not captures:
        damage = (outcome for outcome in everything.values() if isinstance(outcome, CaptureError))
        raise next(damage, no_kernels(place))
    fitting = {record: capture for record, capture in captures.items() if fits(entry, capture.kernel, capture.options)}
    if len(fitting) == 1:
        return input_of(path, next(iter(fitting.values())))
    what = f"{len(fitting):,} captures" if fitting else "no capture"
    paths = listed([str(place / "kernels" / record) for record in fitting or captures], "\n  ")
    raise UsageError(f"{place}: {what}{f' of {entry}' if entry else ''}; name one:\n  {paths}")


def load_file(path: str) -> KernelFile:
    """Read a PTX file or a cubin. Raises UsageError, PtxError or CubinError; each message has the path."""
    data = read_bytes(Path(path))
    if data[:4] == b"\x7fELF":
        return KernelFile(path, Cubin.from_bytes(data, path))
    if b"\0" in data.rstrip(b"\0"):
        raise UsageError(f"{path}: a binary file, but not an ELF image; give PTX, a cubin, or a capture folder")
    return KernelFile(path, Ptx.from_bytes(data, path))


def input_of(path: str, capture: Capture) -> Input:
    """Convert a captured kernel to an input. path: its name in messages."""
    has_ptx, has_cubin = (stage in capture.artifacts for stage in (Stage.PTX, Stage.CUBIN))
    ptx = capture.ptx if has_ptx else None
    cubin = Cubin.from_bytes(capture.cubin, path) if has_cubin else None
    return Input(path, capture.kernel, ptx, cubin, capture.assembler, capture)


def chosen_arguments(given: str | None, inputs: Sequence[Input]) -> tuple[str, ...]:
    """Choose the ptxas options for all inputs: --options, else those of a capture, else Triton's usual ones."""
    if given is not None:
        return tuple(given.split())
    for kernel in inputs:
        if kernel.assembler is not None and kernel.assembler.options is not None:
            return kernel.assembler.options
    return DEFAULT_ARGUMENTS


def chosen_assembler(
    ptxas: str | None, options: str | None, trust: bool, inputs: Sequence[Input]
) -> tuple[Tool, tuple[str, ...]]:
    """Choose the ptxas and its options for all inputs.

    The ptxas: --ptxas, else the one that a capture or a cubin names, else the newest. The options: --options, else
    those of a capture, else Triton's usual ones. A program at a path that a capture names runs only with --trust; if
    another one is used instead, warn on standard error. Raises ToolError.
    """
    arguments = chosen_arguments(options, inputs)
    if ptxas is not None:
        return find_ptxas(ptxas), arguments
    named = ((kernel.assembler.path if kernel.assembler is not None else None, kernel.ptxas) for kernel in inputs)
    path, version = next((pair for pair in named if any(pair)), (None, None))
    tool, file = find_recorded(path, version, trust), file_at(path)
    if tool is not None and file is not None and not is_same_file(file, tool.path):
        print(
            f"{path}: not run, although the capture names this ptxas, because no installed ptxas has its hash; ptxas "
            f"{tool.version} at {tool.path} is used instead (--trust runs the ptxas that the capture names)",
            file=sys.stderr,
        )
    return tool or find_ptxas(), arguments


def cubin_of(given: Input, ptxas: str | None, options: str | None, trust: bool) -> tuple[Cubin, str | None]:
    """Return an input's cubin, assembled from its PTX if need be, and the version of the ptxas that made it. The other
    arguments are those of chosen_assembler."""
    if given.cubin is not None:
        return given.cubin, given.ptxas
    assert given.ptx is not None  # an input has PTX, a cubin, or both
    tool, arguments = chosen_assembler(ptxas, options, trust, [given])
    return toolchain_of(tool).assemble_or_raise(given.ptx, arguments).cubin, tool.version


def trust_option() -> Any:
    return flag(help="run the ptxas at the path that a capture names, even if it is none of the installed ones")


def options_option(default: str) -> Any:
    return option("--options", metavar="'...'", help=f"ptxas options, e.g. '-O1 -v' (default: {default})")


def check_entry(entry: str | None, inputs: Sequence[Input]) -> None:
    """Raise UsageError if no input has a kernel named --entry. It is enough if one input has it."""
    if entry is not None and entry not in {kernel.entry for kernel in inputs}:
        names = listed(dict.fromkeys(kernel.entry for kernel in inputs))
        raise UsageError(f"--entry {entry}: no such kernel; the kernels are: {names}")


# --- captures -------------------------------------------------------------------------------------


def no_kernels(path: str | Path) -> CaptureError:
    """Make the error for a capture folder without kernels."""
    remedy = f"run a program that compiles some: `tritonhook run --out {path} script.py`"
    return CaptureError(f"{path}: no kernels were captured; {remedy}")


def kernels_at(*places: str | CaptureFolder, names: Sequence[str] = ()) -> tuple[list[Kernels], list[str]]:
    """Read the kernels of capture folders, with their facts. Returns them, and notes: messages of the processes that
    wrote the folders, such as kernels that could not be captured, and kernels that are out of date.

    names: how messages call the folders. Raises CaptureError, CubinError or ToolError.
    """
    from tritonhook.snapshot.folders import read_folders

    paths = names or list(map(str, places))
    folders = [place if isinstance(place, CaptureFolder) else captures_at(place) for place in places]
    with working(f"reading the kernels of {' and '.join(paths)}"):
        folders_read = read_folders(*folders)
    said: dict[str, list[str]] = {}
    for path, read in zip(paths, folders_read, strict=True):
        if not read.kernels:
            raise no_kernels(path)
        for note in read.notes:
            said.setdefault(note, []).append(path)
    notes = [note if len(own) == len(paths) > 1 else f"{own[0]}: {note}" for note, own in said.items()]
    notes += dict.fromkeys(note for folder in folders for note in outdated_note(folder))
    return [read.kernels for read in folders_read], notes


def captures_at(path: str | Path) -> CaptureFolder:
    """Open a capture folder with the kernels of each command's latest run; `FOLDER@N`: with the kernels of run N.
    Raises CaptureError."""
    folder, run = _run_in(str(path))
    return CaptureFolder.open(folder).latest() if run is None else CaptureFolder.open(folder).of_run(run)


def _run_in(path: str) -> tuple[str, int | None]:
    """Split `FOLDER@N` into folder and run number; a path that exists, or without @N, has run None."""
    folder, _, run = path.rpartition("@")
    return (folder, int(run)) if folder and run.isdecimal() and not Path(path).exists() else (path, None)


def outdated_note(folder: CaptureFolder) -> list[str]:
    """Note how many kernels were compiled or loaded only by earlier runs."""
    if not folder.outdated:
        return []
    left = count(len(folder.outdated), "kernel")
    return [f"{folder.path}: {left} of earlier runs left out; `tritonhook show {folder.path} --all` lists all"]


def is_folder(path: str) -> bool:
    """Return True for a folder of captures, or a run in one (`FOLDER@N`); False for a single kernel."""
    return (Path(_run_in(path)[0]) / "index").is_dir()


def regular_expression(option: str, text: str) -> re.Pattern[str]:
    """Compile a regular expression that ignores case. option: its name, for the error. Raises UsageError."""
    try:
        return re.compile(text, re.IGNORECASE)
    except re.error as error:
        said = f"not a regular expression: {error}; put \\ before a special character that is meant literally"
        raise UsageError(f"{option} {text}: {said}") from None


# --- options of several verbs ---------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class RecordedLaunch(Group):
    """Options that select the recorded launch from which a kernel gets its arguments: for emulate, verify and ab."""

    args: str | None = option(
        convert=_launch_place,
        metavar="RECORD",
        help="repeat this recorded launch: a JSON file, a capture, or the id of a captured launch or kernel",
    )
    launch: str | None = option(metavar="KEY", help="repeat this recorded launch (default: the kernel's most frequent)")

    def of(self, paths: Sequence[str], dry: bool = False) -> Path:
        """Return the file of the launch. paths: captures to search. dry: accept launches of dry runs, too."""
        return launch_of(self.args, self.launch, paths, dry=dry)


@dataclass(frozen=True, kw_only=True)
class OnlyKernel(Group):
    """The option that selects one kernel: for bisect, emulate, tune and verify."""

    entry: str | None = option(metavar="NAME", help="only the kernel of this name")


@dataclass(frozen=True, kw_only=True)
class Tolerance(Group):
    """The option for how much outputs may differ: for ab and tune."""

    rtol: float | None = option(
        type=float, metavar="R", help="outputs may differ by R times the largest value (default: 0)"
    )

    def check(self) -> None:
        if self.rtol is not None and not self.rtol >= 0:
            raise UsageError(f"--rtol {self.rtol:g}: give 0 or more")


HUNG = "seconds after which a launch counts as hung"  # for the help of --limit


def limit_option(of: str, default: str, value: float | None = None) -> Any:
    """Declare --limit S, for emulate, tune and verify. of: what it limits. default: the default value as the help shows
    it."""
    return option(type=seconds, default=value, metavar="S", help=f"{of} (default: {default})")
