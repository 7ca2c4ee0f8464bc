"""Find bytes of torch.empty's buffers that a kernel reads before anything has written them.

A dry run fills buffers of torch.empty with POISON. Writes and copies by host code are not observed, so a word counts as
unwritten as long as it holds POISON. A neighbouring word must hold it, too, so that data is not mistaken for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tritonhook.capture.launches.record import POISON
from tritonhook.emulate.words import Array

_WORD = 4
_SEVERAL = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}  # by number of words: dtype of one byte per word
OTHERS = 0x7F, 0x3F  # in place of unwritten bytes in other runs: huge floats, and floats near 1, which change a sum


def unset_words(data: Array) -> Array:
    """Return for each 4-byte word of a buffer whether it and a neighbour hold POISON. data: uint8. An incomplete last
    word is ignored."""
    words, poison = data[: len(data) // _WORD * _WORD].view(np.uint32), np.frombuffer(POISON, np.uint32)
    equal = np.zeros(len(words), bool)
    for number, one in enumerate(poison):
        np.equal(words[number :: len(poison)], one, out=equal[number :: len(poison)])
    if not equal.any():
        return equal
    around = np.r_[True, equal, True]
    return equal & (around[:-2] | around[2:])


class Unset:
    """Tracks the unwritten words of a launch's buffers while the kernel runs. buffers: contents, by the buffer's first
    byte in global memory. reads: number of unwritten words that each instruction has read."""

    def __init__(self, buffers: Mapping[int, bytes], size: int) -> None:
        self.reads: dict[int, int] = {}
        self._masks = {begin: unset_words(np.frombuffer(data, np.uint8)) for begin, data in buffers.items()}
        self.is_empty = not any(mask.any() for mask in self._masks.values())
        self._open = np.zeros(0 if self.is_empty else -(-size // 64) * 64 // _WORD, bool)
        self._read = np.zeros_like(self._open)
        if not self.is_empty:
            for begin, mask in self._masks.items():
                self._open[begin // _WORD :][: len(mask)] = mask

    def access(self, pc: int, index: Array, size: int, how: str) -> None:
        """Record an access of global memory by lanes or by a bulk copy. how: see Memory.locate."""
        count = max(1, size // _WORD)
        several = self._open.view(_SEVERAL[count]) if count in _SEVERAL else self._open.reshape(-1, count)
        if not several[rows := index // (_WORD * count)].any():
            return
        if how == "w":
            several[rows] = 0
            return
        words = rows[:, None] * count + np.arange(count)
        is_open = self._open[words]
        self.reads[pc] = self.reads.get(pc, 0) + int(is_open.sum())
        self._read[words[is_open]] = True
        if how == "a":
            self._open[words] = False

    def read_bytes(self, begin: int) -> int:
        """Count the unwritten bytes of a buffer that were read. begin: the buffer's first byte in global memory."""
        return _WORD * int(self._read[begin // _WORD :][: len(self._masks[begin])].sum())

    def otherwise(self, contents: Sequence[bytes], byte: int) -> list[bytes]:
        """Return the contents of the buffers with `byte` in place of all unwritten bytes."""
        made = []
        for data, mask in zip(contents, self._masks.values(), strict=True):
            other = np.frombuffer(data, np.uint8).copy()
            other[: len(mask) * _WORD].reshape(-1, _WORD)[mask] = byte
            made.append(other.tobytes())
        return made


def differ(before: Sequence[Sequence[bytes]], after: Sequence[Sequence[bytes]]) -> bool:
    """Whether two runs stored different bytes. Bytes that neither run changed do not count. before, after: the contents
    of the buffers of both runs."""
    for was, now in zip(zip(*before, strict=True), zip(*after, strict=True), strict=True):
        if now[0] == now[1]:
            continue
        (a, b), (c, d) = ([np.frombuffer(one, np.uint8) for one in pair] for pair in (was, now))
        if ((c != d) & ~((a == c) & (b == d))).any():
            return True
    return False
