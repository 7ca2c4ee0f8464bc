"""Capture folders on disk: one folder per kernel, one index per process, one folder per ptxas crash.

    OUT/kernels/NAME-HASH/            capture.json and one file per stage
    OUT/kernels/NAME-HASH/launches/   KEY.json of each recorded launch, and the contents of its buffers
    OUT/index/HOST-RANK-PID-NS.jsonl  a header line, then one line per kernel of this process
    OUT/sources/HASH.txt              the text of a source file, as it was compiled
    OUT/crashes/NAME-HASH/            kernel.ptx and crash.json
    OUT/.staging/                     unfinished records; a killed process's files are removed after a day

NAME-HASH, the name of a kernel's folder, is called the kernel's record. `writer` makes capture folders, `reader` opens
them, `schema` checks their JSON. The names below are imported on first use: a process that only writes does not load
the reader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tritonhook._util.imports import lazy_names

if TYPE_CHECKING:
    from tritonhook.capture.store.reader import CaptureFolder as CaptureFolder
    from tritonhook.capture.store.reader import read_launch as read_launch
    from tritonhook.capture.store.schema import by_module as by_module
    from tritonhook.capture.store.schema import read_capture as read_capture
    from tritonhook.capture.store.writer import CaptureWriter as CaptureWriter

_HOME = {
    "by_module": "schema",
    "read_capture": "schema",
    "CaptureFolder": "reader",
    "read_launch": "reader",
    "CaptureWriter": "writer",
}
__getattr__ = lazy_names(__name__, _HOME)
