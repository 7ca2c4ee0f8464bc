"""Compute the cost of accesses by warps: wavefronts of shared memory, tags and sectors of global memory.

addresses: in bytes, shape (warps, lanes). active: mask of the lanes that access, same shape. size: bytes per lane.
Results have one number per warp. The rules were measured on an H100; docs/explanation/counters.md has the evidence.
"""

from __future__ import annotations

import numpy as np

from tritonhook.emulate.words import Array

LANES, BANKS, WORD = 32, 32, 4
SECTOR, LINE = 32, 128  # bytes
_NONE = np.iinfo(np.int64).max


def _firsts(keys: Array, active: Array) -> tuple[Array, Array]:
    """Sort the keys of each row; return them with a mask of the first occurrence of each key. Keys of inactive lanes
    do not count."""
    keys = np.sort(np.where(active, keys, _NONE), axis=1)
    is_first = keys != _NONE
    is_first[:, 1:] &= keys[:, 1:] != keys[:, :-1]
    return keys, is_first


def distinct(keys: Array, active: Array) -> Array:
    """Count the different keys of each row."""
    return _firsts(keys, active)[1].sum(1)


def tags_and_sectors(addresses: Array, active: Array) -> tuple[Array, Array]:
    """Count the lines of 128 bytes (tags) and the sectors of 32 bytes that each warp requests."""
    sectors, is_first = _firsts(addresses // SECTOR, active)
    is_tag = is_first.copy()
    is_tag[:, 1:] &= sectors[:, 1:] // (LINE // SECTOR) != sectors[:, :-1] // (LINE // SECTOR)
    return is_tag.sum(1), is_first.sum(1)


def local_sectors(offsets: Array, active: Array, size: int) -> Array:
    """Count the sectors of local memory. A line holds the same 4 bytes of the stacks of all 32 lanes."""
    words = offsets[:, :, None] // WORD + np.arange(max(1, size // WORD))
    places = words * LINE + np.arange(LANES)[:, None] * WORD
    return distinct((places // SECTOR).reshape(len(offsets), -1), np.repeat(active, words.shape[2], axis=1))


def sectors_in_turns(addresses: Array, active: Array) -> Array:
    """Count the sectors that atomics request. Lanes with the same address are served one after another, and each of
    these turns requests its sectors again."""
    return distinct(_turns(addresses, active) << 48 | addresses // SECTOR, active)


def sectors_ideal(active: Array, size: int) -> Array:
    """Count the sectors that the lanes' bytes would fill if they were contiguous."""
    return -(-active.sum(1) * size // SECTOR)


def sectors_ideal_packed(addresses: Array, active: Array, size: int) -> Array:
    """Count the sectors that the bytes of a copy would fill if they were contiguous. The copy bypasses the L1 cache, so
    equal addresses of a warp count once."""
    return -(-distinct(addresses, active) * size // SECTOR)


def _turns(addresses: Array, active: Array) -> Array:
    """Assign numbers 0, 1, 2, ... to the lanes that have the same address, in order of the lanes."""
    keys = np.where(active, addresses, -1 - np.arange(addresses.shape[1]))
    order = np.argsort(keys, axis=1, kind="stable")
    keys = np.take_along_axis(keys, order, 1)
    places = np.broadcast_to(np.arange(addresses.shape[1]), keys.shape)
    is_first = np.ones(keys.shape, bool)
    is_first[:, 1:] = keys[:, 1:] != keys[:, :-1]
    turns = np.empty_like(keys)
    np.put_along_axis(turns, order, places - np.maximum.accumulate(np.where(is_first, places, 0), axis=1), 1)
    return turns


def wavefronts(addresses: Array, active: Array, size: int, may_join: bool = False) -> tuple[Array, Array]:
    """Count the wavefronts of shared memory of each warp, with bank conflicts and without.

    Lanes are served in parts: half warps for 8 bytes per lane, quarter warps for 16. may_join: serve two neighbouring
    parts as one if their addresses repeat. True for loads, but not for loads of matrices."""
    cost, ideal = _by_part(addresses, active, size)
    if may_join and (parts := cost.shape[1]) > 1:
        pairs = addresses.reshape(-1, 2 * LANES // parts), active.reshape(-1, 2 * LANES // parts)
        both = _worst_bank(*pairs, size).reshape(len(active), -1)
        is_one = _repeats(*pairs).reshape(both.shape) & (both == 1)
        cost, ideal = (np.where(is_one, 1, one.reshape(len(active), -1, 2).sum(2)) for one in (cost, ideal))
        return cost.sum(1), np.minimum(ideal.sum(1), -(-active.sum(1) * size // LINE))
    return cost.sum(1), ideal.sum(1)


def wavefronts_in_turns(addresses: Array, active: Array, size: int) -> tuple[Array, Array]:
    """Count wavefronts where lanes with the same address are served in turns: for atomics, and for copies through
    registers."""
    cost, ideal = _by_part(addresses, active, size, in_turns=True)
    return cost.sum(1), ideal.sum(1)


def wavefronts_packed(addresses: Array, active: Array, size: int) -> tuple[Array, Array]:
    """Count wavefronts where equal addresses of a warp are served once: for copies that bypass the L1 cache."""
    keys, is_first = _firsts(addresses, active)
    order = np.argsort(~is_first, axis=1, kind="stable")
    own, is_first = (np.take_along_axis(one, order, 1) for one in (np.where(is_first, keys, 0), is_first))
    return wavefronts(own, is_first, size)


def _by_part(addresses: Array, active: Array, size: int, in_turns: bool = False) -> tuple[Array, Array]:
    """Count the wavefronts of each part of each warp, with bank conflicts and without."""
    lanes = LANES if size <= WORD else LANES * WORD // size
    parts = addresses.reshape(-1, lanes), active.reshape(-1, lanes)
    cost = _worst_bank(*parts, size, _turns(*parts) if in_turns else None)
    ideal = parts[1].any(1).astype(np.int64)
    return cost.reshape(len(active), -1), ideal.reshape(len(active), -1)


def _worst_bank(addresses: Array, active: Array, size: int, turns: Array | None = None) -> Array:
    """Count the different words in the bank that has most of them. turns: the turn of each lane; equal words of
    different turns count as different."""
    count = max(1, size // WORD)
    words = addresses[:, :, None] // WORD + np.arange(count)
    if turns is not None:
        words = words + (turns[:, :, None] << 48)
    words, is_first = _firsts(words.reshape(len(addresses), -1), np.repeat(active, count, axis=1))
    rows = np.nonzero(is_first)[0]
    counts = np.bincount(rows * BANKS + words[is_first] % BANKS, minlength=len(words) * BANKS)
    return counts.reshape(-1, BANKS).max(1)


def _repeats(addresses: Array, active: Array) -> Array:
    """Return for each row whether all lanes i and i ^ 1, or all lanes i and i ^ 2, have the same address."""
    found = np.zeros(len(addresses), bool)
    for step in (1, 2):
        other = np.arange(addresses.shape[1]) ^ step
        found |= ((addresses == addresses[:, other]) | ~active | ~active[:, other]).all(1)
    return found
