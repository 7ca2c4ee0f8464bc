"""A timed comparison from start to verdict, with simulated processes: protocol, stopping, files, exit codes."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tritonhook.ab_run import Process, Timed, control_of, from_document, is_precise, load, run, to_document
from tritonhook.ab_worker import Plan
from tritonhook.cli import main
from tritonhook.cli._ab_timed import exit_code
from tritonhook.errors import DeviceError, UsageError
from tritonhook.measurement import CANDIDATE, CONTROL, REFERENCE, Comparison, Verdict
from tritonhook.rename import Rename
from tritonhook.report.timing import headline, progress_line

FAKE = (sys.executable, str(Path(__file__).with_name("fake_ab_worker.py")))


def compare(case: str, tmp_path: Path, **options) -> Timed:
    plan = Plan(f"fake:{case}", tmp_path, Rename(prefix="cutlass_"))
    return run(plan, start=lambda: Process(FAKE), **options)


@pytest.mark.parametrize(
    ("case", "verdict"),
    [
        ("slower3", Verdict.SLOWER),
        ("faster10", Verdict.FASTER),
        ("equal", Verdict.SAME),
        ("noisycontrol", Verdict.INCONCLUSIVE),
        ("strip", Verdict.SAME),
    ],
)
def test_the_verdict_of_three_processes(case: str, verdict: Verdict, tmp_path: Path) -> None:
    timed = compare(case, tmp_path)
    assert timed.comparison.verdict is verdict
    assert timed.stopped == "precise"
    assert timed.comparison.processes == 3
    assert timed.comparison.control_of == (CANDIDATE if case == "strip" else REFERENCE)
    assert {block.process for block in timed.comparison.blocks} == {0, 1, 2}
    assert verdict.name in headline(timed)


@pytest.mark.parametrize(("case", "word"), [("samecode", "SAME CODE"), ("wrong", "WRONG")])
def test_equal_code_and_wrong_outputs_are_not_timed(case: str, word: str, tmp_path: Path) -> None:
    timed = compare(case, tmp_path)
    assert timed.comparison.blocks == ()
    assert timed.stopped == "nothing to time"
    assert headline(timed).startswith(word)


def test_an_undecided_run_ends_when_its_time_is_over(tmp_path: Path) -> None:
    timed = compare("undecided", tmp_path, seconds=0.5)
    assert timed.stopped == "time"
    assert timed.comparison.verdict is Verdict.INCONCLUSIVE
    assert timed.comparison.blocks


def test_processes_that_differ_call_for_more_processes(tmp_path: Path) -> None:
    timed = compare("scattered", tmp_path)
    assert timed.comparison.processes > 3
    assert timed.stopped in ("precise", "processes")
    assert timed.comparison.verdict is not Verdict.FASTER


def test_one_process_is_what_one_process_says(tmp_path: Path) -> None:
    timed = compare("equal", tmp_path, processes=1)
    assert timed.comparison.processes == 1
    assert timed.stopped == "processes"
    assert "1 process(es) only" in timed.comparison.reason


def test_an_interrupt_keeps_what_is_there(tmp_path: Path) -> None:
    timed = compare("interrupted", tmp_path)
    assert timed.stopped == "interrupted"
    assert len(timed.comparison.blocks) >= 2


def test_a_process_that_dies_is_an_error_with_its_status(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="status 7"):
        compare("dies", tmp_path)


def test_an_error_in_the_process_arrives_as_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such target"):
        compare("error", tmp_path)


def test_the_rule_for_stopping_looks_at_the_width_and_not_at_the_answer(tmp_path: Path) -> None:
    comparison = compare("slower3", tmp_path).comparison
    assert is_precise(comparison)
    assert not is_precise(replace(comparison, blocks=comparison.blocks[:19]))
    assert is_precise(replace(comparison, blocks=tuple(comparison.blocks) * 4, band=1e-9)) is False
    noisy = compare("undecided", tmp_path, seconds=1).comparison
    assert not is_precise(noisy)


def test_the_control_belongs_to_the_side_with_its_code() -> None:
    assert control_of({REFERENCE: 1, CANDIDATE: 2, CONTROL: 1}) == REFERENCE
    assert control_of({REFERENCE: 1, CANDIDATE: 2, CONTROL: 2}) == CANDIDATE
    assert control_of({REFERENCE: 1, CANDIDATE: 2, CONTROL: 3}) is None


def test_a_saved_comparison_is_read_back_and_judged_again(tmp_path: Path, capsys) -> None:
    timed = compare("slower3", tmp_path)
    path = tmp_path / "saved.json"
    path.write_text(json.dumps(to_document(timed)))
    again = load(path)
    assert again == timed
    assert main(["ab", "--from", str(path)]) == 1
    assert "SLOWER" in capsys.readouterr().out
    assert main(["ab", "--from", str(path), "--fail-on", "faster"]) == 0
    capsys.readouterr()
    assert main(["ab", "--from", str(path), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["verdict"] == "slower"
    assert len(document["blocks"]) == len(timed.comparison.blocks)


def test_a_saved_comparison_is_judged_by_another_band(tmp_path: Path, capsys) -> None:
    path = tmp_path / "saved.json"
    path.write_text(json.dumps(to_document(compare("slower3", tmp_path))))
    assert main(["ab", "--from", str(path), "--band", "20%"]) == 0
    assert "SAME" in capsys.readouterr().out


RESULTS = json.loads(Path(__file__).parents[1].joinpath("benchmarks/results/name_effect.json").read_text())["samples"]


@pytest.mark.parametrize("sample", RESULTS, ids=lambda sample: f"{sample['kernel']}-{sample['ptxas']}")
def test_the_committed_samples_give_the_committed_verdicts(sample: dict) -> None:
    timed = from_document(sample["comparison"])
    if sample["verdict"] == "same code":
        assert timed.same_code
        assert not timed.comparison.blocks
        return
    assert timed.comparison.verdict.value == sample["verdict"]
    assert timed.comparison.control.verdict() is Verdict.SAME
    found = timed.comparison.effect()
    assert (found.ratio, found.low, found.high) == pytest.approx((sample["ratio"], *sample["interval"]), abs=1e-5)


@pytest.mark.parametrize("damage", ["side", "one block's side", "kernels", "control_of", "band", "seconds", "wrong"])
def test_a_damaged_comparison_is_said_to_be_none(damage: str, tmp_path: Path, capsys) -> None:
    document = json.loads(json.dumps(to_document(compare("slower3", tmp_path))))
    if damage == "side":
        for block in document["blocks"]:
            del block["times_us"][CANDIDATE]
    elif damage == "one block's side":
        del document["blocks"][0]["times_us"][CONTROL]
    elif damage == "kernels":
        del document["kernels"][CANDIDATE]
    else:
        document[damage] = ["x"]
    path = tmp_path / "saved.json"
    path.write_text(json.dumps(document))
    assert main(["ab", "--from", str(path)]) == 2
    said = capsys.readouterr().err
    assert str(path) in said
    assert "internal error" not in said


def test_options_without_effect_are_refused(tmp_path: Path, capsys) -> None:
    assert main(["ab", str(tmp_path / "k.ptx"), "--baseline", "m:f", "--fail-on", "slower"]) == 2
    assert "--baseline, --fail-on: only for MODULE:FUNCTION" in capsys.readouterr().err


def test_a_later_process_that_fails_loses_nothing(tmp_path: Path) -> None:
    begun: list[Process] = []

    def start() -> Process:
        begun.append(Process(FAKE if len(begun) < 3 else (sys.executable, "-c", "raise SystemExit(7)")))
        return begun[-1]

    timed = run(Plan("fake:scattered", tmp_path, Rename(prefix="cutlass_")), start=start)
    assert timed.stopped == "a process failed"
    assert "status 7" in timed.notes[-1]
    assert timed.comparison.processes == 3


@pytest.mark.parametrize("text", ["", "{}", '{"format": 1, "kind": "ab"}', '{"format": 2, "kind": "ab"}', "[1]"])
def test_what_is_no_saved_comparison_is_said_to_be_none(text: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(UsageError):
        load(path)


def test_exit_codes(tmp_path: Path) -> None:
    timed = compare("slower3", tmp_path)
    assert exit_code(timed, None) == 1
    assert exit_code(timed, "slower") == 1
    assert exit_code(timed, "faster") == 0
    nothing = replace(timed, comparison=Comparison(()))
    assert exit_code(nothing, None) == 2
    assert exit_code(nothing, "slower") == 2
    assert exit_code(replace(timed, wrong={CANDIDATE: "NaN"}), "slower") == 2
    same = {side: {"k": ["a"]} for side in (REFERENCE, CANDIDATE, CONTROL)}
    assert exit_code(replace(nothing, kernels=same), "slower") == 0


def test_a_plan_survives_the_way_to_the_process(tmp_path: Path) -> None:
    plan = Plan("m:f", tmp_path, Rename(strip="cutlass"), None, ("a:b",), "x", False, 1e-3, seed=5, path=("/p",))
    assert Plan.from_json(plan.to_json()) == plan
    other = Plan("m:f", tmp_path, candidate="m:g", check=False)
    assert Plan.from_json(other.to_json()) == other


def test_a_plan_needs_something_to_compare_with(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="candidate"):
        Plan("m:f", tmp_path)


def test_progress_says_the_estimate_so_far(tmp_path: Path) -> None:
    lines: list[str] = []
    compare("slower3", tmp_path, progress=lambda comparison: lines.append(progress_line(comparison)))
    assert lines[-1].startswith(f"{3 * len(lines)} blocks: +")
    assert from_document(to_document(compare("equal", tmp_path))).comparison.blocks
