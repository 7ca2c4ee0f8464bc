"""Kernels that can run again: each with a recorded launch, which has the kernel's arguments. For verify and emulate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tritonhook.capture.model import Capture
from tritonhook.capture.selection import Skipped, selected
from tritonhook.cli._inputs import Input, RecordedLaunch, captures_at, input_of, load_input
from tritonhook.errors import UsageError


@dataclass(frozen=True, slots=True)
class LaunchedKernel:
    """A kernel and one recorded launch. path, entry: arguments of load_input. launch: file of the launch. record,
    capture: the kernel's record in a capture folder; "" and None if the target is this kernel alone."""

    kernel: str
    path: str
    entry: str | None
    launch: Path
    record: str = ""
    capture: Capture | None = None

    def load(self) -> Input:
        """Read the kernel, unless it was read as part of its folder. Raises the errors of load_input."""
        return load_input(self.path, self.entry) if self.capture is None else input_of(self.path, self.capture)


def launched(
    target: str, entry: str | None, recorded: RecordedLaunch, dry: bool = True
) -> Iterator[LaunchedKernel | Skipped]:
    """Yield the kernel of a file or a capture. For a capture folder, yield each kernel with its most frequent launch,
    or a Skipped if the kernel has no launch. dry: accept launches of dry runs. Raises UsageError if a folder has no
    such kernel."""
    if recorded.args or not Path(target, "index").is_dir():
        yield LaunchedKernel(target, target, entry, recorded.of([target], dry=dry))
        return
    captures, has_kernels = captures_at(target), False
    for one in selected(captures, entry, recorded.launch, dry=dry):
        if isinstance(one, Skipped):
            yield one
            continue
        has_kernels, kernel = True, one.capture.kernel
        if one.launches:
            path = captures.path / "kernels" / one.record
            yield LaunchedKernel(kernel, str(path), None, one.launches[0].path, one.record, one.capture)
        else:
            record_it = "record one with `tritonhook run --launches`, or give one with --args and --entry"
            yield Skipped(kernel, one.record, one.unrecorded or f"no launch of this kernel was recorded; {record_it}")
    if not has_kernels:
        raise UsageError(f"{target}: {f'no kernel {entry!r}' if entry else 'no kernels'} in this capture folder")
