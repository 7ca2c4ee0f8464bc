"""Compute the resources that a kernel needs, and its occupancy.

A cubin does not record spills; only `ptxas -v` prints them: the bytes of all STL and LDL instructions, each counted
once, except those for variables in local memory and for calls. So a kernel has no spills if its code does not use local
memory. If its PTX needs no stack, all its local-memory traffic is spills. Tests compare these counts with ptxas's.

A cubin does not record the shared memory that a launch adds either; it comes from the compiler's metadata or the PTX.

The occupancy is the number of blocks and warps that an SM holds at a time, as in NVIDIA's occupancy calculator.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from tritonhook._display import Brief
from tritonhook.errors import PtxError
from tritonhook.ptx.module import Ptx, stackless_entries

if TYPE_CHECKING:
    from tritonhook.cubin.summary import KernelSummary


_STEP = 16  # bytes of an instruction, since sm_70
_FIRST_SM = 70
_STL, _LDL = 0x187, 0x183  # the low 9 bits of an instruction; the bits above them encode the types of its operands
_LOW_BYTES = re.compile(b"[\x83\x87]")
_EXTERN_SHARED = re.compile(r"\.extern\b[^;]*\.shared\b")
_WIDTHS = (1, 1, 2, 2, 4, 8, 16, 16)  # bytes, by bits 73 to 75: U8, S8, U16, S16, 32, 64, 128


class LocalTraffic(NamedTuple):
    """Bytes of all instructions that store to local memory or load from it, each instruction counted once."""

    stores: int
    loads: int


def local_traffic(code: bytes, arch: int) -> LocalTraffic | None:
    """Sum the bytes of a kernel's STL and LDL instructions. arch: SM number. Return None for code older than sm_70."""
    if arch < _FIRST_SM:
        return None
    bytes_of = {_STL: 0, _LDL: 0}
    for match in _LOW_BYTES.finditer(code[0::_STEP]):
        at = match.start() * _STEP
        opcode = int.from_bytes(code[at : at + 2], "little") & 0x1FF
        if opcode in bytes_of:
            bytes_of[opcode] += _WIDTHS[code[at + 9] >> 1 & 7]
    return LocalTraffic(bytes_of[_STL], bytes_of[_LDL])


Spills = tuple[int | None, int | None]  # bytes of stores and loads; None: unknown
Stackless = Callable[[], frozenset[str]]


def spills_of_code(traffic: LocalTraffic | None) -> Spills:
    """Return the spills that the code alone proves: (0, 0) if it does not use local memory, else unknown."""
    return traffic if traffic == (0, 0) else (None, None)


def proven_spills(kernel: str, known: Resources | KernelSummary, stackless: Stackless) -> Spills:
    """Return a kernel's known spills. If they are unknown and its PTX needs no stack, return all local-memory traffic.

    stackless: lists the PTX's entries without a stack; called only if needed. A system call passes its arguments on the
    stack, e.g. the call that ptxas 12.9 makes for TMA loads on sm_120a, so traffic proves nothing for such a kernel.
    """
    if known.spill_stores is None and known.local_stores is not None and not known.externs and kernel in stackless():
        return known.local_stores, known.local_loads
    return known.spill_stores, known.spill_loads


def stackless_in(ptx: Ptx | str | None) -> Stackless:
    """Return a function that lists the entries of PTX that need no stack. It reads the PTX once, at its first call, and
    lists nothing if the text is not PTX."""

    @lru_cache(maxsize=1)
    def entries() -> frozenset[str]:
        try:
            return frozenset() if ptx is None else stackless_entries(Ptx(ptx) if isinstance(ptx, str) else ptx)
        except PtxError:
            return frozenset()

    return entries


def dynamic_shared(given: object, ptx: str | None) -> int | None:
    """Compute the shared memory, in bytes, that a launch adds to the image's. given: the value in the compiler's
    metadata. Return None if it is unknown, e.g. because the program decides it at each launch."""
    if isinstance(given, int):
        return given
    return 0 if ptx is not None and _EXTERN_SHARED.search(ptx) is None else None


def launch_shared(static: int, dynamic: int | None) -> int | None:
    """Compute the shared memory, in bytes, that a block takes at a launch; None if unknown."""
    return None if dynamic is None else static + dynamic


@dataclass(frozen=True, slots=True, repr=False)
class Resources(Brief):
    """Resource usage of one kernel. None: unknown.

    registers: per thread. stack, min_stack: bytes per thread. shared: static bytes per block; from sm_90 on, they
    include the 1,024 that the system reserves. barriers: number of hardware barriers. threads: per block, if the kernel
    requires a block size.
    spill_stores, spill_loads: bytes, as `ptxas -v` prints them. From its log or `proven_spills`.
    local_stores, local_loads: bytes of all instructions that access local memory, spills included.
    launch_bounds: required or maximum block and cluster sizes, as PTX directives, e.g. "reqntid 128 1 1".
    externs: undefined symbols that the kernel needs. syscalls: those of them that the driver defines.
    """

    registers: int | None = None
    stack: int | None = None
    min_stack: int | None = None
    shared: int | None = None
    barriers: int | None = None
    threads: int | None = None
    spill_stores: int | None = None
    spill_loads: int | None = None
    local_stores: int | None = None
    local_loads: int | None = None
    launch_bounds: tuple[str, ...] = ()
    externs: tuple[str, ...] = ()

    @property
    def local_traffic(self) -> LocalTraffic | None:
        """Bytes that the code stores to local memory and loads from it; None: unknown."""
        if self.local_stores is None or self.local_loads is None:
            return None
        return LocalTraffic(self.local_stores, self.local_loads)

    @property
    def syscalls(self) -> tuple[str, ...]:
        return tuple(name for name in self.externs if name.startswith("__cuda_syscall"))


WARP = 32  # threads
REGISTERS, _QUARTERS, _UNIT = 65_536, 4, 256  # registers of an SM; partitions of an SM; registers in an allocation unit
_RESERVED, SHARED_UNIT = 1024, 128  # bytes of shared memory: reserved by the system per block; one allocation unit
_KIB = 1024
_NUMBER = re.compile(r"sm_(\d+)[af]?")


@dataclass(frozen=True, slots=True)
class _SmLimits:
    warps: int
    blocks: int
    shared: int  # bytes


_LARGE, _SMALL = _SmLimits(64, 32, 228 * _KIB), _SmLimits(48, 24, 100 * _KIB)
_LIMITS = {
    80: _SmLimits(64, 32, 164 * _KIB),
    86: _SmLimits(48, 16, 100 * _KIB),
    87: _SmLimits(48, 16, 164 * _KIB),
    89: _SMALL,
    90: _LARGE,
    100: _LARGE,
    103: _LARGE,
    110: _SmLimits(48, 24, 228 * _KIB),
    120: _SMALL,
    121: _SMALL,
}


def reserved_in_image(number: int) -> int:
    """Return the bytes that the system reserves at the start of a block's shared memory and that the section .nv.shared
    includes: 1,024 from sm_90 on, else 0. The kernel's variables follow them. number: SM number, e.g. 90."""
    return _RESERVED if number >= 90 else 0


def most_shared(arch: str) -> int:
    """Return the most bytes of shared memory per block; for an unknown architecture, the highest limit of all.
    arch: such as "sm_90a"."""
    number = _NUMBER.fullmatch(arch)
    return _LIMITS.get(int(number[1]) if number else 0, _LARGE).shared - _RESERVED


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Occupancy of one SM. blocks, warps: resident at a time. most_warps: the most that the SM holds. limits: the
    resources that prevent a further block, e.g. "registers"."""

    blocks: int
    warps: int
    most_warps: int
    limits: tuple[str, ...]

    @property
    def text(self) -> str:
        """The occupancy in words, e.g. "12 of 64 warps in 3 blocks, limited by registers"."""
        blocks = f"{self.blocks:,} block{'' if self.blocks == 1 else 's'}"
        return f"{self.warps} of {self.most_warps} warps in {blocks}, limited by {' and '.join(self.limits)}"


def registers_of_warp(registers: int) -> int:
    """Compute the registers that the hardware allocates to a warp. registers: per thread."""
    return -(-registers * WARP // _UNIT) * _UNIT


def occupancy(
    arch: str, registers: int | None, threads: int | None, shared: int | None, dynamic: int = 0
) -> Occupancy | None:
    """Compute the occupancy; None if the architecture or a figure is unknown.

    arch: e.g. "sm_90a". registers: per thread. threads: per block. shared: bytes per block, including `dynamic`, the
    bytes that the launch adds. An image without shared memory omits the system's reserved bytes; they are added here.
    """
    number = _NUMBER.fullmatch(arch)
    limits = _LIMITS.get(int(number[1])) if number else None
    if number is None or limits is None or not registers or not threads or shared is None:
        return None
    warps = -(-threads // WARP)
    of_warp = registers_of_warp(registers)
    static = shared - dynamic
    taken = dynamic + (max(static, _RESERVED) if reserved_in_image(int(number[1])) else static + _RESERVED)
    of_block = -(-taken // SHARED_UNIT) * SHARED_UNIT
    fits = {
        "registers": _QUARTERS * (REGISTERS // _QUARTERS // of_warp) // warps,
        "shared memory": limits.shared // of_block,
        "warps": limits.warps // warps,
        "blocks": limits.blocks,
    }
    blocks = min(fits.values())
    return Occupancy(blocks, blocks * warps, limits.warps, tuple(name for name, fit in fits.items() if fit == blocks))
