"""A timed comparison from start to verdict, with simulated processes: protocol, stopping, files, exit codes."""

import json
import os
import re
import signal
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from repository import ROOT, SUPPORT

from tritonhook._util.schema import as_schema
from tritonhook.cli import main
from tritonhook.cli.ab.timed import exit_code, progress_line
from tritonhook.device.child import Lost
from tritonhook.errors import DeviceError, TritonHookError, UsageError
from tritonhook.rename import Rename
from tritonhook.report.results.ab import TimedComparison, headline, load
from tritonhook.timing import coordinator
from tritonhook.timing.coordinator import (
    BLOCKS_PER_PROCESS,
    Process,
    _timed,
    control_of,
    is_precise,
    run,
    search_path,
)
from tritonhook.timing.plan import (
    Choices,
    Compared,
    Compiled,
    HowLaunched,
    KernelCode,
    Plan,
    Prepare,
    Prepared,
    Take,
    Taken,
    Timed,
)
from tritonhook.timing.statistics import CANDIDATE, CONTROL, REFERENCE, Comparison, SampleBlock, TimingVerdict

FAKE = (sys.executable, str(SUPPORT / "fake_worker.py"))


def compare(case: str, tmp_path: Path, **options) -> Timed:
    plan = Plan(f"fake:{case}", tmp_path, Rename(prefix="cutlass_"))
    return run(plan, start=lambda: Process(FAKE), **{"seconds": 3600.0} | options)


@pytest.fixture(scope="module")
def slower3(tmp_path_factory: pytest.TempPathFactory) -> Timed:
    """A comparison that several tests look at."""
    return compare("slower3", tmp_path_factory.mktemp("slower3"))


def saved(timed: Timed) -> str:
    """What `ab --save` writes."""
    return json.dumps(TimedComparison.of(timed).document())


@pytest.mark.parametrize(
    ("case", "verdict"),
    [
        ("slower3", TimingVerdict.SLOWER),
        ("faster10", TimingVerdict.FASTER),
        ("equal", TimingVerdict.SAME),
        ("noisycontrol", TimingVerdict.INCONCLUSIVE),
        ("strip", TimingVerdict.SAME),
    ],
)
def test_the_verdict_of_five_processes(case: str, verdict: TimingVerdict, tmp_path: Path) -> None:
    timed = compare(case, tmp_path)
    assert timed.comparison.verdict is verdict
    assert timed.stopped == "precise"
    assert timed.comparison.processes == 5
    assert timed.comparison.control_of == (CANDIDATE if case == "strip" else REFERENCE)
    assert {block.process for block in timed.comparison.blocks} == {0, 1, 2, 3, 4}
    assert headline(timed)[0].startswith(verdict.value.capitalize())


@pytest.mark.parametrize(("case", "word"), [("samecode", "Same code"), ("wrong", "Wrong")])
def test_equal_code_and_wrong_outputs_are_not_timed(case: str, word: str, tmp_path: Path) -> None:
    timed = compare(case, tmp_path)
    assert timed.comparison.blocks == ()
    assert timed.stopped == "nothing to time"
    assert headline(timed)[0] == word


def test_an_undecided_run_ends_when_its_time_is_over(tmp_path: Path) -> None:
    timed = compare("undecided", tmp_path, seconds=0.01)
    assert timed.stopped == "time"
    assert timed.comparison.verdict is TimingVerdict.INCONCLUSIVE
    assert timed.comparison.blocks


def test_processes_that_differ_call_for_more_processes(tmp_path: Path) -> None:
    timed = compare("scattered", tmp_path)
    assert timed.comparison.processes in (7, 9, 11), "two more at a time"
    taken = Counter(block.process for block in timed.comparison.blocks)
    assert set(taken) == set(range(timed.comparison.processes)) and max(taken.values()) == BLOCKS_PER_PROCESS
    assert timed.stopped in ("precise", "processes")
    assert timed.comparison.verdict is not TimingVerdict.FASTER


def test_a_verdict_of_one_process_names_that_it_is_one(tmp_path: Path) -> None:
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


def test_processes_with_unequal_code_are_not_combined(tmp_path: Path) -> None:
    with pytest.raises(TritonHookError, match="the processes did not compile the same code"):
        compare("othercode", tmp_path)
    assert compare("othercode", tmp_path, processes=1).comparison.processes == 1


def test_the_rule_for_stopping_looks_at_the_width_and_not_at_the_answer(slower3: Timed, tmp_path: Path) -> None:
    comparison = slower3.comparison
    assert is_precise(comparison)
    assert is_precise(replace(comparison, blocks=comparison.blocks[:20]))
    assert not is_precise(replace(comparison, blocks=comparison.blocks[:19]))
    assert is_precise(replace(comparison, blocks=tuple(comparison.blocks) * 4, band=1e-9)) is False
    noisy = compare("undecided", tmp_path, seconds=1).comparison
    assert not is_precise(noisy)


def test_the_control_belongs_to_the_side_with_its_code() -> None:
    assert control_of({REFERENCE: 1, CANDIDATE: 2, CONTROL: 1}) == REFERENCE
    assert control_of({REFERENCE: 1, CANDIDATE: 2, CONTROL: 2}) == CANDIDATE
    assert control_of({REFERENCE: 1, CANDIDATE: 2, CONTROL: 3}) is None


def test_a_saved_comparison_is_read_back_and_judged_again(slower3: Timed, tmp_path: Path, capsys) -> None:
    timed = slower3
    path = tmp_path / "saved.json"
    path.write_text(saved(timed))
    again = load(path)
    assert again == TimedComparison.of(timed)
    assert main(["ab", "--from", str(path)]) == 1
    assert "Slower by 3" in capsys.readouterr().out
    assert main(["ab", "--from", str(path), "--fail-on", "faster"]) == 0
    capsys.readouterr()
    assert main(["ab", "--from", str(path), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["verdict"] == "slower"
    assert len(document["blocks"]) == len(timed.comparison.blocks)


def test_a_saved_comparison_is_judged_by_another_band(slower3: Timed, tmp_path: Path, capsys) -> None:
    path = tmp_path / "saved.json"
    path.write_text(saved(slower3))
    assert main(["ab", "--from", str(path), "--band", "20%"]) == 0
    assert capsys.readouterr().out.startswith("Same: cutlass_kernel against kernel\n")


RESULTS = json.loads(ROOT.joinpath("benchmarks/results/name_effect.json").read_text())["samples"]


@pytest.mark.parametrize("sample", RESULTS, ids=lambda sample: f"{sample['kernel']}-{sample['ptxas']}")
def test_the_committed_samples_give_the_committed_verdicts(sample: dict) -> None:
    timed = as_schema(sample["comparison"], TimedComparison)
    if sample["verdict"] == "same code":
        assert timed.same_code
        assert not timed.comparison.blocks
        return
    assert timed.comparison.verdict.value == sample["verdict"]
    assert timed.comparison.control.verdict() is TimingVerdict.SAME or sample["verdict"] == "inconclusive"
    found = timed.comparison.effect()
    assert (found.ratio, found.low, found.high) == pytest.approx((sample["ratio"], *sample["interval"]), abs=1e-5)


@pytest.mark.parametrize("damage", ["side", "one block's side", "kernels", "control_of", "band", "seconds", "wrong"])
def test_a_damaged_comparison_is_refused(slower3: Timed, damage: str, tmp_path: Path, capsys) -> None:
    document = json.loads(saved(slower3))
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


def test_a_later_process_that_fails_loses_nothing(tmp_path: Path) -> None:
    begun: list[Process] = []

    def start() -> Process:
        begun.append(Process(FAKE if len(begun) < 5 else (sys.executable, "-c", "raise SystemExit(7)")))
        return begun[-1]

    timed = run(Plan("fake:scattered", tmp_path, Rename(prefix="cutlass_")), start=start)
    assert timed.stopped == "a process failed"
    assert "status 7" in timed.notes[-1]
    assert timed.comparison.processes == 5


@pytest.mark.parametrize("text", ["", "{}", '{"format": 1, "kind": "ab"}', '{"format": 2, "kind": "ab"}', "[1]"])
def test_a_file_without_a_comparison_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(UsageError):
        load(path)


def test_ctrl_c_while_the_first_processes_prepare_ends_them(tmp_path: Path, capsys) -> None:
    """Given a process that never finishes preparing; then it is killed, and the command says interrupted."""
    begun: list[Process] = []

    def start() -> Process:
        begun.append(Process((sys.executable, "-c", "import time; time.sleep(60)")))
        return begun[-1]

    def interrupt() -> None:
        while len(begun) < 5:
            time.sleep(0.02)
        time.sleep(0.5)  # they are waited for now
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        run(Plan("fake:equal", tmp_path, Rename(prefix="cutlass_")), start=start)
    assert [process._child._process.returncode for process in begun] == [-signal.SIGKILL] * 5
    assert "Traceback" not in capsys.readouterr().err


def test_a_document_without_clocks_is_judged_by_time_alone(slower3: Timed) -> None:
    document = json.loads(saved(slower3))
    for block in document["blocks"]:
        block["clock_mhz"] = {}
    timed = as_schema(document, TimedComparison)
    assert timed.comparison.verdict is TimingVerdict.SLOWER
    assert timed.comparison.cycles() is None


def test_a_gap_that_is_only_the_clocks_is_not_called(slower3: Timed, tmp_path: Path) -> None:
    timed = compare("slowclock3", tmp_path)
    assert timed.comparison.verdict is TimingVerdict.INCONCLUSIVE
    assert "slower in time" in timed.comparison.reason
    assert "not in cycles" in timed.comparison.reason
    assert slower3.comparison.cycles().verdict() is TimingVerdict.SLOWER


def test_the_report_says_what_was_tuned_and_what_baselines_compute(slower3: Timed, tmp_path: Path, capsys) -> None:
    timed = slower3.but(
        tuning=Choices("fixed", {REFERENCE: {"softmax": "B: 512"}, CANDIDATE: {"softmax": "B: 512"}}),
        baselines={"m:f": "output 0 differs by 0.5 where the largest value is 1 (rtol 0.02)"},
        code={"kernel": "different code: 3 of 5 instructions only in a"},
    )
    path = tmp_path / "saved.json"
    path.write_text(saved(timed))
    assert main(["ab", "--from", str(path)]) == 1
    shown = capsys.readouterr().out
    assert "all sides run the reference's configuration" in shown
    assert re.search("tuned, reference +softmax: B: 512", shown)
    assert "baseline m:f: output 0 differs by 0.5" in shown
    assert "3 of 5 instructions only in a" in shown
    assert "in SM cycles: +3" in shown
    assert re.search("other processes on the GPU +in ", shown)
    path.write_text(saved(timed.but(tuning=replace(timed.tuning, mode="each"))))
    main(["ab", "--from", str(path)])
    assert "each side chose its own configuration" in capsys.readouterr().out


@pytest.mark.parametrize(("tune_each", "mode"), [(False, "fixed"), (True, "each")])
def test_what_the_processes_prepared_and_chose_is_in_the_result(tune_each: bool, mode: str) -> None:
    sides = (REFERENCE, CANDIDATE, CONTROL)

    def prepared(**tuning: str) -> Prepared:
        made = {side: Compiled(("k",), ()) for side in sides}
        kernels: dict = {side: {"k": ()} for side in sides}
        chosen = {REFERENCE: tuning} if tuning else {}
        return Prepared(kernels, made, 1, device="NVIDIA H200", flushes=True, tuning=chosen)

    plain, one, other = prepared(), prepared(k="B: 1"), prepared(k="B: 2")
    plan = Plan("m:f", Path(), candidate="m:g", tune_each=tune_each)
    found = _timed(plan, [plain, plain], (), 0.005)
    assert (found.device, found.flushes, found.tuning, found.notes) == ("NVIDIA H200", True, None, ())
    assert _timed(plan, [one, one], (), 0.005).tuning == Choices(mode, one.tuning)
    assert _timed(plan, [one, other], (), 0.005).notes == ("the processes chose different configurations",)


def test_exit_codes(slower3: Timed) -> None:
    timed = slower3
    assert exit_code(timed, None) == 1
    assert exit_code(timed, "slower") == 1
    assert exit_code(timed, "faster") == 0
    nothing = timed.but(blocks=())
    assert exit_code(nothing, None) == 2
    assert exit_code(nothing, "slower") == 2
    assert exit_code(timed.but(wrong={CANDIDATE: "NaN"}), "slower") == 2
    same = {side: {"k": ["a"]} for side in (REFERENCE, CANDIDATE, CONTROL)}
    assert exit_code(nothing.but(kernels=same), "slower") == 0


def test_a_plan_needs_something_to_compare_with(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="candidate"):
        Plan("m:f", tmp_path)


def test_progress_says_the_estimate_so_far(tmp_path: Path) -> None:
    lines: list[str] = []
    compare("slower3", tmp_path, progress=lambda comparison: lines.append(progress_line(comparison)))
    assert "preparing" in lines[0]
    assert f"] {5 * (len(lines) - 1)} blocks: +" in lines[-1]
    assert progress_line(None, 0.5).count("#") == 10
    assert progress_line(None, 7.0).count("#") == 20
    assert as_schema(json.loads(saved(compare("equal", tmp_path))), TimedComparison).comparison.blocks


# --- what is asked of the processes, without processes -------------------------------------------

CODES = {side: {"k": (KernelCode(code, 40, 0),)} for side, code in ((REFERENCE, "a"), (CANDIDATE, "b"), (CONTROL, "a"))}


class Processes:
    """Starts what stands for processes, and notes what these are asked. The candidate takes `us` microseconds, and
    `apart` more in each further process; raised: by what is asked, as it is noted; a block takes `step_s`."""

    def __init__(self) -> None:
        self.log: list[tuple[Any, ...]] = []
        self.raised: dict[tuple[Any, ...], BaseException] = {}
        self.report = Prepared(CODES, {side: Compiled(("k",), ("12.8.93",)) for side in CODES}, 2, notes=("a note",))
        self.us, self.apart, self.step_s, self.now_s, self.started = 51.0, 0.0, 0.125, 0.0, 0

    def note(self, *entry: Any) -> None:
        self.log.append(entry)
        if entry in self.raised:
            raise self.raised[entry]

    def start(self) -> Any:
        self.started += 1
        return Started(self, self.started - 1)


class Started:
    def __init__(self, all_of_them: Processes, number: int) -> None:
        self.all, self.number = all_of_them, number

    def begin(self, plan: Plan) -> None:
        self.all.note(self.number, "begin", plan)

    def prepared(self) -> Prepared:
        self.all.note(self.number, "prepared")
        return self.all.report

    def blocks(self, count: int, process: int) -> tuple[SampleBlock, ...]:
        self.all.note(self.number, count, process)
        self.all.now_s += self.all.step_s
        return (block_of(process, self.all.us + process * self.all.apart),) * count

    def end(self) -> None:
        self.all.note(self.number, "end")

    def kill(self) -> None:
        self.all.note(self.number, "kill")


def block_of(process: int, us: float, control: float = 50.0) -> SampleBlock:
    return SampleBlock(process, {REFERENCE: (50.0,), CANDIDATE: (us,), CONTROL: (control,)})


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Processes:
    made = Processes()
    monkeypatch.setattr(coordinator, "time", SimpleNamespace(monotonic=lambda: made.now_s))
    return made


PLAN = Plan("m:f", Path("out"), Rename(prefix="x_"), seed=40)


def test_a_whole_comparison(processes: Processes) -> None:
    told: list[Comparison | None] = []
    sides = {side: HowLaunched(1, True) for side in CODES}
    versions = {"torch": "2.9", "cuda": None}
    processes.report = Prepared(
        CODES,
        processes.report.compiled,
        2,
        notes=("a note", "another", "a note"),
        device="Fake GPU",
        versions=versions,
        sides=sides,
        flushes=True,
        tuning={REFERENCE: {"k": "B: 64"}},
        baselines={"m:base": "differs"},
    )
    timed = run(PLAN, 0.01, 5, 60.0, told.append, processes.start)
    blocks = tuple(block_of(process, 51.0) for _ in range(4) for process in range(5))
    assert timed == Timed(
        target="m:f",
        compared={
            REFERENCE: Compared(("k",), ("12.8.93",), "k"),
            CANDIDATE: Compared(("k",), ("12.8.93",), "x_k"),
            CONTROL: Compared(("k",), ("12.8.93",), "k"),
        },
        kernels=CODES,
        outputs=2,
        wrong={},
        notes=("a note", "another"),
        device="Fake GPU",
        versions=versions,
        sides=sides,
        flushes=True,
        stopped="precise",
        seconds=2.5,
        blocks=blocks,
        band=0.01,
        control_of="reference",
        code={},
        tuning=Choices("fixed", {REFERENCE: {"k": "B: 64"}}),
        baselines={"m:base": "differs"},
    )
    assert told == [None, *(Comparison(blocks[:count], 0.01, "reference") for count in (5, 10, 15, 20))]
    assert processes.log == [
        *((n, "begin", replace(PLAN, seed=40 + n, out=Path("out") / str(n))) for n in range(5)),
        *((n, "prepared") for n in range(5)),
        *((n, 1, n) for _ in range(4) for n in range(5)),
        *((n, "end") for n in range(5)),
    ]


@pytest.mark.parametrize(
    ("count", "seconds", "stopped", "taken"),
    [
        (1, 1e9, "processes", [14]),
        (4, 1e9, "processes", [14] * 4),
        (5, 1e9, "processes", [14] * 11),
        (12, 1e9, "processes", [14] * 12),
        (2, 1.0, "time", [5, 5]),  # after four blocks of each, the time is just used up
        (2, 0.99, "time", [4, 4]),
        (5, 14 * 5 * 0.125, "time", [14] * 5 + [1, 1]),
    ],
)
def test_processes_that_differ_are_joined_by_more_until_time_is_up(
    count: int, seconds: float, stopped: str, taken: list[int], processes: Processes
) -> None:
    processes.apart = 1.0
    told: list[Comparison | None] = []
    timed = run(PLAN, processes=count, seconds=seconds, start=processes.start, progress=told.append)
    assert (timed.stopped, timed.band, timed.tuning) == (stopped, 0.005, None)
    assert Counter(block.process for block in timed.blocks) == dict(enumerate(taken))
    begun = [entry[2].seed for entry in processes.log if entry[1] == "begin"]
    assert begun == [40 + number for number in range(len(taken))] and told.count(None) == 1


def test_what_ends_a_comparison_before_its_time(processes: Processes) -> None:
    processes.apart = 1.0
    processes.raised = {(6, "prepared"): DeviceError("lost")}
    timed = run(PLAN, start=processes.start)
    assert (timed.stopped, timed.notes, len(timed.blocks)) == ("a process failed", ("a note", "lost"), 5 * 14)
    assert [entry[0] for entry in processes.log if entry[1] == "end"] == [0, 1, 2, 3, 4, 5, 6]
    for at, keeps in (((0, "prepared"), False), ((3, 1, 3), True)):
        processes.started, processes.log, processes.raised = 0, [], {at: KeyboardInterrupt()}
        if keeps:
            timed = run(PLAN, start=processes.start)
            assert (timed.stopped, len(timed.blocks)) == ("interrupted", 3)
        else:
            with pytest.raises(KeyboardInterrupt):
                run(PLAN, start=processes.start)
        assert [entry for entry in processes.log if entry[1] in ("kill", "end")] == [
            (n, "kill") for n in (4, 3, 2, 1, 0)
        ]
    processes.started, processes.raised = 0, {(0, 1, 0): DeviceError("lost")}
    with pytest.raises(DeviceError, match="^lost$"):
        run(PLAN, start=processes.start)


@pytest.mark.parametrize(
    ("even_same", "wrong", "timed"), [(False, {}, 0), (True, {}, 14), (True, {"control": "no"}, 0)]
)
def test_equal_code_is_timed_where_that_is_asked_for(
    even_same: bool, wrong: dict[str, str], timed: int, processes: Processes
) -> None:
    processes.report = Prepared({**CODES, CANDIDATE: CODES[REFERENCE]}, processes.report.compiled, 2, wrong)
    found = run(replace(PLAN, even_same=even_same), processes=1, start=processes.start)
    assert (len(found.blocks), found.wrong, found.control_of) == (timed, wrong, "reference")
    assert found.stopped == ("processes" if timed else "nothing to time")


def test_reports_of_processes_are_joined() -> None:
    one = Prepared(CODES, {side: Compiled(("k",), ()) for side in CODES}, 1, {CANDIDATE: "x"}, ("a", "b"))
    two = Prepared(CODES, one.compiled, 1, {CONTROL: "y"}, ("b", "c"), tuning={REFERENCE: {"k": "B: 64"}})
    timed = _timed(PLAN, [one, two], [], 0.005)
    assert timed.wrong == {CANDIDATE: "x", CONTROL: "y"}
    assert timed.notes == ("a", "b", "c", "the processes chose different configurations")
    for reports in ([one, Prepared({}, {}, 1)], [one, two, Prepared({}, {}, 1)]):
        with pytest.raises(TritonHookError) as error:
            _timed(PLAN, reports, [], 0.005)
        assert str(error.value) == (
            "m:f: the processes did not compile the same code, so their times cannot be combined; if the target tunes "
            "itself, fix its configuration, or use --processes 1"
        )


@pytest.mark.parametrize(
    ("us", "control", "precise"),
    [
        ((51.0, 51.0, 51.0, 51.0), 50.0, True),
        ((50.0, 50.1, 50.0, 50.1), 50.0, True),  # half the width is 0.18%, and half the band 0.25%
        ((50.0, 50.2, 50.0, 50.2), 50.0, False),
        ((60.0, 60.6, 60.0, 60.6), 50.0, True),  # 0.9% of an effect of 20%
        ((52.0, 52.5, 52.0, 52.5), 50.0, False),
        ((51.0, 51.0, 51.0, 51.0), 0.2, False),
    ],
)
def test_an_interval_is_narrow_against_the_band_or_a_large_effect(
    us: tuple[float, ...], control: float, precise: bool
) -> None:
    blocks = [block_of(n % 4, us[n % 4], 50.0 + control * (n % 2) if control < 1 else control) for n in range(20)]
    assert is_precise(Comparison(tuple(blocks))) is precise
    assert not is_precise(Comparison(tuple(blocks[:19])))


def test_a_process_is_asked_and_its_end_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    answers: list[Any] = ["ready", Taken((block_of(3, 51.0),)), Lost(None, "status 7")]

    class Child:
        def __init__(self, command: Any) -> None:
            asked.append(command)

        def send(self, request: Any) -> None:
            asked.append(request)

        def answer(self, kind: type, rest_s: float | None) -> Any:
            asked.append((kind, rest_s))
            if isinstance(found := answers.pop(0), Lost):
                raise found
            return found

        def finish(self) -> None:
            asked.append("finish")

        def end(self) -> None:
            asked.append("end")

    monkeypatch.setattr(coordinator, "Child", Child)
    process = Process(("run",))
    process.begin(PLAN)
    assert process.prepared() == "ready"  # type: ignore[comparison-overlap]
    assert process.blocks(2, 3) == (block_of(3, 51.0),)
    with pytest.raises(DeviceError, match="^a timing process is lost: status 7; its output is above$"):
        process.prepared()
    process.end()
    process.kill()
    took = [Prepare(PLAN), (Prepared, None), Take(2, 3), (Taken, None), (Prepared, None)]
    assert asked == [("run",), *took, "finish", "end"]
    Process()
    assert asked[-1] == (sys.executable, "-m", "tritonhook.timing.worker")


def test_a_target_is_looked_for_here_and_where_this_process_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", "/a", str(tmp_path), "/b", "/a"])
    assert search_path() == (str(tmp_path), "/a", "/b")
