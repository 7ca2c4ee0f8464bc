"""The driver of dry runs, for tests: it takes notes of what is loaded and launched."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from repository import ROOT, SUPPORT

from tritonhook.capture.dry_run.driver import DryDriver
from tritonhook.capture.dry_run.driver import active as _active
from tritonhook.capture.dry_run.gpu import DryRun

# A program that launches add_kernel on this driver; its argument is the grid. Recorded contents are zeros.
SCRIPT = f"""
import sys
sys.path[:0] = [{str(ROOT)!r}, {str(SUPPORT)!r}]
import fake_driver, triton_kernels as kernels
from tritonhook.capture.launches import recorder
from fake_tensors import Storage, Tensor
recorder._contents = lambda tensor, start, size: bytes(size)
x = Tensor(Storage(1 << 20, 4000))
with fake_driver.active():
    kernels.add_kernel[(int(sys.argv[1]),)](x, x, x, 1000, BLOCK=128)
"""


class FakeDriver(DryDriver):
    """loaded, launched: names of the kernels, in order."""

    def __init__(self, arch: int = 90) -> None:
        super().__init__(DryRun(arch))
        self.loaded: list[str] = []
        self.launched: list[str] = []

    def launch(self, function: str) -> None:
        self.launched.append(function)

    def load_binary(self, name: str, binary: bytes, shared: int, device: int) -> tuple[int, str, int, int, int]:
        found = super().load_binary(name, binary, shared, device)
        self.loaded.append(name)
        return found


@contextmanager
def active(arch: int = 90) -> Iterator[FakeDriver]:
    """Make a fake driver Triton's active one, and give back what was there."""
    fake: Any = FakeDriver(arch)
    with _active(fake):
        yield fake
