"""Assemble a PTX module with ptxas, and disassemble machine code with nvdisasm: a whole cubin, or pieces of code. A
crash, a rejection and a time-out of ptxas are results; their command repeats them.

Toolchain: one ptxas and one nvdisasm, so that both sides of a comparison are made by the same programs."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import ClassVar

from tritonhook._display import Brief
from tritonhook._util.versions import version_key
from tritonhook.cubin.image import Cubin
from tritonhook.cubin.sass import INSTRUCTION_BYTES, Instruction, Sass, instructions_of, parse_nvdisasm, words_of
from tritonhook.errors import CubinError, ToolError
from tritonhook.ptx.module import Ptx, newest_version
from tritonhook.ptxas.threads import tool_threads
from tritonhook.ptxas.tool import (
    TIMEOUT_S,
    Finished,
    Tool,
    available_ptxas,
    check_room,
    find_nvdisasm,
    find_ptxas,
    fixed_length,
    noted,
    run_tool,
    temporary_file,
)

_ERROR = re.compile(r"^ptxas\S*\s+(?:\S+, line (?P<line>\d+); )?(?:error|fatal)\s*:\s*(?P<text>.*)")
_LONGEST = 500


def first_error(log: str) -> str:
    """Find the first error in a log, such as "line 38: Not a name of any known instruction: 'mvo'"; else its last
    line."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    chosen = next((line for line in lines if "error" in line or "fatal" in line), lines[-1] if lines else "")
    match = _ERROR.match(chosen)
    if match is not None:
        chosen = f"line {match['line']}: {match['text']}" if match["line"] else match["text"]
    return chosen[:_LONGEST]


DEFAULT_ARGUMENTS = ("-v", "-lineinfo")
# ptxas is not deterministic for some sm_10x kernels: one run is one draw. A kernel counts as steady after this many
# runs with ptxas's memory at random addresses that gave one code each; the second: most runs of a search.
STEADY_RUNS = 8
MAX_RUNS = 24
# Seen for sm_10x with 12.9.86 and 13.0.88; sm_80, sm_90a and sm_120a were steady.
_UNSTEADY = re.compile(r"(?:sm_)?10\d")
_OPTION_ERRORS = ("Unknown option", "Invalid value")  # so ptxas's errors about its options begin
_NEWEST = "13.5.37"  # the newest ptxas that was tried
_SPILLS = re.compile(
    r"Function properties for (\S+)\s+\d+ bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"
)


def may_draw(arch: int | str) -> bool:
    """Check whether ptxas gives some kernels for this target one of several codes, by chance. arch: 100 or
    "sm_100a"."""
    return _UNSTEADY.match(str(arch)) is not None


@dataclass(frozen=True, slots=True, repr=False)
class Assembled(Brief):
    """A cubin that ptxas made. `log` is what `-v` printed; `command` repeats the run."""

    _shown: ClassVar[tuple[str, ...]] = ("cubin", "command")

    cubin: Cubin
    log: str
    command: str


@dataclass(frozen=True, slots=True, repr=False)
class Crash(Brief):
    """A run of ptxas that made no cubin.

    signal: the name of the signal that ended it, e.g. "SIGSEGV"; None if it exited by itself with
    `returncode`, which means that it rejected the PTX or an option. timeout: it was stopped after the time limit.
    """

    _shown: ClassVar[tuple[str, ...]] = ("summary",)

    tool: Tool
    ptx: Ptx
    command: str
    returncode: int
    signal: str | None
    stderr: str
    timeout: bool = False

    @property
    def summary(self) -> str:
        """The version and the cause, in one line."""
        if self.timeout:
            return f"ptxas {self.tool.version} did not finish in time"
        if self.signal:
            return f"ptxas {self.tool.version} died with {self.signal}"
        error = first_error(self.stderr) or f"exit code {self.returncode}, without a message"
        rejected = "an option" if error.startswith(_OPTION_ERRORS) else "the PTX"
        return f"ptxas {self.tool.version} rejected {rejected}: {error}"


class AssembleError(ToolError):
    """ptxas made no cubin where one was needed. `crash` has the details."""

    def __init__(self, crash: Crash) -> None:
        remedy = _newer_ptxas(crash.ptx.version) if "Unsupported .version" in crash.summary else ""
        super().__init__(f"{crash.summary}{remedy}\n  repeat with: {crash.command}")
        self.crash = crash


def _newer_ptxas(ptx_version: str) -> str:
    """Name a ptxas that reads this PTX version: the oldest installed one, else one to fetch."""
    wanted = version_key(ptx_version)
    here = {tool.version for tool in available_ptxas() if version_key(newest_version(tool.version)) >= wanted}
    if here:
        return f"; ptxas {min(here, key=version_key)}, which is here, reads PTX {ptx_version}: take it with --ptxas"
    fetch = f"get {_NEWEST} with `tritonhook ptxas add {_NEWEST}`"
    reads = version_key(newest_version(_NEWEST)) >= wanted
    return f"; no ptxas that is here reads PTX {ptx_version}; {fetch if reads else 'get a newer one'}"


def assemble(
    ptxas: Tool,
    ptx: Ptx,
    arguments: Sequence[str],
    timeout_s: float = TIMEOUT_S,
    fixed_layout: bool = True,
) -> Assembled | Crash:
    """Run ptxas on a module in a temporary folder, which is deleted afterwards.

    arguments: options of ptxas; the target is the PTX's own unless they name one.
    fixed_layout: without address-space randomisation, where the system allows it.
    Raises ToolError if ptxas cannot be started, CubinError if its output is not a cubin.
    """
    if not os.access(ptxas.path, os.X_OK):
        raise ToolError(f"{ptxas.path}: not an executable file; see `tritonhook ptxas list`")
    prefix = fixed_layout_prefix() if fixed_layout else ()
    program = [*prefix, str(ptxas.path), *complete_options(arguments, ptx)]
    shown = shlex.join([*program, "kernel.ptx", "-o", "kernel.cubin"])
    with temporary_file("kernel.ptx", ptx.text.encode()) as source:
        output = source.with_name("kernel.cubin")
        places = fixed_length(source), fixed_length(output)
        done = run_tool([*program, places[0], "-o", places[1]], timeout_s)
        if done.timed_out or done.returncode or not output.exists():
            ended_by = signal_name(done.returncode)
            stderr = (done.stderr + done.stdout).decode("utf-8", "replace")
            for place in places:
                stderr = stderr.replace(place, Path(place).name)
            return Crash(ptxas, ptx, shown, done.returncode, ended_by, stderr, done.timed_out)
        try:
            cubin = Cubin.from_bytes(output.read_bytes(), f"output of ptxas {ptxas.version}")
        except CubinError:
            check_room(output)
            raise
    log = done.stderr.decode("utf-8", "replace")
    return Assembled(cubin.with_spills(parse_spills(log)), log, shown)


def complete_options(arguments: Sequence[str], ptx: Ptx | str) -> list[str]:
    """Add to `arguments` the module's own target, if they name none, and -v, which logs the spills."""
    options = list(arguments)
    if not any(option.startswith(("--gpu-name", "-gpu-name", "-arch")) for option in options):
        options.append(f"--gpu-name={(Ptx(ptx) if isinstance(ptx, str) else ptx).target}")
    if not {"-v", "--verbose"} & set(options):
        options.append("-v")
    return options


@functools.lru_cache(maxsize=1)
def fixed_layout_prefix() -> tuple[str, ...]:
    """Find a prefix that fixes the memory layout: `setarch -R`, if it works, runs a program without address-space
    randomisation.

    ptxas is not deterministic: for some sm_100a kernels its choices depend on addresses, and the same PTX
    gives one of several codes (seen with 12.9.86 and 13.0.88). A fixed layout removes most of that.
    Containers often forbid it; then ptxas runs without the prefix.
    """
    setarch = shutil.which("setarch")
    if setarch is None:
        return ()
    prefix = (setarch, "-R")
    try:
        works = subprocess.run([*prefix, "true"], capture_output=True, timeout=10, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        works = False
    return prefix if works else ()


def parse_spills(log: str) -> dict[str, tuple[int, int]]:
    """Read spill bytes (stores, loads) per function from the log of `ptxas -v`."""
    return {name: (int(stores), int(loads)) for name, stores, loads in _SPILLS.findall(log)}


def signal_name(returncode: int) -> str | None:
    """Name the signal behind a return code, also if a shell reported it as 128 + n; None if it was no signal."""
    number = -returncode if returncode < 0 else returncode - 128 if 128 < returncode < 192 else 0
    try:
        return signal.Signals(number).name if number else None
    except ValueError:
        return None


# --- disassembling --------------------------------------------------------------------------------


def run_nvdisasm(nvdisasm: Tool, cubin: bytes, symbols: Sequence[int] = ()) -> bytes:
    """Return the JSON that nvdisasm prints for an image. Raises ToolError.

    symbols: the indices of the functions to print; none: all of them.
    """
    done = _listed(nvdisasm, ["-fun", ",".join(map(str, symbols))] if symbols else [], cubin)
    if done.timed_out or done.returncode or not done.stdout:
        reason = "no output" if not done.returncode else f"exit {done.returncode}"
        detail = done.stderr.decode("utf-8", "replace").strip()
        raise ToolError(f"nvdisasm {nvdisasm.version} could not read the cubin ({reason}): {detail}")
    return done.stdout


def _listed(nvdisasm: Tool, options: Sequence[str], code: bytes) -> Finished:
    """Run `nvdisasm -json` on a file, unless it is known what it prints. Raises ToolError."""
    done = Finished(0, b"", b"")

    def ask() -> bytes:
        nonlocal done
        with temporary_file("code.bin", code) as path:
            done = run_tool([str(nvdisasm.path), "-json", *options, str(path)])
        return b"" if done.timed_out or done.returncode or done.stderr else done.stdout

    known = noted(nvdisasm.path, "\0".join((*options, hashlib.sha256(code).hexdigest())), ask)
    return done._replace(stdout=known or done.stdout)


def list_words(nvdisasm: Tool, arch: str, words: Iterable[bytes]) -> dict[bytes, Instruction]:
    """Return the instruction of each 16 bytes for one target, all from one run of nvdisasm: its start takes longer than
    a kernel. Each stands where nvdisasm saw it; `Instruction.at` moves it. Raises ToolError."""
    known = list(dict.fromkeys(words))
    if not known:
        return {}
    done = _listed(nvdisasm, ["--binary", arch.replace("sm_", "SM")], b"".join(known))
    try:
        listed = [item for function in json.loads(done.stdout)[1] for item in function["sass-instructions"]]
        if done.timed_out or len(listed) != len(known):
            raise ValueError(f"{len(listed)} instructions")
        return dict(zip(known, instructions_of(listed, known), strict=True))
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        detail = done.stderr.decode("utf-8", "replace").strip() or str(error)
        raise ToolError(
            f"nvdisasm {nvdisasm.version} could not read code for {arch} ({detail}); "
            "`pip install -U nvidia-cuda-nvdisasm` brings one that knows newer targets"
        ) from None


def count_live_registers(nvdisasms: Iterable[Tool], cubin: bytes, sass: Sass) -> tuple[int, ...] | None:
    """Count the live general registers at each instruction of a kernel, by the first nvdisasm that can.

    Only nvdisasm's listing has this column: it refuses the option with -json. 13.x does not analyse cubins of an older
    ptxas, but Triton's own nvdisasm does. None if no nvdisasm gives a number for each instruction; NOPs at the end are
    not listed. Raises ToolError.
    """
    length = max((n for n, one in enumerate(sass.instructions, 1) if one.opcode != "NOP"), default=0)
    with temporary_file("kernel.cubin", cubin) as path:
        for nvdisasm in nvdisasms:
            done = run_tool([str(nvdisasm.path), "--life-range-mode", "count", str(path)])
            live = dict(_live_of(done.stdout.decode("utf-8", "replace"), sass.kernel))
            if list(live) == [number * INSTRUCTION_BYTES for number in range(len(live))] and len(live) >= length > 0:
                return (*live.values(), *[0] * (len(sass.instructions) - len(live)))
    return None


def _live_of(listing: str, kernel: str) -> Iterator[tuple[int, int]]:
    """Parse the offset of each instruction and the first column of the table beside it, which is empty for 0: as in
    `/*0010*/  MOV R2, c[0x0][0x160] ;  // |   2   |        |`."""
    section = ""
    for line in listing.splitlines():
        code, _, table = line.strip().partition("// |")
        if code.startswith(".section\t"):
            section = code.removeprefix(".section\t").partition(",")[0]
        elif section == f".text.{kernel}" and code.startswith("/*") and table:
            yield int(code[2 : code.index("*/")], 16), int(table.partition("|")[0].strip() or 0)


# --- both programs --------------------------------------------------------------------------------


_FEW = 100  # kernels that are worth asking for one by one; a command line has no room for tens of thousands
_FIRST_WITH_A = 90  # targets such as sm_90a have instructions that sm_90 has not
BATCH = 400  # kernels that one run of nvdisasm reads; its start takes as long as some tens of kernels


@dataclass(frozen=True, slots=True, repr=False)
class Toolchain(Brief):
    """One ptxas and one nvdisasm, used for both sides of every comparison."""

    _shown: ClassVar[tuple[str, ...]] = ("ptxas", "nvdisasm")

    ptxas: Tool
    nvdisasm: Tool

    def assemble(
        self, ptx: Ptx, arguments: Sequence[str] = DEFAULT_ARGUMENTS, timeout_s: float = TIMEOUT_S
    ) -> Assembled | Crash:
        """Assemble a module. The target is the PTX's own unless `arguments` name one."""
        return assemble(self.ptxas, ptx, arguments, timeout_s)

    def assemble_or_raise(self, ptx: Ptx, arguments: Sequence[str] = DEFAULT_ARGUMENTS) -> Assembled:
        """Assemble as `assemble` does, but raise AssembleError instead of returning a Crash."""
        result = self.assemble(ptx, arguments)
        if isinstance(result, Crash):
            raise AssembleError(result)
        return result

    def disassemble(self, cubin: Cubin, kernels: Sequence[str] | None = None) -> dict[str, Sass]:
        """Disassemble an image's kernels, or only `kernels`, by name. Raises ToolError or CubinError."""
        wanted = cubin.kernels if kernels is None else kernels
        known = [cubin.symbols[kernel] for kernel in wanted if kernel in cubin.symbols]
        few = len(wanted) < len(cubin.kernels) and len(known) == len(wanted) <= _FEW
        output = run_nvdisasm(self.nvdisasm, cubin.data, known if few else ())
        return parse_nvdisasm(output, {k: cubin.text(k) for k in wanted}, cubin.indirect_targets or {})

    def disassemble_many(self, kernels: Sequence[tuple[Cubin, str]], workers: int = 1) -> list[Sass]:
        """Disassemble many kernels, each from its own image. One run of nvdisasm reads many kernels of one
        architecture, and shared instructions once. Raises ToolError or CubinError."""
        groups: dict[int, list[int]] = {}
        for number, (cubin, _) in enumerate(kernels):
            groups.setdefault(cubin.arch, []).append(number)
        batches = [
            numbers[start : start + BATCH] for numbers in groups.values() for start in range(0, len(numbers), BATCH)
        ]
        with tool_threads(workers) as pool:
            parts = list(pool.map(lambda batch: self._batch([kernels[n] for n in batch]), batches))
        by_number = dict(zip((n for batch in batches for n in batch), (s for part in parts for s in part), strict=True))
        return [by_number[number] for number in range(len(kernels))]

    def _batch(self, kernels: Sequence[tuple[Cubin, str]]) -> list[Sass]:
        if len(kernels) > 1:
            codes = [words_of(cubin.text(kernel)) for cubin, kernel in kernels]
            with suppress(ToolError):  # then one of them is damaged: read alone, it is named
                listed = list_words(self.nvdisasm, _full_target(kernels[0][0].arch), chain.from_iterable(codes))
                return [
                    Sass(
                        kernel,
                        tuple(listed[word].at(n * INSTRUCTION_BYTES) for n, word in enumerate(words)),
                        (cubin.indirect_targets or {}).get(kernel, ()),
                    )
                    for (cubin, kernel), words in zip(kernels, codes, strict=True)
                ]
        return [self._alone(cubin, kernel) for cubin, kernel in kernels]

    def _alone(self, cubin: Cubin, kernel: str) -> Sass:
        try:
            return self.disassemble(cubin, [kernel])[kernel]
        except ToolError as error:
            raise ToolError(f"{kernel} sm_{cubin.arch}: {error}") from None


def _full_target(arch: int) -> str:
    """Name the target of this architecture that has all its instructions."""
    return f"sm_{arch}a" if arch >= _FIRST_WITH_A else f"sm_{arch}"


def reading_toolchain() -> Toolchain:
    """Make a toolchain that only disassembles; its ptxas is nvdisasm, so it must not assemble. Raises ToolError."""
    nvdisasm = find_nvdisasm()
    return Toolchain(nvdisasm, nvdisasm)


def find_toolchain(ptxas: str | os.PathLike[str] | None = None) -> Toolchain:
    """Find ptxas as `find_ptxas` does, and nvdisasm. Raises ToolError."""
    return toolchain_of(find_ptxas(ptxas))


def toolchain_of(ptxas: Tool) -> Toolchain:
    """Combine this ptxas with nvdisasm. Raises ToolError."""
    return Toolchain(ptxas, find_nvdisasm())
