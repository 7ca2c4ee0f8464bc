"""`verify --known`: known bugs of ptxas in PTX files and captures. Runs nothing, and needs no GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tritonhook._util.versions import is_version
from tritonhook.capture.model import Capture
from tritonhook.capture.store import by_module, read_capture
from tritonhook.cli._inputs import captures_at, no_kernels, read_bytes
from tritonhook.cli._streams import Results, give
from tritonhook.cubin.elf import MAGIC
from tritonhook.errors import CaptureError, PtxError, UsageError
from tritonhook.ptx.miscompiles import KnownModule, findings
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.command_line import level_of
from tritonhook.ptxas.discovery import find_ptxas


def give_known(results: Results, targets: Sequence[str], ptxas: str | None) -> int:
    """List what is known of the PTX in files, captures and capture folders.

    ptxas: a version, whether it is here or not, or a path; None: each capture's own, and the newest here for a file.
    Returns 1 if that ptxas is wrong somewhere, or may be; 2 if nothing could be read. Raises CaptureError for a folder
    without kernels.
    """
    from tritonhook.report.results.known import Known

    version = ptxas if ptxas is None or is_version(ptxas) else find_ptxas(ptxas).version
    modules = [module for target in targets for module in _modules(target, version)]
    give(results, Known.of(" ".join(targets), modules))
    if any(hit.is_suspect or hit.ptxas is None for module in modules for hit in module.found):
        return 1
    return 2 if modules and all(module.unread is not None for module in modules) else 0


def _modules(target: str, ptxas: str | None) -> Iterator[KnownModule]:
    path = Path(target)
    if (path / "capture.json").exists():
        capture = read_capture(path)
        yield from _captured({capture.kernel: capture}, {}, ptxas)
    elif path.is_dir():
        folder = captures_at(target)
        records = folder.captures()
        if not records:
            raise no_kernels(target)
        captures = {record: outcome for record, outcome in records.items() if isinstance(outcome, Capture)}
        yield from _captured(captures, folder.ids, ptxas)
        damaged = {record: outcome for record, outcome in records.items() if not isinstance(outcome, Capture)}
        yield from (KnownModule(folder.ids[record], None, None, (), str(error)) for record, error in damaged.items())
    else:
        yield _file(path, ptxas)


def _captured(captures: Mapping[str, Capture], ids: Mapping[str, str], ptxas: str | None) -> Iterator[KnownModule]:
    """Each module of the captures, judged at its own level. ptxas: the version to judge by; None: its own."""
    for module in by_module(captures):
        record, first = next(iter(module.items()))
        name, version = ids.get(record, record), ptxas or first.assembler.version
        try:
            hits = findings(first.ptx.text, version, level_of(first.assembler.options))
            yield KnownModule(name, first.arch, version, hits)
        except (CaptureError, PtxError) as error:
            yield KnownModule(name, first.arch, version, (), str(error))


def _file(path: Path, ptxas: str | None) -> KnownModule:
    data = read_bytes(path)
    if data[:4] == MAGIC:
        raise UsageError(f"{path}: machine code; give PTX, or a capture, which has the PTX of its kernels")
    ptx = Ptx.from_bytes(data, str(path))
    version = ptxas or find_ptxas(None).version
    return KnownModule(str(path), ptx.target, version, findings(ptx.text, version))
