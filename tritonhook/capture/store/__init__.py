"""Capture folders on disk: one folder per kernel, one index per process, one folder per ptxas crash.

    OUT/kernels/NAME-HASH/            capture.json and one file per stage
    OUT/kernels/NAME-HASH/launches/   recorded launches, if the session records them: KEY.json and the buffers' contents
    OUT/index/HOST-RANK-PID-NS.jsonl  a header line, then one line per kernel of this process
    OUT/sources/HASH.txt              texts of source files, as they were compiled
    OUT/crashes/NAME-HASH/            kernel.ptx and crash.json
    OUT/.staging/                     unfinished records; those of a killed process are removed after a day

`writer` makes them, `reader` opens them, `schema` checks their JSON. The names below are loaded on first
use: a process that only writes does not load the reader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tritonhook._util.imports import lazy_names

if TYPE_CHECKING:
    from tritonhook.capture.store.format import describe as describe
    from tritonhook.capture.store.reader import CaptureFolder as CaptureFolder
    from tritonhook.capture.store.reader import RecordedLaunch as RecordedLaunch
    from tritonhook.capture.store.reader import read_launch as read_launch
    from tritonhook.capture.store.reader import read_launches as read_launches
    from tritonhook.capture.store.schema import by_module as by_module
    from tritonhook.capture.store.schema import read_capture as read_capture
    from tritonhook.capture.store.writer import CaptureWriter as CaptureWriter

_HOME = {
    "by_module": "schema",
    "describe": "format",
    "read_capture": "schema",
    "CaptureFolder": "reader",
    "RecordedLaunch": "reader",
    "read_launch": "reader",
    "read_launches": "reader",
    "CaptureWriter": "writer",
}
__getattr__ = lazy_names(__name__, _HOME)
