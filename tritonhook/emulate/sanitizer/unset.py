"""Buffers of torch.empty: which of their bytes a kernel reads before anything has written them.

A dry run fills what torch.empty makes with POISON. Host code and copies write, or hand it on, without being watched:
what still holds POISON is not written. Two words in a row have to hold it, so that data is not taken for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tritonhook.capture.launches.record import POISON
from tritonhook.emulate.words import Array

_WORD = 4
_SEVERAL = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}  # words, with a byte for each
OTHERS = 0x7F, 0x3F  # what other runs have there: huge numbers, and some to which a sum adds


def unset_words(data: Array) -> Array:
    """Whether each word of a buffer holds POISON, as its neighbours do. data: uint8. A tail of a word is not looked
    at."""
    words, poison = data[: len(data) // _WORD * _WORD].view(np.uint32), np.frombuffer(POISON, np.uint32)
    equal = np.zeros(len(words), bool)
    for number, one in enumerate(poison):
        np.equal(words[number :: len(poison)], one, out=equal[number :: len(poison)])
    if not equal.any():
        return equal
    around = np.r_[True, equal, True]
    return equal & (around[:-2] | around[2:])


class Unset:
    """The words of a launch's buffers that nothing has written, as the kernel runs. buffers: by the begin of each one
    in global memory, its contents. reads: by instruction, how often it has read one. words: those that were read."""

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
        """Lanes, or bulk copies, access global memory. how: as in Memory.locate."""
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
        """Bytes of a buffer that were read."""
        return _WORD * int(self._read[begin // _WORD :][: len(self._masks[begin])].sum())

    def otherwise(self, contents: Sequence[bytes], byte: int) -> list[bytes]:
        """Return the contents of the buffers, with this byte where nothing was written."""
        made = []
        for data, mask in zip(contents, self._masks.values(), strict=True):
            other = np.frombuffer(data, np.uint8).copy()
            other[: len(mask) * _WORD].reshape(-1, _WORD)[mask] = byte
            made.append(other.tobytes())
        return made


def differ(before: Sequence[Sequence[bytes]], after: Sequence[Sequence[bytes]]) -> bool:
    """Whether two runs have stored different bytes. Where both stored nothing, they differ as they did before."""
    for was, now in zip(zip(*before, strict=True), zip(*after, strict=True), strict=True):
        if now[0] == now[1]:
            continue
        (a, b), (c, d) = ([np.frombuffer(one, np.uint8) for one in pair] for pair in (was, now))
        if ((c != d) & ~((a == c) & (b == d))).any():
            return True
    return False
