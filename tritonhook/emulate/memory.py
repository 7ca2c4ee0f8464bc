"""The memory of the machine: global, shared, local and constant, as bytes in NumPy arrays.

A front end reads and writes by state space and address:

    values = memory.read(group, space, addresses, unit, count)     # shape (count, group.size), unsigned of `unit` bytes
    memory.write(group, space, addresses, unit, values)            # the same shape
    old = memory.atomic(group, space, addresses, unit, combine, *operands)

`addresses` has one unsigned integer per thread of the group's slice; those of inactive lanes are ignored. An access
must be aligned to unit * count bytes, as on GPUs, and must lie in a buffer, in the CTA's shared memory, or in the
thread's local memory; else it raises Fault.

Spaces: GLOBAL: 64-bit addresses. SHARED: shared memory of the thread's CTA. CLUSTER: shared memory of any CTA of its
cluster. LOCAL: memory of the thread. CONSTANT: one array for all threads. GENERIC: 64-bit addresses of global, shared
(SHARED_WINDOW + address) or local memory (LOCAL_WINDOW + address). As on GPUs, bits 24 and up of a shared address are
the rank of a CTA in its cluster; accesses of SHARED ignore them.

A *world* is one copy of global memory. Usually there is one; `Memory.divide` makes several, to execute a launch with
several contents of its buffers at once. Worlds use the same addresses, and each serves its own CTAs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tritonhook.emulate.errors import Fault, Misaligned, OutOfBounds, Outside
from tritonhook.emulate.words import Array
from tritonhook.errors import NotUnderstood

if TYPE_CHECKING:
    from tritonhook.emulate.machine import Group, Machine
    from tritonhook.emulate.sanitizer.order import Order

GLOBAL, SHARED, CLUSTER, LOCAL, CONSTANT, GENERIC = "global", "shared", "shared::cluster", "local", "const", "generic"
GLOBAL_BASE = 0x7F00_0000_0000
SHARED_WINDOW, LOCAL_WINDOW = 0x6000_0000_0000, 0x6100_0000_0000
RANK_SHIFT = 24  # lowest bit of the CTA's rank in a shared address
GUARD_BYTES = 1 << 14  # unused bytes between buffers: accesses there are faults
_ALIGNED = 512  # bytes: alignment of buffers
_FAR = 1 << 40  # bytes: a message names no buffer that is farther from the access
_WINDOW = np.uint64(0xFFFF_FFFF)
UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


class Store:
    """Bytes that are read and written by byte index. data: uint8; its size is a multiple of 16."""

    def __init__(self, data: Array) -> None:
        self.data = data
        self._views = {unit: data.view(kind) for unit, kind in UNSIGNED.items()}
        self._rows: dict[tuple[int, int], Array] = {}

    @classmethod
    def of_size(cls, size: int) -> Store:
        return cls(np.zeros(-(-max(size, 1) // 64) * 64, np.uint8))

    def read(self, index: Array, unit: int, count: int) -> Array:
        """Read `count` elements of `unit` bytes at each of these byte indices: shape (count, len(index))."""
        number = index >> (unit * count).bit_length() - 1  # index / (unit * count), a power of two
        if count == 1:
            return self._views[unit].take(number)[None]
        return self._row(unit, count).take(number, axis=0).T

    def write(self, index: Array, unit: int, values: Array) -> None:
        count = len(values)
        if count == 1:
            self._views[unit][index >> unit.bit_length() - 1] = values[0]
        else:
            self._row(unit, count)[index >> (unit * count).bit_length() - 1] = np.stack(tuple(values), axis=1)

    def _row(self, unit: int, count: int) -> Array:
        if (unit, count) not in self._rows:
            self._rows[unit, count] = self._views[unit].reshape(-1, count)
        return self._rows[unit, count]


# Called at each access with the group, the store, its byte indices, its size, and `how` of `Memory.locate`.
Observe = Callable[["Group", Store, Array, int, str], None]


@dataclass(frozen=True, slots=True)
class Allocation:
    """A buffer in global memory. name: for messages. begin: index of its first byte. size: in bytes."""

    name: str
    begin: int
    size: int

    @property
    def address(self) -> int:
        return GLOBAL_BASE + self.begin


class Memory:
    """All memory of one run.

    shared_bytes: size of each CTA's shared memory. local_bytes: size of each thread's local memory. constant: contents
    of CONSTANT. garbage, local: value of each byte of shared and of local memory until the kernel writes it. absent:
    value of each byte that a shuffle reads from a lane that does not take part.
    Allocate all buffers before a `Machine` is made with this memory: it calls `attach`, which fixes the size of global
    memory. worlds: number of copies of global memory, each used by an equal part of the machine's CTAs.
    """

    def __init__(
        self, shared_bytes: int = 0, local_bytes: int = 0, constant: bytes = b"", garbage: int = 0,
        local: int = 0, absent: int = 0,
    ) -> None:  # fmt: skip
        self.garbage, self.local_garbage, self.absent = garbage, local, absent
        self.shared_end = shared_bytes  # end of the shared memory that a kernel may access; then padding
        self.shared_bytes = -(-shared_bytes // 1024) * 1024
        self.local_bytes = -(-local_bytes // 16) * 16
        self.constant_bytes = len(constant)
        self.constant = Store.of_size(len(constant))
        self.constant.data[: len(constant)] = np.frombuffer(constant, np.uint8)
        self.allocations: list[Allocation] = []
        # By `begin` of a buffer: the function that names the element at a byte offset of it.
        self.elements: dict[int, Callable[[int], str]] = {}
        self._contents: list[bytes] = []
        self._begins: list[int] = []
        self._end = GUARD_BYTES
        self.watch: Order | None = None  # the sanitizer, called at each access of shared and global memory
        self.observe: Observe | None = None  # called at each access of any memory
        self.tensor_maps: list[Any] = []  # contents of TMA descriptors; see tma.py
        self.global_ = self.shared = self.local = Store.of_size(0)
        self._stride = 0
        self.worlds = 1
        self._of_worlds: Sequence[tuple[Allocation, Sequence[bytes]]] = ()

    def allocate(self, contents: bytes | int, name: str = "") -> Allocation:
        """Make a buffer. contents: its bytes, or how many zeros it holds."""
        size = contents if isinstance(contents, int) else len(contents)
        made = Allocation(name or f"buffer {len(self.allocations)}", self._end, size)
        self._end += -(-max(size, 1) // _ALIGNED) * _ALIGNED + GUARD_BYTES
        self.allocations.append(made)
        self._begins.append(made.begin)
        self._contents.append(b"" if isinstance(contents, int) else contents)
        return made

    def divide(self, buffers: Sequence[Allocation], worlds: Sequence[Sequence[bytes]]) -> None:
        """Make one copy of global memory for each item of `worlds`: the contents of these buffers in that copy."""
        self.worlds, self._of_worlds = len(worlds), tuple(zip(buffers, zip(*worlds, strict=True), strict=True))

    def point(self, at: Allocation, offset: int, address: int) -> None:
        """Write a 64-bit address into the initial contents of a buffer."""
        number = self.allocations.index(at)
        old = self._contents[number]
        self._contents[number] = old[:offset] + address.to_bytes(8, "little") + old[offset + 8 :]

    def attach(self, machine: Machine) -> None:
        """Make global memory, and shared and local memory for a machine's threads."""
        self.machine = machine
        self._stride = machine.geometry.cluster_size
        self._fill()
        self.shared = Store.of_size(self.shared_bytes * len(machine.geometry.ctas))
        self.shared.data[:] = self.garbage
        self.local = Store.of_size(self.local_bytes * machine.threads)
        if self.local_garbage:
            self.local.data[:] = self.local_garbage
        self._world_begin = machine.cta // (len(machine.geometry.ctas) // self.worlds) * self._end
        self._shared_begin = machine.cta * self.shared_bytes
        self._cluster_begin = machine.cta // self._stride * self._stride * self.shared_bytes
        self._local_begin = np.arange(machine.threads) * self.local_bytes

    def empty(self) -> None:
        """Free all contents, at the end of a run."""
        self.global_ = self.shared = self.local = Store.of_size(0)

    def beside(self) -> Memory:
        """Return a Memory with the same global memory, for another machine."""
        self._fill()
        return copy(self)

    def _fill(self) -> None:
        """Make global memory from the allocated buffers, at the first call only."""
        if not self._contents:
            return
        self.global_ = Store.of_size(self.worlds * self._end)
        worlds = self.global_.data[: self.worlds * self._end].reshape(self.worlds, self._end)
        while self._contents:  # frees each buffer's contents after its copy, to hold none of them twice
            begin, contents = self.allocations[len(self._contents) - 1].begin, self._contents.pop()
            worlds[:, begin : begin + len(contents)] = np.frombuffer(contents, np.uint8)
        for one, each in self._of_worlds:
            for world, contents in zip(worlds, each, strict=True):
                world[one.begin : one.begin + one.size] = np.frombuffer(contents, np.uint8)

    @property
    def size(self) -> int:
        """Bytes of global memory, with the gaps between buffers."""
        return self._end

    def contents(self, allocation: Allocation, world: int = 0) -> bytes:
        """Return the current contents of a buffer."""
        begin = world * self._end + allocation.begin
        return bytes(self.global_.data[begin : begin + allocation.size])

    # --- access ------------------------------------------------------------------------------

    def read(self, group: Group, space: str, addresses: Array, unit: int, count: int = 1) -> Array:
        if space == GENERIC and isinstance(space := _one_space(group, addresses), dict):
            found = np.zeros((count, group.size), UNSIGNED[unit])
            for inner, one, inside, where in _each_space(group, space, addresses):
                np.copyto(found, self.read(inner, one, inside, unit, count), where=where)
            return found
        store, index = self.locate(group, space, addresses, unit * count, "r")
        return store.read(index, unit, count)

    def write(self, group: Group, space: str, addresses: Array, unit: int, values: Array) -> None:
        if space == GENERIC and isinstance(space := _one_space(group, addresses), dict):
            for inner, one, inside, _ in _each_space(group, space, addresses):
                self.write(inner, one, inside, unit, values)
            return
        store, index = self.locate(group, space, addresses, unit * len(values), "w")
        if group.mask is not None:
            index, values = index[group.mask], [np.broadcast_to(row, group.mask.shape)[group.mask] for row in values]
        # Random order, because the last of several writes to one address wins.
        if (random := self.machine.random) is not None:
            order = random.permutation(len(index))
            index, values = index[order], [np.broadcast_to(row, order.shape)[order] for row in values]
        store.write(index, unit, values)
        if self.watch is not None and store is self.shared:
            self.watch.stored(group, index, unit, values)
        elif self.watch is not None and store is self.global_:
            self.watch.stored_outside(group, index, unit, values)

    def atomic(
        self, group: Group, space: str, addresses: Array, unit: int,
        combine: Callable[..., Array] | tuple[Callable[..., Array], Callable[..., Array]], *operands: Array,
    ) -> Array:  # fmt: skip
        """Combine memory with operands atomically, thread by thread, and return the old contents.

        The machine's seed chooses the order of threads; 0: by their numbers. combine: function of old contents and
        operands that returns the new contents; or two functions, for global memory and for other memory. operands: one
        per thread of the slice."""
        if space == GENERIC and isinstance(space := _one_space(group, addresses), dict):
            found = np.zeros(group.size, UNSIGNED[unit])
            for inner, one, inside, where in _each_space(group, space, addresses):
                np.copyto(found, self.atomic(inner, one, inside, unit, combine, *operands), where=where)
            return found
        store, index = self.locate(group, space, addresses, unit, "a")
        one_of_both = combine[space != GLOBAL] if isinstance(combine, tuple) else combine
        old = np.zeros(group.size, UNSIGNED[unit])
        lanes = np.flatnonzero(group.active)
        if self.machine.random is not None:
            lanes = self.machine.random.permutation(lanes)
        lanes = lanes[np.argsort(index[lanes], kind="stable")]
        places = index[lanes]
        first = np.flatnonzero(np.r_[True, places[1:] != places[:-1]])
        turn = np.arange(len(lanes)) - np.repeat(first, np.diff(np.r_[first, len(lanes)]))
        for number in range(int(turn.max()) + 1):  # turn: number of earlier threads that access the same address
            now = lanes[turn == number]
            before = store.read(index[now], unit, 1)[0]
            old[now] = before
            store.write(index[now], unit, one_of_both(before, *(operand[now] for operand in operands))[None])
        return old

    def locate(
        self, group: Group, space: str, addresses: Array, size: int, how: str, aligned: int = 0
    ) -> tuple[Store, Array]:
        """Return the store of a space, and the byte indices of these addresses in it. Inactive lanes get valid indices,
        too.

        size: bytes that each lane accesses. how: kind of access: "r" read, "w" write, "a" atomic, "b" mbarrier, "c"
        copy. aligned: required alignment in bytes; 0: `size`. Raises Fault for a bad address."""
        aligned = aligned or size
        if space == GENERIC:
            space = _one_space(group, addresses)
            if isinstance(space, dict):
                raise NotUnderstood("generic", why="lanes of one instruction access different state spaces")
            addresses = _in_space(space, addresses)
        elif addresses.dtype == np.uint64 and space in (SHARED, CLUSTER, LOCAL):
            addresses = _in_space(space, addresses)
        if space == GLOBAL:
            store, index = self.global_, (addresses.astype(np.uint64) - np.uint64(GLOBAL_BASE)).view(np.int64)
            active = index if group.mask is None else index[group.mask]
            self._check_global(group, active, size, how)
        else:
            store, index, limit = self._in_store(group, space, addresses, size)
            active = index if group.mask is None else index[group.mask]
            if active.max() > limit - size or active.min() < 0:
                outside = (active < 0) | (active + size > limit)
                text = f"{_WORDS[how]} of {size} bytes outside of {space} memory"
                self._refuse(OutOfBounds, group, outside, active, text)
        begin, everywhere = self._begin(group, space), index
        if group.mask is not None:
            index = np.where(group.mask, index, active[0])
        if begin is not None:
            index = index + begin
        if aligned > 1 and np.bitwise_or.reduce(index) & (aligned - 1):
            text = f"misaligned {_WORDS[how]} of {size} bytes of {space} memory"
            self._refuse(Misaligned, group, (index & (aligned - 1) != 0) & group.active, index, text)
        if self.watch is not None and store is self.shared:
            self.watch.access(group, index, aligned, how)
        elif self.watch is not None and store is self.global_:
            self.watch.outside(group, index, aligned, how)
        if self.observe is not None:
            self.observe(group, store, everywhere if begin is None else everywhere + begin, size, how)
        return store, index

    def _in_store(self, group: Group, space: str, addresses: Array, size: int) -> tuple[Store, Array, int]:
        """Return the store of a space, the offset of each address in its thread's part of the store, and that part's
        size."""
        offset = addresses.astype(np.int64)
        if space == SHARED:
            return self.shared, offset & (1 << RANK_SHIFT) - 1, self.shared_end
        if space == CLUSTER:
            rank, offset = offset >> RANK_SHIFT, offset & (1 << RANK_SHIFT) - 1
            inside = (offset + size <= self.shared_end) & (rank < self._stride)
            return self.shared, np.where(inside, rank * self.shared_bytes + offset, -1), 1 << 62
        if space == LOCAL:
            return self.local, offset, self.local_bytes
        assert space == CONSTANT, space
        return self.constant, offset, self.constant_bytes

    def _begin(self, group: Group, space: str) -> Array | None:
        """Return the index at which each thread's part of a store begins; None: 0 for all."""
        begins = {SHARED: "_shared_begin", CLUSTER: "_cluster_begin", LOCAL: "_local_begin"}
        if space == GLOBAL and self.worlds > 1:
            return self._world_begin[group.s]
        return getattr(self, begins[space])[group.s] if space in begins else None

    def check_copy(self, index: Array, size: int, thread: int) -> None:
        """Check that a copy by TMA descriptor accesses only buffers. Raises Outside. size: bytes of an element."""
        if len(index) and (first := self._outside(index, size)) is not None:
            at, access = int(index[first]), f"copy by descriptor ({size} bytes per element)"
            raise Outside(access, at, self.outside(access, at), thread)

    def _check_global(self, group: Group, index: Array, size: int, how: str) -> None:
        if (first := self._outside(index, size)) is not None:
            wrong = np.arange(len(index)) == first
            at, access = int(index[first]), f"{_WORDS[how]} of {size} bytes"
            raise Outside(access, at, self.outside(access, at), _first(group, wrong)[1])

    def _outside(self, index: Array, size: int) -> int | None:
        """Return the position of the first access of global memory that lies in no buffer; None if all lie in one."""
        low, high = int(index.min()), int(index.max())
        number = bisect_right(self._begins, low) - 1
        if number >= 0:
            one = self.allocations[number]
            if high + size <= one.begin + one.size:
                return None
        begins = np.asarray(self._begins or [0], np.int64)
        sizes = np.asarray([one.size for one in self.allocations] or [0], np.int64)
        place = np.searchsorted(begins, index, "right") - 1
        outside = (place < 0) | (index + size > begins[place] + sizes[place])
        return int(np.flatnonzero(outside)[0]) if outside.any() else None

    def _refuse(self, error: type[Fault], group: Group, wrong: Array, index: Array, text: str) -> None:
        first, lane = _first(group, wrong)
        raise error(f"{text} at {int(index[first]):#x}", lane)

    @staticmethod
    def address(index: int) -> int:
        """Return the address of an index of global memory."""
        return (GLOBAL_BASE + index) % (1 << 64)

    def element(self, one: Allocation, index: int) -> str:
        """Return ", at ELEMENT" (e.g. ", at x[3, 6] of (4, 64)") for an index in a buffer; "" if it is not known."""
        name = self.elements[one.begin](index - one.begin) if one.begin in self.elements else ""
        return f", at {name}" if name else ""

    def outside(self, access: str, index: int, pointers: Sequence[int] = ()) -> str:
        """Describe an access outside of all buffers. pointers: values from which its address was computed. The text
        names the buffer to which one of them points; if there is none, the nearest buffer."""
        named = [a for a in self.allocations if any(a.address <= one <= a.address + a.size for one in pointers)]
        near = named or [a for a in self.allocations if abs(a.begin - index) < _FAR]
        if not near:
            return f"{access} outside of all buffers, at address {self.address(index):#x}"
        one = min(near, key=lambda a: max(a.begin - index, index - (a.begin + a.size), 0))
        beyond = index - one.begin - one.size
        if index < one.begin:
            where, edge = f"{one.begin - index:,} bytes before", "start"
        else:
            where, edge = f"{beyond:,} bytes beyond" if beyond >= 0 else f"from {-beyond:,} bytes before", "end"
        if named:
            element = self.element(one, index) if beyond < one.size else ""
            return f"{access} outside of {one.name} ({one.size:,} bytes), {where} its {edge}{element}"
        return f"{access} outside of all buffers, {where} the {edge} of {one.name} ({one.size:,} bytes)"


def _first(group: Group, wrong: Array) -> tuple[int, int]:
    """Return the first index at which `wrong` is true, and the number of its thread. wrong: one per thread of the
    slice, or one per active thread."""
    lanes = group.numbers if len(wrong) != group.size else np.arange(group.s.start, group.s.stop)
    first = int(np.flatnonzero(wrong)[0])
    return first, int(lanes[first])


_WORDS = {"r": "read", "w": "write", "a": "atomic access", "b": "mbarrier", "c": "copy"}


def _in_space(space: str, addresses: Array) -> Array:
    """Convert generic addresses to addresses of a space."""
    return addresses if space == GLOBAL else addresses & _WINDOW


def _each_space(
    group: Group, spaces: dict[str, Array], addresses: Array
) -> Iterator[tuple[Group, str, Array, Array]]:  # fmt: skip
    """Divide an access by generic addresses into one access per state space. Yield the lanes in this space (a group),
    the space, its addresses, and a mask of the lanes."""
    for space, where in spaces.items():
        inner = group.under(where)
        assert inner is not None
        yield inner, space, _in_space(space, addresses), where


def is_shared(addresses: Array) -> Array:
    """Return True for generic addresses of shared memory."""
    return addresses >> np.uint64(32) == np.uint64(SHARED_WINDOW >> 32)


def is_local(addresses: Array) -> Array:
    return addresses >> np.uint64(32) == np.uint64(LOCAL_WINDOW >> 32)


def rank_of(addresses: Array) -> Array:
    """Return the rank of the CTA that owns a shared address."""
    return (addresses >> np.uint64(RANK_SHIFT) & np.uint64(0xFF)).astype(np.uint32)


def _one_space(group: Group, addresses: Array) -> Any:
    """Return the space of the active lanes' generic addresses. If they are in several spaces, return a dict: by space,
    a mask of its lanes."""
    high = addresses >> np.uint64(32)
    active = high if group.mask is None else high[group.mask]
    least, most = int(active.min()), int(active.max())
    shared, local = SHARED_WINDOW >> 32, LOCAL_WINDOW >> 32
    if least == most:
        return {shared: CLUSTER, local: LOCAL}.get(least, GLOBAL)
    if least > local or most < shared:
        return GLOBAL
    lanes = {CLUSTER: high == shared, LOCAL: high == local}
    lanes[GLOBAL] = ~(lanes[CLUSTER] | lanes[LOCAL])
    return {space: where for space, where in lanes.items() if (where & group.active).any()}
