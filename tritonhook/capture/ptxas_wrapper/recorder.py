"""Keep one call of ptxas by a program, such as nvcc or tileiras, in the capture folder.

It runs in the wrapper's process (_program.py), which also runs the real ptxas. Errors go to the wrapper's log. The
program always gets the unchanged cubin with the kernels' own names, because host code of nvcc and tileiras looks up
kernels by name. A renamed variant is assembled in addition and kept as a second capture.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shlex
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritonhook._util.files import staged_beside
from tritonhook._util.locks import command_line_of, parent_of
from tritonhook.capture.model import Assembler, Capture, Stage
from tritonhook.capture.run_config import RunConfig
from tritonhook.capture.store.writer import STAGING, CaptureWriter
from tritonhook.errors import PtxError, ToolError
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.command_line import DUMP_VARIABLE, Module, dump, read_command
from tritonhook.rename import Rename

if TYPE_CHECKING:
    from tritonhook.ptxas.toolchain import Assembled, Crash

_FRONT_ENDS = ("nvcc", "tileiras", "clang", "clang++", "nvc++", "nvfortran")
_SHELLS = ("sh", "bash", "dash", "zsh", "ksh", "env", "time")
_BY_THE_USER = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)  # the user ended the build: no crash
_REJECTED_S = 5.0  # time limit for the renamed variant of a module that ptxas rejects
_VARIANT_LEAST_S = 30.0  # minimum time limit for any other variant; else ten times the time of the plain module


def caller() -> tuple[str, list[str]]:
    """Return (front end that called ptxas, its command line). The front end is the nearest parent process that is not a
    shell."""
    pid: int | None = os.getppid()
    while pid is not None and pid > 1:
        words = command_line_of(pid)
        program = os.path.basename(words[0]) if words else ""  # noqa: PTH119
        if program.lstrip("-") not in _SHELLS:
            return (program if program in _FRONT_ENDS else "ptxas"), words
        pid = parent_of(pid)
    return "ptxas", []


def _who(front_end: str) -> str:
    return "ptxas, called directly" if front_end == "ptxas" else front_end


class WrappedCall:
    """One call of ptxas. The constructor reads the arguments and inputs while ptxas runs; after the exit of ptxas,
    `finish` keeps the results."""

    def __init__(self, words: Sequence[str], about: Mapping[str, Any]) -> None:
        """Read the call. words: the arguments of ptxas. about: facts about the real ptxas, from _program.py."""
        config = RunConfig.from_environment(os.environ)
        self.words = list(words)
        self.real = str(about["real"])
        self._about = about
        self._out = config.out
        self._only = re.compile(config.only or "")
        self._rewrites = config.rewrites
        self._began = time.monotonic()
        self._command = read_command(words, about["stdin"])
        self._wanted = list(self._kernels()) if self._command.makes_code else []
        self._variant: _Variant | str | None = None
        if config.rename is not None and self._wanted:
            self._variant = self._begin_variant(config.rename)
        if os.environ.get(DUMP_VARIABLE):
            dump(words, about)
        self._compile_us: dict[str, int] = {}
        self._started = time.monotonic()  # ptxas began earlier: the measured time lacks the time of the code above

    def finish(self, status: int) -> None:
        """Keep the call's results. status: exit status from os.waitpid."""
        if not self._wanted:
            return
        self._compile_us = {"cubin": int(1e6 * (time.monotonic() - self._started))}
        sys.argv = ["ptxas", *self.words]  # the writer copies sys.argv into the index
        front_end, calling = caller()
        metadata = {"front_end": front_end, "command": [self.real, *self.words], "folder": os.getcwd()}  # noqa: PTH109
        metadata["caller"] = calling
        writer = CaptureWriter(self._out, {"front_end": front_end})
        notes: list[str] = []
        if os.WIFSIGNALED(status):
            if os.WTERMSIG(status) not in _BY_THE_USER:
                self._keep_crash(writer, os.WTERMSIG(status), metadata)
        elif os.WEXITSTATUS(status) == 0:
            for module, ptx, entries in self._wanted:
                self._keep(writer, module, ptx, entries, metadata)
            notes += self._finish_variant(writer, metadata)
            if self._rewrites:
                command = f"tritonhook diff DIR --entry KERNEL --rewrite {self._rewrites[0]}"
                notes.append(
                    f"{_who(front_end)}: kernels are not rewritten; `{command}` shows what the rewrite changes"
                )
        elif isinstance(self._variant, _Variant):
            self._variant.result(_REJECTED_S)  # ptxas rejects the variant too; wait until its folder is removed
        writer.close(notes)

    def _kernels(self) -> Iterator[tuple[Module, Ptx, list[str]]]:
        """Yield (input, its PTX, names of the kernels to keep) for each input that has kernels to keep."""
        for module in self._command.modules:
            ptx = module.ptx
            entries = [entry for entry in ptx.entries if self._only.search(entry)]
            if entries:
                yield module, ptx, entries

    def _assembler(self) -> Assembler:
        command = self._command
        target = () if command.target is None else (f"--gpu-name={command.target}",)
        return Assembler(self.real, self._version(), (*command.options, *target))

    def _version(self) -> str | None:
        """Return the version of the real ptxas; None if not known. The wrapper script contains the version; it is valid
        as long as size and time of the ptxas file stay the same."""
        now = os.stat(self.real)  # noqa: PTH116
        if self._about["stat"] == (now.st_size, now.st_mtime_ns) and self._about["version"]:
            return str(self._about["version"])
        from tritonhook.ptxas.tool import find_ptxas

        try:
            return find_ptxas(Path(self.real)).version
        except ToolError:
            return None

    def _captures(
        self, origins: Mapping[str, str | None], ptx: Ptx, files: Mapping[Stage, str], metadata: Mapping[str, Any]
    ) -> list[Capture]:
        """Make a capture of each kernel of one module. origins: the own name of each kernel that was renamed, else
        None."""
        assembler = self._assembler()
        identity = json.dumps([ptx.sha256, assembler.arguments, assembler.version])
        shared = []
        if self._command.left_out:
            shared.append(f"the options omit {' '.join(self._command.left_out)}, whose file the caller deletes")
        if Stage.CUBIN not in files:
            shared.append("the cubin was written where it cannot be read back")
        common = Capture(
            kernel="",
            hash=hashlib.sha256(identity.encode()).hexdigest(),
            arch=self._command.target or ptx.target,
            artifacts=dict.fromkeys(files, ""),
            assembler=assembler,
            metadata=metadata,
            cache_hit=False,
            note="; ".join(shared) or None,
            compile_us=self._compile_us,
        )
        return [_of_kernel(common, kernel, origin) for kernel, origin in origins.items()]

    def _keep(
        self, writer: CaptureWriter, module: Module, ptx: Ptx, entries: Sequence[str], metadata: Mapping[str, Any]
    ) -> None:
        output = self._command.output
        with _as_file(module.data, self._out) as path:
            files = {Stage.PTX: path}
            if output is not None and os.path.isfile(output):  # noqa: PTH113
                files[Stage.CUBIN] = output
            _add_module(writer, self._captures(dict.fromkeys(entries), ptx, files, metadata), files)

    def _keep_crash(self, writer: CaptureWriter, number: int, metadata: Mapping[str, Any]) -> None:
        for _, ptx, entries in self._wanted:
            details = dict(metadata) | {"signal": signal.Signals(number).name, "returncode": -number}
            details |= {"command": shlex.join([self.real, *self.words]), "ptxas": self._version()}
            writer.add_crash(entries[0], ptx.text, details)

    # --- the renamed variant

    def _begin_variant(self, rename: Rename) -> _Variant | str | None:
        """Begin to assemble the renamed variant. Returns the variant, or the reason (text) why there is none, or None
        if no name changes."""
        if len(self._command.modules) > 1:
            return "a call of ptxas with several inputs: no renamed variant was assembled"
        ((_, ptx, entries),) = self._wanted
        names = {old: rename.new_name(old) for old in entries if rename.entry in (None, old)}
        names = {old: new for old, new in names.items() if old != new}
        try:
            return _Variant(ptx.rename_entries(names), names, self._assembler()) if names else None
        except PtxError as error:
            return f"{entries[0]}: no renamed variant: {error}"

    def _finish_variant(self, writer: CaptureWriter, metadata: Mapping[str, Any]) -> list[str]:
        """Keep the renamed variant. Returns notes for the index."""
        if self._variant is None or isinstance(self._variant, str):
            return [self._variant] if self._variant else []
        result = self._variant.result(max(_VARIANT_LEAST_S, 10 * (time.monotonic() - self._began)))
        if self._variant.is_assembled:
            self._keep_variant(writer, self._variant, result.cubin.data, metadata)
            return [
                f"{_who(metadata['front_end'])}: the program's kernels keep their names, which its host code looks up; "
                "renamed variants were assembled in addition, as separate captures"
            ]
        new = next(iter(self._variant.names.values()))
        details = _describe_crash(result)
        folder = writer.add_crash(new, self._variant.ptx.text, details)
        return [f"{new}: no renamed variant: {details['summary']}; see {folder}"]

    def _keep_variant(
        self, writer: CaptureWriter, variant: _Variant, cubin: bytes, metadata: Mapping[str, Any]
    ) -> None:
        with _as_file(variant.ptx.text.encode(), self._out) as ptx, _as_file(cubin, self._out) as image:
            files = {Stage.PTX: ptx, Stage.CUBIN: image}
            origins = {new: old for old, new in variant.names.items()}
            _add_module(writer, self._captures(origins, variant.ptx, files, metadata), files)


class _Variant:
    """The renamed variant of a module, assembled by the same ptxas in another thread."""

    def __init__(self, ptx: Ptx, names: Mapping[str, str], assembler: Assembler) -> None:
        self.ptx = ptx
        self.names = names
        self._assembler = assembler
        self._result: Assembled | Crash | Exception | None = None
        self._thread = threading.Thread(target=self._assemble, daemon=True)
        self._thread.start()

    def _assemble(self) -> None:
        try:
            from tritonhook.capture.chosen_ptxas import tool_of
            from tritonhook.ptxas.toolchain import assemble

            self._result = assemble(tool_of(self._assembler), self.ptx, self._assembler.arguments or ())
        except Exception as error:
            self._result = error

    @property
    def is_assembled(self) -> bool:
        from tritonhook.ptxas.toolchain import Assembled

        return isinstance(self._result, Assembled)

    def result(self, timeout_s: float) -> Any:
        self._thread.join(timeout_s)
        return self._result


def _describe_crash(result: Any) -> dict[str, Any]:
    """Return fields for crash.json. result: a Crash, an exception, or None after the time limit."""
    if result is None:
        return {"summary": "ptxas did not finish in time", "timeout": True}
    if isinstance(result, Exception):
        return {"summary": f"{type(result).__name__}: {result}"}
    names = ("summary", "signal", "returncode", "command", "stderr")
    return {name: getattr(result, name) for name in names} | {"ptxas": result.tool.version}


def _of_kernel(common: Capture, kernel: str, origin: str | None) -> Capture:
    """Make one kernel's capture from the fields shared by all kernels of its module."""
    said = [] if origin is None else [f"assembled in addition to the program's own kernel, {origin}"]
    note = "; ".join([*said, *([common.note] if common.note else [])])
    return replace(common, kernel=kernel, rewritten_from=origin, note=note or None)


def _add_module(writer: CaptureWriter, captures: Sequence[Capture], files: Mapping[Stage, str]) -> None:
    """Keep a capture for each kernel of one module. The first gets copies of the files, the others hard links to these
    copies."""
    first = writer.out / "kernels" / writer.add_files(captures[0], files)
    own = {stage: str(next(first.glob(f"*.{stage.value}"))) for stage in files}
    for capture in captures[1:]:
        writer.add_files(capture, own, linked=True)


@contextlib.contextmanager
def _as_file(data: bytes, folder: Path) -> Iterator[str]:
    """Write bytes to a temporary file in the capture folder, which exists during a `with` block. Yields its path."""
    path = Path(staged_beside(folder / STAGING / "ptxas"))
    try:
        path.write_bytes(data)
        yield str(path)
    finally:
        path.unlink(missing_ok=True)
