"""SassKernel: a kernel's machine code with the constants, the stack and the variables that it needs to run."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tritonhook.cubin.elf import Elf, read_elf
from tritonhook.cubin.loaded import parameter_places
from tritonhook.cubin.resources import reserved_in_image
from tritonhook.cubin.sass import Sass, words_of
from tritonhook.emulate.memory import LOCAL_WINDOW
from tritonhook.errors import NotUnderstood

if TYPE_CHECKING:
    from tritonhook.cubin.image import Cubin
    from tritonhook.emulate.machine import Geometry
    from tritonhook.emulate.memory import Memory

_VARIABLES = (".nv.global", ".nv.global.init")
_BANK_4 = ".nv.constant4"
_ADDRESSES_64 = 2, 4  # relocations of 64-bit addresses: R_CUDA_64, and R_CUDA_G64 for generic addresses
STACK = 1024  # bytes per thread if the need is unknown; the driver's default


@dataclass(frozen=True, slots=True)
class Places:
    """Byte offsets of the values that the driver writes to constant bank 0. None: this architecture has no such
    value, or its offset is unknown."""

    block: int  # %ntid
    grid: int  # %nctaid
    stack: int  # stack pointer
    descriptor: int  # descriptor of global memory
    parameters: int
    window: int | None = None  # generic address of the parameters
    clustered: int | None = None  # 1 if CTAs are in clusters; behind it: cluster extents, their reciprocals, counts
    limits: int | None = None  # limits of an address window; no effect, because isspacep compares with them twice
    local: int | None = None  # generic address of local memory
    dynamic: int | None = None  # bytes of dynamic shared memory
    reserved: int | None = None  # bytes of shared memory that the system reserves
    cluster_size: int | None = None  # CTAs in a cluster
    window_end: int | None = None  # generic address of the end of the parameters
    aggregate: int | None = None  # bytes of shared memory, reserved bytes included


# By the first digits of the architecture (8: sm_80 to sm_89). Derived from code that ptxas 12.4 to 13.5 generates.
_PLACES = {
    7: Places(0x0, 0xC, 0x28, 0x118, 0x160),
    8: Places(0x0, 0xC, 0x28, 0x118, 0x160, local=0x20, dynamic=0x2C),
    9: Places(0x0, 0xC, 0x28, 0x208, 0x210, 0x198, 0x140, 0xD0, 0x20, 0x2C, 0x114, 0x188, 0x1A0, 0x13C),
    10: Places(0x360, 0x370, 0x37C, 0x358, 0x380, 0x348),
    12: Places(0x360, 0x370, 0x37C, 0x358, 0x380, 0x348),
}


@dataclass(frozen=True, slots=True)
class SassKernel:
    """One kernel of machine code.

    arch: SM number. immediates: bits 32 to 63 of each instruction. stack: bytes of local memory per thread. shared:
    bytes of static shared memory, reserved bytes included. banks: compiled constants by bank number. functions: byte
    offsets, by name, of functions that ptxas appended to the kernel's code. offsets: byte offsets of the parameters;
    empty if the image lacks them. variables: contents of global variables by section. pointers: see `_pointers`.
    registers: number of registers per thread; 0: unknown.
    """

    sass: Sass
    arch: int
    immediates: tuple[int, ...]
    stack: int
    shared: int
    banks: Mapping[int, bytes]
    functions: Mapping[str, int] = field(default_factory=dict)
    offsets: tuple[int, ...] = ()
    variables: Mapping[str, bytes] = field(default_factory=dict)
    pointers: tuple[tuple[str, int, str, int], ...] = ()
    registers: int = 0

    def linked(self, memory: Memory) -> SassKernel:
        """Allocate the kernel's global variables in `memory`; return the kernel with their addresses in bank 4."""
        if not self.pointers:
            return self
        places = {name: memory.allocate(data, name) for name, data in self.variables.items()}
        bank = bytearray(8 + max((offset for home, offset, *_ in self.pointers if home == _BANK_4), default=0))
        for home, offset, section, at in self.pointers:
            if home == _BANK_4:
                bank[offset : offset + 8] = (places[section].address + at).to_bytes(8, "little")
            else:
                memory.point(places[home], offset, places[section].address + at)
        return replace(self, banks={**self.banks, 4: bytes(bank)}, pointers=())

    @property
    def places(self) -> Places:
        if self.arch // 10 not in _PLACES:
            raise NotUnderstood(f"machine code of sm_{self.arch}")
        return _PLACES[self.arch // 10]

    def pack(self, arguments: Sequence[bytes]) -> bytes:
        """Lay out arguments as in constant bank 0. If the image does not record their offsets, align each argument to
        its size, but a TMA descriptor to 64 bytes."""
        begin, found = self.places.parameters, b""
        if len(self.offsets) == len(arguments):
            for offset, value in zip(self.offsets, arguments, strict=True):
                found = found.ljust(offset, b"\0") + value
            return found
        for value in arguments:
            alignment = min(max(len(value), 1), 64)
            found = found.ljust(-(-(begin + len(found)) // alignment) * alignment - begin, b"\0") + value
        return found

    def constants(self, geometry: Geometry, parameters: bytes, address: int = 0, dynamic: int = 0) -> bytes:
        """Build constant bank 0 of a launch. parameters: packed arguments. address: where their copy in global memory
        begins, which TMA descriptors need. dynamic: bytes of dynamic shared memory."""
        places = self.places
        # Code reads parameters in words of 8 bytes.
        image = bytearray(places.parameters) + parameters.ljust(-(-len(parameters) // 8) * 8, b"\0")
        cluster, counts = geometry.cluster, [a // b for a, b in zip(geometry.grid, geometry.cluster, strict=True)]
        of_clusters = geometry.cluster_size > 1, *cluster, *(1 / one for one in cluster), *counts
        word, long = struct.Struct("<I").pack, struct.Struct("<Q").pack
        for place, value in (
            (places.block, struct.pack("<3I", *geometry.block)),
            (places.grid, struct.pack("<3I", *geometry.grid)),
            (places.stack, word(self.stack)),
            (places.window, long(address)),
            (places.window_end, long(address + len(parameters))),
            (places.local, long(LOCAL_WINDOW)),
            (places.dynamic, word(dynamic)),
            (places.reserved, word(reserved_in_image(self.arch))),
            (places.aggregate, word(self.shared + dynamic)),
            (places.clustered, struct.pack("<4I3f3I", *of_clusters)),
            (places.cluster_size, word(geometry.cluster_size)),
        ):
            if place is not None:
                image[place : place + len(value)] = value
        return bytes(image)

    def is_known_constant(self, at: int) -> bool:
        """Whether the emulator knows what the driver writes to the four bytes at this offset of bank 0."""
        places = self.places
        begins = {places.block: 12, places.grid: 12, places.stack: 4, places.descriptor: 8, places.window: 8}
        begins |= {places.window_end: 8, places.local: 8, places.limits: 8, places.clustered: 40}
        begins |= {places.dynamic: 4, places.reserved: 4, places.aggregate: 4, places.cluster_size: 4}
        found = (begin is not None and begin <= at < begin + size for begin, size in begins.items())
        return at >= places.parameters or any(found)


def _may_recur(sass: Sass, functions: Mapping[str, int]) -> bool:
    """Whether a call leads back to earlier code, i.e. may be recursive."""
    calls = [one for one in sass.instructions if one.opcode.startswith("CALL.REL")]
    targets = [one.operands.split(",")[-1].strip("`()") for one in calls]
    places = (functions[at] if at in functions else int(at, 16) if at.startswith("0x") else 0 for at in targets)
    return any(place <= call.offset for place, call in zip(places, calls, strict=True))


def _pointers(elf: Elf) -> tuple[tuple[str, int, str, int], ...]:
    """List the addresses of global variables that bank 4 and variables contain, as (section, offset, section of the
    variable, offset in it). The list is empty if they contain addresses of anything else."""
    symbols, found = elf.symbols(), []
    for home in (_BANK_4, *_VARIABLES):
        for offset, kind, index, addend in elf.relocations(home):
            section = elf.headers[symbols[index].section].name if symbols[index].section < len(elf.headers) else ""
            if kind not in _ADDRESSES_64 or not section.startswith(".nv.global"):
                return ()
            inside = int.from_bytes(elf.content(home)[offset : offset + 8], "little")  # addend of a .rel relocation
            found.append((home, offset, section, symbols[index].value + (addend or inside)))
    return tuple(found)


def read_sass_kernel(cubin: Cubin, sass: Sass) -> SassKernel:
    """Read the kernel of an image whose decoded code is `sass`."""
    kernel = sass.kernel
    words = words_of(cubin.text(kernel))
    sections = {bank: cubin.section(f".nv.constant{bank}.{{kernel}}", kernel) for bank in (2, 3)}
    of_module = (section for section in cubin.sections if section.role == ".nv.constant3")
    sections[3] = sections[3] or next(of_module, None)  # variables of PTX's state space .const
    shared = cubin.section(".nv.shared.{kernel}", kernel)
    resources, elf = cubin.resources[kernel], read_elf(cubin.data)
    functions = {one.name: one.value for one in elf.symbols() if one.name.startswith("$")}
    variables = {one.name: elf.bytes_of(one).ljust(one.size, b"\0") for one in elf.headers if one.name in _VARIABLES}
    return SassKernel(
        sass,
        cubin.arch,
        tuple(int.from_bytes(word[4:8], "little") for word in words),
        max(resources.stack or 0, STACK if _may_recur(sass, functions) else 0),
        max(shared.size if shared else 0, reserved_in_image(cubin.arch)),
        {bank: section.data for bank, section in sections.items() if section},
        functions,
        tuple(offset for offset, _ in parameter_places(cubin.data, kernel)),
        variables,
        _pointers(elf),
        resources.registers or 0,
    )
