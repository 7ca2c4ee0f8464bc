"""Assemble a PTX module with ptxas. A crash, a rejection and a time-out are results; their command repeats them."""

from __future__ import annotations

import functools
import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tritonhook._display import Brief
from tritonhook._util.versions import version_key
from tritonhook.cubin.image import Cubin
from tritonhook.errors import CubinError, ToolError
from tritonhook.ptx.module import Ptx, newest_version
from tritonhook.ptxas.discovery import available_ptxas
from tritonhook.ptxas.process import TIMEOUT_S, check_room, fixed_length, run_tool, temporary_file
from tritonhook.ptxas.tool import Tool

_ERROR = re.compile(r"^ptxas\S*\s+(?:\S+, line (?P<line>\d+); )?(?:error|fatal)\s*:\s*(?P<text>.*)")
_LONGEST = 500


def first_error(log: str) -> str:
    """The first error in a log, such as "line 38: Not a name of any known instruction: 'mvo'"; else its last line."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    chosen = next((line for line in lines if "error" in line or "fatal" in line), lines[-1] if lines else "")
    match = _ERROR.match(chosen)
    if match is not None:
        chosen = f"line {match['line']}: {match['text']}" if match["line"] else match["text"]
    return chosen[:_LONGEST]


DEFAULT_ARGUMENTS = ("-v", "-lineinfo")
# ptxas is not deterministic for some sm_10x kernels: one run is one draw. A kernel counts as steady after this many
# runs, with ptxas's memory at random places, that gave one code each; and no search makes more runs than the second.
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
    """Whether ptxas gives some kernels for this target one of several codes, by chance. arch: 100 or "sm_100a"."""
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
    """Which ptxas reads this PTX version: the oldest of those that are here, else one to fetch."""
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
    Raises ToolError if ptxas cannot be started, CubinError if its output is no cubin.
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
    """Add to `arguments` the module's own target, where they name none, and -v, whose log tells the spills."""
    options = list(arguments)
    if not any(option.startswith(("--gpu-name", "-gpu-name", "-arch")) for option in options):
        options.append(f"--gpu-name={(Ptx(ptx) if isinstance(ptx, str) else ptx).target}")
    if not {"-v", "--verbose"} & set(options):
        options.append("-v")
    return options


@functools.lru_cache(maxsize=1)
def fixed_layout_prefix() -> tuple[str, ...]:
    """`setarch -R`, where it works: it runs a program without address-space randomisation.

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
    """The signal behind a return code, also where a shell in between reported it as 128 + n; None: no signal."""
    number = -returncode if returncode < 0 else returncode - 128 if 128 < returncode < 192 else 0
    try:
        return signal.Signals(number).name if number else None
    except ValueError:
        return None
