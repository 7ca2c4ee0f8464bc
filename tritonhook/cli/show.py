"""List the kernels in a capture folder or a lock; show one kernel, any file with GPU code, or a saved result.

Each captured kernel has a short id. Every verb accepts it instead of the kernel's folder; its first four digits are
enough. A file can be a cubin, PTX, a fat binary, an object file, a shared library, or what a verb wrote with --save or
--json. --html FILE also writes the output as a page, one file that needs no network and no GPU. --html FOLDER/ adds a
page for each kernel of a folder.

  tritonhook show                        # the folder that `tritonhook run` writes to
  tritonhook show captures --sort spills --filter gemm
  tritonhook show a1b2c3
  tritonhook show captures/a1b2c3 --sass             # or --ptx, --ttgir, --llir, --ttir, --source
  tritonhook show captures/a1b2c3 --source --count   # with counters of a launch executed on the CPU
  tritonhook show libkernels.so --entry my_kernel --sass
  tritonhook show tritonhook.lock
  tritonhook show diff.json --html diff.html         # of `diff --save diff.json`
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritonhook._util.demangle import function_name
from tritonhook._util.text import visible
from tritonhook.capture.model import Capture, Stage
from tritonhook.capture.settings import default_out
from tritonhook.capture.store import CaptureFolder, read_capture
from tritonhook.cli._inputs import captures_at, outdated_note, place, read_bytes, regular_expression
from tritonhook.cli._parser import Group, flag, given_options, option, part, positive
from tritonhook.cli._results import Results, capture_page, give, show_summary
from tritonhook.cli._streams import write_paged
from tritonhook.cubin.elf import EM_CUDA, MAGIC
from tritonhook.cubin.image import Cubin
from tritonhook.cubin.sass import Sass
from tritonhook.cubin.shipped import FATBIN_MAGIC, embedded_cubins
from tritonhook.errors import CubinError, ToolError, UsageError, listed
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.tool import find_ptxas
from tritonhook.ptxas.toolchain import reading_toolchain, toolchain_of
from tritonhook.report.result import count
from tritonhook.snapshot.lockfile import is_lock, read_whole_lock

if TYPE_CHECKING:
    from tritonhook.report.result import Result, Summary
    from tritonhook.report.results.capture import CapturedOne, ResourceFields
    from tritonhook.report.results.captures import Captures, FolderKernel
    from tritonhook.report.results.file import FileKernel


def _most(figures: Callable[[ResourceFields], Sequence[int | None]]) -> Callable[[FolderKernel], tuple[bool, int]]:
    """Make a sort key that puts kernels with the largest figure first, and kernels with an unknown figure last."""

    def key(kernel: FolderKernel) -> tuple[bool, int]:
        values = [None] if kernel.resources is None else figures(kernel.resources)
        known = [value for value in values if value is not None]
        return len(known) < len(values), -sum(known)

    return key


_MOST_KERNELS = 200  # the code of a file with more kernels is read only with --entry
_STAGES = ("ptx", "ttgir", "llir", "ttir")  # stages that can be printed as text
_ORDERS: dict[str, Callable[[FolderKernel], Any]] = {
    "name": lambda kernel: kernel.kernel,
    "regs": _most(lambda r: [r.registers]),
    "spills": _most(lambda r: [r.spill_stores, r.spill_loads]),
    "stack": _most(lambda r: [r.stack]),
    "shared": _most(lambda r: [r.shared]),
    "instrs": _most(lambda r: [r.instructions]),
    "compile-time": lambda kernel: (not kernel.compile_us, -sum(kernel.compile_us.values())),
}


@dataclass(frozen=True, kw_only=True)
class Listed(Group):
    """Options for a capture folder."""

    sort: str | None = option(
        choices=_ORDERS,
        metavar="COLUMN",
        help=f"sort by this column, the largest figure first: {', '.join(_ORDERS)} (default: instrs)",
    )
    filter: str | None = option(metavar="REGEX", help="list only kernels whose row matches")
    all: bool = flag(one_of="runs", help="list the kernels of all runs (default: of the latest run of each command)")
    run: int | None = option(one_of="runs", type=positive, metavar="N", help="list only the kernels of this run")
    rank: str | None = option(metavar="N", help="list only kernels of processes with this rank (torchrun sets one)")


@dataclass(frozen=True, kw_only=True)
class OfFile(Group):
    """Options for a file."""

    entry: str | None = option(metavar="NAME", help="show only the file's kernel of this name")
    ptxas: str | None = option(metavar="VERSION|PATH", help="assemble a PTX file with this ptxas (default: the newest)")


@dataclass(frozen=True, kw_only=True)
class Options(Group):
    path: str | None = place(
        nargs="?",
        help="capture folder, captured kernel or its id, lock, saved result, or file (default: the folder that `run` "
        "writes to)",
    )
    listed: Listed = part(Listed)
    gpu: str | None = option(
        metavar="NAME", help='show the occupancy on this GPU, e.g. "RTX 5090" (default: the kernel\'s own GPU)'
    )
    wide: bool = flag(help="print all columns, in long lines")
    sass: bool = flag(one_of="code", help="print the machine code of one kernel, or of a file")
    ptx: bool = flag(one_of="code", help="print the PTX of one captured kernel")
    ttgir: bool = flag(one_of="code", help="print Triton's GPU dialect; --ttir, --llir: the stages before and after")
    ttir: bool = flag(one_of="code", help=argparse.SUPPRESS)
    llir: bool = flag(one_of="code", help=argparse.SUPPRESS)
    source: bool = flag(one_of="code", help="print source lines, each with its instructions, live registers and spills")
    count: bool = flag(
        help="execute a recorded launch of one captured kernel on the CPU, and add counters to the source lines"
    )
    file: OfFile = part(OfFile)
    results: Results = part(Results)


def run(options: Options) -> int:
    path = Path(options.path or default_out())
    stages = [f"--{name}" for name in (*_STAGES, "source") if getattr(options, name)]
    if options.count:
        stages.append("--count")
    sass = [*stages, *(["--sass"] if options.sass else [])]
    of_folder, of_file = map(given_options, (options.listed, options.file))
    if (path / "capture.json").exists():
        _refuse(path, "one kernel", [*of_folder, *of_file])
        _give_capture(options, path)
    elif (path / "crash.json").exists():
        from tritonhook.report.results.captures import RejectedKernel

        _refuse(path, "a kernel that could not be compiled", [*sass, *of_folder, *of_file])
        give(options.results, RejectedKernel.of(path))
    elif path.is_file() and is_lock(path):
        _refuse(path, "a lock", [*sass, *of_folder, *of_file])
        _give_lock(options, path)
    elif path.is_file() and _is_json(path):
        _refuse(path, "a saved result", [*sass, *of_folder, *of_file])
        _give_saved(options, path)
    elif path.is_file():
        _refuse(path, "a file with code", [*stages, *of_folder])
        _give_file(options, path)
    else:
        _refuse(path, "a folder", [*sass, *of_file])
        _give_folder(options, path)
    return 0


def _is_json(path: Path) -> bool:
    """Return True if the first character of a file is that of JSON; neither PTX nor an image begins with it."""
    with path.open("rb") as file:
        return file.read(64).lstrip()[:1] in (b"{", b"[")


def _refuse(path: Path, what: str, idle: Sequence[str]) -> None:
    """Raise UsageError if there are options that have no effect on this input."""
    if idle and path.exists():
        raise UsageError(f"{path}: {what}; {', '.join(idle)} cannot be used with it")


# --- one kernel, one file ------------------------------------------------------------------------


def _give_capture(options: Options, path: Path) -> None:
    from msgspec import structs

    from tritonhook.report.results.capture import CapturedOne

    capture = read_capture(path)
    if stage := next((Stage(name) for name in _STAGES if getattr(options, name)), None):
        if (text := capture.text(stage)) is None:
            raise UsageError(
                f"{path}: no {stage.value} in this capture; it has {', '.join(it.value for it in capture.artifacts)}"
            )
        write_paged("".join(f"{visible(line, keep=chr(9))}\n" for line in text.splitlines()))
        return

    def captured(full: bool) -> CapturedOne:
        result = CapturedOne.of(capture, str(path), full or options.sass)
        if options.count and result.code:
            result = structs.replace(result, code=structs.replace(result.code, counted=_counted(path, capture)))
        return structs.replace(result, resources=_on_gpu(result.resources, options.gpu))

    if options.source:
        code = captured(True).code
        if not code:
            raise UsageError(f"{path}: no readable machine code")
        from tritonhook.report.render.terminal import render_terminal
        from tritonhook.report.results.capture import source_summary

        write_paged(render_terminal(source_summary(code), sys.stdout, options.wide))
        return

    give(options.results, captured, show=_with_code(options, lambda: [captured(True)]))


def _counted(path: Path, capture: Capture) -> tuple[tuple[int | None, ...], ...]:
    """Count a launch of a captured kernel on the CPU: for each instruction the figures of COUNTS. Raises UsageError if
    there is no launch."""
    from tritonhook.snapshot.counted import count_launch, launch_at

    counted = count_launch(capture, launch_at(path))
    own = (one.counters for one in counted.instructions)
    return tuple((one.instructions, one.sectors, one.wavefronts) for one in own)


def _give_file(options: Options, path: Path) -> None:
    """Show a file and its machine code. Raises UsageError, PtxError, CubinError or ToolError."""
    from tritonhook.report.results.file import File, GpuFile

    entry = options.file.entry
    what, every, notes, ptxas = _contents(path, read_bytes(path), options.file.ptxas)
    names = dict.fromkeys(name for cubin in every for name in cubin.kernels)
    meant = [name for name in names if entry in (None, name, function_name(name))]
    if entry is not None and not meant:
        raise UsageError(f"{path}: --entry {entry}: no such kernel; the kernels are: {listed(names)}")
    cubins = [cubin for cubin in every if any(name in cubin.kernels for name in meant)]
    wanted = [[name for name in cubin.kernels if name in meant] for cubin in cubins]
    code, further = _code(cubins, wanted)
    kept = [cubin.only(names) for cubin, names in zip(cubins, wanted, strict=True)]
    file = GpuFile(str(path), what, kept, code, ptxas, (*notes, *further))
    show = _with_code(options, lambda: File.of(file, True).kernels)
    give(options.results, lambda full: File.of(file, full or options.sass), show=show)


def _contents(path: Path, data: bytes, ptxas: str | None) -> tuple[str, list[Cubin], list[str], str | None]:
    """Read a file. Returns its kind, its cubins, notes, and the version of the ptxas that assembled it if it is PTX.
    ptxas: the version or path to assemble PTX with."""
    if data[:4] == MAGIC and data[18:20] == EM_CUDA.to_bytes(2, "little"):
        return "cubin", [Cubin.from_bytes(data, str(path))], [], None
    if data[:4] == MAGIC or FATBIN_MAGIC in data:
        embedded = embedded_cubins(data)
        what = "fat binary" if data.startswith(FATBIN_MAGIC) else "shared library or object file"
        if not embedded.cubins and not embedded.packed:
            ptx = f"; it holds only {count(embedded.ptx, 'PTX module')}" if embedded.ptx else ""
            raise UsageError(f"{path}: a {what} without machine code for GPUs{ptx}")
        cubins = [Cubin.from_bytes(image, f"{path}: cubin {n}") for n, image in enumerate(embedded.cubins)]
        notes = [f"{count(embedded.ptx, 'PTX module')} not shown"] if embedded.ptx else []
        notes += [f"cubins: {why}" for why in embedded.not_read]
        return what, [cubin for cubin in cubins if cubin.kernels], notes, None
    try:
        is_text = "\0" not in data.decode().rstrip("\0")  # Triton ends PTX with a zero byte
    except UnicodeDecodeError:
        is_text = False
    if not is_text:
        raise UsageError(f"{path}: a binary file without GPU code; give a cubin, PTX, a fat binary or a shared library")
    toolchain = toolchain_of(find_ptxas(ptxas))
    cubin, version = toolchain.assemble_or_raise(Ptx.from_bytes(data, str(path))).cubin, toolchain.ptxas.version
    return "PTX file", [cubin], [f"assembled here by ptxas {version}"], version


def _code(cubins: Sequence[Cubin], wanted: Sequence[Sequence[str]]) -> tuple[list[Mapping[str, Sass]], list[str]]:
    """Disassemble the kernels named in `wanted`, for each image. If that fails, return empty code and a note with the
    reason."""
    none: list[Mapping[str, Sass]] = [{} for _ in cubins]
    kernels = sum(map(len, wanted))
    if kernels > _MOST_KERNELS:
        return none, [f"instructions and loops of {kernels:,} kernels are not read; name one with --entry"]
    try:
        tools = reading_toolchain()
        return [tools.disassemble(cubin, names) for cubin, names in zip(cubins, wanted, strict=True)], []
    except (CubinError, ToolError) as error:
        return none, [f"instructions and loops are not known: {error}"]


def _give_lock(options: Options, path: Path) -> None:
    from tritonhook.report.results.snapshot import LockContent

    kernels, tests, _ = read_whole_lock(path)
    lock = LockContent.of(str(path), kernels, tests)
    give(options.results, lock, show=lambda summary: show_summary(summary, options.wide))


def _give_saved(options: Options, path: Path) -> None:
    """Show a result that a verb wrote with --save or --json."""
    from tritonhook.report.pages import page_of
    from tritonhook.report.result import fitting, read_saved

    result = read_saved(path)
    try:
        fitting(lambda: page_of(result))  # raises an error for a damaged document, before anything is printed
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    give(options.results, result, path.name)


def _with_code(
    options: Options, kernels: Callable[[], Sequence[CapturedOne | FileKernel]]
) -> Callable[[Summary], None]:
    """Return a function that prints a summary and, with --sass, the code of the kernels."""

    def show(summary: Summary) -> None:
        from tritonhook.report.render.code import LEGEND, render_sass

        if not options.sass:
            show_summary(summary, options.wide)
            return
        from tritonhook.report.render.terminal import render_terminal

        listings = [render_sass(k.code, k.arch) for k in kernels() if k.code]
        code = "".join(f"\n{listing}" for listing in listings) + (f"\n{LEGEND}\n" if listings else "")
        write_paged(render_terminal(summary, sys.stdout, options.wide) + code)

    return show


# --- a folder ------------------------------------------------------------------------------------


def _give_folder(options: Options, path: Path) -> None:
    from msgspec import structs

    from tritonhook.report.results.captures import Captures

    if options.listed.run is not None or options.listed.all:
        folder = CaptureFolder.open(path)
        folder = folder if options.listed.run is None else folder.of_run(options.listed.run)
    else:
        folder = captures_at(path)
    if options.listed.rank is not None:
        folder = folder.of_rank(options.listed.rank)
    captures = Captures.of(folder).with_notes(outdated_note(folder))
    kernels = tuple(structs.replace(it, resources=_on_gpu(it.resources, options.gpu)) for it in captures.kernels)
    captures = structs.replace(captures, kernels=kernels)
    if options.listed.filter is not None:
        kernels = _filtered(captures, options.listed.filter, options.wide)
    if options.listed.sort is not None:
        kernels = tuple(sorted(kernels, key=_ORDERS[options.listed.sort]))
    give(
        options.results,
        structs.replace(captures, kernels=kernels, hidden=len(captures.kernels) - len(kernels)),
        show=lambda summary: show_summary(_sorted(summary, options.listed.sort), options.wide),
        pages=[(kernel.id, partial(_page, folder, kernel)) for kernel in kernels],
    )


def _page(folder: CaptureFolder, kernel: FolderKernel) -> Result:
    """Make the result of a folder's kernel, for its page."""
    path = str(folder.path / "kernels" / kernel.record)
    return capture_page(folder.capture(kernel.record), kernel.title or None, path)


def _on_gpu(resources: ResourceFields | None, gpu: str | None) -> ResourceFields | None:
    """Set the GPU for which occupancy is computed, unless `gpu` is None. Raises UsageError for an unknown GPU."""
    if resources is None or gpu is None:
        return resources
    from msgspec import structs

    from tritonhook.memory.prediction import find_gpu

    return structs.replace(resources, arch=f"sm_{find_gpu(gpu).arch}")


def _sorted(summary: Summary, heading: str | None) -> Summary:
    """Mark the column that --sort used, so that narrow terminals show it."""
    order = "kernel" if heading == "name" else heading
    return replace(
        summary,
        tables=tuple(
            replace(table, kept=(table.columns.index(order),)) if order in table.columns else table
            for table in summary.tables
        ),
    )


def _filtered(captures: Captures, wanted: str, wide: bool) -> tuple[FolderKernel, ...]:
    """Keep the kernels whose table row matches the expression. wide: search in all columns. Raises UsageError for an
    invalid expression."""
    expression = regular_expression("--filter", wanted)
    table = next(iter(captures.summary().tables), None)
    if table is None or not captures.kernels:
        return ()
    shown = [n for n in range(len(table.columns)) if wide or n not in table.extra]
    pairs = zip(captures.kernels, table.rows, strict=True)
    return tuple(kernel for kernel, row in pairs if expression.search("  ".join(row[n] for n in shown)))
