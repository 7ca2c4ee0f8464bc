"""Buffers of a launch on the GPU, allocated by the CUDA driver, without torch. Guard zones before and behind each
buffer detect writes outside of it. A second copy restores its contents before each launch."""

from __future__ import annotations

from pathlib import Path

from tritonhook.capture.launches.contents import before
from tritonhook.capture.launches.record import Launch
from tritonhook.device.cuda_driver import Driver
from tritonhook.verify.model import Outside

GUARD_BYTES = 1 << 14  # size of each guard zone; writes farther away are not detected
_PATTERN = 0xA5
_ALIGNED = 512  # alignment in bytes, as of cuMemAlloc and torch


class GuardedMemory:
    """Buffers of a launch. folder: folder with the files of recorded contents."""

    def __init__(self, driver: Driver, launch: Launch, folder: Path | None) -> None:
        self.launch, self._driver, self._folder = launch, driver, folder
        self._allocated: list[int] = []
        self._scratch: list[tuple[int, int]] = []
        self._before: list[bytes] = []
        self._rooms = [-(-max(buffer.size, 1) // _ALIGNED) * _ALIGNED for buffer in launch.buffers]
        try:
            self._begins = [self._allocate(room + 2 * GUARD_BYTES) for room in self._rooms]
            self._pristine = [self._allocate(max(buffer.size, 1)) for buffer in launch.buffers]
        except Exception:
            self.free()
            raise
        for number in range(len(self._begins)):
            self._set_guard(number)

    @property
    def addresses(self) -> list[int]:
        return [begin + GUARD_BYTES for begin in self._begins]

    def scratch(self, size: int) -> int:
        self._scratch.append((self._allocate(size), size))
        return self._scratch[-1][0]

    def stream(self) -> None:
        """Return the default stream."""

    def free(self) -> None:
        while self._allocated:
            self._driver.free(self._allocated.pop())

    def set_input(self, name: str, keep: tuple[int, ...]) -> None:
        """Choose the contents of the buffers before a launch. name: name of the input, as in INPUTS. keep: numbers of
        the buffers that hold their recorded contents whatever the input."""
        every = range(len(self.launch.buffers))
        self._before = [before(self.launch, self._folder, number, name, keep) for number in every]
        for number, contents in enumerate(self._before):
            if contents:
                self._driver.write(self._pristine[number], contents)

    def restore(self) -> None:
        """Restore all buffers to their contents before the launch."""
        for number, buffer in enumerate(self.launch.buffers):
            if buffer.size:
                self._driver.copy(self.addresses[number], self._pristine[number], buffer.size)
        for address, size in self._scratch:
            self._driver.fill(address, 0, size)

    def contents(self) -> list[bytes]:
        return [
            self._driver.read(address, buffer.size)
            for address, buffer in zip(self.addresses, self.launch.buffers, strict=True)
        ]

    def changed(self, contents: list[bytes]) -> int:
        """Count the buffers whose contents the launch changed."""
        return sum(a != b for a, b in zip(contents, self._before, strict=True))

    def outside(self) -> tuple[Outside, ...]:
        """Find the first write outside of each buffer since the last call, and restore the guard zones."""
        written = []
        for number, buffer in enumerate(self.launch.buffers):
            begin, behind = self._begins[number], self._behind(number)
            ahead = self._driver.read(begin, GUARD_BYTES)
            after = self._driver.read(begin + GUARD_BYTES + buffer.size, behind)
            offset = _changed(ahead)
            if offset is not None:
                written.append(Outside(number, offset - GUARD_BYTES, buffer.size))
            elif (offset := _changed(after)) is not None:
                written.append(Outside(number, buffer.size + offset, buffer.size))
            else:
                continue
            self._set_guard(number)
        return tuple(written)

    def _behind(self, number: int) -> int:
        """Count the bytes between a buffer's end and the end of the guard zone behind it."""
        return self._rooms[number] - self.launch.buffers[number].size + GUARD_BYTES

    def _set_guard(self, number: int) -> None:
        size = self.launch.buffers[number].size
        self._driver.fill(self._begins[number], _PATTERN, GUARD_BYTES)
        self._driver.fill(self._begins[number] + GUARD_BYTES + size, _PATTERN, self._behind(number))

    def _allocate(self, size: int) -> int:
        self._allocated.append(self._driver.allocate(size))
        return self._allocated[-1]


def _changed(guard: bytes) -> int | None:
    """Find the first changed byte of a guard zone; None if all are intact."""
    whole = bytes([_PATTERN]) * len(guard)
    return None if guard == whole else next(i for i, (a, b) in enumerate(zip(guard, whole, strict=True)) if a != b)
