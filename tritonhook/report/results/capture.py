"""One captured kernel: `show CAPTURE`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from msgspec import UNSET, UnsetType
from msgspec.structs import asdict, replace

from tritonhook._util.demangle import function_name
from tritonhook.capture.model import META_LEVER, META_REWRITES, Capture, Stage, dry_run_note
from tritonhook.capture.naming import settings_of
from tritonhook.cubin.image import Cubin
from tritonhook.errors import CaptureError, CubinError, PtxError, ToolError
from tritonhook.ptx.miscompiles import warnings_of
from tritonhook.ptxas.command_line import level_of
from tritonhook.report.result import Result
from tritonhook.report.results.kernel import CodeFields, KernelFields, KernelsRead, only
from tritonhook.report.summary import Summary, Table, Tone, mangled_note, number, trigger

_SOURCE = ("function", "function_at", "kernel_at")  # in the metadata of some front ends


class CapturedOne(Result, KernelFields, tag="capture", kw_only=True):
    """One captured kernel.

    path: its folder. title: its name with the configuration that tells it from others of its name. warnings: known bugs
    of its ptxas that its PTX meets. notes: why its cubin cannot be read.
    artifacts: the texts by stage. code: its machine code.
    """

    verbs: ClassVar = "show CAPTURE"

    path: str | UnsetType = UNSET
    title: str | UnsetType = UNSET
    warnings: tuple[str, ...] | UnsetType = UNSET
    notes: tuple[str, ...] | UnsetType = UNSET
    artifacts: dict[str, str] | UnsetType = UNSET
    code: CodeFields | UnsetType = UNSET

    @classmethod
    def of(cls, capture: Capture, path: str | UnsetType = UNSET, full: bool = False) -> CapturedOne:
        """full: with the texts of its stages and its machine code. Raises CaptureError if its PTX cannot be read."""
        read = KernelsRead.of({capture.kernel: capture})
        notes = (*dry_run_note([capture]), *read.unread)
        given = asdict(only(read)) | {"warnings": _warnings(capture), "notes": notes, "path": path}
        if not full:
            return cls(**given)
        given["artifacts"] = {
            stage.value: text for stage in capture.artifacts if isinstance(text := capture.artifacts[stage], str)
        }
        try:
            return cls(**given, code=_code(capture) if Stage.CUBIN in capture.artifacts else UNSET)
        except (CubinError, ToolError) as error:
            said = f"{capture.note}; " if capture.note else ""
            return cls(**given | {"note": f"{said}no machine code is shown: {error}"})

    def summary(self) -> Summary:
        """How the kernel was compiled."""
        tables = [Table("Kernel", ("", ""), tuple(self._rows()), 2)]
        if self.options:
            tables.append(self.options_table())
        name, notes = function_name(self.kernel), (*(self.notes or ()), *mangled_note([self.kernel]))
        return Summary(
            "Capture", self.kernel, self.title or name, Tone.NEUTRAL, tuple(self._facts()), tuple(tables), notes
        )

    def options_table(self) -> Table:
        return Table("Options", ("", ""), tuple(self.option_rows), 2)

    def _facts(self) -> Iterator[str]:
        if self.rewritten_from:
            yield f"renamed from {self.rewritten_from}"
        if rewrites := self.metadata.get(META_REWRITES):
            yield f"rewritten by {rewrites}"
        if lever := self.metadata.get(META_LEVER):
            yield f"changed by the policy's lever {lever}"
        if self.cache_hit is not None:
            yield "taken from Triton's disk cache" if self.cache_hit else "compiled here"
        if self.note:
            yield self.note
        for warning in self.warnings or ():
            yield f"warning: {warning}"

    def _rows(self) -> Iterator[tuple[str, str]]:
        yield "front end", self.front_end
        yield "target", self.arch
        if settings := settings_of(self.options):
            yield "configuration", " ".join(f"{name}={value}" for name, value in settings.items())
        for name in _SOURCE:
            if value := self.metadata.get(name):
                yield name.replace("_", " "), str(value)
        yield "ptxas", number(self.ptxas.version)
        if self.ptxas.path:
            yield "path of ptxas", self.ptxas.path
        if self.ptxas.arguments is not None:
            yield "ptxas options", " ".join(self.ptxas.arguments)
        yield "trigger", trigger(self.trigger)
        if self.resources:
            yield from self.resources.rows
        yield "stages", self.kept
        yield "hash", self.hash
        if self.path:
            yield "files", self.path


def _code(capture: Capture) -> CodeFields:
    """Raises CubinError or ToolError."""
    from tritonhook.ptxas.disassembler import count_live_registers
    from tritonhook.ptxas.discovery import available_nvdisasm
    from tritonhook.ptxas.toolchain import reading_toolchain

    cubin = Cubin.from_bytes(capture.cubin, capture.kernel)
    kernel = cubin.only_kernel(capture.kernel)
    sass = reading_toolchain().disassemble(cubin, [kernel])[kernel]
    live = count_live_registers(available_nvdisasm(), cubin.data, sass)
    return replace(CodeFields.of(cubin, sass), live=UNSET if live is None else live)


def _warnings(capture: Capture) -> tuple[str, ...]:
    """Warnings of known miscompilations by its ptxas."""
    try:
        level = level_of(capture.assembler.options)
        return tuple(warnings_of(capture.text(Stage.PTX) or "", capture.assembler.version, level))
    except (CaptureError, PtxError):  # no PTX, or none that can be read: it has nothing to warn of
        return ()
