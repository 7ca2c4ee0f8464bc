"""Scripts, programs and MODULE:FUNCTION that a verb runs: make their command lines, run them to their end, and record
their launches for ab, verify and tune."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple

from tritonhook._util.variables import DRY_RUN
from tritonhook.capture.dry_run.gpu import DryRun, Emulation
from tritonhook.capture.model import Stage
from tritonhook.capture.settings import SHAPES, VALUES, Settings
from tritonhook.capture.store import read_capture
from tritonhook.children.environment import capture_environment, watch_environment
from tritonhook.cli._signals import Witness, heeded, interrupt
from tritonhook.device.cuda_driver import Driver
from tritonhook.errors import DeviceError, ProgramError, TritonHookError, UsageError
from tritonhook.ptxas.command_line import level_of

if TYPE_CHECKING:
    from tritonhook.memory.timeline import MemoryTimeline

_STDERR = 2
_AHEAD_S = 0.5  # time between two reads of the captures


def script_command(words: Sequence[str], module: bool) -> list[str]:
    """Return the command for SCRIPT [ARGUMENTS], for MODULE [ARGUMENTS] if `module`, or for -- PROGRAM [ARGUMENTS].

    Raises UsageError if there is no such script or program.
    """
    words = list(words)
    if words[:1] == ["--"] and not module:
        if len(words) < 2 or shutil.which(words[1]) is None:
            name = words[1] if len(words) > 1 else "nothing after --"
            is_script = Path(name).is_file()
            remedy = f"; for a Python script write `tritonhook run {name}`, without --" if is_script else ""
            raise UsageError(f"{name}: {'not executable' if is_script else 'no such program'}{remedy}")
        return words[1:]
    words = words[1:] if words[:1] == ["--"] else words
    if not words:
        raise UsageError("no script given; write `tritonhook run script.py`")
    if module:
        return [sys.executable, "-m", *words]
    if not Path(words[0]).is_file():
        remedy = f"; for a program write `tritonhook run -- {words[0]}`" if shutil.which(words[0]) else ""
        what = "a folder, not a script" if Path(words[0]).is_dir() else "no such script"
        raise UsageError(f"{words[0]}: {what}{remedy}")
    return [sys.executable, *words]


def program_command(words: Sequence[str]) -> list[str]:
    """Return the command for MODULE:FUNCTION, or SCRIPT [ARGUMENTS]. Raises UsageError."""
    if is_function(words[0]):
        return [sys.executable, "-m", "tritonhook.verify.program", words[0]]
    return script_command(words, False)


class Ended(NamedTuple):
    """How a program ended. code: its exit code, or 128 + N if signal N ended it. signal: the last signal that this
    process received while the program ran, or None."""

    code: int
    signal: int | None

    @property
    def status(self) -> int:
        """The exit code; 128 + N if the program ended with 0 although this process received signal N."""
        return self.code or (128 + self.signal if self.signal is not None else 0)


def run_to_end(command: list[str], environment: dict[str, str], stdout_is_ours: bool = False) -> Ended:
    """Run a program to its end. Pass signals on to it, except signals to the whole process group, such as a terminal's
    Ctrl-C, which the program receives itself.

    stdout_is_ours: send the program's output to standard error, because standard output is for the verb's result.
    """
    child: subprocess.Popen[bytes] | None = None
    seen: list[int] = []

    def pass_on(number: int, frame: FrameType | None) -> None:
        seen.append(number)
        if child is not None and not witness.has_reached(child.pid, signal.Signals(number)):
            child.send_signal(number)

    witness = Witness()
    previous = {number: signal.signal(number, pass_on) for number in heeded()}
    try:
        child = subprocess.Popen(command, env=environment, stdout=_STDERR if stdout_is_ours else None)
        for number in seen[:]:  # signals that came before the program started
            child.send_signal(number)
        code = child.wait()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        witness.end()
    return Ended(code if code >= 0 else 128 - code, seen[-1] if seen else None)


def run_well(command: list[str], environment: dict[str, str], what: str, without: str, arch: str | None = None) -> None:
    """Run a program that must succeed before a verb can go on. Send its output to standard error.

    what: the program's name in messages. without: what is not done if it fails, e.g. "nothing was timed". arch: the
    architecture of a dry run. Raises ProgramError if the program fails, and KeyboardInterrupt if a signal came, even if
    the program succeeded.
    """
    code, number = run_to_end(command, environment, stdout_is_ours=True)
    if number is not None:
        raise interrupt(number)
    if code:
        where = f" in its dry run for {arch}" if arch else ""
        raise ProgramError(f"{what} ended with status {code}{where}: {without}", code)


def run_emulated(command: list[str], dry: DryRun, emulation: Emulation, out: Path, what: str, without: str) -> None:
    """Run a program dry, and execute its launches on the CPU. out: folder for its captures. what, without: as for
    run_well. Raises ProgramError."""
    settings = Settings(out.absolute(), dry_run=dry)
    environment = capture_environment(settings, os.environ, command)
    print(f"running {what} dry for {dry.arch}, on the CPU ...", file=sys.stderr, flush=True)
    run_well(command, environment | emulation.to_environment(), what, without, dry.arch)


@contextmanager
def reading_ahead(out: Path) -> Iterator[None]:
    """While a dry run compiles, search the kernels captured so far for known bugs, and import the modules that print
    the report. At the end of the run this would take as long as the compilation of small kernels. Not for runs on a
    GPU, which a busy core would disturb."""
    earlier, ended = set(_kernels(out)), threading.Event()
    thread = threading.Thread(target=_read_ahead, args=(out, earlier, ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _read_ahead(out: Path, seen: set[Path], ended: threading.Event) -> None:
    import tritonhook.report.render.terminal
    import tritonhook.report.results.captures  # noqa: F401  (the report needs it)
    from tritonhook.ptx.miscompiles import bugs_met

    while not ended.wait(_AHEAD_S):
        for place in set(_kernels(out)) - seen:
            seen.add(place)
            with suppress(TritonHookError):
                capture = read_capture(place)
                level = level_of(capture.assembler.options)
                bugs_met(capture.text(Stage.PTX) or "", capture.assembler.version, level)
            if ended.is_set():
                return


def _kernels(out: Path) -> list[Path]:
    with suppress(OSError):
        return [path for path in (out / "kernels").iterdir() if (path / "capture.json").exists()]
    return []


def near(path: Path) -> Path:
    """Shorten a path: relative if it lies in the current folder."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) and path != here else path


# --- recording launches --------------------------------------------------------------------------


def is_function(target: str) -> bool:
    return ":" in target and not Path(target).exists()


def is_script(target: str) -> bool:
    return target.endswith(".py")


def why_no_gpu() -> str | None:
    """Return why nothing can be launched here; None if there is a GPU. Loads no torch."""
    if DRY_RUN in os.environ:
        return "this is a dry run, which launches nothing"
    try:
        driver = Driver()
        driver.init()
        return None if driver.device_count() else "CUDA_VISIBLE_DEVICES leaves no GPU"
    except DeviceError as error:
        return str(error)


def why_not_timed() -> str | None:
    """Return why nothing can be timed here; None if there are torch and a GPU. Loads no torch."""
    if find_spec("torch") is None and DRY_RUN not in os.environ:
        return "torch is not installed"
    return why_no_gpu()


def record_launches(words: Sequence[str], out: Path, without: str, dry: DryRun | None = None) -> None:
    """Run a script with its arguments, or MODULE:FUNCTION, and record its launches. out: folder for the captures.
    without: as for run_well. dry: the target of a dry run; None: run on the GPU.

    Raises UsageError if no kernel was captured, and the errors of run_well.
    """
    target, command = words[0], program_command(words)
    settings = Settings(out.absolute(), launches=VALUES if dry is None else SHAPES, dry_run=dry)
    print(f"running {target} once, to record its launches ...", file=sys.stderr, flush=True)
    environment = capture_environment(settings, os.environ, command)
    run_well(command, environment, target, without, None if dry is None else dry.arch)
    if not (out / "index").is_dir():
        raise UsageError(f"{target}: no kernel was captured: it did not use Triton")


def watched(command: list[str], stdout_is_ours: bool = False) -> tuple[Ended, list[MemoryTimeline], list[str]]:
    """Run a program to its end while its GPU memory is watched. Returns how it ended, the timelines, and notes on what
    is missing.

    Raises DeviceError without a GPU, before anything runs.
    """
    from tritonhook.memwatch import PERIOD_MS, read_run

    if (why := why_no_gpu()) is not None:
        raise DeviceError(
            f"{why}; the script was not run. Without a GPU, `tritonhook mem predict FILE|CAPTURES --gpu NAME` computes "
            "how much memory the driver will reserve"
        )
    with tempfile.TemporaryDirectory(prefix="tritonhook-watch-") as folder:
        ended = run_to_end(command, watch_environment(Path(folder), PERIOD_MS, os.environ), stdout_is_ours)
        timelines, notes = read_run(Path(folder))
    if not timelines and not notes:
        notes.append("nothing was watched: no process imported triton and ended normally")
    return ended, timelines, notes
