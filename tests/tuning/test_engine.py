"""Tuning with simulated times: what wins, what is left and why, and what becomes of codes that fail. No GPU."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_worker import FakeWorker
from patient_child import be_patient
from repository import SUPPORT
from tuned import PTX, kernel_with
from tuned import code as made

from tritonhook.capture.launches.contents import SPECIAL
from tritonhook.capture.launches.record import Launch, to_document
from tritonhook.capture.policy.levers import lever
from tritonhook.capture.selection import Kernel
from tritonhook.device.child import At, ContextLost, Lost
from tritonhook.device.sm_clock import Conditions
from tritonhook.errors import DeviceError, UsageError
from tritonhook.ptx.module import Ptx
from tritonhook.timing.plan import Take
from tritonhook.timing.statistics import CANDIDATE, CONTROL, REFERENCE, SampleBlock
from tritonhook.tuning import engine
from tritonhook.tuning.candidates import Candidate, Choice, Dropped
from tritonhook.tuning.engine import TuneProgress, TuneSettings, tune
from tritonhook.tuning.gpu import GpuProcess, LoadCodes, RaceReady
from tritonhook.tuning.race import TuneRun, TuneVerdict
from tritonhook.tuning.same_bits import held
from tritonhook.tuning.wins import entries, pins

COMMAND = (sys.executable, str(SUPPORT / "fake_worker.py"))


def code(text: str | None, **how: object) -> Candidate:
    """A code that does what the fake reads in it."""
    return made(text, json.dumps(how).encode())


class Simulated:
    """What stands for a process with the GPU, and answers as fake_worker.py does, in this process."""

    device = "Fake GPU"

    def __init__(self, limit_s: float) -> None:
        self.worker = FakeWorker()

    def prepare(self, request: LoadCodes) -> RaceReady:
        return self._ask(request)

    def blocks(self, count: int, process: int, sides: Sequence[str]) -> tuple[SampleBlock, ...]:
        return self._ask(Take(count, process, tuple(sides))).blocks

    def free(self) -> None:
        pass

    end = free

    def _ask(self, request: Any) -> Any:
        at = None
        try:
            for answer in self.worker.carry_out(request):
                at = answer.name if isinstance(answer, At) else None
        except ContextLost as lost:
            raise Lost(at, str(lost)) from None
        return answer


def in_processes(limit: float) -> GpuProcess:
    return GpuProcess(limit, COMMAND)


def tuned(*wanted: tuple[Kernel, Choice], start: Any = Simulated, progress=lambda step: None, **fields) -> TuneRun:
    return tune(wanted, TuneSettings(limit_s=20.0, start=start, **fields), progress)


def only(*others: Candidate, start: Any = Simulated, **fields):
    (row,) = tuned(kernel_with(*others, **fields), start=start).rows
    return row


def test_a_gain_of_3_percent_is_certified_and_becomes_an_entry() -> None:
    run = tuned(kernel_with(code("O1", us=51.0), code("name", us=48.5), code("O2", us=50.0)), start=in_processes)
    (row,) = run.rows
    assert row.verdict is TuneVerdict.WIN and row.reason == "" and row.tried.winner.text == "name"
    assert row.certificate.gain_percent == pytest.approx(3.0, abs=0.5)
    assert row.tried.comparison.processes == 7 and "O1" in row.tried.race.dropped
    (entry,) = entries(run, "2026-11-22")
    assert (entry.lever.text, entry.gpu, entry.ptxas) == ("name", "Fake GPU", "12.8.93")
    low, high = entry.interval_percent
    assert low < entry.gain_percent < high


def test_other_outputs_are_left_before_anything_is_timed() -> None:
    row = only(code("O1", us=40.0, wrong="output 0 differs in its bits"), code("name", us=48.0))
    assert row.tried.winner.text == "name" and row.verdict is TuneVerdict.WIN
    assert [(one.lever.text, one.reason) for one in row.tried.failed] == [("O1", "output 0 differs in its bits")]
    assert "O1" not in row.tried.race.log_ratios and "O1" not in row.tried.race.dropped
    row = only(code("O1", us=40.0, wrong="output 0 differs in its bits"))
    assert row.verdict is TuneVerdict.LEAVE and row.tried.race is None


def test_what_raced_confirms_nothing() -> None:
    """Given a kernel that is tuned after another; then its processes that confirm took no part in any race."""
    first, second = tuned(kernel_with(code("name", us=48.0)), kernel_with(code("name", fickle=2.0))).rows
    assert first.verdict is TuneVerdict.WIN and first.tried.comparison.processes == 7
    assert second.verdict is TuneVerdict.LEAVE and second.tried.comparison.effect().ratio == pytest.approx(
        1.0, abs=0.005
    )
    assert {block.process for block in first.tried.comparison.blocks} == set(range(1, 8))


@pytest.mark.parametrize(
    ("how", "text"),
    [({"hang": True}, "no end within 20 s"), ({"crash": True}, "ILLEGAL_ADDRESS"), ({"refused": "no"}, "no")],
)
def test_a_code_that_hangs_or_crashes_is_dropped_and_the_others_race_on(how, text: str, monkeypatch) -> None:
    be_patient(monkeypatch)
    row = only(code("O1", **how), code("name", us=48.0), start=Simulated if "refused" in how else in_processes)
    assert [one.lever.text for one in row.tried.failed] == ["O1"] and text in row.tried.failed[0].reason
    assert row.verdict is TuneVerdict.WIN and row.tried.winner.text == "name"


def test_a_kernel_that_fails_leaves_the_others_alone() -> None:
    bad = [
        kernel_with(code("O1"), plain=code(None, crash=True)),
        kernel_with(code("O1"), plain=code(None, refused="CUDA_ERROR_INVALID_IMAGE")),
        kernel_with(code("O1"), plain=code(None, unsteady=True)),
        kernel_with(code("O1", crash_timed=True)),
        kernel_with(code("O1", us=40.0, unfit=True)),
    ]
    run = tuned(*bad, kernel_with(code("name", us=48.0)), start=in_processes)
    texts = ("ILLEGAL_ADDRESS", "INVALID_IMAGE", "differ from run to run", "timing: ", "HW_SLOWDOWN")
    for row, text in zip(run.rows, texts, strict=False):
        assert row.verdict is TuneVerdict.LEAVE and text in row.reason and not row.tried.is_judged
    assert run.rows[-1].verdict is TuneVerdict.WIN


def test_a_kernel_without_other_code_costs_no_gpu() -> None:
    def never(limit: float) -> GpuProcess:
        raise AssertionError("no process was needed")

    run = tune([kernel_with(), kernel_with()], TuneSettings(start=never))
    assert [row.tried.seconds for row in run.rows] == [0, 0] and run.device == ""
    assert {row.reason for row in run.rows} == {"no lever gives it other code"}


def test_a_gain_at_one_launch_must_be_no_loss_at_another(monkeypatch: pytest.MonkeyPatch) -> None:
    one = kernel_with(code("name", us=48.0), us=(10.0, 9.0, 0.1))
    (row,) = tuned(one).rows
    assert row.verdict is TuneVerdict.WIN and [note for note in row.tried.notes if "launch 1" in note]
    assert not [note for note in row.tried.notes if "launch 2" in note], "it takes too little time to matter"
    (row,) = tuned(kernel_with(code("name", us=48.0, us_at={"1.json": 52.0}), us=(10.0, 9.0))).rows
    assert row.verdict is TuneVerdict.LEAVE and row.certificate.wins
    assert "faster at one launch, but its time is +" in row.reason and row.reason.endswith("at launch 1")
    (row,) = tuned(kernel_with(code("name", us=48.0, us_at={"2.json": 52.0}), us=(10.0, 9.0, 8.0))).rows
    assert row.verdict is TuneVerdict.LEAVE and row.reason.endswith("at launch 2"), "each of the others is timed"
    (row,) = tuned(kernel_with(code("name", us=48.0, unfit="1.json"), us=(10.0, 9.0))).rows
    assert row.verdict is TuneVerdict.LEAVE, "where nothing could be timed, it may be slower"
    assert row.reason == "name is faster at one launch, but no sample could be used at launch 1"


def test_ctrl_c_keeps_what_is_certified() -> None:
    steps: list[TuneProgress] = []
    wanted = [
        kernel_with(code("name", us=48.0)),
        kernel_with(code("name", us=48.0)),
        kernel_with(code("O1", interrupt=1)),
        kernel_with(code("O2")),
    ]
    run = tuned(*wanted, start=in_processes, progress=steps.append)
    assert run.stopped == "interrupted" and len(run.rows) == 2 == len(run.wins)
    assert [step.done for step in steps if step.finished] == [1, 2]


def test_without_a_gpu_there_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_TUNING", '{"no gpu": 1}')
    with pytest.raises(DeviceError, match="--assemble-only needs none"):
        tuned(kernel_with(code("O1")), start=in_processes)


# --- several configurations of an autotuned kernel -----------------------------------------------


def configuration(*others: Candidate, ptx: str = "other", **how: object) -> Choice:
    """A configuration whose own code does what `how` says."""
    _, choice = kernel_with(*others, plain=code(None, **how))
    text = PTX.text.replace("ret;", f"// {ptx}\n\tmov.u32 %r1, {len(ptx)};\n\tret;")
    return replace(choice, subject=replace(choice.subject, ptx=Ptx(text)))


def test_a_lever_must_beat_the_best_configuration_without_one() -> None:
    """Given a lever that makes the configuration of the autotuner 8% faster, and another configuration that is faster
    without any; then there is nothing to win."""
    row = only(code("name", us=55.0), plain=code(None, us=60.0), siblings={"BLOCK: 128": configuration(us=50.0)})
    assert row.verdict is TuneVerdict.LEAVE and row.tried.is_judged and row.certificate is None
    assert row.reason == "none of 1 other codes is faster than the best of 2 configurations by 0.5%"


def test_configuration_and_lever_win_together_and_are_pinned_together() -> None:
    best = configuration(code("O1", us=48.0), ptx="best", us=50.0)
    run = tuned(
        kernel_with(
            code("name", us=55.0),
            plain=code(None, us=60.0),
            siblings={"BLOCK: 128": best, "BLOCK: 32": configuration(code("O2", us=53.0), us=54.0)},
        )
    )
    (row,) = run.rows
    assert (
        row.verdict is TuneVerdict.WIN and row.tried.winner.name == "BLOCK: 128: O1" and row.tried.base == "BLOCK: 128"
    )
    assert row.certificate.gain_percent == pytest.approx(4.0, abs=0.5), "over the best plain code"
    (entry,), (pin,) = entries(run, "2026-11-22"), pins(run, "2026-11-22")
    assert entry.lever.text == "O1" and entry.ptx == best.subject.ptx_sha256 == pin.ptx
    assert (pin.function, pin.key, pin.config) == ("k", ("n=1000", "torch.float32"), "BLOCK: 128")
    assert row.tried.choice.subject.ptx_sha256 != entry.ptx


def test_the_choice_of_the_autotuner_is_pinned_where_its_lever_wins() -> None:
    run = tuned(kernel_with(code("name", us=48.0), siblings={"BLOCK: 128": configuration(us=51.0)}))
    (row,) = run.rows
    assert row.verdict is TuneVerdict.WIN and row.tried.base is None
    assert row.tried.comparison.control_of == REFERENCE, "the faster plain code is the reference, and has the control"
    assert [(pin.config, pin.arch) for pin in pins(run, "2026-11-22")] == [("BLOCK: 64", "sm_90a")]
    assert pins(tuned(kernel_with(code("name", us=48.0))), "2026-11-22") == [], "it is not autotuned"


def test_a_configuration_that_is_only_fast_in_new_processes_is_the_one_to_beat() -> None:
    """Given a configuration that seemed 1% slower in the race and is the fastest in new processes; then the gain is one
    over it."""
    slow_in_the_race = configuration(us=49.0, fickle=-1.5)
    row = only(code("name", us=48.0), siblings={"BLOCK: 128": slow_in_the_race})
    assert row.verdict is TuneVerdict.WIN and row.tried.base == "BLOCK: 128"
    assert row.certificate.gain_percent == pytest.approx(2.0, abs=0.5)
    assert row.tried.comparison.control.ratio == pytest.approx(1.0, abs=0.005), "of the code that it has"


def test_a_configuration_that_crashes_takes_its_levers_along() -> None:
    others = {"BLOCK: 128": configuration(code("O1", us=30.0), crash=True)}
    row = only(code("name", us=48.0), siblings=others)
    assert row.verdict is TuneVerdict.WIN and row.tried.winner.name == "name"
    assert any("BLOCK: 128" in note and "ILLEGAL_ADDRESS" in note for note in row.tried.notes)


@pytest.mark.parametrize(
    ("config", "text"),
    [("BM=1", "no kernel has this configuration; .*: BLOCK: 64"), ("W=4", "fits several"), ("W", "write NAME=VALUE")],
)
def test_the_configuration_whose_bits_are_asked_for_is_one_of_those(config, text) -> None:
    kernel, _ = kernel_with(siblings={"BLOCK: 128": configuration()})
    kernel = replace(kernel, settings=(("W", "4"),), siblings=(replace(kernel, settings=(("W", "4"), ("B", "2"))),))
    with pytest.raises(UsageError, match=text):
        list(held(None, [kernel], config))


def test_a_forced_confirmation_runs_to_its_end() -> None:
    """Given copies of the own code; then all processes confirm the one that led, and it is no win."""
    (row,) = tuned(kernel_with(code("name"), code("O1")), forced=True).rows
    assert row.verdict is TuneVerdict.LEAVE and row.tried.comparison.processes == 7 and row.certificate is not None


@pytest.mark.parametrize("same_bits", [False, True])
def test_each_code_is_launched_as_its_configuration_and_stores_what_that_does(same_bits) -> None:
    """Given another configuration; then its codes have its launch, and each code with a lever its own plain code."""
    asked: list[dict[str, tuple[str | None, str | None]]] = []

    class Asked(Simulated):
        def prepare(self, request: LoadCodes) -> RaceReady:
            asked.append({code.name: (code.like, code.launch and code.launch.name) for code in request.codes})
            return super().prepare(request)

    wanted = kernel_with(code("name", us=48.0), siblings={"B": configuration(code("O1", us=60.0), us=49.0)})
    (row,) = tuned(wanted, start=Asked, same_bits=same_bits).rows
    assert row.verdict is TuneVerdict.WIN and row.tried.base == "B"
    own, other, held = (REFERENCE, None), ("B", "0.json"), REFERENCE if same_bits else None
    assert asked[0] == {REFERENCE: (None, None), "name": own, "B": (held, "0.json"), "B: O1": other}
    beside = {"plain": (held, None), CANDIDATE: ("plain", None)}
    assert asked[1] == {REFERENCE: (None, "0.json"), CONTROL: (REFERENCE, "0.json"), **beside}


# --- in times without noise -----------------------------------------------------------------------


class Gpu:
    """Starts what stands for processes. A code's cubin says "us", its time; "fresh_us": that in processes that confirm;
    "at": that at another launch; "wobble": how much more in every second block. lost: what ends a process that races or
    confirms, once; answer: what it says of codes; step_s: how long a block takes."""

    def __init__(self, step_s: float = 0.25) -> None:
        self.lost: dict[bool, list[BaseException]] = {True: [], False: []}
        self.answer: dict[bool, RaceReady] = {}
        self.conditions = Conditions()
        self.now_s, self.step_s, self.open = 64.0, step_s, 0
        self.keeps: list[object] = []

    def start(self, limit_s: float) -> Any:
        self.open += 1
        return Started(self)


class Started:
    device = "GPU"

    def __init__(self, gpu: Gpu) -> None:
        self.gpu, self.taken = gpu, 0

    def prepare(self, request: LoadCodes) -> RaceReady:
        self.racing, self.launch = request.racing, request.launch.name
        self.how = {code.name: json.loads(code.path.read_bytes()) for code in request.codes}
        self.gpu.keeps.append(request.keep)
        if self.gpu.lost[self.racing]:
            raise self.gpu.lost[self.racing].pop(0)
        return self.gpu.answer.get(self.racing, RaceReady({}, False, ("a note",)))

    def us(self, name: str) -> float:
        how = self.how[name]
        usual: float = how["us"] if self.racing else how.get("fresh_us", how["us"])
        return float(how.get("at", {}).get(self.launch, usual) + how.get("wobble", 0.0) * (self.taken % 2))

    def blocks(self, count: int, process: int, sides: Sequence[str]) -> tuple[SampleBlock, ...]:
        self.gpu.now_s += self.gpu.step_s
        self.taken += self.racing
        return (SampleBlock(process, {side: (self.us(side),) for side in sides}, self.gpu.conditions),) * count

    def free(self) -> None:
        pass

    def end(self) -> None:
        self.gpu.open -= 1


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    made = Gpu()
    monkeypatch.setattr(engine, "time", SimpleNamespace(monotonic=lambda: made.now_s))
    return made


OWN = code(None, us=50.0)
FAST, SLOW = code("name", us=48.0), code("O1", us=51.0)


@pytest.mark.parametrize(
    ("others", "racing", "fresh", "reason", "is_judged", "failed"),
    [
        ([FAST], Lost(REFERENCE, "gone"), None, "launched as recorded: gone", False, []),
        ([FAST], Lost(None, "gone"), None, "timing: gone", False, []),
        ([FAST], DeviceError("no memory"), None, "no memory", False, []),
        ([FAST], Lost("name", "gone"), None, "none of its other codes", True, ["name"]),
        ([FAST, SLOW], Lost("name", "gone"), None, "none of 1 other codes is faster by 0.5%", True, ["name"]),
        ([FAST], None, Lost(CANDIDATE, "gone"), "name, in a fresh process: gone", True, ["name"]),
        ([FAST], None, RaceReady({"x": "wrong"}, False, ()), "name, in a fresh process: wrong", True, []),
        ([FAST], RaceReady({REFERENCE: "refused"}, False, ()), None, "cannot be launched as recorded: r", False, []),
        ([FAST], RaceReady({}, True, ()), None, "--rtol", False, []),
        ([code("name", us=48.0, fresh_us=51.0)], None, None, "in fresh processes its time is +2.00%", True, []),
    ],
)
def test_why_a_kernel_is_left(
    others: list[Candidate], racing: Any, fresh: Any, reason: str, is_judged: bool, failed: list[str], gpu: Gpu
) -> None:
    for is_race, given in ((True, racing), (False, fresh)):
        if isinstance(given, RaceReady):
            gpu.answer[is_race] = given
        elif given is not None:
            gpu.lost[is_race].append(given)
    row = only(*others, plain=OWN, start=gpu.start)
    assert reason in row.reason and (row.tried.is_judged, row.verdict) == (is_judged, TuneVerdict.LEAVE)
    assert [(one.lever.text, one.reason) for one in row.tried.failed] == [(name, "gone") for name in failed]
    assert gpu.open == 0, "every process is ended"


def test_special_numbers_that_its_own_code_does_not_survive_are_left_out(gpu: Gpu, tmp_path: Path) -> None:
    kernel, choice = kernel_with(FAST, plain=OWN)
    path = tmp_path / "0.json"
    path.write_text(json.dumps(to_document(Launch("k", (1, 1, 1), (32, 1, 1), ()))))
    kernel = replace(kernel, launches=(replace(kernel.launches[0], path=path),))
    gpu.lost[True].append(Lost(SPECIAL, "gone"))
    (row,) = tuned((kernel, choice), start=gpu.start).rows
    assert row.verdict is TuneVerdict.WIN and "special numbers" in row.tried.notes[0]
    assert gpu.keeps[0] == () and set(gpu.keeps[1:]) == {None} and gpu.open == 0


@pytest.mark.parametrize(("step_s", "blocks"), [(0.1, 12), (1800.0, 3), (1900.0, 2), (4000.0, 1)])
def test_a_race_ends_when_its_time_or_its_blocks_are_used_up(step_s: float, blocks: int, gpu: Gpu) -> None:
    gpu.step_s = step_s
    row = only(FAST, code("O1", us=48.0), plain=OWN, start=gpu.start)
    assert row.tried.race.blocks == blocks and row.tried.winner == FAST


def test_a_race_on_a_slowed_gpu_has_no_end_but_that_of_its_blocks(gpu: Gpu) -> None:
    gpu.conditions, gpu.step_s = Conditions(slowed=("hot",)), 99.0
    row = only(FAST, plain=OWN, start=gpu.start)
    assert gpu.now_s == 64 + 24 * 99 and "slowed down (hot)" in row.reason and not row.tried.is_judged


def test_a_winner_is_confirmed_beside_the_fastest_configurations_and_its_own(gpu: Gpu) -> None:
    siblings = {
        name: configuration(ptx=name, us=us, wobble=0.4) for name, us in (("B", 49.6), ("C", 49.0), ("D", 49.3))
    }
    siblings["E"] = configuration(code("O2", us=40.0), code("O3", us=1.0), ptx="E", us=49.7)
    gpu.answer[True] = RaceReady({"E: O3": "wrong"}, False, ())
    row = only(FAST, plain=OWN, siblings=siblings, start=gpu.start)
    assert row.verdict is TuneVerdict.WIN and (row.tried.winner.name, row.tried.base) == ("E: O2", "C")
    assert row.tried.failed == (Dropped(lever("O3"), "wrong", config="E"),)
    assert set(row.tried.comparison.blocks[0].times_us) == {REFERENCE, CANDIDATE, CONTROL, "plain", "D", "E"}


@pytest.mark.parametrize(("us", "wins"), [(50.2, True), (50.3, False)])
def test_at_another_launch_it_may_lose_less_than_the_band(us: float, wins: bool, gpu: Gpu) -> None:
    row = only(code("name", us=48.0, at={"1.json": us}), plain=OWN, us=(10.0, 9.0), start=gpu.start)
    text = f"its time is +{us * 2 - 100:.2f}% at launch 1"
    assert (row.verdict is TuneVerdict.WIN) is wins and row.reason.endswith("" if wins else text)
    assert (text in row.tried.notes) is wins


def test_processes_that_do_not_start_are_ended(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(Started):
        @property
        def device(self) -> str:  # type: ignore[override]
            raise Lost(None, "status 5")

    monkeypatch.setitem(globals(), "Started", Silent)
    with pytest.raises(DeviceError, match="a process that uses the GPU did not start: status 5"):
        only(FAST, plain=OWN, start=gpu.start)
    assert gpu.open == 0
