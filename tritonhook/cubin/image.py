"""Cubin: what a CUDA ELF image says of itself: sections by role, resource usage, undefined symbols.

Reads the image alone; it needs no tool and no GPU. Instructions are sass.py's.
"""

from __future__ import annotations

import hashlib
import io
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tritonhook.errors import CubinError

EM_CUDA = 190
_SHT_NOBITS = 8
_SHT_CUDA_INFO = 0x70000000
# Marks in shared memory, and the unified function and data tables: the linker's own, nothing to link with.
LINKERS_OWN = (".nv.", "__UFT", "__UDT")
# Sections of the whole module, which a kernel called "info" or "symtab" must not claim.
MODULE_SECTIONS = frozenset(
    f"{merc}{name}"
    for merc in ("", ".nv.merc")
    for name in (".nv.info", ".nv.callgraph", ".nv.compat", ".nv.prototype", ".nv.rel.action", ".nv.global", ".symtab")
) | {".shstrtab", ".strtab", ".symtab_shndx", ".nv.global.init"}
_KERNEL = "{kernel}"

# .nv.info attributes (names as `cuobjdump -elf` prints them).
_EIATTR_EXTERNS = 0x0F
_EIATTR_REQNTID = 0x10
EIATTR_FRAME_SIZE = 0x11
_EIATTR_MIN_STACK_SIZE = 0x12
EIATTR_REGCOUNT = 0x2F
_EIATTR_INDIRECT_BRANCH_TARGETS = 0x34
_EIATTR_NUM_BARRIERS = 0x4C

CAPMERC_RECORD = b"\x31\x02"  # opens the 16-byte records that only ptxas's other scheduler writes
_CAPMERC_RECORD_BYTES = 16


@dataclass(frozen=True, slots=True)
class Section:
    """One ELF section.

    role: its name with the kernel's replaced, e.g. ".text.{kernel}", so that a rename alone is no change.
    kernel: the kernel it belongs to, or None.
    file_range: (start, end) in the file; empty for sections without bytes. Sections may overlap.
    size: bytes; for a section without file bytes (shared memory), what it reserves.
    """

    name: str
    role: str
    kernel: str | None
    kind: str
    file_range: tuple[int, int]
    size: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Resources:
    """Resource usage of one kernel. None: this source does not say.

    registers: per thread. stack, min_stack: bytes per thread. shared: static bytes per block.
    spill_stores, spill_loads: bytes; only the log of `ptxas -v` knows them.
    externs: undefined symbols it needs; syscalls: those served by the driver.
    """

    registers: int | None = None
    stack: int | None = None
    min_stack: int | None = None
    shared: int | None = None
    barriers: int | None = None
    threads: int | None = None
    spill_stores: int | None = None
    spill_loads: int | None = None
    externs: tuple[str, ...] = ()

    @property
    def syscalls(self) -> tuple[str, ...]:
        return tuple(name for name in self.externs if name.startswith("__cuda_syscall"))


@dataclass(frozen=True, slots=True)
class Cubin:
    """A CUDA ELF image.

    arch: SM number, e.g. 100. kernels: entry names in symbol order.
    producer, ptxas_version, ptxas_arguments: of the tool note, which ptxas writes for sm_100 and newer
    (from 13.x for sm_90 too); None elsewhere.
    indirect_targets: per kernel, the byte offsets its indirect branches can reach.
    relocations: per kernel, (byte offset, type, symbol) of what a linker will fill into its code; the kernel's
    own name stands as {kernel}.
    """

    data: bytes
    arch: int
    kernels: tuple[str, ...]
    sections: tuple[Section, ...]
    resources: Mapping[str, Resources]
    producer: str | None = None
    ptxas_version: str | None = None
    ptxas_arguments: str | None = None
    indirect_targets: Mapping[str, tuple[int, ...]] | None = None
    relocations: Mapping[str, tuple[tuple[int, int, str], ...]] | None = None

    @classmethod
    def from_bytes(cls, data: bytes, source: str = "cubin") -> Cubin:
        """Parse an image. Raises CubinError if it is not CUDA's, truncated or foreign; `source` names it."""
        try:
            return _parse(data)
        except CubinError as error:
            raise CubinError(f"{source}: {error}") from None

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    def only_kernel(self, kernel: str | None = None) -> str:
        """The kernel named, or the single one there is. Raises CubinError where that is ambiguous."""
        if kernel is not None:
            if kernel not in self.kernels:
                raise CubinError(f"no kernel {kernel!r} in the cubin; it has: {', '.join(self.kernels) or 'none'}")
            return kernel
        if len(self.kernels) != 1:
            names = ", ".join(self.kernels) or "none"
            raise CubinError(f"{len(self.kernels)} kernels ({names}); name one with --entry")
        return self.kernels[0]

    def section(self, role: str, kernel: str | None = None) -> Section | None:
        """The section with this role, e.g. ".text.{kernel}"; `kernel` picks one where there are several."""
        return next((s for s in self.sections if s.role == role and kernel in (None, s.kernel)), None)

    def text(self, kernel: str) -> bytes:
        """The instruction bytes of a kernel."""
        section = self.section(f".text.{_KERNEL}", kernel)
        if section is None:
            raise CubinError(f"no code section for kernel {kernel!r}")
        return section.data

    def scheduler_records(self, kernel: str) -> int | None:
        """Number of `31 02` records in the kernel's .nv.capmerc (sm_100 and newer; None elsewhere).

        ptxas writes them only for functions that it gave its other scheduler.
        """
        section = self.section(f".nv.capmerc.text.{_KERNEL}", kernel)
        return None if section is None else count_capmerc_records(section.data)

    def with_spills(self, spills: Mapping[str, tuple[int, int]]) -> Cubin:
        """The same image with spill bytes (stores, loads) per kernel, as `ptxas -v` printed them."""
        resources = {
            kernel: replace(r, spill_stores=spills[kernel][0], spill_loads=spills[kernel][1]) if kernel in spills else r
            for kernel, r in self.resources.items()
        }
        return replace(self, resources=resources)


def count_capmerc_records(data: bytes) -> int:
    """Count the 16-byte records that start with `31 02`.

    Layout: u32 version, u16 n, u16 flags, a bitmap of n bits, records. Records of other kinds have other
    lengths, so that the records are found by walking runs rather than by a fixed stride.
    """
    count = 0
    position = data.find(CAPMERC_RECORD)
    while position >= 0 and position + _CAPMERC_RECORD_BYTES <= len(data):
        count += 1
        position = data.find(CAPMERC_RECORD, position + _CAPMERC_RECORD_BYTES)
    return count


def _parse(data: bytes) -> Cubin:
    from elftools.common.exceptions import ELFError
    from elftools.construct import ConstructError
    from elftools.elf.elffile import ELFFile

    if data[:4] != b"\x7fELF":
        raise CubinError("not an ELF image; give a cubin or PTX file")
    _check_extent(data)
    try:
        elf = ELFFile(io.BytesIO(data))
        return _read(elf, data)
    except (
        *(ELFError, ConstructError, struct.error, UnicodeDecodeError),
        *(AttributeError, IndexError, KeyError, OverflowError, ValueError),  # pyelftools, on damaged headers
    ) as error:
        raise CubinError(f"the ELF image cannot be read ({error}); is the file complete?") from None


def _check_extent(data: bytes) -> None:
    """The header's own arithmetic: pyelftools reads a truncated file silently."""
    if len(data) < 64:
        raise CubinError(f"truncated: {len(data)} bytes, an ELF header alone takes 64")
    machine = struct.unpack_from("<H", data, 18)[0]
    if machine != EM_CUDA or data[4] != 2:
        raise CubinError(f"an ELF image for machine {machine}, not for NVIDIA GPUs ({EM_CUDA})")
    for table, at, size_at in (("program", 32, 54), ("section", 40, 58)):
        (offset,) = struct.unpack_from("<Q", data, at)
        entry_bytes, entries = struct.unpack_from("<HH", data, size_at)
        end = offset + entry_bytes * entries
        if end > len(data):
            raise CubinError(f"truncated: the {table} table ends at byte {end:,} of {len(data):,}")


def _read(elf: Any, data: bytes) -> Cubin:
    raw = list(elf.iter_sections())
    for section in raw:
        end = section["sh_offset"] + section["sh_size"]
        if section["sh_type"] != "SHT_NOBITS" and end > len(data):
            raise CubinError(f"truncated: section {section.name} ends at byte {end:,} of {len(data):,}")
    symbols = _symbols(raw)
    kernels = _kernels(raw)
    longest_first = sorted(kernels, key=len, reverse=True)
    sections = tuple(_section(s, longest_first, data) for s in raw if s.name)
    attributes = [item for s in raw if _is_info(s) for item in _attributes(s.name, _bytes(s, data))]
    relocations = {k: _relocations(k, raw, data, symbols) for k in kernels}
    undefined = {s.name for s in symbols if s.name and s["st_shndx"] == "SHN_UNDEF"}
    # Those a kernel's code refers to; all of the module's if it is the only one.
    needed = {k: undefined if len(kernels) == 1 else undefined & {n for _, _, n in relocations[k]} for k in kernels}
    note = _tool_note(raw, data)
    return Cubin(
        data=data,
        arch=_arch(elf["e_flags"], elf["e_ident"]["EI_ABIVERSION"]),
        kernels=kernels,
        sections=sections,
        resources={k: _resources(k, raw, sections, attributes, symbols, needed[k]) for k in kernels},
        producer=note.get("producer"),
        ptxas_version=note.get("version"),
        ptxas_arguments=note.get("arguments"),
        indirect_targets={k: _indirect_targets(k, attributes) for k in kernels},
        relocations=relocations,
    )


def _arch(flags: int, abi: int) -> int:
    # ABI 8 (CUDA 12.9 and newer, and every sm_100) keeps the SM number in bits 8..15, ABI 7 in bits 0..7.
    return (flags >> 8) & 0xFF if abi >= 8 else flags & 0xFF


def _symbols(raw: list[Any]) -> list[Any]:
    table = next((s for s in raw if s.name == ".symtab"), None)
    return [] if table is None else list(table.iter_symbols())


def _kernels(raw: list[Any]) -> tuple[str, ...]:
    """Entries: device functions have code of their own too, but no constant bank 0 for parameters."""
    names = {s.name for s in raw}
    texts = [s.name.removeprefix(".text.") for s in raw if s.name.startswith(".text.")]
    return tuple(t for t in texts if f".nv.constant0.{t}" in names)


def _section(section: Any, kernels_longest_first: list[str], data: bytes) -> Section:
    name = section.name
    kernels = () if name in MODULE_SECTIONS else kernels_longest_first
    kernel = next((k for k in kernels if name.endswith(f".{k}")), None)
    role = name if kernel is None else name[: -len(kernel)] + _KERNEL
    kind = section["sh_type"]
    start, size = section["sh_offset"], section["sh_size"]
    in_file = kind != "SHT_NOBITS"
    return Section(
        name=name,
        role=role,
        kernel=kernel,
        kind=kind if isinstance(kind, str) else f"0x{kind:x}",
        file_range=(start, start + size) if in_file else (start, start),
        size=size,
        data=data[start : start + size] if in_file else b"",
    )


def _bytes(section: Any, data: bytes) -> bytes:
    start = section["sh_offset"]
    return data[start : start + section["sh_size"]]


def _is_info(section: Any) -> bool:
    return bool(section["sh_type"] == _SHT_CUDA_INFO) and section.name.startswith(".nv.info")


@dataclass(frozen=True, slots=True)
class _Attribute:
    section: str
    kind: int
    value: bytes


def _attributes(section: str, data: bytes) -> Iterator[_Attribute]:
    """The records of a .nv.info section: u8 format, u8 attribute, then a u8, u16 or sized value."""
    position = 0
    while position + 4 <= len(data):
        form, kind, short = struct.unpack_from("<BBH", data, position)
        position += 4
        if form == 4:  # EIFMT_SVAL: `short` is the number of bytes that follow
            yield _Attribute(section, kind, data[position : position + short])
            position += short
        elif form in (1, 2, 3):  # no value, u8, u16
            yield _Attribute(section, kind, struct.pack("<H", short))
        else:
            raise CubinError(f"{section}: attribute format {form} at byte {position - 4} is not known")


def _resources(
    kernel: str,
    raw: list[Any],
    sections: tuple[Section, ...],
    attributes: list[_Attribute],
    symbols: list[Any],
    needed: set[str],
) -> Resources:
    index = next((i for i, s in enumerate(symbols) if s.name == kernel and s["st_info"]["type"] != "STT_SECTION"), None)
    text = next(s for s in raw if s.name == f".text.{kernel}")
    own = {a.kind: a.value for a in attributes if a.section == f".nv.info.{kernel}"}
    shared = next((s.size for s in sections if s.name == f".nv.shared.{kernel}"), None)
    return Resources(
        registers=_of_symbol(attributes, EIATTR_REGCOUNT, index),
        stack=_of_symbol(attributes, EIATTR_FRAME_SIZE, index),
        min_stack=_of_symbol(attributes, _EIATTR_MIN_STACK_SIZE, index),
        shared=0 if shared is None else shared,
        barriers=_barriers(own, text["sh_flags"]),
        threads=_threads(own),
        externs=_externs(own, symbols, needed),
    )


def _of_symbol(attributes: list[_Attribute], kind: int, index: int | None) -> int | None:
    for attribute in attributes:
        if attribute.kind == kind and len(attribute.value) >= 8:
            symbol, value = struct.unpack_from("<II", attribute.value)
            if symbol == index:
                return int(value)
    return None


def _barriers(own: Mapping[int, bytes], text_flags: int) -> int:
    # Newer images have an attribute; older ones keep the count in bits 20..26 of the code section's flags.
    if _EIATTR_NUM_BARRIERS in own:
        return own[_EIATTR_NUM_BARRIERS][0]
    return (text_flags >> 20) & 0x7F


def _threads(own: Mapping[int, bytes]) -> int | None:
    value = own.get(_EIATTR_REQNTID)
    if value is None or len(value) < 12:
        return None
    x, y, z = struct.unpack_from("<III", value)
    return int(x * y * z)


def _externs(own: Mapping[int, bytes], symbols: list[Any], needed: set[str]) -> tuple[str, ...]:
    """Undefined symbols that a kernel lists itself, and those `needed` besides."""
    listed = own.get(_EIATTR_EXTERNS, b"")
    indices = struct.unpack(f"<{len(listed) // 4}I", listed[: len(listed) // 4 * 4])
    names = {symbols[i].name for i in indices if i < len(symbols)}
    return tuple(sorted(name for name in names | needed if not name.startswith(LINKERS_OWN)))


def _relocations(kernel: str, raw: list[Any], data: bytes, symbols: list[Any]) -> tuple[tuple[int, int, str], ...]:
    """Entries of .rela.text (u64 offset, u64 symbol and type, i64 addend) or .rel.text (no addend)."""
    found: list[tuple[int, int, str]] = []
    for section in raw:
        if section.name in (f".rela.text.{kernel}", f".rel.text.{kernel}"):
            content, width = _bytes(section, data), 24 if section.name.startswith(".rela") else 16
            for position in range(0, len(content) - width + 1, width):
                offset, info = struct.unpack_from("<QQ", content, position)
                name = symbols[info >> 32].name if info >> 32 < len(symbols) else str(info >> 32)
                found.append((offset, info & 0xFFFFFFFF, _KERNEL if name == kernel else name))
    return tuple(found)


def _indirect_targets(kernel: str, attributes: list[_Attribute]) -> tuple[int, ...]:
    """Targets of BRX: per branch u32 offset, u16 pad, u16 pad, u32 count, count x u32."""
    targets: set[int] = set()
    for attribute in attributes:
        if attribute.kind == _EIATTR_INDIRECT_BRANCH_TARGETS and attribute.section == f".nv.info.{kernel}":
            words = struct.unpack(f"<{len(attribute.value) // 4}I", attribute.value[: len(attribute.value) // 4 * 4])
            position = 0
            while position + 3 <= len(words):
                count = words[position + 2]
                targets.update(words[position + 3 : position + 3 + count])
                position += 3 + count
    return tuple(sorted(targets))


def _tool_note(raw: list[Any], data: bytes) -> dict[str, str]:
    section = next((s for s in raw if s.name == ".note.nv.tkinfo"), None)
    if section is None:
        return {}
    strings = [part.decode("ascii", "replace") for part in _bytes(section, data)[24:].split(b"\0") if len(part) > 3]
    note: dict[str, str] = {}
    for text in strings:
        if version := re.search(r"\bV(\d+\.\d+\.\d+)", text):
            note["version"], note["producer"] = version[1], text
        elif text.lstrip().startswith("-"):
            note["arguments"] = text.strip()
    return note
