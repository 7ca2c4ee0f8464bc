"""What a gate must not pass: new kernels that spill, configurations and scripts that nobody compiled."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from command_line import failing

from tests.capture.dry_run.test_programs import CONFIGS, LAUNCH, PRELUDE
from tests.snapshot.test_changes import facts
from tritonhook.cli import check as verb
from tritonhook.cli import main, parser
from tritonhook.cli._parser import from_namespace
from tritonhook.snapshot.changes import Change, compare, not_judged
from tritonhook.snapshot.facts import Budgets
from tritonhook.snapshot.lockfile import lock_text, read_lock
from tritonhook.snapshot.rules import failures, rules


@pytest.mark.parametrize(
    ("figures", "broken"),
    [
        ({"spill_stores": 2976, "spill_loads": 2972, "stack": 8}, ("spills", "stack")),
        ({"spill_stores": None, "spill_loads": None, "local_bytes": 4}, ("spills", "local_bytes")),
        ({"spill_stores": None, "spill_loads": None, "stack": None}, ("stack",)),
        ({"registers": 255, "shared": 1024}, ()),
    ],
)
def test_a_new_kernel_is_held_to_zero(figures: dict[str, int | None], broken: tuple[str, ...], capsys) -> None:
    changes = compare([facts("a")], [facts("a"), facts("b", code="2", **figures)])
    wanted = rules("spills,stack,local_bytes,registers")
    results = from_namespace(verb.Options, parser("check").parse_args(["check"])).results
    assert verb.give_changes(results, wanted, "old", "new", changes) == int(bool(broken))
    told = failures(changes, wanted).values()
    assert [tuple(rule.partition(" ")[0] for rule in each) for each in told] == ([broken] if broken else [])
    printed = capsys.readouterr().out
    for value in figures.values():
        assert value is None or f"{value:,}" in printed


@pytest.mark.parametrize(("allowed", "fails"), [(["b*"], False), (["c"], True), ([], True)])
def test_a_budget_lets_a_new_kernel_spill(allowed: list[str], fails: bool) -> None:
    spilled = facts("b", spill_stores=8, spill_loads=8, stack=8)
    for rule in rules("spills,stack"):
        held = replace(rule, budgets=Budgets.of(None, allowed))
        assert bool(failures([Change(None, spilled)], [held])) is fails
    full = replace(*rules("registers"), budgets=Budgets.of(168, None))
    assert failures([Change(None, facts(registers=169))], [full])


# --- scripts that run dry ------------------------------------------------------------------------

TUNED = f"kernels_ = triton.autotune({CONFIGS}, key=['n'])(kernels.add_kernel)\nkernels_[(8,)](x, x, x, 1000)\n"
OTHER = "kernels.multiply_kernel[(8,)](x, x, x, 1000, BLOCK=128, num_warps=2)\n"


@pytest.fixture
def scripts(tmp_path: Path, triton_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """mm.py has an autotuned kernel with four configurations, ops.py another kernel and one that both have."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mm.py").write_text(PRELUDE + TUNED)
    (tmp_path / "ops.py").write_text(PRELUDE + OTHER + LAUNCH.replace("num_warps=2", "num_warps=8"))
    return tmp_path / "tritonhook.lock"


def test_all_configurations_are_compiled_and_fewer_fail(scripts: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["lock", "mm.py", "--arch", "sm_90a"]) == 0
    locked = read_lock(scripts)
    assert len({one.configuration for one in locked}) == 4 and all(
        "BLOCK: " in str(one.configuration) for one in locked
    )
    check = ["check", "mm.py", "--arch", "sm_90a", "--fail-on", "spills,stack"]
    assert main(check) == 0
    capsys.readouterr()
    assert main([*check, "--autotune", "first"]) == 1
    printed = capsys.readouterr().out
    assert "add_kernel sm_90a: 1 of 4 configurations compiled" in printed
    assert main(["run", "--arch", "sm_90a", "--out", "caps", "mm.py"]) == 0
    assert "add_kernel: 1 of 4 configurations compiled" in capsys.readouterr().err
    assert main(["check", "caps", "--fail-on", "spills,stack"]) == 1
    capsys.readouterr()
    assert "--autotune: only for a script" in failing(capsys, "check", "caps", "--autotune", "all")


def test_several_scripts_are_one_capture_and_one_judges_its_own_kernels(scripts: Path, capsys) -> None:
    assert main(["lock", "mm.py", "ops.py", "--arch", "sm_90a", "--autotune", "first"]) == 0
    commands = {one.identity.kernel: set(one.commands) for one in read_lock(scripts)}
    assert commands["multiply_kernel"] == {"ops.py"} and len(read_lock(scripts)) == 3
    capsys.readouterr()
    how = ["--arch", "sm_90a", "--autotune", "first"]
    one, other, both = (["check", *names, *how] for names in (["mm.py"], ["ops.py"], ["mm.py", "ops.py"]))
    assert main(one) == 0
    assert "2 kernels of other commands not judged: ops.py" in capsys.readouterr().out
    Path("mm.py").write_text(PRELUDE + TUNED.replace("add_kernel", "multiply_kernel"))
    assert main(one) == 1, "its own kernel is gone, another is new"
    assert main([*one, "--update"]) == 0
    assert len(read_lock(scripts)) == 3 and main(both) == 0, "what is of ops.py stays"
    Path("ops.py").write_text(PRELUDE + OTHER)
    assert main(other) == 1, "gone from a command that ran"


def test_an_older_lock_is_read_and_judged_whole() -> None:
    old, new = facts("a"), replace(facts("b"), commands=("mm.py",))
    assert "commands" not in lock_text("k.lock", [old]) and "configuration" not in lock_text("k.lock", [old])
    assert not not_judged([old], [new])
    of_ops = replace(facts("c"), commands=("ops.py",))
    assert not not_judged([old, of_ops], [new]), "mm.py may be ops.py under a new name"
    assert not_judged([old, of_ops, new], [new]) == {of_ops.identity}


@pytest.mark.parametrize(
    ("text", "words", "told"),
    [
        ("", ("--html", "x.html", "--size", "4"), "--html"),
        ("", ("--arch=sm_90a", "--autotune", "all"), "--arch, --autotune"),
        ("'--html'", ("--html", "x.html"), ""),
        ("", ("--size", "4", "x"), ""),
    ],
)
def test_options_behind_the_script_are_named(text: str, words: tuple[str, ...], told: str, tmp_path, capsys) -> None:
    script = tmp_path / "s.py"
    script.write_text(text)
    assert main(["run", "--out", str(tmp_path / "caps"), str(script), *words]) == 0
    said = capsys.readouterr().err
    assert (f"{told}: passed to" in said) if told else ("passed to" not in said)
