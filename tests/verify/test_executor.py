"""Orders to a child process: what its builds store, and what becomes of those that lose the GPU. No GPU: fake_cuda."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import pytest
from patient_child import SAY_SO, be_patient
from repository import SUPPORT

from tritonhook.capture.launches.contents import NORMAL, RECORDED, ZEROS
from tritonhook.capture.launches.record import Buffer, Launch, Pointer
from tritonhook.errors import UsageError
from tritonhook.verify.executor import Executor
from tritonhook.verify.model import Build, FailureKind, Order

COMMAND = (sys.executable, str(SUPPORT / "fake_cuda.py"))
COPY = "def kernel(gpu, a, b):\n    gpu.write(b, gpu.read(a, 64))\n"
WRONG = COPY + "    gpu.write(b + 20, b'\\x00\\x00\\x80\\x3f')\n"


def launch(dtype: str = "float32", values: str | None = None) -> Launch:
    parameters = (Pointer("a", 0, dtype=dtype), Pointer("b", 1, dtype=dtype))
    return Launch("k", (1, 1, 1), (32, 1, 1), parameters, (Buffer(64, dtype, values), Buffer(64, dtype)))


@pytest.fixture
def order(tmp_path: Path):
    def made(*kernels: str, **fields) -> Order:
        builds = []
        for number, source in enumerate(kernels):
            path = tmp_path / f"{number}.cubin"
            path.write_text(source)
            builds.append(Build(f"build {number}", path, "k"))
        return Order(fields.pop("launch", launch()), tuple(builds), **{"inputs": (NORMAL,), "runs": 2} | fields)

    return made


@pytest.fixture
def executor():
    with Executor(20, COMMAND) as made:
        yield made


def test_equal_builds_store_equal_contents(order, executor: Executor) -> None:
    ran = executor.run(order(COPY, COPY, inputs=(NORMAL, ZEROS)))
    assert [(one.input, one.build) for one in ran] == [
        ("normal", "build 0"),
        ("normal", "build 1"),
        ("zeros", "build 0"),
        ("zeros", "build 1"),
    ]
    assert all(one.is_clean and one.us is not None for one in ran)
    assert executor.device == "Fake GPU"


def test_the_elements_that_differ_are_named(order, executor: Executor) -> None:
    _, wrong = executor.run(order(COPY, WRONG))
    (found,) = wrong.differences
    assert (found.buffer, found.elements, found.differing) == (1, 16, 1)
    assert (found.first[0].index, found.first[0].bits[1], found.first[0].values[1]) == (5, "3f800000", "1")
    assert found.ulps and found.share and not wrong.unsteady


def test_recorded_contents_come_from_their_file(order, executor: Executor, tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(struct.pack("<16f", *range(16)))
    given = order(COPY, WRONG, inputs=(RECORDED,), folder=tmp_path, launch=launch(values="a.bin"))
    _, wrong = executor.run(given)
    assert wrong.differences[0].first[0].values == ("5", "1")
    (tmp_path / "a.bin").write_bytes(bytes(60))
    with pytest.raises(UsageError, match="60 bytes, but the record says 64"):
        executor.run(given)
    assert executor.run(order(COPY, COPY))[1].is_clean, "the next order is carried out"


def test_a_kept_buffer_has_its_recorded_contents_under_each_input(order, executor: Executor, tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(struct.pack("<16f", *range(16)))
    fields = {"inputs": (ZEROS,), "folder": tmp_path, "launch": launch(values="a.bin")}
    _, wrong = executor.run(order(COPY, WRONG, **fields, keep=(0,)))
    assert wrong.differences[0].first[0].values == ("5", "1")
    _, wrong = executor.run(order(COPY, WRONG, **fields))
    assert float(wrong.differences[0].first[0].values[0]) == 0


def test_runs_of_one_build_that_differ_are_told(order, executor: Executor) -> None:
    counting = "runs = []\n" + COPY + "    runs.append(1)\n    gpu.write(b, bytes([len(runs)]))\n"
    first, _ = executor.run(order(counting, COPY))
    assert [one.buffer for one in first.unsteady] == [1] and not first.differences


def test_a_write_outside_of_a_buffer_is_told(order, executor: Executor) -> None:
    beyond = COPY + "    gpu.write(b + 68, b'\\x01')\n"
    before = COPY + "    gpu.write(a - 4, b'\\x01')\n"
    ran = executor.run(order(COPY, beyond, before))
    assert [[(o.buffer, o.offset) for o in one.outside] for one in ran] == [[], [(1, 68)], [(0, -4)]]


@pytest.mark.parametrize(
    ("kernel", "kind", "text"),
    [
        ("def kernel(gpu, a, b):\n    raise Illegal\n", FailureKind.CRASH, "ILLEGAL_ADDRESS"),
        ("def kernel(gpu, a, b):\n    os._exit(3)\n", FailureKind.CRASH, "status 3"),
        ("def kernel(gpu, a, b):\n    raise Refused\n", FailureKind.REFUSED, "OUT_OF_RESOURCES"),
        ("no image", FailureKind.REFUSED, "INVALID_IMAGE"),
    ],
)
def test_a_build_that_fails_leaves_the_others_their_results(order, executor, kernel, kind, text) -> None:
    ran = executor.run(order(COPY, kernel, WRONG, COPY))
    assert [one.build for one in ran] == ["build 0", "build 1", "build 2", "build 3"]
    assert ran[1].failure is not None and ran[1].failure.kind is kind and text in ran[1].failure.text
    assert ran[0].is_clean and ran[2].differences and ran[3].is_clean, (
        "compared with the first build, not the failed one"
    )


def test_a_build_that_hangs_is_ended(order, executor: Executor, monkeypatch: pytest.MonkeyPatch) -> None:
    be_patient(monkeypatch)
    monkeypatch.setattr("tritonhook.verify.executor._REST_S", None)  # not the limit of a launch
    hanging = f"import time\ndef kernel(gpu, a, b):\n    {SAY_SO}\n    time.sleep(60)\n"
    ran = executor.run(order(COPY, hanging, WRONG))
    assert ran[1].failure is not None and ran[1].failure.kind is FailureKind.HANG and "20 s" in ran[1].failure.text
    assert ran[2].differences


def test_a_reference_that_fails_leaves_its_place_to_the_next_build(order, executor: Executor) -> None:
    ran = executor.run(order("def kernel(gpu, a, b):\n    raise Illegal\n", COPY, WRONG))
    assert ran[0].failure and ran[1].is_clean and ran[2].differences


def test_an_order_can_be_stopped(order, executor: Executor) -> None:
    ran = executor.run(order(COPY, WRONG, COPY), stop=lambda one: bool(one.differences))
    assert [one.build for one in ran] == ["build 0", "build 1"]
    assert len(executor.run(order(COPY, COPY))) == 2, "the next order gets a new child"


def test_a_trial_ends_with_the_build_that_loses_the_gpu(order, executor: Executor) -> None:
    lost, refused = "def kernel(gpu, a, b):\n    raise Illegal\n", "def kernel(gpu, a, b):\n    raise Refused\n"
    assert [one.build for one in executor.run_until_lost(order(COPY, lost, COPY))] == ["build 0", "build 1"]
    assert [one.build for one in executor.run_until_lost(order(COPY, refused, WRONG))][1:] == ["build 1", "build 2"]
