"""What a kernel of machine code needs to run: its code, its constants, its stack."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tritonhook.cubin.sass import Sass, words_of
from tritonhook.errors import NotUnderstood

if TYPE_CHECKING:
    from tritonhook.cubin.image import Cubin
    from tritonhook.emulate.machine import Geometry

RESERVED_SHARED = 1024  # at the begin of shared memory, from sm_90 on


@dataclass(frozen=True, slots=True)
class Places:
    """Where the driver puts things in constant bank 0."""

    block: int
    grid: int
    stack: int
    descriptor: int
    parameters: int


# Read from code that ptxas 12.4 to 13.5 writes: %ntid, %nctaid, the stack pointer, the descriptor of global memory.
_PLACES = {
    7: Places(0x0, 0xC, 0x28, 0x118, 0x160),
    8: Places(0x0, 0xC, 0x28, 0x118, 0x160),
    9: Places(0x0, 0xC, 0x28, 0x208, 0x210),
    10: Places(0x360, 0x370, 0x37C, 0x358, 0x380),
    12: Places(0x360, 0x370, 0x37C, 0x358, 0x380),
}


@dataclass(frozen=True, slots=True)
class SassKernel:
    """One kernel. arch: SM number. immediates: bits 32 to 63 of each instruction. stack: bytes of local memory of a
    thread. shared: bytes of static shared memory, with what is reserved. banks: compiled constants, by bank."""

    sass: Sass
    arch: int
    immediates: tuple[int, ...]
    stack: int
    shared: int
    banks: Mapping[int, bytes]

    @property
    def places(self) -> Places:
        if self.arch // 10 not in _PLACES:
            raise NotUnderstood(f"machine code of sm_{self.arch}")
        return _PLACES[self.arch // 10]

    def constants(self, geometry: Geometry, parameters: bytes) -> bytes:
        """Constant bank 0 of a launch."""
        places = self.places
        image = bytearray(places.parameters + len(parameters))
        image[places.parameters :] = parameters
        for at, values in ((places.block, geometry.block), (places.grid, geometry.grid), (places.stack, (self.stack,))):
            image[at : at + 4 * len(values)] = struct.pack(f"<{len(values)}I", *values)
        return bytes(image)

    def is_known_constant(self, at: int) -> bool:
        """Whether these four bytes of bank 0 are what `constants` knows."""
        places = self.places
        begins = {places.block: 12, places.grid: 12, places.stack: 4, places.descriptor: 8}
        return at >= places.parameters or any(begin <= at < begin + size for begin, size in begins.items())


def read_sass_kernel(cubin: Cubin, sass: Sass) -> SassKernel:
    """Read one kernel of an image. sass: its code."""
    kernel = sass.kernel
    words = words_of(cubin.text(kernel))
    sections = {bank: cubin.section(f".nv.constant{bank}.{{kernel}}", kernel) for bank in (2, 3)}
    shared = cubin.section(".nv.shared.{kernel}", kernel)
    reserved = RESERVED_SHARED if cubin.arch >= 90 else 0
    resources = cubin.resources[kernel]
    return SassKernel(
        sass,
        cubin.arch,
        tuple(int.from_bytes(word[4:8], "little") for word in words),
        max(resources.stack or 0, 0),
        max(shared.size if shared else 0, reserved),
        {bank: section.data for bank, section in sections.items() if section},
    )
