"""Assemble a PTX module with ptxas, and disassemble a cubin or single instructions with nvdisasm. A crash, a rejection
and a time-out of ptxas are results, not exceptions; each contains the command that repeats it.

Toolchain: one ptxas and one nvdisasm, so that the same programs make both codes of a comparison."""

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
    """Extract the first error from a log, e.g. "line 38: Not a name of any known instruction: 'mvo'". Without an error,
    return the last line."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    chosen = next((line for line in lines if "error" in line or "fatal" in line), lines[-1] if lines else "")
    match = _ERROR.match(chosen)
    if match is not None:
        chosen = f"line {match['line']}: {match['text']}" if match["line"] else match["text"]
    return chosen[:_LONGEST]


DEFAULT_ARGUMENTS = ("-v", "-lineinfo")
# ptxas is not deterministic for some sm_10x kernels: each run can give one of several codes ("a draw").
STEADY_RUNS = 8  # a kernel counts as deterministic if so many runs, with memory at random addresses, give equal code
MAX_RUNS = 24  # the most runs in a search for different codes
# Nondeterminism was seen for sm_10x with 12.9.86 and 13.0.88, but not for sm_80, sm_90a and sm_120a.
_UNSTEADY = re.compile(r"(?:sm_)?10\d")
_OPTION_ERRORS = ("Unknown option", "Invalid value")  # beginnings of ptxas's errors about its options
_NEWEST = "13.5.37"  # the newest ptxas that tritonhook was tried with
_SPILLS = re.compile(
    r"Function properties for (\S+)\s+\d+ bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"
)


def may_draw(arch: int | str) -> bool:
    """Return True if ptxas is not deterministic for some kernels of this target. arch: e.g. 100 or "sm_100a"."""
    return _UNSTEADY.match(str(arch)) is not None


@dataclass(frozen=True, slots=True, repr=False)
class Assembled(Brief):
    """A cubin that ptxas made. log: the output of `ptxas -v`. command: repeats the run."""

    _shown: ClassVar[tuple[str, ...]] = ("cubin", "command")

    cubin: Cubin
    log: str
    command: str


@dataclass(frozen=True, slots=True, repr=False)
class Crash(Brief):
    """A run of ptxas that made no cubin.

    signal: the name of the signal that ended ptxas, e.g. "SIGSEGV"; None if ptxas exited with `returncode`, which means
    that it rejected the PTX or an option. timeout: True if it was killed at the time limit.
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
    """ptxas made no cubin, but the caller needs one. `crash` has the details."""

    def __init__(self, crash: Crash) -> None:
        remedy = _newer_ptxas(crash.ptx.version) if "Unsupported .version" in crash.summary else ""
        super().__init__(f"{crash.summary}{remedy}\n  repeat with: {crash.command}")
        self.crash = crash


def _newer_ptxas(ptx_version: str) -> str:
    """Make the part of a message that names a ptxas for this PTX version: the oldest installed one, else one to
    fetch."""
    wanted = version_key(ptx_version)
    here = {tool.version for tool in available_ptxas() if version_key(newest_version(tool.version)) >= wanted}
    if here:
        return f"; ptxas {min(here, key=version_key)}, which is installed, reads PTX {ptx_version}: use it with --ptxas"
    fetch = f"get {_NEWEST} with `tritonhook ptxas add {_NEWEST}`"
    reads = version_key(newest_version(_NEWEST)) >= wanted
    return f"; no installed ptxas reads PTX {ptx_version}; {fetch if reads else 'get a newer one'}"


def assemble(
    ptxas: Tool,
    ptx: Ptx,
    arguments: Sequence[str],
    timeout_s: float = TIMEOUT_S,
    fixed_layout: bool = True,
) -> Assembled | Crash:
    """Run ptxas on a module, in a temporary folder that is deleted afterwards.

    arguments: options of ptxas; if they contain no target, the module's `.target` is used.
    fixed_layout: whether to run without address-space randomisation, if the system allows that.
    Raises ToolError if ptxas cannot be started, and CubinError if its output is not a cubin.
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
    """Add options to `arguments`: the module's `.target` if they contain no target, and -v, so that ptxas logs the
    spills."""
    options = list(arguments)
    if not any(option.startswith(("--gpu-name", "-gpu-name", "-arch")) for option in options):
        options.append(f"--gpu-name={(Ptx(ptx) if isinstance(ptx, str) else ptx).target}")
    if not {"-v", "--verbose"} & set(options):
        options.append("-v")
    return options


@functools.lru_cache(maxsize=1)
def fixed_layout_prefix() -> tuple[str, ...]:
    """Return the command prefix that runs a program without address-space randomisation: `setarch -R`, or an empty one
    if that does not work, as in many containers.

    ptxas is not deterministic: for some sm_100a kernels its choices depend on memory addresses, and the same PTX gives
    one of several codes (seen with 12.9.86 and 13.0.88). Fixed addresses prevent most of that.
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
    """Parse the spilled bytes (stores, loads) of each function from the log of `ptxas -v`."""
    return {name: (int(stores), int(loads)) for name, stores, loads in _SPILLS.findall(log)}


def signal_name(returncode: int) -> str | None:
    """Return the name of the signal in a return code (-n, or 128 + n from a shell); None if the code is not that of a
    signal."""
    number = -returncode if returncode < 0 else returncode - 128 if 128 < returncode < 192 else 0
    try:
        return signal.Signals(number).name if number else None
    except ValueError:
        return None


# --- disassembling --------------------------------------------------------------------------------


def run_nvdisasm(nvdisasm: Tool, cubin: bytes, symbols: Sequence[int] = ()) -> bytes:
    """Return the JSON that nvdisasm prints for an image. Raises ToolError.

    symbols: symbol indices of the functions to print; if empty, all functions.
    """
    done = _listed(nvdisasm, ["-fun", ",".join(map(str, symbols))] if symbols else [], cubin)
    if done.timed_out or done.returncode or not done.stdout:
        reason = "no output" if not done.returncode else f"exit {done.returncode}"
        detail = done.stderr.decode("utf-8", "replace").strip()
        raise ToolError(f"nvdisasm {nvdisasm.version} could not read the cubin ({reason}): {detail}")
    return done.stdout


def _listed(nvdisasm: Tool, options: Sequence[str], code: bytes) -> Finished:
    """Run `nvdisasm -json` on a file with this code, unless its output is cached. Raises ToolError."""
    done = Finished(0, b"", b"")

    def ask() -> bytes:
        nonlocal done
        with temporary_file("code.bin", code) as path:
            done = run_tool([str(nvdisasm.path), "-json", *options, str(path)])
        return b"" if done.timed_out or done.returncode or done.stderr else done.stdout

    known = noted(nvdisasm.path, "\0".join((*options, hashlib.sha256(code).hexdigest())), ask)
    return done._replace(stdout=known or done.stdout)


def list_words(nvdisasm: Tool, arch: str, words: Iterable[bytes]) -> dict[bytes, Instruction]:
    """Disassemble instructions of 16 bytes each for one target. One run of nvdisasm gets all of them, since starting it
    takes longer than disassembling a kernel. The address of each result is its address in that run; `Instruction.at`
    changes it. Raises ToolError."""
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
            "`pip install -U nvidia-cuda-nvdisasm` installs one that supports newer targets"
        ) from None


def count_live_registers(nvdisasms: Iterable[Tool], cubin: bytes, sass: Sass) -> tuple[int, ...] | None:
    """Count the live general registers at each instruction of a kernel, with the first nvdisasm that can do this.

    Only nvdisasm's text listing contains these numbers: nvdisasm refuses the option with -json. nvdisasm 13.x does not
    analyse cubins of an older ptxas, but Triton's own nvdisasm does. NOPs at the end are not listed; their number is 0.
    Returns None if no nvdisasm prints a number for each instruction. Raises ToolError.
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
    """Yield the offset and the number of live registers of each instruction. The number is in the first column after
    `// |`; an empty column means 0. Example of a line: `/*0010*/  MOV R2, c[0x0][0x160] ;  // |   2   |        |`."""
    section = ""
    for line in listing.splitlines():
        code, _, table = line.strip().partition("// |")
        if code.startswith(".section\t"):
            section = code.removeprefix(".section\t").partition(",")[0]
        elif section == f".text.{kernel}" and code.startswith("/*") and table:
            yield int(code[2 : code.index("*/")], 16), int(table.partition("|")[0].strip() or 0)


# --- both programs --------------------------------------------------------------------------------


_FEW = 100  # name up to so many kernels on nvdisasm's command line, which is too short for tens of thousands
_FIRST_WITH_A = 90  # from sm_90 on, there are targets such as sm_90a with additional instructions
BATCH = 400  # kernels per run of nvdisasm; its start takes as long as some tens of kernels


@dataclass(frozen=True, slots=True, repr=False)
class Toolchain(Brief):
    """One ptxas and one nvdisasm, used for both codes of every comparison."""

    _shown: ClassVar[tuple[str, ...]] = ("ptxas", "nvdisasm")

    ptxas: Tool
    nvdisasm: Tool

    def assemble(
        self, ptx: Ptx, arguments: Sequence[str] = DEFAULT_ARGUMENTS, timeout_s: float = TIMEOUT_S
    ) -> Assembled | Crash:
        """Assemble a module. If `arguments` contain no target, the module's `.target` is used."""
        return assemble(self.ptxas, ptx, arguments, timeout_s)

    def assemble_or_raise(self, ptx: Ptx, arguments: Sequence[str] = DEFAULT_ARGUMENTS) -> Assembled:
        """Assemble as `assemble` does, but raise AssembleError instead of returning a Crash."""
        result = self.assemble(ptx, arguments)
        if isinstance(result, Crash):
            raise AssembleError(result)
        return result

    def disassemble(self, cubin: Cubin, kernels: Sequence[str] | None = None) -> dict[str, Sass]:
        """Disassemble an image's kernels. kernels: only these; None: all. Returns the code by kernel name. Raises
        ToolError or CubinError."""
        wanted = cubin.kernels if kernels is None else kernels
        known = [cubin.symbols[kernel] for kernel in wanted if kernel in cubin.symbols]
        few = len(wanted) < len(cubin.kernels) and len(known) == len(wanted) <= _FEW
        output = run_nvdisasm(self.nvdisasm, cubin.data, known if few else ())
        return parse_nvdisasm(output, {k: cubin.text(k) for k in wanted}, cubin.indirect_targets or {})

    def disassemble_many(self, kernels: Sequence[tuple[Cubin, str]], workers: int = 1) -> list[Sass]:
        """Disassemble many kernels, each from its own image; return their codes in the same order. One run of nvdisasm
        gets the instructions of many kernels of one architecture, equal instructions only once. Raises ToolError or
        CubinError."""
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
            with suppress(ToolError):  # on an error read each kernel alone, so that the error names the damaged one
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
    """Return the target of this architecture that has all its instructions, e.g. "sm_90a" for 90."""
    return f"sm_{arch}a" if arch >= _FIRST_WITH_A else f"sm_{arch}"


def reading_toolchain() -> Toolchain:
    """Make a toolchain for disassembly only: its `ptxas` is nvdisasm and must not be used. Raises ToolError."""
    nvdisasm = find_nvdisasm()
    return Toolchain(nvdisasm, nvdisasm)


def find_toolchain(ptxas: str | os.PathLike[str] | None = None) -> Toolchain:
    """Find ptxas (argument as in `find_ptxas`) and nvdisasm. Raises ToolError."""
    return toolchain_of(find_ptxas(ptxas))


def toolchain_of(ptxas: Tool) -> Toolchain:
    """Combine this ptxas with the nvdisasm of `find_nvdisasm`. Raises ToolError."""
    return Toolchain(ptxas, find_nvdisasm())
