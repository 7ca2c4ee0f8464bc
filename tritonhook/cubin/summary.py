"""ImageSummary: the little that a sweep keeps of each cubin, read with a few calls of struct.

`Cubin` reads everything, in about a millisecond; ptxas needs ten for a small kernel. A sweep of thousands must
not spend a tenth of its time on reading, so this walks the section headers once and stops there. The tests hold
both readers to the same answers.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from tritonhook.cubin.image import (
    EIATTR_FRAME_SIZE,
    EIATTR_REGCOUNT,
    EM_CUDA,
    LINKERS_OWN,
    MODULE_SECTIONS,
    count_capmerc_records,
)
from tritonhook.errors import CubinError

_SECTION = struct.Struct("<IIQQQQIIQQ")  # name, type, flags, address, offset, size, link, info, alignment, entry size
_SYMBOL = struct.Struct("<IBBHQQ")  # name, info, other, section, value, size
_SHT_NOBITS = 8
_SHN_UNDEF = 0
_STT_SECTION = 3


@dataclass(frozen=True, slots=True)
class KernelSummary:
    """One kernel of a cubin. None: neither the image nor ptxas's log says.

    code_sha256, code_bytes: of its instructions, without padding of any other section.
    stack, shared, spill_stores, spill_loads: bytes, as in cubin.Resources.
    scheduler_records: as Cubin.scheduler_records.
    externs: undefined symbols; of the whole module, where several kernels share it.
    """

    kernel: str
    code_sha256: str
    code_bytes: int
    registers: int | None
    stack: int | None
    shared: int
    spill_stores: int | None
    spill_loads: int | None
    scheduler_records: int | None
    externs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ImageSummary:
    """One cubin.

    sections: (role, bytes) in file order, the kernels' names removed: ".text.{kernel}"; where there are several
    kernels, ".text.{kernel 1}" and so on, in the order of `kernels`.
    program_sha256: of what the program consists of besides the kernels' own instructions, as in diff: device
    functions, constant banks but that of the parameters, initialised globals.
    """

    kernels: tuple[KernelSummary, ...]
    sections: tuple[tuple[str, int], ...]
    program_sha256: str
    file_bytes: int

    def kernel(self, name: str) -> KernelSummary:
        for facts in self.kernels:
            if facts.kernel == name:
                return facts
        raise CubinError(f"no kernel {name!r} in the cubin; it has: {', '.join(k.kernel for k in self.kernels)}")


def summarise_image(data: bytes, spills: Mapping[str, tuple[int, int]]) -> ImageSummary:
    """The facts of an image; `spills` as toolchain.parse_spills gives them. Raises CubinError on damage."""
    try:
        return _read(data, spills)
    except (struct.error, IndexError, ValueError, UnicodeDecodeError) as error:
        raise CubinError(f"the ELF image cannot be read ({error}); is the file complete?") from None


def _read(data: bytes, spills: Mapping[str, tuple[int, int]]) -> ImageSummary:
    if data[:5] != b"\x7fELF\x02" or struct.unpack_from("<H", data, 18)[0] != EM_CUDA:
        raise CubinError("not a CUDA ELF image")
    segments, table = struct.unpack_from("<QQ", data, 32)
    segment_size, segment_count, _, count, names_at = struct.unpack_from("<5H", data, 54)
    headers = list(_SECTION.iter_unpack(data[table : table + count * _SECTION.size]))
    if (
        segments + segment_size * segment_count > len(data)
        or len(headers) != count
        or any(h[1] != _SHT_NOBITS and h[4] + h[5] > len(data) for h in headers)
    ):
        raise CubinError(f"truncated: {len(data):,} bytes do not hold all {count} sections")
    strings = _content(data, headers[names_at])
    by_name = {_string(strings, header[0]): header for header in headers}
    texts = [name[6:] for name in by_name if name.startswith(".text.")]
    kernels = [name for name in texts if f".nv.constant0.{name}" in by_name]
    symbols, undefined = _symbols(data, headers, by_name)
    numbers = {
        kind: _numbers(_section(data, by_name, ".nv.info"), kind) for kind in (EIATTR_REGCOUNT, EIATTR_FRAME_SIZE)
    }
    roles = _roles(by_name, kernels)
    return ImageSummary(
        kernels=tuple(_kernel(k, data, by_name, symbols.get(k), numbers, spills, undefined) for k in kernels),
        sections=tuple((roles[name], header[5]) for name, header in by_name.items() if name),
        program_sha256=_program(data, by_name, roles, kernels),
        file_bytes=len(data),
    )


_Header = tuple[int, int, int, int, int, int, int, int, int, int]


def _content(data: bytes, header: _Header) -> bytes:
    return b"" if header[1] == _SHT_NOBITS else data[header[4] : header[4] + header[5]]


def _section(data: bytes, by_name: Mapping[str, _Header], name: str) -> bytes:
    return _content(data, by_name[name]) if name in by_name else b""


def _string(table: bytes, at: int) -> str:
    return table[at : table.index(b"\0", at)].decode()


def _symbols(
    data: bytes, headers: list[_Header], by_name: Mapping[str, _Header]
) -> tuple[dict[str, int], tuple[str, ...]]:
    """Index of each function symbol, and the names of undefined ones."""
    header = by_name.get(".symtab")
    if header is None:
        return {}, ()
    strings = _content(data, headers[header[6]])
    found: dict[str, int] = {}
    undefined = set()
    for index, (name_at, info, _, section, _, _) in enumerate(_SYMBOL.iter_unpack(_content(data, header))):
        if not name_at or info & 15 == _STT_SECTION:
            continue
        name = _string(strings, name_at)
        found.setdefault(name, index)
        if section == _SHN_UNDEF and not name.startswith(LINKERS_OWN):
            undefined.add(name)
    return found, tuple(sorted(undefined))


def _numbers(info: bytes, wanted: int) -> dict[int, int]:
    """Values by symbol of one attribute of .nv.info; the layout is told in cubin.py."""
    found: dict[int, int] = {}
    position = 0
    while position + 4 <= len(info):
        form, kind, size = struct.unpack_from("<BBH", info, position)
        position += 4
        if form == 4:
            if kind == wanted and size >= 8:
                symbol, value = struct.unpack_from("<II", info, position)
                found.setdefault(symbol, value)
            position += size
        elif form not in (1, 2, 3):
            raise CubinError(f".nv.info: attribute format {form} at byte {position - 4} is not known")
    return found


def _kernel(
    name: str,
    data: bytes,
    by_name: Mapping[str, _Header],
    symbol: int | None,
    numbers: Mapping[int, Mapping[int, int]],
    spills: Mapping[str, tuple[int, int]],
    undefined: tuple[str, ...],
) -> KernelSummary:
    code = _section(data, by_name, f".text.{name}")
    shared = by_name.get(f".nv.shared.{name}")
    capmerc = f".nv.capmerc.text.{name}"
    stores, loads = spills.get(name, (None, None))
    return KernelSummary(
        kernel=name,
        code_sha256=hashlib.sha256(code).hexdigest(),
        code_bytes=len(code),
        registers=None if symbol is None else numbers[EIATTR_REGCOUNT].get(symbol),
        stack=None if symbol is None else numbers[EIATTR_FRAME_SIZE].get(symbol),
        shared=0 if shared is None else shared[5],
        spill_stores=stores,
        spill_loads=loads,
        scheduler_records=count_capmerc_records(_section(data, by_name, capmerc)) if capmerc in by_name else None,
        externs=undefined,
    )


def _roles(by_name: Mapping[str, _Header], kernels: list[str]) -> dict[str, str]:
    """Each section's name without the kernel's; the longest fitting kernel wins, as one can end like another."""
    marks = {k: "{kernel}" if len(kernels) == 1 else f"{{kernel {i}}}" for i, k in enumerate(kernels, 1)}
    longest_first = sorted(kernels, key=len, reverse=True)
    roles = {}
    for name in by_name:
        kernel = (
            next((k for k in longest_first if name.endswith(f".{k}")), None) if name not in MODULE_SECTIONS else None
        )
        roles[name] = name if kernel is None else name[: -len(kernel)] + marks[kernel]
    return roles


def _program(data: bytes, by_name: Mapping[str, _Header], roles: Mapping[str, str], kernels: list[str]) -> str:
    own = {f".text.{k}" for k in kernels} | {f".nv.constant0.{k}" for k in kernels}
    digest = hashlib.sha256()
    for name, header in sorted(by_name.items(), key=lambda item: roles[item[0]]):
        if name.startswith((".text.", ".nv.constant", ".nv.global.init")) and name not in own:
            digest.update(roles[name].encode() + b"\0" + _content(data, header))
    return digest.hexdigest()
