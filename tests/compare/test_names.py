"""Comparing one kernel under two names: the control name, crashes, and a ptxas that is not deterministic."""

from pathlib import Path

import pytest
from shell_ptxas import shell_ptxas

from tritonhook.compare.names import compare_names
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
    with pytest.raises(UsageError, match="leaves 'work' as it is"):
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


@pytest.mark.parametrize(
    ("name", "rename"), [("work", Rename(prefix="cutlass_")), ("cutlass_work", Rename(strip="cutlass"))]
)
def test_each_side_is_disassembled_once(monkeypatch: pytest.MonkeyPatch, name: str, rename: Rename) -> None:
    """A comparison spends most of its time in nvdisasm."""
    from tritonhook.ptxas import toolchain

    seen: list[bytes] = []
    real = toolchain.run_nvdisasm
    monkeypatch.setattr(
        toolchain, "run_nvdisasm", lambda tool, cubin, *rest: seen.append(cubin) or real(tool, cubin, *rest)
    )
    comparison = compare_names(condition("loop").ptx(name), rename, Toolchain(find_ptxas(), find_nvdisasm()))
    assert comparison.runs == 1
    assert len(seen) == len(set(seen)) == 2


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
