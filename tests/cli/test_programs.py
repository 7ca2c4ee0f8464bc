"""What goes on beside a program that runs."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from hangs import HANG_S

import tritonhook
from tritonhook.cli import _programs
from tritonhook.errors import UsageError
from tritonhook.ptx import miscompiles


def test_kernels_are_searched_for_known_bugs_while_others_compile(
    tmp_path: Path, triton_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = pytest.importorskip("triton_kernels", reason="needs Triton")
    monkeypatch.setattr(miscompiles, "_met", {})
    monkeypatch.setattr(_programs, "_AHEAD_S", 0.01)
    out = tmp_path / "captures"
    with tritonhook.session(out):
        kernels.compile_kernel(block=128)
    with _programs.reading_ahead(out):
        with tritonhook.session(out) as session:
            kernels.compile_kernel(block=256)
        end = time.monotonic() + HANG_S
        while not miscompiles._met and time.monotonic() < end:
            time.sleep(0.01)
    (capture,) = session.captures
    assert len(miscompiles._met) == 1  # not the kernel that was there before
    known = dict(miscompiles._met)
    miscompiles.note_of([(capture.ptx.text, capture.assembler.version, "-O3")])
    assert miscompiles._met == known  # at the end nothing is left to do


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("s.py").touch()
    Path("folder").mkdir()
    return tmp_path


def test_words_are_the_command_of_a_script_a_module_or_a_program(here: Path) -> None:
    command = _programs.script_command
    assert command(["s.py", "-a"], False) == [sys.executable, "s.py", "-a"]
    assert command(["package", "-a"], True) == command(["--", "package", "-a"], True)
    assert command(["package", "-a"], True) == [sys.executable, "-m", "package", "-a"]
    assert command(["--", "sh", "-c", "x"], False) == ["sh", "-c", "x"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no script given"),
        (["--"], "nothing after --: no such program"),
        (["--", "absent-program"], "absent-program: no such program"),
        (["--", "./s.py"], "./s.py: not executable; for a Python script write `tritonhook run ./s.py`, without --"),
        (["absent.py"], "absent.py: no such script"),
        (["sh"], "sh: no such script; for a program write `tritonhook run -- sh`"),
        (["folder"], "folder: a folder, not a script"),
    ],
)
def test_what_cannot_be_run_is_named_with_its_remedy(words: list[str], said: str, here: Path) -> None:
    with pytest.raises(UsageError) as error:
        _programs.script_command(words, False)
    text = str(error.value)
    assert text.startswith(said) if words in ([], ["--"]) else text == said


def test_a_program_gives_its_status_and_may_print_on_standard_error(here: Path, capfd) -> None:
    def run(code: str, ours: bool = False) -> int:
        return _programs.run_to_end([sys.executable, "-c", f"import os; {code}"], {"NAME": "value"}, ours).code

    assert run("print(os.environ['NAME'])") == 0 and capfd.readouterr() == ("value\n", "")
    assert run("print('x'); raise SystemExit(3)", True) == 3 and capfd.readouterr() == ("", "x\n")
    assert run("os.kill(os.getpid(), 9)") == 128 + 9
