"""What `tritonhook run` makes of its options, and what it says when the program has ended; no program is started."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from command_line import failing

from tritonhook._util.variables import EMULATE
from tritonhook.capture.dry_run.gpu import DryRun
from tritonhook.capture.settings import DEFAULT_OUT, Settings, make_settings
from tritonhook.cli import main
from tritonhook.cli import run as verb
from tritonhook.cli._programs import Ended
from tritonhook.errors import INTERRUPTED
from tritonhook.ptxas.tool import available_ptxas
from tritonhook.rename import Rename


@dataclass
class Program:
    """Stands for the program: what it was started with. does: called with the capture folder, in its place."""

    status: int = 0
    does: Callable[[Path], Any] = lambda out: None
    command: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    stdout_is_ours: bool | None = None
    settings: Settings | None = None


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    Path("script.py").touch()
    monkeypatch.delenv("TRITONHOOK_OUT", raising=False)
    made = Program()

    def settings(*given: Any, **named: Any) -> Settings:
        made.settings = make_settings(*given, **named)
        return made.settings

    def run_to_end(command: list[str], environment: dict[str, str], stdout_is_ours: bool = False) -> Ended:
        made.command, made.environment, made.stdout_is_ours = command, environment, stdout_is_ours
        assert made.settings is not None
        made.does(made.settings.out)
        return Ended(made.status, signal.SIGINT if made.status == INTERRUPTED else None)

    monkeypatch.setattr(verb, "make_settings", settings)
    monkeypatch.setattr(verb, "run_to_end", run_to_end)
    return made


def test_options_reach_the_settings_and_words_the_program(program: Program) -> None:
    version = next(iter(available_ptxas())).version
    words = ["--out", "o", "--only", "ad.*", "--prefix", "x_", "--rewrite", "tma-cta", "--ptxas", version]
    program.status = 7
    assert main(["run", *words, "--options", "-O1 -v", "--launch-values", "script.py", "--json", "a"]) == 7
    changed = {"rewrites": ("tma-cta",), "ptxas": version, "options": "-O1 -v"}
    assert program.settings == make_settings("o", Rename(prefix="x_"), only="ad.*", launches="values", **changed)
    assert program.command == [sys.executable, "script.py", "--json", "a"]
    assert program.stdout_is_ours is False and EMULATE not in program.environment
    assert program.settings is not None
    assert program.settings.to_run_config().to_environment().items() <= program.environment.items()
    main(["run", "--launches", "--json", "-m", "package", "a"])
    assert program.settings == make_settings(DEFAULT_OUT, launches="shapes")
    assert (program.command, program.stdout_is_ours) == ([sys.executable, "-m", "package", "a"], True)


def test_a_dry_run_is_for_a_gpu_and_records_launches(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    main(["run", "--arch", "sm_90a", "script.py"])
    usual = DryRun.of("sm_90a", None, "first", "real", verb.PTXAS_SECONDS)
    assert program.settings == make_settings(None, launches="shapes", dry_run=usual)
    main(["run", "--gpu", "H100", "--autotune", "all", "--memory", "none", "--ptxas-limit", "5", "script.py"])
    assert program.settings is not None
    assert program.settings.dry_run == DryRun.of(None, "H100", "all", "none", 5.0)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name == "numpy" or None)
    main(["run", "--arch", "sm_90a", "--emulate", "script.py"])
    assert json.loads(program.environment[EMULATE])["sanitize"] is False
    main(["run", "--arch", "sm_90a", "--emulate", "--sanitize", "script.py"])
    assert json.loads(program.environment[EMULATE])["sanitize"] is True


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--autotune all", "--autotune is for dry runs"),
        ("--memory real", "--memory is for dry runs"),
        ("--ptxas-limit 3", "--ptxas-limit is for dry runs"),
        ("--emulate", "--emulate is for dry runs"),
        ("--arch sm_90a --sanitize", "--sanitize: only with --emulate"),
        ("--arch sm_90a --suppress known.toml", "--suppress: only with --sanitize"),
        ("--arch sm_90a --bounds view", "--bounds: only with --sanitize"),
        ("--arch sm_90a --pin p.toml", "--pin: a dry run measures nothing"),
        ("--arch sm_90a --autotune pinned", "--autotune pinned: give --policy"),
        ("--arch sm_90a --emulate", "--emulate needs numpy"),
        ("--arch sm_90a --launch-values", "--launch-values: a dry run has no values"),
        ("--gpu H100 --ptxas-limit 0", "--ptxas-limit 0.0: give a number above 0"),
        ("--pin p.toml --policy q.toml", "--pin measures again"),
        ("--only [", "["),
        ("--out script.py/x", "cannot keep captures there"),
        ("--prefix 1", "cannot start or be a PTX name"),
    ],
)
def test_what_does_not_go_together_is_refused(program: Program, words: str, said: str, monkeypatch, capsys) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert said in failing(capsys, "run", *words.split(), "script.py")
    assert program.command == []


def test_the_project_fills_in_what_the_command_line_left_out(program: Program) -> None:
    version = next(iter(available_ptxas())).version
    Path("pyproject.toml").write_text(f'[tool.tritonhook]\nonly = "add"\nptxas = "{version}"\nrewrites = ["tma-cta"]\n')
    main(["run", "script.py"])
    assert program.settings == make_settings(None, only="add", ptxas=version, rewrites=("tma-cta",))
    main(["run", "--only", "mul", "--options=-O1", "script.py"])
    changed = {"ptxas": version, "options": "-O1", "rewrites": ("tma-cta",)}
    assert program.settings == make_settings(None, only="mul", **changed)
    Path("p.toml").write_text("format = 1\n")
    Path("pyproject.toml").write_text('[tool.tritonhook]\npolicy = "p.toml"\n')
    main(["run", "script.py"])
    assert program.settings is not None and program.settings.policy is not None
    for words in (["--options=-O1"], ["--ptxas", version], ["--strip"], ["--pin", "q.toml"]):
        main(["run", *words, "script.py"])
        assert program.settings.policy is None, words
