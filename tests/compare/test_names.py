"""Comparing one kernel under two names: the control name, crashes, and a ptxas that is not deterministic."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from shell_ptxas import shell_ptxas

from tritonhook.compare import names
from tritonhook.compare.names import Draws, choose, compare_names
from tritonhook.errors import UsageError
from tritonhook.lab.published_table import condition
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.tool import find_nvdisasm, find_ptxas
from tritonhook.ptxas.toolchain import STEADY_RUNS, AssembleError, Toolchain
from tritonhook.rename import Rename

TARGET = {"target": "sm_90a", "version": "8.0"}


@pytest.fixture
def ptx() -> Ptx:
    return condition("fma").ptx("work", **TARGET)


def fake_ptxas(folder: Path, body: str) -> Toolchain:
    return Toolchain(shell_ptxas(folder, find_ptxas(), body), find_nvdisasm())


def test_a_crash_under_the_new_name_is_a_result(tmp_path: Path, ptx: Ptx) -> None:
    tools = fake_ptxas(tmp_path, 'grep -q cutlass_ "$in" && kill -SEGV $$')
    comparison = compare_names(ptx, Rename(prefix="cutlass_"), tools)
    ((kernel, crash),) = comparison.crashes
    assert (kernel, crash.signal) == ("cutlass_work", "SIGSEGV")
    assert comparison.diff is None
    assert comparison.control_is_neutral is True


def test_a_crash_under_its_own_name_is_an_error(tmp_path: Path, ptx: Ptx) -> None:
    tools = fake_ptxas(tmp_path, "kill -SEGV $$")
    with pytest.raises(AssembleError, match="died with SIGSEGV") as caught:
        compare_names(ptx, Rename(prefix="cutlass_"), tools)
    assert caught.value.crash.signal == "SIGSEGV"
    assert "repeat with" in str(caught.value)


def test_a_name_that_stays_is_an_error(ptx: Ptx) -> None:
    tools = Toolchain(find_ptxas(), find_nvdisasm())
    with pytest.raises(UsageError, match="does not change 'work'"):
        compare_names(ptx, Rename(strip="cutlass"), tools)


def unsteady(folder: Path, level: str, first: str = "") -> Toolchain:
    """A ptxas that gives each name two codes in turn; for `work` it begins with the other one."""
    other = "-O3" if level == "-O1" else "-O1"
    draw = (
        "name=$(grep -o 'entry [a-z_]*' \"$in\" | cut -d' ' -f2)\n"
        f"count={folder}/count-$name; n=$(cat $count 2>/dev/null || echo 0); echo $((n + 1)) > $count\n"
        'if [ "$name" = work ]; then n=$((n + 1)); fi\n'
        f'if [ $((n % 2)) = 1 ]; then exec "$real" "$@" {other}; fi'
    )
    return fake_ptxas(folder, f"{first}\n{draw}")


@pytest.mark.parametrize("name", ["playing", "cutlass_work"])
def test_two_draws_of_one_code_are_no_effect_of_the_name(tmp_path: Path, ptx: Ptx, name: str) -> None:
    # Given two codes for every name, on which the trigger has no effect
    tools = unsteady(tmp_path, "-O1")
    comparison = compare_names(ptx, Rename(mapping=(("work", name),)), tools, ("-O1",))
    assert comparison.diff.identical_code
    assert comparison.control_is_neutral
    assert comparison.runs > 1
    assert max(comparison.codes) > 1


def test_an_effect_among_several_draws_is_found(tmp_path: Path, ptx: Ptx) -> None:
    # Given a new name that never gets a code of the other names
    tools = unsteady(tmp_path, "-O2", 'grep -q "entry played" "$in" && exec "$real" -O0 "$@"')
    comparison = compare_names(ptx, Rename(mapping=(("work", "played"),)), tools, ())
    assert not comparison.diff.identical_code
    assert comparison.control_is_neutral
    assert comparison.runs > 8


def test_a_steady_ptxas_is_not_asked_for_ever(tmp_path: Path, ptx: Ptx) -> None:
    log = tmp_path / "log"
    tools = fake_ptxas(tmp_path, f'echo run >> {log}; grep -q "entry played" "$in" && exec "$real" -O0 "$@"')
    comparison = compare_names(ptx, Rename(mapping=(("work", "played"),)), tools, ())
    assert not comparison.diff.identical_code
    assert comparison.codes == (1, 1, 1)
    assert len(log.read_text().split()) == 3 * comparison.runs == 3 * (STEADY_RUNS + 1)


def test_proof_by_the_detector_needs_no_second_run(tmp_path: Path) -> None:
    log = tmp_path / "log"
    tools = fake_ptxas(tmp_path, f"echo run >> {log}")
    comparison = compare_names(condition("loop").ptx("work"), Rename(prefix="cutlass_"), tools)
    assert comparison.diff.other_scheduler == (False, True)
    assert (comparison.runs, len(log.read_text().split())) == (1, 3)


def test_a_control_that_is_not_neutral_is_said(tmp_path: Path, ptx: Ptx) -> None:
    # Given a ptxas that gives the kernel's own name one code and all other names another one
    tools = fake_ptxas(tmp_path, 'grep -q "entry work" "$in" || exec "$real" -O1 "$@"')
    comparison = compare_names(ptx, Rename(prefix="cutlass_"), tools)
    assert comparison.control_is_neutral is False
    assert comparison.control_diff is not None
    assert not comparison.control_diff.identical_code


def test_nothing_is_left_in_the_temporary_folder(tmp_path: Path, ptx: Ptx, monkeypatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    tools = Toolchain(find_ptxas(), find_nvdisasm())
    compare_names(ptx, Rename(prefix="cutlass_"), tools)
    assert list(tmp_path.iterdir()) == []


# --- draws, without ptxas -------------------------------------------------------------------------


def build(code: str | None, kernel: str = "k") -> Any:
    """Letters stand for instructions."""
    text = None if code is None else b"".join(letter.encode() * 16 for letter in code)
    return SimpleNamespace(kernel=kernel, code=text)


def drawn_codes(draws: Any) -> list[list[str]]:
    return [["".join(map(chr, code[::16])) for code in item.codes] for item in draws]


def test_the_builds_to_compare_have_a_common_code_and_the_nearest_to_it() -> None:
    def codes(*places: int) -> list[str]:
        draws = [Draws(tuple(map(build, some)), 1) for some in (["XYZ", "ABZ", "AAA"], ["PQR", "ABC"], ["ABC", "XYZW"])]
        return drawn_codes([Draws((one,), 1) for one in choose(draws, *places)])

    assert codes(0, 1, 2) == [["ABZ"], ["ABC"], ["ABC"]]
    assert codes(0, 2, 1) == [["ABZ"], ["ABC"], ["ABC"]]
    assert codes(2, 0, 1) == [["XYZ"], ["PQR"], ["ABC"]]  # these two have none in common
    assert names._distance(b"A" * 32, b"A" * 16 + b"B" * 16 + b"C") == 2 and names._distance(b"", b"A") == 1


def test_what_launches_add_is_in_both_comparisons(ptx: Ptx) -> None:
    tools = Toolchain(find_ptxas(), find_nvdisasm())
    comparison = compare_names(ptx, Rename(prefix="cutlass_"), tools)
    both = replace(comparison, control_diff=comparison.diff).with_launches(64)
    assert comparison.diff is not None and both.diff == both.control_diff == comparison.diff.with_launches(64, 64)
    told = {delta.field: (delta.a, delta.b) for delta in comparison.diff.with_launches(64, 32).resources}
    before = {delta.field: (delta.a, delta.b) for delta in comparison.diff.resources}
    shared = [part or 0 for part in before["shared"]]
    assert told == before | {"shared": (shared[0] + 64, shared[1] + 32), "dynamic_shared": (64, 32)}
    assert comparison.diff.with_launches(None, 0) is comparison.diff
    assert comparison.with_launches(None).control_diff is comparison.control_diff
