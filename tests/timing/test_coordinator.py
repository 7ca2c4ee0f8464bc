"""A timed comparison from start to verdict, in simulated times: protocol, stopping, files, exit codes."""

import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_worker import Compared as Simulation
from msgspec import structs
from repository import ROOT, SUPPORT

from tritonhook._util.schema import as_schema
from tritonhook.cli import main
from tritonhook.cli.ab import exit_code
from tritonhook.errors import DeviceError, TritonHookError, UsageError
from tritonhook.rename import Rename
from tritonhook.report.results.ab import TimedComparison, judged, load
from tritonhook.timing import coordinator
from tritonhook.timing.coordinator import (
    Process,
    control_of,
    is_precise,
    run,
    search_path,
)
from tritonhook.timing.plan import (
    Choices,
    Plan,
    Prepared,
    Timed,
)
from tritonhook.timing.statistics import CANDIDATE, CONTROL, REFERENCE, Comparison, SampleBlock, TimingVerdict

FAKE = (sys.executable, str(SUPPORT / "fake_worker.py"))


class Simulated(Simulation):
    """What stands for a timing process, and answers as fake_worker.py does, in this process."""

    def __init__(self) -> None:
        pass

    def begin(self, plan: Plan) -> None:
        super().__init__(plan)

    def blocks(self, count: int, process: int) -> tuple[SampleBlock, ...]:
        return tuple(self.block(SimpleNamespace(process=process)) for _ in range(count))

    def end(self) -> None:
        pass

    kill = end


def compare(case: str, tmp_path: Path, start: Any = Simulated, **options) -> Timed:
    plan = Plan(f"fake:{case}", tmp_path, Rename(prefix="cutlass_"))
    return run(plan, start=start, **{"seconds": 3600.0} | options)


def process() -> Process:
    return Process(FAKE)


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
    timed = compare(case, tmp_path, process if case == "slower3" else Simulated)
    assert timed.comparison.verdict is verdict
    assert timed.stopped == "precise"
    assert timed.comparison.processes == 5
    assert timed.comparison.control_of == (CANDIDATE if case == "strip" else REFERENCE)
    assert {block.process for block in timed.comparison.blocks} == {0, 1, 2, 3, 4}
    assert judged(timed)[0].startswith(verdict.value.capitalize())


@pytest.mark.parametrize(("case", "word"), [("samecode", "Same code"), ("wrong", "Wrong")])
def test_equal_code_and_wrong_outputs_are_not_timed(case: str, word: str, tmp_path: Path) -> None:
    timed = compare(case, tmp_path)
    assert timed.comparison.blocks == ()
    assert timed.stopped == "nothing to time"
    assert judged(timed)[0] == word


def test_an_interrupt_keeps_what_is_there(tmp_path: Path) -> None:
    timed = compare("interrupted", tmp_path, process)
    assert timed.stopped == "interrupted"
    assert len(timed.comparison.blocks) >= 2


@pytest.mark.parametrize(
    ("case", "error", "text"), [("dies", DeviceError, "status 7"), ("error", UsageError, "no such")]
)
def test_what_ends_a_process_arrives_as_what_it_is(case: str, error: type, text: str, tmp_path: Path) -> None:
    with pytest.raises(error, match=text):
        compare(case, tmp_path, process, processes=2)


def test_processes_with_unequal_code_are_not_combined(tmp_path: Path) -> None:
    with pytest.raises(TritonHookError, match="the processes did not compile the same code"):
        compare("othercode", tmp_path)
    assert compare("othercode", tmp_path, processes=1).comparison.processes == 1


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
    path.write_text(saved(timed).replace('"band"', '"bond"'))
    assert main(["ab", "--from", str(path)]) == 2
    said = capsys.readouterr().err
    assert str(path) in said and "band is missing" in said


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


def test_a_later_process_that_fails_loses_nothing(tmp_path: Path) -> None:
    begun: list[Any] = []

    def start() -> Any:
        begun.append(Simulated() if len(begun) < 5 else Process((sys.executable, "-c", "raise SystemExit(7)")))
        return begun[-1]

    timed = compare("scattered", tmp_path, start)
    assert timed.stopped == "a process failed"
    assert "status 7" in timed.notes[-1]
    assert timed.comparison.processes == 5


def test_ctrl_c_while_the_first_processes_prepare_ends_them(tmp_path: Path, capsys) -> None:
    """Given processes that would end by themselves once their input is closed; then they are killed all the same."""
    begun: list[Process] = []

    def start() -> Process:
        begun.append(Process((sys.executable, "-c", "import sys; sys.stdin.read()")))
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


def test_a_gap_that_is_only_the_clocks_is_not_called(slower3: Timed, tmp_path: Path) -> None:
    timed = compare("slowclock3", tmp_path)
    assert timed.comparison.verdict is TimingVerdict.INCONCLUSIVE
    assert "slower in time" in timed.comparison.reason
    assert "not in cycles" in timed.comparison.reason
    assert slower3.comparison.cycles().verdict() is TimingVerdict.SLOWER


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


def block_of(process: int, us: float, control: float = 50.0) -> SampleBlock:
    return SampleBlock(process, {REFERENCE: (50.0,), CANDIDATE: (us,), CONTROL: (control,)})


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
    count: int, seconds: float, stopped: str, taken: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A block takes 0.125 s; each process is 2% slower than the one before."""
    now = SimpleNamespace(s=0.0)
    monkeypatch.setattr(coordinator, "time", SimpleNamespace(monotonic=lambda: now.s))

    class Exact(Simulated):
        def block(self, asked: Any) -> SampleBlock:
            now.s += 0.125
            return block_of(asked.process, 51.0 + asked.process)

    timed = compare("equal", tmp_path, Exact, processes=count, seconds=seconds)
    assert (timed.stopped, timed.band, timed.tuning) == (stopped, 0.005, None)
    assert Counter(block.process for block in timed.blocks) == dict(enumerate(taken))


@pytest.mark.parametrize("case", ["samecode", "wrong"])
def test_equal_code_is_timed_where_that_is_asked_for_and_wrong_code_never(case: str, tmp_path: Path) -> None:
    plan = Plan(f"fake:{case}", tmp_path, Rename(prefix="cutlass_"), even_same=True)
    found = run(plan, processes=1, start=Simulated)
    assert (len(found.blocks), found.stopped) == ((14, "processes") if case == "samecode" else (0, "nothing to time"))


def test_reports_of_processes_are_joined(tmp_path: Path) -> None:
    """Each has its note and its choice of a configuration; what is wrong in one is wrong."""
    number = iter(range(9))

    class Own(Simulated):
        def prepared(self) -> Prepared:
            n = next(number)
            report = super().prepared()
            wrong = {CONTROL: "y"} if n == 1 else {}
            return structs.replace(
                report, notes=("a note", f"note {n}"), tuning={REFERENCE: {"k": f"B: {n}"}}, wrong=wrong
            )

    timed = compare("equal", tmp_path, Own, processes=2)
    assert (timed.wrong, timed.blocks, timed.tuning) == (
        {CONTROL: "y"},
        (),
        Choices("fixed", {REFERENCE: {"k": "B: 0"}}),
    )
    assert timed.notes == ("a note", "note 0", "note 1", "the processes chose different configurations")


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


def test_a_target_is_looked_for_here_and_where_this_process_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", "/a", str(tmp_path), "/b", "/a"])
    assert search_path() == (str(tmp_path), "/a", "/b")
