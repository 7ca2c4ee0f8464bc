"""One file with GPU code, for `show`: a cubin, PTX, a fat binary, an object file or a shared library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tritonhook._util.demangle import function_name
from tritonhook.cli._inputs import read_bytes
from tritonhook.cubin.elf import MAGIC
from tritonhook.cubin.image import Cubin
from tritonhook.cubin.sass import Sass
from tritonhook.cubin.shipped import FATBIN_MAGIC, embedded_cubins
from tritonhook.errors import CubinError, ToolError, UsageError, listed
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.tool import find_ptxas
from tritonhook.ptxas.toolchain import reading_toolchain, toolchain_of
from tritonhook.report.result import count
from tritonhook.report.results.file import GpuFile

_MOST_KERNELS = 200  # whose code is read without being asked for by name
_EM_CUDA = 190


@dataclass(frozen=True, slots=True)
class _Contents:
    """Contents of a file. ptxas: the version that assembled its PTX for this command."""

    what: str
    cubins: Sequence[Cubin]
    notes: tuple[str, ...] = ()
    ptxas: str | None = None


def read_gpu_file(path: Path, entry: str | None, ptxas: str | None) -> GpuFile:
    """Read a file and its machine code.

    entry: only kernels of this name, mangled or demangled. ptxas: which one assembles PTX.

    Raises UsageError, PtxError, CubinError or ToolError.
    """
    contents = _contents(path, read_bytes(path), ptxas)
    names = dict.fromkeys(name for cubin in contents.cubins for name in cubin.kernels)
    meant = [name for name in names if entry in (None, name, function_name(name))]
    if entry is not None and not meant:
        raise UsageError(f"{path}: --entry {entry}: no such kernel; the kernels are: {listed(names)}")
    cubins = [cubin for cubin in contents.cubins if any(name in cubin.kernels for name in meant)]
    wanted = [[name for name in cubin.kernels if name in meant] for cubin in cubins]
    code, notes = _code(cubins, wanted)
    kept = [cubin.only(names) for cubin, names in zip(cubins, wanted, strict=True)]
    return GpuFile(str(path), contents.what, kept, code, contents.ptxas, (*contents.notes, *notes))


def _contents(path: Path, data: bytes, ptxas: str | None) -> _Contents:
    if data[:4] == MAGIC and data[18:20] == _EM_CUDA.to_bytes(2, "little"):
        return _Contents("cubin", [Cubin.from_bytes(data, str(path))])
    if data[:4] == MAGIC or FATBIN_MAGIC in data:
        return _embedded(path, data)
    if not _is_text(data):
        raise UsageError(f"{path}: a binary file without GPU code; give a cubin, PTX, a fat binary or a shared library")
    ptx = Ptx.from_bytes(data, str(path))
    toolchain = toolchain_of(find_ptxas(ptxas))
    cubin = toolchain.assemble_or_raise(ptx).cubin
    version = toolchain.ptxas.version
    return _Contents("PTX file", [cubin], (f"assembled here by ptxas {version}",), version)


def _is_text(data: bytes) -> bool:
    """Return whether data is text; Triton ends PTX with a zero byte."""
    try:
        return "\0" not in data.decode().rstrip("\0")
    except UnicodeDecodeError:
        return False


def _embedded(path: Path, data: bytes) -> _Contents:
    embedded = embedded_cubins(data)
    what = "fat binary" if data.startswith(FATBIN_MAGIC) else "shared library or object file"
    if not embedded.cubins and not embedded.packed:
        ptx = f"; it holds only {count(embedded.ptx, 'PTX module')}" if embedded.ptx else ""
        raise UsageError(f"{path}: a {what} without machine code for GPUs{ptx}")
    cubins = [Cubin.from_bytes(image, f"{path}: cubin {n}") for n, image in enumerate(embedded.cubins)]
    notes = [f"{count(embedded.ptx, 'PTX module')} not shown"] if embedded.ptx else []
    notes += [f"cubins: {why}" for why in embedded.not_read]
    return _Contents(what, [cubin for cubin in cubins if cubin.kernels], tuple(notes))


def _code(cubins: Sequence[Cubin], wanted: Sequence[Sequence[str]]) -> tuple[list[Mapping[str, Sass]], list[str]]:
    """Disassemble the kernels named in `wanted`, by image; or return empty code and the reason."""
    none: list[Mapping[str, Sass]] = [{} for _ in cubins]
    kernels = sum(map(len, wanted))
    if kernels > _MOST_KERNELS:
        return none, [f"instructions and loops of {kernels:,} kernels are not read; name one with --entry"]
    try:
        tools = reading_toolchain()
        return [tools.disassemble(cubin, names) for cubin, names in zip(cubins, wanted, strict=True)], []
    except (CubinError, ToolError) as error:
        return none, [f"instructions and loops are not known: {error}"]
