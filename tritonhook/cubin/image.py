"""Cubin: a CUDA ELF image with its sections, resource usage and undefined symbols. Needs no tool and no GPU.

elf.py decodes the bytes; sass.py decodes the instructions. For sweeps over thousands of images, summary.py's
ImageSummary is faster to read.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import ClassVar, NamedTuple

from tritonhook._display import Brief, Notebook
from tritonhook.cubin.elf import (
    KERNEL,
    LINKERS_OWN,
    NO_BYTES,
    SHT_CUDA_INFO,
    Attribute,
    Elf,
    Header,
    Symbol,
    kernel_names,
    named_symbols,
    read_elf,
    relocations_of,
    values_by_symbol,
    words,
)
from tritonhook.cubin.resources import Resources, local_traffic, proven_spills, spills_of_code, stackless_in
from tritonhook.errors import CubinError, listed
from tritonhook.ptx.module import Ptx

# Sections of the whole module. A kernel that is named "info" or "symtab" owns none of them.
MODULE_SECTIONS = frozenset(
    f"{merc}{name}"
    for merc in ("", ".nv.merc")
    for name in (".nv.info", ".nv.callgraph", ".nv.compat", ".nv.prototype", ".nv.rel.action", ".nv.global", ".symtab")
) | {".shstrtab", ".strtab", ".symtab_shndx", ".nv.global.init"}
_PREFIX_PARTS = 8  # maximum number of dot-separated parts before a kernel's name in a section name
_KINDS = ("NULL", "PROGBITS", "SYMTAB", "STRTAB", "RELA", "HASH", "DYNAMIC", "NOTE", "NOBITS", "REL")  # types 0 to 9

# .nv.info attributes (names as `cuobjdump -elf` prints them).
_EIATTR_EXTERNS = 0x0F
_EIATTR_REQNTID = 0x10
# Attributes that fix or limit the block and cluster size of launches, with the name of their PTX directive.
LAUNCH_BOUNDS = {
    0x05: "maxntid",
    _EIATTR_REQNTID: "reqntid",
    0x3D: "reqnctapercluster",
    0x3E: "explicitcluster",
    0x3F: "maxclusterrank",
}
EIATTR_FRAME_SIZE = 0x11
_EIATTR_MIN_STACK_SIZE = 0x12
EIATTR_REGCOUNT = 0x2F
_EIATTR_INDIRECT_BRANCH_TARGETS = 0x34
_EIATTR_NUM_BARRIERS = 0x4C
_NUMBERS = (EIATTR_REGCOUNT, EIATTR_FRAME_SIZE, _EIATTR_MIN_STACK_SIZE)  # attributes with one number per symbol

CAPMERC_RECORD = b"\x31\x02"  # first bytes of the 16-byte records that ptxas writes only with its second scheduler
_WHOLE_RECORD = re.compile(re.escape(CAPMERC_RECORD) + b".{14}", re.DOTALL)


@dataclass(frozen=True, slots=True, repr=False)
class Section(Brief):
    """One ELF section.

    role: its name with the kernel's name replaced, e.g. ".text.{kernel}", so that renaming a kernel changes no role.
    kernel: the kernel that it belongs to; None for a section of the module. kind: its ELF type, e.g. "SHT_NOBITS";
    CUDA's own types as numbers, e.g. "0x70000000".
    file_range: byte offsets (start, end) in the file; empty for sections without bytes. Sections may overlap.
    size: in bytes; for a section without bytes in the file (e.g. shared memory), the memory that it reserves.
    """

    name: str
    role: str
    kernel: str | None
    kind: str
    file_range: tuple[int, int]
    size: int
    data: bytes


@dataclass(frozen=True, slots=True, repr=False)
class Cubin(Notebook):
    """A CUDA ELF image.

    arch: SM number, e.g. 100. kernels: names of the entries in file order.
    ptxas_version, ptxas_arguments: from the section .note.nv.tkinfo; None if the image has no such section. ptxas
    writes it for sm_100 and newer; ptxas 13.x also for sm_90.
    indirect_targets: per kernel, the byte offsets that its indirect branches can reach.
    relocations: per kernel, (byte offset, type, symbol) of each field in its code that a linker will fill; {kernel}
    stands for the kernel's own name.
    symbols: per kernel, the index of its symbol in the symbol table; a damaged image may lack some.
    """

    _shown: ClassVar[tuple[str, ...]] = ("arch", "kernels", "ptxas_version", "data")

    data: bytes
    arch: int
    kernels: tuple[str, ...]
    sections: tuple[Section, ...]
    resources: Mapping[str, Resources]
    ptxas_version: str | None = None
    ptxas_arguments: str | None = None
    indirect_targets: Mapping[str, tuple[int, ...]] | None = None
    relocations: Mapping[str, tuple[tuple[int, int, str], ...]] | None = None
    symbols: Mapping[str, int] = field(default_factory=dict)
    _owned: Mapping[str | None, tuple[int, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        owned: dict[str | None, list[int]] = {}
        for index, section in enumerate(self.sections):
            owned.setdefault(section.kernel, []).append(index)
        object.__setattr__(self, "_owned", {kernel: tuple(indices) for kernel, indices in owned.items()})

    @classmethod
    def from_bytes(cls, data: bytes, source: str = "cubin") -> Cubin:
        """Parse an image. Raises CubinError if it is damaged or not CUDA's; `source` names it in the message."""
        try:
            return _parse(data)
        except CubinError as error:
            raise CubinError(f"{source}: {error}") from None

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    def only_kernel(self, kernel: str | None = None) -> str:
        """Return `kernel` if the image has it; if `kernel` is None, return the image's only kernel.

        Raises CubinError if the image lacks the kernel, or has not exactly one and `kernel` is None.
        """
        if kernel is not None:
            if kernel not in self.kernels:
                raise CubinError(f"no kernel {kernel!r} in the cubin; it has: {listed(self.kernels)}")
            return kernel
        if len(self.kernels) != 1:
            raise CubinError(f"{len(self.kernels):,} kernels ({listed(self.kernels)}); name one with --entry")
        return self.kernels[0]

    def only(self, kernels: Sequence[str]) -> Cubin:
        """Copy the image with only these kernels visible."""
        return replace(self, kernels=tuple(kernels))

    def sections_of(self, kernel: str) -> list[Section]:
        """List the sections of one kernel and of the module, in file order."""
        return [self.sections[i] for i in sorted((*self._owned.get(None, ()), *self._owned.get(kernel, ())))]

    def section(self, role: str, kernel: str) -> Section | None:
        """Find the section of a kernel by its role, e.g. ".text.{kernel}"."""
        own = (self.sections[index] for index in self._owned.get(kernel, ()))
        return next((section for section in own if section.role == role), None)

    def text(self, kernel: str) -> bytes:
        """Read the instruction bytes of a kernel. Raises CubinError if it has no code section."""
        section = self.section(f".text.{KERNEL}", kernel)
        if section is None:
            raise CubinError(f"no code section for kernel {kernel!r}")
        return section.data

    def scheduler_records(self, kernel: str) -> int | None:
        """Count the `31 02` records in the kernel's .nv.capmerc section; None without such a section (before sm_100).

        ptxas writes these records only for functions that its second scheduler scheduled.
        """
        section = self.section(f".nv.capmerc.text.{KERNEL}", kernel)
        return None if section is None else count_capmerc_records(section.data)

    def with_proven_spills(self, ptx: Ptx | None) -> Cubin:
        """Copy the image and fill in unknown spills as far as its code and its PTX prove them (`proven_spills`)."""
        stackless = stackless_in(ptx)
        proven = {kernel: proven_spills(kernel, r, stackless) for kernel, r in self.resources.items()}
        known = {k: (a, b) for k, (a, b) in proven.items() if a is not None and b is not None}
        return self.with_spills(known)

    def with_spills(self, spills: Mapping[str, tuple[int, int]]) -> Cubin:
        """Copy the image and set spill bytes (stores, loads) per kernel, as `ptxas -v` printed them."""
        resources = {
            kernel: replace(r, spill_stores=spills[kernel][0], spill_loads=spills[kernel][1]) if kernel in spills else r
            for kernel, r in self.resources.items()
        }
        return replace(self, resources=resources)


def count_capmerc_records(data: bytes) -> int:
    """Count the 16-byte records of a .nv.capmerc section that start with `31 02`.

    Layout: u32 version, u16 n, u16 flags, a bitmap of n bits, records. Records of other kinds have other lengths, so
    the records have no fixed stride; the search continues after each match.
    """
    return len(_WHOLE_RECORD.findall(data))


def owner_of(section: str, kernels: Collection[str]) -> str | None:
    """Find the kernel that a section belongs to; None if it belongs to the whole module. kernels: a set, or a dict by
    name.

    If the section's name ends with several kernels' names, return the longest.
    """
    if section in MODULE_SECTIONS:
        return None
    name = section
    for _ in range(_PREFIX_PARTS):
        _, dot, name = name.partition(".")
        if not dot:
            return None
        if name in kernels:
            return name
    return None


class _Parts(NamedTuple):
    """Decoded tables from which each kernel's Resources are made. indices: symbol indices by name. info: attributes by
    name of their .nv.info section. numbers: for each attribute in _NUMBERS, its values by symbol index."""

    elf: Elf
    symbols: list[Symbol]
    indices: dict[str, int]
    info: dict[str, list[Attribute]]
    numbers: dict[int, dict[int, int]]

    def own(self, kernel: str) -> list[Attribute]:
        """Read the attributes of the kernel's own .nv.info section."""
        return self.info.get(f".nv.info.{kernel}", [])


def _parse(data: bytes) -> Cubin:
    elf = read_elf(data)
    symbols, note = elf.symbols(), elf.content(".note.nv.tkinfo")
    indices, undefined = named_symbols(symbols)
    infos = [it.name for it in elf.headers if it.kind == SHT_CUDA_INFO and it.name.startswith(".nv.info")]
    info = {name: elf.attributes(name) for name in infos}
    attributes = [attribute for part in info.values() for attribute in part]
    numbers = {kind: values_by_symbol(attributes, kind) for kind in _NUMBERS}
    kernels = dict.fromkeys(kernel_names(elf))
    relocations = {k: relocations_of(k, elf, symbols) for k in kernels}
    # Undefined symbols that a kernel's code refers to; if it is the only kernel, all undefined symbols of the module.
    referred = {k: {name for _, _, name in relocations[k]} if len(kernels) > 1 else undefined for k in kernels}
    tool, parts = _tool_note(note), _Parts(elf, symbols, indices, info, numbers)
    return Cubin(
        data=data,
        arch=sm_number(elf.flags, elf.abi),
        kernels=tuple(kernels),
        sections=tuple(_section(header, elf, kernels) for header in elf.headers if header.name),
        resources={k: _resources(k, parts, undefined & referred[k]) for k in kernels},
        ptxas_version=tool.get("version"),
        ptxas_arguments=tool.get("arguments"),
        indirect_targets={k: _indirect_targets(parts.own(k)) for k in kernels},
        relocations=relocations,
        symbols={k: indices[k] for k in kernels if k in indices},
    )


def sm_number(flags: int, abi: int) -> int:
    # ABI 8 (CUDA 12.9 and newer, and every sm_100) keeps the SM number in bits 8..15, ABI 7 in bits 0..7.
    return (flags >> 8) & 0xFF if abi >= 8 else flags & 0xFF


def _section(header: Header, elf: Elf, kernels: Collection[str]) -> Section:
    kernel = owner_of(header.name, kernels)
    in_file = header.kind not in NO_BYTES
    return Section(
        name=header.name,
        role=header.name if kernel is None else header.name[: -len(kernel)] + KERNEL,
        kernel=kernel,
        kind=f"SHT_{_KINDS[header.kind]}" if header.kind < len(_KINDS) else f"0x{header.kind:x}",
        file_range=(header.offset, header.offset + header.size if in_file else header.offset),
        size=header.size,
        data=elf.bytes_of(header),
    )


def _resources(kernel: str, parts: _Parts, needed: set[str]) -> Resources:
    own = {attribute.kind: attribute.value for attribute in parts.own(kernel)}
    shared = parts.elf.by_name.get(f".nv.shared.{kernel}")
    traffic = local_traffic(parts.elf.content(f".text.{kernel}"), sm_number(parts.elf.flags, parts.elf.abi))
    stores, loads = (None, None) if traffic is None else traffic
    spills = spills_of_code(traffic)
    barriers, sizes = own.get(_EIATTR_NUM_BARRIERS), words(own.get(_EIATTR_REQNTID, b""))[:3]
    bounds = {name: own[kind] for kind, name in LAUNCH_BOUNDS.items() if kind in own}
    registers, stack, min_stack = (parts.numbers[kind].get(parts.indices.get(kernel, -1)) for kind in _NUMBERS)
    return Resources(
        registers=registers,
        stack=stack,
        min_stack=min_stack,
        shared=0 if shared is None else shared.size,
        # Newer images have an attribute for barriers; older ones count them in bits 20..26 of the code section's flags.
        barriers=barriers[0] if barriers else parts.elf.by_name[f".text.{kernel}"].flags >> 20 & 0x7F,
        threads=prod(sizes) if len(sizes) >= 3 else None,
        launch_bounds=tuple(" ".join([name, *map(str, words(value))]) for name, value in bounds.items()),
        spill_stores=spills[0],
        spill_loads=spills[1],
        local_stores=stores,
        local_loads=loads,
        externs=_externs(own, parts.symbols, needed),
    )


def _externs(own: Mapping[int, bytes], symbols: Sequence[Symbol], needed: set[str]) -> tuple[str, ...]:
    """List the symbols that a kernel needs: those in `needed` and those in its EXTERNS attribute. Omit symbols for the
    linker's own use."""
    listed = {symbols[i].name for i in words(own.get(_EIATTR_EXTERNS, b"")) if i < len(symbols)}
    return tuple(sorted(name for name in listed | needed if not name.startswith(LINKERS_OWN)))


def _indirect_targets(attributes: Sequence[Attribute]) -> tuple[int, ...]:
    """Parse the targets of BRX. Layout per branch: u32 offset, u16 pad, u16 pad, u32 count, count x u32."""
    targets: set[int] = set()
    for attribute in attributes:
        if attribute.kind == _EIATTR_INDIRECT_BRANCH_TARGETS:
            values = words(attribute.value)
            position = 0
            while position + 3 <= len(values):
                end = position + 3 + values[position + 2]
                targets.update(values[position + 3 : end])
                position = end
    return tuple(sorted(targets))


def _tool_note(content: bytes) -> dict[str, str]:
    """Read version and arguments of the tool that made the image from its section .note.nv.tkinfo."""
    note: dict[str, str] = {}
    for text in (part.decode("ascii", "replace") for part in content[24:].split(b"\0") if len(part) > 3):
        if version := re.search(r"\bV(\d+\.\d+\.\d+)", text):
            note["version"] = version[1]
        elif text.lstrip().startswith("-"):
            note["arguments"] = text.strip()
    return note
