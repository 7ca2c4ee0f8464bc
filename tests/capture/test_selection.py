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
        "import sys\nfrom tritonhook.device.child import *\nfrom tritonhook.timing.messages import *\n"
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
    assert [json.loads(line)["unrecorded"] for line in index.read_text().splitlines() if "notes" in line] == [
        {skipped.record: skipped.reason}
    ]
