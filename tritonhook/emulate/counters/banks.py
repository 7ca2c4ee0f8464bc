"""What accesses of warps cost: wavefronts of shared memory, tags and sectors of global memory. Pure: arrays to arrays.

addresses: bytes, shape (warps, lanes). active: which lanes access, of the same shape. size: bytes of each lane. Results
have one number for each warp. The rules were found on an H100; docs/explanation/counters.md has each with its evidence.
"""

from __future__ import annotations

import numpy as np

from tritonhook.emulate.words import Array

LANES, BANKS, WORD = 32, 32, 4
SECTOR, LINE = 32, 128  # bytes
_NONE = np.iinfo(np.int64).max


def _firsts(keys: Array, active: Array) -> tuple[Array, Array]:
    """Sort the keys of each row; tell where one is that is not left of it. Those of inactive lanes do not count."""
    keys = np.sort(np.where(active, keys, _NONE), axis=1)
    is_first = keys != _NONE
    is_first[:, 1:] &= keys[:, 1:] != keys[:, :-1]
    return keys, is_first


def distinct(keys: Array, active: Array) -> Array:
    """Count the different keys of each row."""
    return _firsts(keys, active)[1].sum(1)


def tags(addresses: Array, active: Array) -> Array:
    """Count the lines of 128 bytes that each warp asks for."""
    return distinct(addresses // LINE, active)


def sectors(addresses: Array, active: Array) -> Array:
    """Count the sectors of 32 bytes that each warp asks for."""
    return distinct(addresses // SECTOR, active)


def sectors_in_turns(addresses: Array, active: Array) -> Array:
    """Count the sectors that atomics ask for: lanes of one address take turns, and each turn asks anew."""
    return distinct(_turns(addresses, active) << 48 | addresses // SECTOR, active)


def sectors_ideal(addresses: Array, active: Array, size: int) -> Array:
    """Count the sectors that the bytes of each warp would fill if they lay behind one another."""
    return np.minimum(-(-distinct(addresses, active) * size // SECTOR), sectors(addresses, active))


def _turns(addresses: Array, active: Array) -> Array:
    """Number the lanes of each address."""
    keys = np.where(active, addresses, -1 - np.arange(LANES))
    order = np.argsort(keys, axis=1, kind="stable")
    keys = np.take_along_axis(keys, order, 1)
    places = np.broadcast_to(np.arange(LANES), keys.shape)
    is_first = np.ones(keys.shape, bool)
    is_first[:, 1:] = keys[:, 1:] != keys[:, :-1]
    turns = np.empty_like(keys)
    np.put_along_axis(turns, order, places - np.maximum.accumulate(np.where(is_first, places, 0), axis=1), 1)
    return turns


def wavefronts(addresses: Array, active: Array, size: int, may_join: bool) -> tuple[Array, Array]:
    """Count the wavefronts of shared memory of each warp, and those without conflicts.

    Lanes go in parts: half warps for 8 bytes, quarter warps for 16. may_join: two neighbouring parts are served as one
    where their addresses repeat: those of a load, but not of a load of matrices."""
    lanes = LANES if size <= WORD else LANES * WORD // size
    parts, warps = LANES // lanes, len(addresses)
    by_part = addresses.reshape(-1, lanes), active.reshape(-1, lanes)
    cost = _worst_bank(*by_part, size).reshape(warps, parts)
    ideal = by_part[1].any(1).reshape(warps, parts).astype(np.int64)
    if may_join and parts > 1:
        pairs = addresses.reshape(-1, 2 * lanes), active.reshape(-1, 2 * lanes)
        is_one = _repeats(*pairs).reshape(warps, -1)
        both = _worst_bank(*pairs, size).reshape(warps, -1)
        cost = np.where(is_one, both, cost.reshape(warps, -1, 2).sum(2))
        ideal = np.where(is_one, ideal.reshape(warps, -1, 2).max(2), ideal.reshape(warps, -1, 2).sum(2))
    return cost.sum(1), ideal.sum(1)


def _worst_bank(addresses: Array, active: Array, size: int) -> Array:
    """Count the different words of the bank that has the most of them."""
    count = max(1, size // WORD)
    words = (addresses[:, :, None] // WORD + np.arange(count)).reshape(len(addresses), -1)
    words, is_first = _firsts(words, np.repeat(active, count, axis=1))
    rows = np.nonzero(is_first)[0]
    counts = np.bincount(rows * BANKS + words[is_first] % BANKS, minlength=len(words) * BANKS)
    return counts.reshape(-1, BANKS).max(1)


def _repeats(addresses: Array, active: Array) -> Array:
    """Tell whether lanes 2i and 2i + 1, or i and i + 2, have one address all over the row."""
    found = np.zeros(len(addresses), bool)
    for step in (1, 2):
        other = np.arange(addresses.shape[1]) ^ step
        found |= ((addresses == addresses[:, other]) | ~active | ~active[:, other]).all(1)
    return found
