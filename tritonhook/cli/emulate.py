"""Execute kernels on the CPU from their PTX, and look for faults of the kernels themselves. Needs no GPU, but numpy.

It finds accesses outside of the launch's buffers and misaligned ones, races in shared memory, barriers that not all
lanes of a warp reach, results that depend on memory or registers that nothing has written, and generic writes that
wgmma or bulk copies read without fence.proxy.async. Each has its lines in PTX and source. `verify --cpu` asks another
question: does ptxas compute what the PTX says?

  tritonhook emulate kernel.ptx --args launch.json                 # all CTAs of one launch
  tritonhook emulate kernel.ptx --args launch.json --contents out  # also write what its buffers hold then
  tritonhook emulate tritonhook-captures --ctas 2                  # each kernel that was captured with a launch

Exit codes: 1 if a fault was found, else 2 if no kernel finished.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from tritonhook.capture.selection import Selected, launch_of, selected
from tritonhook.capture.store import read_launch
from tritonhook.cli._inputs import captures_at, load_input, place
from tritonhook.cli._parser import Group, option, part
from tritonhook.cli._streams import Results, give, working
from tritonhook.errors import DeviceError, NotUnderstood, UsageError
from tritonhook.verify.cpu import LIMIT_S, sanitized
from tritonhook.verify.differential import Case, case_of
from tritonhook.verify.judgement import latitude_of
from tritonhook.verify.model import INPUTS, RECORDED

if TYPE_CHECKING:
    from tritonhook.ptx.module import Ptx
    from tritonhook.report.results.emulation import EmulatedKernel


@dataclass(frozen=True, kw_only=True)
class Options(Group):
    target: str = place(metavar="KERNEL", help="PTX file, capture folder, captured kernel or its id")
    args: str | None = option(metavar="RECORD", help="launch as recorded in this JSON file or capture")
    launch: str | None = option(metavar="KEY", help="which recorded launch (default: a kernel's most frequent one)")
    entry: str | None = option(metavar="NAME", help="only the kernel of this name")
    input: str = option(
        choices=INPUTS, default=RECORDED, metavar="NAME", help=f"what buffers hold (default: {RECORDED}), as in verify"
    )
    ctas: int | None = option(type=int, metavar="N", help="CTAs of a launch to execute (default: all)")
    limit: float = option(type=float, default=LIMIT_S, metavar="S", help=f"seconds of a launch (default: {LIMIT_S:g})")
    seed: int = option(type=int, default=0, metavar="N", help="chooses the order of atomics")
    contents: Path | None = option(type=Path, metavar="FOLDER", help="write each buffer to FOLDER/KERNEL-NUMBER.bin")
    results: Results = part(Results)


def run(options: Options) -> int:
    from tritonhook.report.results.emulation import Emulation

    if (options.ctas is not None and options.ctas < 1) or not options.limit > 0:
        raise UsageError("--ctas and --limit must be positive")
    if find_spec("numpy") is None:
        raise DeviceError("numpy is not installed: `pip install 'tritonhook[emulate]'`")
    with working("emulating kernels") as advance:
        done = []
        for ptx, case in _cases(options):
            done.append(_emulated(options, ptx, case))
            advance(1)
    if not done:
        raise UsageError(f"{options.target}: no kernel with a recorded launch; give one with --args")
    give(options.results, Emulation(options.target, options.input, options.ctas, tuple(done)))
    if any(kernel.faults for kernel in done):
        return 1
    return 2 if all(kernel.reason for kernel in done) else 0


def _cases(options: Options) -> Iterator[tuple[Ptx, Case]]:
    """Each kernel with its launch."""
    path = Path(options.target)
    if not (path / "index").is_dir() or options.args:
        given = load_input(options.target, options.entry)
        record = launch_of(options.args, options.launch, [options.target], dry=True)
        yield _case(given.ptx, given.entry, record, options.target)
        return
    captures = captures_at(path)
    for one in selected(captures, options.entry, options.launch, dry=True):
        if isinstance(one, Selected) and one.launches:
            folder = str(captures.path / "kernels" / one.record)
            yield _case(load_input(folder, None).ptx, one.capture.kernel, one.launches[0].path, folder)


def _case(ptx: Ptx | None, entry: str, record: Path, label: str) -> tuple[Ptx, Case]:
    if ptx is None:
        raise UsageError(f"{label}: no PTX, which emulate executes; give PTX, or a capture that has it")
    return ptx, case_of(entry, read_launch(record), record.parent, ptx, latitude_of(ptx))


def _emulated(options: Options, ptx: Ptx, case: Case) -> EmulatedKernel:
    from tritonhook.report.results.emulation import EmulatedKernel

    try:
        done = sanitized(case, ptx, options.input, options.ctas, options.limit, options.seed)
    except NotUnderstood as error:
        return EmulatedKernel.of(case.kernel, case.launch.summary, None, (), f"NOT UNDERSTOOD: {error}")
    contents = done.ran.contents if done.ran is not None else ()
    if options.contents is not None:
        options.contents.mkdir(parents=True, exist_ok=True)
        for number, data in enumerate(contents):
            (options.contents / f"{case.kernel[:100]}-{number}.bin").write_bytes(data)
    hashes = [hashlib.sha256(data).hexdigest()[:16] for data in contents]
    return EmulatedKernel.of(case.kernel, case.launch.summary, done, hashes, str(done.error or ""))
