"""A process of a dry run: the limit for ptxas, and what begins and ends with it, in this process."""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("triton", minversion="3.6")

from triton.backends.nvidia import compiler
from triton.runtime import driver
from triton.runtime.errors import PTXASError
from triton.runtime.jit import JITFunction

from tritonhook.capture.dry_run import process
from tritonhook.capture.dry_run.autotuner import tuners
from tritonhook.capture.dry_run.gpu import DryRun, Notes
from tritonhook.errors import ToolError

PTX = ".version 8.7\n.target sm_90a\n.address_size 64\n.visible .entry add()\n{\nret;\n}\n"


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> Notes:
    """The remarks of this process, of which there are none yet."""
    found = Notes()
    monkeypatch.setattr(process, "notes", found)
    return found


@pytest.fixture
def command(tmp_path: Path) -> tuple[list[str], Any]:
    """A command of Triton's, and the file of its messages."""
    source = tmp_path / "k.ptx"
    source.write_text(PTX)
    return ["ptxas", "-v", str(source), "-o", "k.cubin"], (tmp_path / "log").open("w")


def test_a_program_is_ended_when_it_takes_too_long() -> None:
    assert process._status(subprocess.Popen(["sh", "-c", "exit 3"]), 600) == 3
    sleeping = subprocess.Popen(["sleep", "600"])
    assert process._status(sleeping, 0.01) is None and sleeping.returncode == -9


def test_a_program_does_not_outlive_this_thread(monkeypatch) -> None:
    sleeping = subprocess.Popen(["sleep", "600"])
    wait = sleeping.wait

    def interrupted(*given: Any, **named: Any) -> Any:
        monkeypatch.setattr(sleeping, "wait", wait)
        raise KeyboardInterrupt

    monkeypatch.setattr(sleeping, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        process._status(sleeping, 600)
    assert sleeping.returncode == -9


def test_triton_gets_the_outcome_of_ptxas() -> None:
    own = compiler.subprocess
    with process.limited(600):
        assert compiler.subprocess.CalledProcessError is subprocess.CalledProcessError
        for check in (True, False):
            done = compiler.subprocess.run(["true"], check=check)
            assert (done.args, done.returncode) == (["true"], 0)
        assert compiler.subprocess.run(["sh", "-c", "exit 3"]).returncode == 3
        with pytest.raises(subprocess.CalledProcessError) as caught:
            compiler.subprocess.run(["false"], check=True, close_fds=False, stderr=subprocess.DEVNULL)
        assert (caught.value.returncode, caught.value.cmd) == (1, ["false"])
    assert compiler.subprocess is own


@pytest.mark.parametrize("trying", [False, True])
def test_a_kernel_that_takes_too_long_is_named_and_left_out(monkeypatch, notes, command, trying) -> None:
    """Where an autotuner tries a configuration, it gets the error, and passes it over."""
    words, log = command
    asked: list[Any] = []
    monkeypatch.setattr(subprocess, "Popen", lambda *given, **named: ("started", given, named))
    monkeypatch.setattr(process, "_status", lambda started, seconds: asked.append((started, seconds)))
    monkeypatch.setattr(tuners, "trying", trying)

    def do_compile(kernel: Any, key: Any, *rest: Any, **named: Any) -> Any:
        asked.append((kernel, key, rest, named))
        return compiler.subprocess.run(words, check=True, stderr=log) if key == "slow" else "compiled"

    monkeypatch.setattr(JITFunction, "_do_compile", do_compile)
    first: Any = "a kernel"
    call: Any = JITFunction
    with process.limited(7.5):
        assert call._do_compile(first, "fast", 1, a=2) == "compiled"
        assert asked == [(first, "fast", (1,), {"a": 2})]
        for _ in range(2):
            asked.clear()
            if trying:
                with pytest.raises(PTXASError, match=r"add: ptxas was ended after 7\.5 s"):
                    call._do_compile(first, "slow")
                Path(words[2]).write_text(PTX)
            else:
                assert call._do_compile(first, "slow") is None
            assert len(asked) == (2 if trying or _ == 0 else 0), "it is not tried again"
    assert list(notes) == ["add: ptxas was ended after 7.5 s (--ptxas-limit): no machine code"]
    assert JITFunction._do_compile is do_compile
    assert not Path(log.name).exists() and (trying or not Path(words[2]).exists())


def test_another_error_of_a_compile_is_tritons(monkeypatch, notes) -> None:
    def fail(*_: Any) -> None:
        raise PTXASError("theirs")

    monkeypatch.setattr(JITFunction, "_do_compile", fail)
    call: Any = JITFunction
    with process.limited(1), pytest.raises(PTXASError, match="theirs"):
        call._do_compile("a kernel", "key")
    assert list(notes) == []


def test_the_kernel_of_a_command_is_that_of_its_ptx(command) -> None:
    words, log = command
    assert process._source(words) == Path(words[2]) and process._kernel(words) == "add"
    process._remove(words, {"stderr": log})
    assert not Path(words[2]).exists() and not Path(log.name).exists()
    process._remove(words, {"stderr": log})
    process._remove(["ptxas"], {})
    assert process._kernel(words) == process._kernel(["ptxas"]) == "a kernel"
    Path(words[2]).write_text("no PTX")
    assert process._kernel(words) == "a kernel"


def test_a_dry_run_needs_a_ptxas_that_knows_the_architecture(monkeypatch) -> None:
    process.check_assembled(DryRun(90))
    asked: list[Any] = []

    def refuse(archs: Any, tools: Any) -> None:
        asked.append((archs, [tool.source for tool in tools], [tool.path.is_file() for tool in tools]))
        raise ToolError("unknown")

    monkeypatch.setattr("tritonhook.ptxas.tool.check_targets", refuse)
    with pytest.raises(ToolError):
        process.check_assembled(DryRun(100))
    assert asked == [(["sm_100a"], ["Triton"], [True])]
    monkeypatch.setattr(process, "find_spec", lambda name: None if name == "triton" else name)
    process.check_assembled(DryRun(100))


def test_what_begins_ends_in_reverse_and_with_an_error_too() -> None:
    told: list[str] = []

    @contextmanager
    def change(name: str, fails: bool = False) -> Any:
        told.append(name)
        if fails:
            raise ValueError
        yield
        told.append(f"end of {name}")

    with process._begun(change("a"), change("b")):
        assert told == ["a", "b"]
    assert told[2:] == ["end of b", "end of a"]
    told.clear()
    with pytest.raises(ValueError):
        process._begun(change("a"), change("b", fails=True))
    assert told[:2] == ["a", "b"]


def test_triton_is_that_of_a_dry_run_until_the_end(monkeypatch) -> None:
    limits: list[float] = []
    choices: list[str] = []

    @contextmanager
    def note(kept: list[Any], value: Any) -> Any:
        kept.append(value)
        yield
        kept.append("end")

    monkeypatch.setattr(process, "limited", lambda seconds: note(limits, seconds))
    monkeypatch.setattr("tritonhook.capture.dry_run.autotuner.choosing", lambda how: note(choices, how))
    before = driver._active
    with process.begin_triton(DryRun(80, "all", ptxas_seconds=9.0)):
        found: Any = driver.active
        assert (found.get_current_target().arch, limits, choices) == (80, [9.0], ["all"])
    assert (limits[1:], choices[1:]) == (["end"], ["end"])
    assert before is None or driver._active is before


def test_the_cute_dsl_launches_nothing_until_the_end(monkeypatch) -> None:
    stack = SimpleNamespace()
    monkeypatch.setattr("tritonhook.capture.dry_run.cute.nothing_launched", lambda: stack)
    assert process.begin_cute(DryRun(90)) is stack  # type: ignore[comparison-overlap]
