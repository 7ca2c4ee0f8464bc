"""What a kernel of machine code needs to run: its code, its constants, its stack."""

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
_ADDRESSES_64 = 2, 4  # kinds of relocations: R_CUDA_64, and R_CUDA_G64 of generic addresses
STACK = 1024  # bytes of a thread, where its need is not known: the driver's default


@dataclass(frozen=True, slots=True)
class Places:
    """Where the driver puts things in constant bank 0."""

    block: int
    grid: int
    stack: int
    descriptor: int
    parameters: int
    window: int | None = None  # the generic address of the parameters
    clustered: int | None = None  # 1 where CTAs are in clusters
    limits: int | None = None  # of a window of generic addresses: isspacep compares with it twice, which cancels out
    local: int | None = None  # the generic address of local memory
    dynamic: int | None = None  # bytes of dynamic shared memory
    reserved: int | None = None  # bytes of shared memory that the system has
    cluster_size: int | None = None  # behind `clustered`: the cluster's extents, 1 by each of them, the grid's clusters
    window_end: int | None = None  # where the parameters end
    aggregate: int | None = None  # bytes of shared memory, with those that the system has


# Read from code that ptxas 12.4 to 13.5 writes: %ntid, %nctaid, the stack pointer, the descriptor of global memory.
_PLACES = {
    7: Places(0x0, 0xC, 0x28, 0x118, 0x160),
    8: Places(0x0, 0xC, 0x28, 0x118, 0x160, local=0x20, dynamic=0x2C),
    9: Places(0x0, 0xC, 0x28, 0x208, 0x210, 0x198, 0x140, 0xD0, 0x20, 0x2C, 0x114, 0x188, 0x1A0, 0x13C),
    10: Places(0x360, 0x370, 0x37C, 0x358, 0x380, 0x348),
    12: Places(0x360, 0x370, 0x37C, 0x358, 0x380, 0x348),
}


@dataclass(frozen=True, slots=True)
class SassKernel:
    """One kernel. arch: SM number. immediates: bits 32 to 63 of each instruction. stack: bytes of local memory of a
    thread. shared: bytes of static shared memory, with what is reserved. banks: compiled constants, by bank.
    functions: where those begin that ptxas has put behind the kernel's own code. offsets: of parameters, where the
    image says. variables: of global memory, by section. pointers: as `_pointers` gives them.
    registers: of a thread; 0: not known."""

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
        """Return the kernel with its variables of global memory in this memory: bank 4 has their addresses."""
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
        """Arguments as they lie in bank 0; where the image does not say, each aligned to its size, a descriptor of TMA
        to 64 bytes."""
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
        """Constant bank 0 of a launch. address: where global memory has the parameters, too, for descriptors of TMA.
        dynamic: bytes of shared memory."""
        places = self.places
        image = bytearray(places.parameters) + parameters.ljust(-(-len(parameters) // 8) * 8, b"\0")  # read by words
        for at, values in ((places.block, geometry.block), (places.grid, geometry.grid), (places.stack, (self.stack,))):
            image[at : at + 4 * len(values)] = struct.pack(f"<{len(values)}I", *values)
        if places.window is not None:
            image[places.window : places.window + 8] = address.to_bytes(8, "little")
        if places.window_end is not None:
            image[places.window_end : places.window_end + 8] = (address + len(parameters)).to_bytes(8, "little")
        if places.local is not None:
            image[places.local : places.local + 8] = LOCAL_WINDOW.to_bytes(8, "little")
        reserved = reserved_in_image(self.arch)
        sizes = ((places.dynamic, dynamic), (places.reserved, reserved), (places.aggregate, self.shared + dynamic))
        for place, number in sizes:
            if place is not None:
                image[place : place + 4] = number.to_bytes(4, "little")
        if places.clustered is not None and places.cluster_size is not None:
            cluster, counts = geometry.cluster, [a // b for a, b in zip(geometry.grid, geometry.cluster, strict=True)]
            found = struct.pack("<4I3f3I", geometry.cluster_size > 1, *cluster, *(1 / one for one in cluster), *counts)
            image[places.clustered : places.clustered + len(found)] = found
            image[places.cluster_size] = geometry.cluster_size
        return bytes(image)

    def is_known_constant(self, at: int) -> bool:
        """Whether these four bytes of bank 0 are what `constants` knows."""
        places = self.places
        begins = {places.block: 12, places.grid: 12, places.stack: 4, places.descriptor: 8}
        more: list[tuple[int | None, int]] = [(places.window, 8), (places.clustered, 40), (places.limits, 8)]
        more += [(places.local, 8), (places.dynamic, 4), (places.reserved, 4), (places.cluster_size, 4)]
        more += [(places.aggregate, 4), (places.window_end, 8)]
        begins |= {begin: size for begin, size in more if begin is not None}
        return at >= places.parameters or any(begin <= at < begin + size for begin, size in begins.items())


def _may_recur(sass: Sass, functions: Mapping[str, int]) -> bool:
    """Whether a call leads back to code before it."""
    calls = [one for one in sass.instructions if one.opcode.startswith("CALL.REL")]
    targets = [one.operands.split(",")[-1].strip("`()") for one in calls]
    places = (functions[at] if at in functions else int(at, 16) if at.startswith("0x") else 0 for at in targets)
    return any(place <= call.offset for place, call in zip(places, calls, strict=True))


def _pointers(elf: Elf) -> tuple[tuple[str, int, str, int], ...]:
    """Where bank 4 and variables have addresses of variables in global memory: the section, the offset, the section of
    the variable, the offset in it. None if they have others, too."""
    symbols, found = elf.symbols(), []
    for home in (_BANK_4, *_VARIABLES):
        for offset, kind, index, addend in elf.relocations(home):
            section = elf.headers[symbols[index].section].name if symbols[index].section < len(elf.headers) else ""
            if kind not in _ADDRESSES_64 or not section.startswith(".nv.global"):
                return ()
            inside = int.from_bytes(elf.content(home)[offset : offset + 8], "little")  # .rel has the addend there
            found.append((home, offset, section, symbols[index].value + (addend or inside)))
    return tuple(found)


def read_sass_kernel(cubin: Cubin, sass: Sass) -> SassKernel:
    """Read one kernel of an image. sass: its code."""
    kernel = sass.kernel
    words = words_of(cubin.text(kernel))
    sections = {bank: cubin.section(f".nv.constant{bank}.{{kernel}}", kernel) for bank in (2, 3)}
    of_module = (section for section in cubin.sections if section.role == ".nv.constant3")
    sections[3] = sections[3] or next(of_module, None)  # its .const variables
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
