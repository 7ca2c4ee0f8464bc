"""Which bytes of its parameters a kernel reads, from its PTX: what lies between the parts of a parameter is not written
by the host, and differs from call to call."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from tritonhook.capture.cute import state
from tritonhook.cubin.image import Cubin
from tritonhook.ptx.module import Ptx

_LOAD = re.compile(r"^\s*(?:@\S+\s+)?ld\.param(?:::entry)?(?:\.v([248]))?\.\w?(\d+)\s")
_WORD = 8  # bytes of a pointer


@dataclass(slots=True)
class Read:
    """What a kernel reads of one parameter. mask: bytes of 0xff where it does. words: places of its numbers of 64 bits;
    None where it takes the address of the parameter, and may find one anywhere."""

    mask: int = 0
    words: set[int] | None = field(default_factory=set)

    def load(self, at: int, count: int, size: int) -> None:
        """Add a load of `count` numbers."""
        self.mask |= ((1 << 8 * count * size) - 1) << 8 * at
        if self.words is not None and size == _WORD:
            self.words |= {at + number * size for number in range(count)}


@cache
def reads_of(text: str, kernel: str) -> Mapping[int, Read]:
    """What a kernel reads, by the number of the parameter. One that is not there is not read."""
    name = re.compile(rf"(?<![\w$]){re.escape(kernel)}_param_(\d+)(?![\w$])(?:\+(\d+))?")
    found: dict[int, Read] = {}
    for line in text.splitlines():
        if "_param_" not in line or line.lstrip().startswith(".param"):
            continue
        load = _LOAD.match(line)
        for number, at in name.findall(line):
            read = found.setdefault(int(number), Read())
            if load is None:
                read.mask, read.words = -1, None
            else:
                read.load(int(at or 0), int(load[1] or 1), int(load[2]) // 8)
    return found


known_ptx: dict[str, Ptx] = {}  # by the kernel's hash, as sessions know it


def remember(cubin: Cubin, ptx: Ptx) -> None:
    """Remember the PTX of a cubin's kernels, if a session records launches."""
    if any(attached.session.settings.launches for attached in state.attached):
        known_ptx.update(dict.fromkeys((f"{cubin.sha256} {name}" for name in cubin.kernels), ptx))
