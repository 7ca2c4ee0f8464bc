"""ImageSummary: the few values of a cubin that a sweep keeps, read about ten times as fast as a Cubin.

ptxas takes about 10 ms for a small kernel; reading thousands of cubins in a sweep must take less than a tenth of that.
Tests check that ImageSummary and Cubin agree.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tritonhook.cubin.elf import Elf, Header, kernel_names, named_symbols, read_elf, relocations_of, values_by_symbol
from tritonhook.cubin.image import EIATTR_FRAME_SIZE, EIATTR_REGCOUNT, count_capmerc_records, owner_of, sm_number
from tritonhook.cubin.resources import local_traffic, spills_of_code
from tritonhook.errors import CubinError, listed

_HASH = 16  # hex digits


@dataclass(frozen=True, slots=True)
class KernelSummary:
    """Values of one kernel of a cubin. None: neither the image nor ptxas's log has the value.

    code_sha256, code_bytes: of its instructions, without the padding between sections.
    stack, shared, spill_stores, spill_loads, local_stores, local_loads: bytes, as in resources.Resources.
    scheduler_records: as Cubin.scheduler_records counts them.
    externs: undefined symbols of the whole module, even if it has several kernels.
    linked_sha256: hash of the relocations in its code, i.e. their offsets and symbols; "" if there are none.
    """

    kernel: str
    code_sha256: str
    code_bytes: int
    registers: int | None
    stack: int | None
    shared: int
    spill_stores: int | None
    spill_loads: int | None
    local_stores: int | None
    local_loads: int | None
    scheduler_records: int | None
    externs: tuple[str, ...]
    linked_sha256: str


@dataclass(frozen=True)
class ImageSummary:
    """Values of one cubin.

    sections: (role, bytes) in file order. A role is a section's name with the kernel's name replaced, e.g.
    ".text.{kernel}"; if there are several kernels, ".text.{kernel 1}" and so on, in the order of `kernels`.
    program_sha256: hash of the code and data besides the kernels' own instructions, i.e. of device functions, constant
    banks except those of parameters, and initialised globals; compare.diff compares the same parts.
    functions_sha256: hash of the device functions alone.
    """

    kernels: tuple[KernelSummary, ...]
    sections: tuple[tuple[str, int], ...]
    program_sha256: str
    file_bytes: int
    functions_sha256: str = ""

    @cached_property
    def _by_name(self) -> Mapping[str, KernelSummary]:
        return {kernel.kernel: kernel for kernel in reversed(self.kernels)}

    def kernel(self, name: str) -> KernelSummary:
        """Look up the summary of one kernel. Raises CubinError if there is no kernel of this name."""
        kernel = self._by_name.get(name)
        if kernel is None:
            raise CubinError(f"no kernel {name!r} in the cubin; it has: {listed(self._by_name)}")
        return kernel

    def code_hash(self, name: str) -> str:
        """Hash the machine code of one kernel: equal hashes mean equal code. Raises CubinError if there is no kernel of
        this name."""
        return self._hash(name, self.program_sha256)

    def own_code_hash(self, name: str) -> str:
        """Hash one kernel's code and the module's device functions, without other kernels and without data. Raises
        CubinError if there is no kernel of this name."""
        return self._hash(name, self.functions_sha256)

    def _hash(self, name: str, program: str) -> str:
        kernel = self.kernel(name)
        return hashlib.sha256((kernel.code_sha256 + kernel.linked_sha256 + program).encode()).hexdigest()[:_HASH]


def summarise_image(data: bytes, spills: Mapping[str, tuple[int, int]]) -> ImageSummary:
    """Summarise an image. spills: from ptxas.toolchain.parse_spills. Raises CubinError if the image is damaged."""
    elf = read_elf(data)
    kernels = kernel_names(elf)
    roles = _roles(elf, kernels)
    return ImageSummary(
        kernels=_kernels(elf, kernels, spills),
        sections=tuple([(role, header.size) for role, header in roles]),
        program_sha256=_program(elf, roles, kernels),
        file_bytes=len(data),
        functions_sha256=_program(elf, roles, kernels, (".text.",)),
    )


def _kernels(elf: Elf, names: Sequence[str], spills: Mapping[str, tuple[int, int]]) -> tuple[KernelSummary, ...]:
    symbols = elf.symbols()
    indices, undefined = named_symbols(symbols)
    externs = tuple(sorted(undefined))
    attributes = elf.attributes(".nv.info")
    registers = values_by_symbol(attributes, EIATTR_REGCOUNT)
    stack = values_by_symbol(attributes, EIATTR_FRAME_SIZE)
    arch = sm_number(elf.flags, elf.abi)
    kernels = []
    for name in names:
        code = elf.content(f".text.{name}")
        shared = elf.by_name.get(f".nv.shared.{name}")
        capmerc = elf.by_name.get(f".nv.capmerc.text.{name}")
        traffic = local_traffic(code, arch)
        stores, loads = spills.get(name) or spills_of_code(traffic)
        index = indices.get(name, -1)
        summary = KernelSummary(
            kernel=name,
            code_sha256=hashlib.sha256(code).hexdigest(),
            code_bytes=len(code),
            registers=registers.get(index),
            stack=stack.get(index),
            shared=0 if shared is None else shared.size,
            spill_stores=stores,
            spill_loads=loads,
            local_stores=None if traffic is None else traffic.stores,
            local_loads=None if traffic is None else traffic.loads,
            scheduler_records=None if capmerc is None else count_capmerc_records(elf.bytes_of(capmerc)),
            externs=externs,
            linked_sha256=_linked(relocations_of(name, elf, symbols)),
        )
        kernels.append(summary)
    return tuple(kernels)


def _linked(relocations: Sequence[tuple[int, int, str]]) -> str:
    """Hash the offsets and symbols of relocations; "" if there are none."""
    places = [(offset, symbol) for offset, _, symbol in relocations]
    return hashlib.sha256(repr(places).encode()).hexdigest() if places else ""


def _roles(elf: Elf, kernels: Sequence[str]) -> list[tuple[str, Header]]:
    """List each section with its role, in file order: the section's name, with "{kernel}" for the kernel's name."""
    marks = {k: "{kernel}" if len(kernels) == 1 else f"{{kernel {i}}}" for i, k in enumerate(kernels, 1)}
    roles = []
    for header in elf.headers:
        if name := header.name:
            kernel = owner_of(name, marks)
            roles.append((name if kernel is None else name[: -len(kernel)] + marks[kernel], header))
    return roles


_PROGRAM = (".text.", ".nv.constant", ".nv.global.init")


def _program(
    elf: Elf, roles: Sequence[tuple[str, Header]], kernels: Sequence[str], wanted: tuple[str, ...] = _PROGRAM
) -> str:
    own = {f".{part}.{kernel}" for kernel in kernels for part in ("text", "nv.constant0")}
    parts = [(role, header) for role, header in roles if role.startswith(wanted) and header.name not in own]
    digest = hashlib.sha256()
    for role, header in sorted(parts):
        digest.update(role.encode() + b"\0" + elf.bytes_of(header))
    return digest.hexdigest()
