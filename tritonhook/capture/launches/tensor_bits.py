"""The 128 bytes of a TMA descriptor that was encoded by host code, e.g. of the CuTe DSL, or by the driver.

NVIDIA does not document the layout. It was found from descriptors of the CuTe DSL 4.8.1, of ranks 1 to 5 with all its
swizzles and types, and from descriptors of driver 580 on an H100. Words of 64 bits:

    0     the address
    1     bits 0-3: 2; 4-6: rank - 1; 7-10: type; 13-14: swizzle; 15: fill; 16: TF32; 17-18: L2 promotion; 21: 1 if the
          tensor has 128 KiB or more
    1-3   from bit 32 of word 1: the lower 32 bits of each stride / 16; from bit 32 of word 3: the next 4 bits of each
    4-6   32 bits of each size - 1; from bit 32 of word 6: 3 bits of each step - 1; from bit 56: 8 bits of each box - 1
    8-15  unused; the DSL does not write them

A descriptor of host code with any other bit set is not decoded. The driver does not set bits 1 and 21 of word 1, and
writes to words 8 and 9. A descriptor of the driver is decoded only if the driver encodes the same bytes from the
decoded fields.
"""

import struct

from tritonhook.capture.launches.record import ADDRESSES, Tiling

BYTES = 128
_WORDS = struct.Struct("<8Q")
USED = _WORDS.size  # bytes that host code writes
_ELEMENTS = (0, 1, 2, 3, 4, 5, 6, 7, None, 8, 9)  # CUtensorMapDataType by the type number in a descriptor
_FLOAT32, _TF32 = 7, 11
_LARGE = 1 << 17  # bytes of a tensor from which bit 21 is set
_UNIT = 16  # bytes; the unit of strides


def read(data: bytes) -> tuple[int, Tiling] | None:
    """Decode (address, fields) of a descriptor; None if its rank or type is unknown."""
    address, *words = _WORDS.unpack(data[:USED])
    head, rank, kind = words[0] & 0xFFFF_FFFF, (words[0] >> 4 & 7) + 1, words[0] >> 7 & 15
    if rank > 5 or kind >= len(_ELEMENTS) or (element := _ELEMENTS[kind]) is None:
        return None
    strides, sizes = int.from_bytes(data[12:32], "little"), int.from_bytes(data[32:USED], "little")
    low = [strides >> 32 * number & 0xFFFF_FFFF for number in range(rank - 1)]
    tiling = Tiling(
        _TF32 if head >> 16 & 1 else element,
        tuple((sizes >> 32 * number & 0xFFFF_FFFF) + 1 for number in range(rank)),
        tuple((part | (strides >> 128 + 4 * number & 15) << 32) * _UNIT for number, part in enumerate(low)),
        tuple((sizes >> 184 + 8 * number & 0xFF) + 1 for number in range(rank)),
        tuple((sizes >> 160 + 3 * number & 7) + 1 for number in range(rank)),
        interleave=head >> 11 & 3,
        swizzle=head >> 13 & 3,
        promotion=head >> 17 & 3,
        fill=head >> 15 & 1,
        by_host=True,
    )
    return address, tiling


def encoded(tiling: Tiling, address: int) -> bytes:
    """Encode a descriptor as host code does. Returns its first USED bytes."""
    rank = len(tiling.shape)
    is_tf32 = tiling.element == _TF32
    kind = _ELEMENTS.index(_FLOAT32 if is_tf32 else tiling.element)
    head = 2 | rank - 1 << 4 | kind << 7 | tiling.swizzle << 13 | is_tf32 << 16 | tiling.promotion << 17
    head |= (tiling.reach >= _LARGE) << 21 | tiling.fill << 15
    strides = sizes = 0
    for number, stride in enumerate(tiling.strides):
        strides |= (stride // _UNIT & 0xFFFF_FFFF) << 32 * number | (stride // _UNIT >> 32) << 128 + 4 * number
    for number, (size, box) in enumerate(zip(tiling.shape, tiling.box, strict=True)):
        sizes |= size - 1 << 32 * number | box - 1 << 184 + 8 * number | tiling.steps[number] - 1 << 160 + 3 * number
    parts = ((address % ADDRESSES, 8), (head, 4), (strides, 20), (sizes, 32))
    return b"".join(part.to_bytes(size, "little") for part, size in parts)
