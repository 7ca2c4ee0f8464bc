"""Hash the parts of a kernel that the driver loads besides instructions: parameters, attributes, data, relocations.

Two images with the same meaning have the same hashes: symbols are hashed by name instead of number and sections by
role, both sorted, and {kernel} replaces the kernel's own name. These are omitted:

- sections that are not loaded: debug information, notes (with the tool's version and paths), strings, the call graph;
- the code of other kernels, which have parts of their own;
- copies of the code for other architectures (.nv.capmerc, .nv.merc) and sections for the linker alone (.nv.compat);
- attributes that depend on the version of ptxas (_OF_THE_TOOL), that hold positions in the code (_OF_THE_CODE), that
  image.Resources has (_IN_RESOURCES), or that older versions of ptxas omit if they are 0 (_ZERO_IS_NONE);
- bytes that a relocation replaces, the order of symbols, and the hashes that nvcc adds to names.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from tritonhook.cubin.elf import (
    KERNEL,
    LINKERS_OWN,
    SHN_UNDEF,
    STT_SECTION,
    Attribute,
    Elf,
    Header,
    Symbol,
    kernel_names,
    read_elf,
    words,
)
from tritonhook.cubin.image import LAUNCH_BOUNDS, owner_of
from tritonhook.ptx.normal_form import without_hashes

PARTS = ("parameters", "attributes", "data", "relocations")
_HASH = 16  # hex digits

_ALLOCATED = 2  # section flag SHF_ALLOC: loaded into memory
_RESERVED = ".nv.shared.reserved."

# .nv.info attributes (names as `cuobjdump -elf` of CUDA 13.5 prints them).
_KPARAM_INFO, _KPARAM_INFO_V2, _PARAM_CBANK, _CBANK_PARAM_SIZE, _EXTERNS = 0x17, 0x45, 0x0A, 0x19, 0x0F
_OF_PARAMETERS = frozenset((_KPARAM_INFO, _KPARAM_INFO_V2, _PARAM_CBANK, _CBANK_PARAM_SIZE))
# CUDA_API_VERSION, LANGUAGE, (PERF_)STATISTICS, PER_REG_TARGET_PERF_STATS, workarounds for hardware bugs, and an
# attribute without a name in cuobjdump, which ptxas 13.x writes for every kernel.
_OF_THE_TOOL = frozenset((0x37, 0x66, 0x33, 0x4E, 0x3C, 0x2A, 0x30, 0x35, 0x36, 0x47, 0x6B, 0x5F))
# *_INSTR_OFFSETS, *_OFFSETS, INSTR_REG_MAP, COOP_GROUP_MASK_REGIDS, INDIRECT_BRANCH_TARGETS, AT_ENTRY_FRAGMENTS.
_OF_THE_CODE = frozenset((0x1C, 0x1D, 0x25, 0x27, 0x28, 0x29, 0x2D, 0x2E, 0x31, 0x34, 0x39, 0x3A, 0x40, 0x44, 0x46))
_OF_THE_CODE |= {0x4F, 0x57, 0x59, 0x65, 0x6C}
# FRAME_SIZE, MIN_STACK_SIZE, MAX_STACK_SIZE, REGCOUNT, CRS_STACK_SIZE, and launch bounds.
_IN_RESOURCES = frozenset((0x11, 0x12, 0x23, 0x2F, 0x1E, *LAUNCH_BOUNDS))
_ZERO_IS_NONE = frozenset((0x50, 0x6D))  # SPARSE_MMA_MASK, PREEXIT_USED: older versions of ptxas do not write a 0
_LEFT_OUT = _OF_PARAMETERS | _OF_THE_TOOL | _OF_THE_CODE | _IN_RESOURCES


class Image:
    """An image whose sections and symbols are indexed by kernel, so that images of many kernels are fast to read.
    kernels: the names from elf.kernel_names."""

    def __init__(self, elf: Elf, symbols: Sequence[Symbol], kernels: frozenset[str]) -> None:
        self.elf, self.symbols = elf, symbols
        owners = [owner_of(header.name, kernels) for header in elf.headers]
        self._headers: dict[str | None, list[Header]] = {}
        for owner, header in zip(owners, elf.headers, strict=True):
            if header.flags & _ALLOCATED:
                self._headers.setdefault(owner, []).append(header)
        self._symbols: dict[str | None, list[Symbol]] = {}
        self._named: dict[str, list[Symbol]] = {}
        for symbol in symbols:
            if symbol.kind != STT_SECTION and symbol.name:
                self._named.setdefault(symbol.name, []).append(symbol)
                is_defined = SHN_UNDEF != symbol.section < len(owners)
                self._symbols.setdefault(owners[symbol.section] if is_defined else None, []).append(symbol)
        self._contents: dict[Header, str] = {}

    def headers_of(self, kernel: str) -> list[Header]:
        """List the loaded sections of this kernel, and those that belong to no single kernel."""
        return [*self._headers.get(None, ()), *self._headers.get(kernel, ())]

    def symbols_of(self, kernel: str) -> list[Symbol]:
        """List the symbols in this kernel's sections, those in sections that belong to no single kernel, and undefined
        symbols."""
        return [*self._symbols.get(None, ()), *self._symbols.get(kernel, ())]

    def named(self, kernel: str) -> Sequence[Symbol]:
        return self._named.get(kernel, ())

    def content_of(self, header: Header) -> str:
        """Hash a section's bytes, with 0 wherever a relocation writes."""
        if header not in self._contents:
            self._contents[header] = _hash(_unlinked(self, header))
        return self._contents[header]


@lru_cache(maxsize=64)
def loaded_of(cubin: bytes, kernel: str) -> Mapping[str, str]:
    """Hash each part of one kernel of a cubin; omit empty parts. Raises CubinError if the image is damaged."""
    return {part: code for part, code in loaded_parts(image_of(cubin), kernel).items() if code}


def image_of(cubin: bytes) -> Image:
    """Parse a cubin. Raises CubinError if it is damaged."""
    elf = read_elf(cubin)
    return Image(elf, elf.symbols(), frozenset(kernel_names(elf)))


def loaded_parts(image: Image, kernel: str) -> dict[str, str]:
    """Hash each part of PARTS; "" for an empty part. Raises CubinError if the image is damaged."""
    read = (_parameters, _attributes, _data, _relocations)
    lines = {part: sorted(lines_of(image, kernel)) for part, lines_of in zip(PARTS, read, strict=True)}
    return {part: _hash("\n".join(texts).encode()) if texts else "" for part, texts in lines.items()}


def parameter_places(data: bytes, kernel: str) -> tuple[tuple[int, int], ...]:
    """List (offset, bytes) of each parameter of a kernel; empty if the image does not contain them.

    The attribute KPARAM_INFO has three words: an index; the parameter's number (low half) and offset (high half); flags
    with the size in bits 18 and up.
    """
    infos = (words(one.value) for one in read_elf(data).attributes(f".nv.info.{kernel}") if one.kind == _KPARAM_INFO)
    found = {place & 0xFFFF: (place >> 16, flags >> 18) for _, place, flags in infos}
    return tuple(found[number] for number in sorted(found))


def _parameters(image: Image, kernel: str) -> Iterator[str]:
    """Describe each parameter by offset, size and order, and the constant bank that holds them by its size."""
    for attribute in image.elf.attributes(f".nv.info.{kernel}"):
        if attribute.kind in _OF_PARAMETERS:
            yield _line(image, kernel, attribute)
    if (bank := image.elf.by_name.get(f".nv.constant0.{kernel}")) is not None:
        yield f"bank {bank.size}"


def _attributes(image: Image, kernel: str) -> Iterator[str]:
    """Describe the attributes that the driver uses at a launch, and the kernel's symbol by binding and visibility."""
    for attribute in image.elf.attributes(f".nv.info.{kernel}"):
        if attribute.kind not in _LEFT_OUT and (any(attribute.value) or attribute.kind not in _ZERO_IS_NONE):
            yield _line(image, kernel, attribute)
    for symbol in image.named(kernel):
        yield f"symbol {symbol.binding} {symbol.other}"


def _line(image: Image, kernel: str, attribute: Attribute) -> str:
    value, names = attribute.value, []
    if attribute.kind == _PARAM_CBANK and len(value) >= 4:
        names, value = [_name_at(image, kernel, words(value[:4])[0])], value[4:]
    elif attribute.kind == _EXTERNS:
        names, value = sorted(_name_at(image, kernel, index) for index in words(value)), b""
    return f"{attribute.kind:#x} {value.hex()} {' '.join(names)}"


def _data(image: Image, kernel: str) -> Iterator[str]:
    """Describe the sections in memory by size and alignment, and the symbols in them."""
    for header in image.headers_of(kernel):
        if not _is_code(header, kernel):
            content = image.content_of(header)
            yield f"section {_role(header.name, kernel)} {header.kind} {header.size} {header.align} {content}"
    for symbol in image.symbols_of(kernel):
        if symbol.name.startswith(LINKERS_OWN):
            continue
        line = f"symbol {_role(symbol.name, kernel)} {symbol.kind} {symbol.binding} {symbol.other}"
        if symbol.section == SHN_UNDEF or symbol.section >= len(image.elf.headers):
            yield f"{line} undefined"
            continue
        home = image.elf.headers[symbol.section]
        if home.flags & _ALLOCATED and not home.name.startswith((".text.", _RESERVED)):
            yield f"{line} {_role(home.name, kernel)} {symbol.value} {symbol.size}"


def _relocations(image: Image, kernel: str) -> Iterator[str]:
    """Describe each relocation: section, offset, type, symbol and addend."""
    for header in image.headers_of(kernel):
        for relocation in image.elf.relocations(header.name):
            target = _name_at(image, kernel, relocation.symbol)
            yield f"{_role(header.name, kernel)} {relocation.offset} {relocation.kind} {target} {relocation.addend}"


def _is_code(header: Header, kernel: str) -> bool:
    """Check whether a section is code, the parameter bank or the system's shared memory; these hold no data of the
    program."""
    return header.name in (f".text.{kernel}", f".nv.constant0.{kernel}") or header.name.startswith(_RESERVED)


def _unlinked(image: Image, header: Header) -> bytes:
    """Read the bytes of a section, with 0 wherever a relocation writes."""
    content = bytearray(image.elf.bytes_of(header))
    for relocation in image.elf.relocations(header.name):
        end = min(relocation.offset + 8, len(content))
        content[relocation.offset : end] = bytes(max(end - relocation.offset, 0))
    return bytes(content)


def _name_at(image: Image, kernel: str, index: int) -> str:
    if index >= len(image.symbols):
        return str(index)
    symbol = image.symbols[index]
    if symbol.kind == STT_SECTION and symbol.section < len(image.elf.headers):
        return _role(image.elf.headers[symbol.section].name, kernel)
    return _role(symbol.name, kernel)


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:_HASH]


def _role(name: str, kernel: str) -> str:
    """Replace the kernel's name in a section name where it is the whole name, its last part, or part of
    `$kernel$function`."""
    if name == kernel:
        return KERNEL
    if name.startswith(f"${kernel}$"):
        return f"${KERNEL}${name[len(kernel) + 2 :]}"
    return f"{name[: -len(kernel)]}{KERNEL}" if name.endswith(f".{kernel}") else without_hashes(name)
