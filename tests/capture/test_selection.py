"""Which kernels and launches the verbs work on: nothing that lost an autotuning, however often it was launched."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("triton", minversion="3.6")

import triton
from fake_tensors import Storage, Tensor
from triton_kernels import add_kernel, fresh, multiply_kernel

import tritonhook
from tritonhook.capture.selection import Selected, Skipped, kernels_in, launches_of, selected, with_shares
from tritonhook.capture.store import CaptureFolder
from tritonhook.timing.rough import rough_times

CONFIGS = [triton.Config({"BLOCK": block}) for block in (64, 128)]


@pytest.fixture
def captures(driver: Any, out: Path) -> CaptureFolder:
    """A kernel whose winner is launched 10 times, and whose loser 500 times to measure it; another kernel, 10 times."""
    times = iter((2.0, 1.0))

    def bench(call: Any, quantiles: Any) -> list[float]:
        time = next(times)
        for _ in range(500 if time > 1 else 1):
            call()
        return [time] * 3

    x = Tensor(Storage(1 << 20, 4000))
    with tritonhook.session(out, launches=True):
        kernel = triton.autotune(CONFIGS, key=["n"], do_bench=bench)(fresh(add_kernel))
        other = fresh(multiply_kernel)
        for _ in range(9):
            kernel[(8,)](x, x, x, 1000)
        for _ in range(10):
            other[(8,)](x, x, x, 1000, BLOCK=128)
    return CaptureFolder.open(out)


def rough(captures: CaptureFolder) -> list[dict[str, Any]]:
    """All launches take 1 us, also those of the loser, as in times that were kept."""
    launches = [one for record in captures.records for one in captures.launches(record)]
    assert sorted(one.count or 0 for one in launches) == [10, 10, 500]
    return [{"record": one.record, "launch": one.key, "count": one.count, "us": 1.0} for one in launches]


def test_the_loser_takes_no_share_of_the_time(captures: CaptureFolder) -> None:
    kernels = [one for one in kernels_in(captures) if not isinstance(one, Skipped)]
    shares = {one.name: one.share for one in with_shares(captures, kernels, rough(captures))}
    assert shares == {"add_kernel": 0.5, "multiply_kernel": 0.5}


def test_only_launches_of_what_runs_are_timed(captures: CaptureFolder) -> None:
    (lost,) = captures.lost
    assert {one.record for one in launches_of(captures)} == set(captures.records) - {lost}
    answers = "carry_out = lambda asked: [Begun('GPU') if isinstance(asked, Begin) else Measured(1.0)]"
    program = (
        "import sys\nfrom tritonhook.device.child import *\nfrom tritonhook.timing.plan import *\n"
        f"{answers}\nserve(sys.stdin, sys.stdout, carry_out, Begin, Measure)"
    )
    measured = rough_times(captures.path, (sys.executable, "-c", program))
    assert [(entry["record"] in (lost,), entry["count"]) for entry in measured] == [(False, 10), (False, 10)]


def test_kernels_and_launches_are_chosen_by_name_and_key(captures: CaptureFolder) -> None:
    (one,) = selected(captures, "multiply_kernel")
    assert isinstance(one, Selected) and one.capture.kernel == "multiply_kernel"
    (launch,) = one.launches
    assert [len(found.launches) for found in selected(captures, key=launch.key[:6])] == [0, 1]
    assert list(selected(captures, "copy_kernel")) == []


def test_a_damaged_launch_leaves_out_its_kernel_alone(captures: CaptureFolder) -> None:
    broken = launches_of(captures)[0]
    broken.path.write_text("{")
    left, fine = selected(captures)
    assert isinstance(left, Skipped) and (left.record, left.kernel) == (broken.record, "add_kernel")
    assert isinstance(fine, Selected) and str(broken.path) in left.reason


def test_a_launch_that_could_not_be_recorded_says_why(driver: Any, out: Path) -> None:
    with tritonhook.session(out, launches=True):
        for kernel in (add_kernel, multiply_kernel):
            argument = Tensor(Storage(1 << 20, 4000))
            strange = SimpleNamespace(dtype="float32", data_ptr=argument.data_ptr)  # no storage that can be kept
            fresh(kernel)[(8,)](*(argument if kernel is multiply_kernel else strange,) * 3, 1000, BLOCK=128)
    captures = CaptureFolder.open(out)
    (skipped,) = (one for one in kernels_in(captures) if isinstance(one, Skipped))
    assert skipped.kernel == "add_kernel" and "SimpleNamespace, not a tensor of known type" in skipped.reason
    assert captures.notes == (skipped.reason,)
    (index,) = (out / "index").iterdir()
    assert [json.loads(line)["unrecorded"] for line in index.read_text().splitlines() if '"unrecorded"' in line] == [
        {skipped.record: skipped.reason}
    ]


def test_a_winner_brings_the_configurations_that_were_tried_beside_it(captures: CaptureFolder) -> None:
    (tuned, other) = kernels_in(captures)
    assert (other.config, other.siblings, other.keys) == (None, (), ())
    assert tuned.function == "add_kernel" and [key[0] for key in tuned.keys] == ["n=1000"]
    (sibling,) = tuned.siblings
    assert "BLOCK: 128" in tuned.config and "BLOCK: 64" in sibling.config
    assert {tuned.record, sibling.record} == set(captures.configurations[0].by_record)
    assert sibling.launches[0].problem == tuned.launches[0].problem and sibling.ptx != tuned.ptx


def test_siblings_are_sorted_by_their_times_for_the_same_problem(captures: CaptureFolder) -> None:
    kernels = [one for one in kernels_in(captures) if not isinstance(one, Skipped)]
    (tuned, _) = with_shares(captures, kernels, rough(captures))
    assert [one.launches[0].us for one in tuned.siblings] == [1.0] and tuned.share == 0.5
    untimed = [one for one in rough(captures) if one["record"] != tuned.siblings[0].record]
    assert with_shares(captures, kernels, untimed)[0].siblings == (), "it cannot be launched again"


@pytest.mark.parametrize("again", [False, True])
def test_each_problem_has_a_winner_of_its_own(driver: Any, out: Path, again: bool) -> None:
    """Given two keys with other winners; then each winner has the launches of its own problem, and not those with which
    it lost the other one. again: the first key is tuned once more, and now has the winner of the other."""

    def bench(call: Any, quantiles: Any) -> list[float]:
        call()
        return [next(times)] * 3

    x = Tensor(Storage(1 << 20, 4000))
    times = iter((1.0, 2.0, 2.0, 1.0, 2.0, 1.0))
    with tritonhook.session(out, launches=True):
        for n in (1000, 999, *([1000] if again else [])):  # each as in a process of its own
            kernel = triton.autotune(CONFIGS, key=["n"], do_bench=bench)(fresh(add_kernel))
            kernel[(8,)](x, x, x, n)
    kernels = [one for one in kernels_in(CaptureFolder.open(out)) if not isinstance(one, Skipped)]
    blocks = {key[0]: one.config.split(",")[0] for one in kernels for key in one.keys}
    assert blocks == {"n=1000": "BLOCK: 128" if again else "BLOCK: 64", "n=999": "BLOCK: 128"}
    assert len(kernels) == (1 if again else 2)
    for one in kernels:
        assert {f"n={dict(it.scalars)['n']}" for it in one.launches} == {key[0] for key in one.keys}
        assert len(one.siblings) == 1 and one.siblings[0].config != one.config
