"""On a GPU: a timed comparison of real kernels from start to verdict."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from repository import ROOT

from tritonhook.errors import UsageError
from tritonhook.rename import Rename
from tritonhook.timing.coordinator import run
from tritonhook.timing.plan import Plan
from tritonhook.timing.statistics import CANDIDATE, TimingVerdict

torch = pytest.importorskip("torch", reason="needs torch")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="requires an NVIDIA GPU that torch can use"),
]
TARGETS = str(ROOT / "benchmarks" / "timing" / "targets")


def plan(tmp_path: Path, target: str, **options) -> Plan:
    return Plan(f"ab_targets:{target}", tmp_path, path=(TARGETS, *sys.path), **options)


def test_more_work_is_slower_and_equal_code_is_not_timed(tmp_path: Path) -> None:
    slower = run(
        plan(tmp_path / "a", "polynomial_steps_1000", candidate="ab_targets:polynomial_steps_1100", check=False)
    )
    assert slower.comparison.verdict is TimingVerdict.SLOWER
    assert 1.05 < slower.comparison.effect().ratio < 1.15
    same = run(plan(tmp_path / "b", "add", rename=Rename(prefix="cutlass_")))
    assert same.same_code
    assert same.comparison.blocks == ()


def test_a_wrong_candidate_is_never_timed(tmp_path: Path) -> None:
    timed = run(plan(tmp_path, "polynomial_steps_1000", candidate="ab_targets:polynomial_steps_1100"))
    assert CANDIDATE in timed.wrong
    assert timed.comparison.blocks == ()


def test_a_target_that_fails_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no 'nothing'"):
        run(plan(tmp_path, "nothing", rename=Rename(prefix="cutlass_")))


def test_a_recorded_launch_is_launched_again(tmp_path: Path, monkeypatch) -> None:
    """Given a kernel launched once while recording; then its cubin, launched as recorded, computes the same bits."""
    import tritonhook
    from tritonhook.capture.store import CaptureFolder
    from tritonhook.timing.replay import Buffers, LoadedKernel
    from tritonhook.timing.rough import rough_times

    monkeypatch.syspath_prepend(TARGETS)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    import ab_targets

    with tritonhook.session(tmp_path / "captures", launches="values"):
        expected = ab_targets.softmax(256, 4096)()
    torch.cuda.synchronize()
    folder = CaptureFolder.open(tmp_path / "captures")
    (record,) = folder.records
    (one,) = folder.launches(record)
    capture = folder.capture(record)
    buffers = Buffers(one.launch, one.folder)
    assert buffers.notes == ()
    kernel = LoadedKernel(capture.cubin, capture.kernel, buffers)
    kernel.launch()
    torch.cuda.synchronize()
    assert torch.equal(buffers.views()[1].view_as(expected), expected)
    buffers.restore()
    assert not torch.equal(buffers.views()[1].view_as(expected), expected)
    (measured,) = rough_times(folder.path)
    assert measured["us"] > 1
    assert measured["count"] == 1


def test_the_clock_is_between_nothing_and_the_highest(tmp_path: Path) -> None:
    timed = run(
        plan(tmp_path, "polynomial_steps_1000", candidate="ab_targets:polynomial_steps_1100", check=False), processes=1
    )
    clocks = [mhz for block in timed.comparison.blocks for mhz in block.clock_mhz.values()]
    highest = timed.comparison.blocks[0].conditions.sm_clock_max_mhz or 5000
    assert all(mhz is not None and 300 < mhz < 1.05 * highest for mhz in clocks)
    assert timed.comparison.cycles().ratio == pytest.approx(timed.comparison.effect().ratio, rel=0.02)


def test_each_side_can_tune_itself_and_the_report_says_so(tmp_path: Path) -> None:
    for each in (False, True):
        timed = run(
            plan(tmp_path / str(each), "tuned_softmax", rename=Rename(prefix="cutlass_"), tune_each=each),
            processes=1,
            seconds=2,
        )
        assert timed.tuning is not None and timed.tuning.mode == ("each" if each else "fixed")
        assert set(timed.tuning.sides) == {"reference", "candidate", "control"}
        assert [len(entries) for entries in timed.kernels["candidate"].values()] == [1]
        assert timed.comparison.control_of == "reference"


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, int], Path]:
    """The captures of two kernels, each with two block sizes on the same grid, launched once with values recorded.

    Sums of rows are right with either block size; of an elementwise sum, the smaller blocks reach only half.
    """
    import tritonhook
    from tritonhook.capture.store import CaptureFolder

    monkeypatch.syspath_prepend(TARGETS)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    import ab_targets
    from triton_kernels import fresh

    sum_rows, add = fresh(ab_targets.row_sum_kernel), fresh(ab_targets.add_kernel)
    x, y = (torch.randn(1024, 4096, device="cuda") for _ in range(2))
    out, sums = torch.zeros_like(x), torch.zeros(1024, device="cuda")
    with tritonhook.session(tmp_path / "captures", launches="values"):
        for block in (1024, 512):
            sum_rows[(1024,)](x, sums, 4096, B=block)
            add[(4096,)](x, y, out, x.numel(), B=block)
    folder = CaptureFolder.open(tmp_path / "captures")
    captures = {name: folder.capture(name) for name in folder.records}
    return {(c.kernel, c.options["constants"]["B"]): folder.path / "kernels" / name for name, c in captures.items()}


def ab(tmp_path: Path, *words: object, script_arguments: tuple[str, ...] = ()) -> dict[str, Any]:
    """What `tritonhook ab` saves of a short run in one process."""
    from tritonhook.cli import main

    result = tmp_path / "result.json"
    result.unlink(missing_ok=True)
    rest = ["--", *script_arguments] if script_arguments else []
    main(["ab", *map(str, words), "--processes", "1", "--seconds", "2", "--save", str(result), *rest])
    return json.loads(result.read_text())


def file(capture: Path, kind: str) -> Path:
    (found,) = capture.glob(f"*.{kind}")
    return found


@pytest.mark.parametrize("kind", ["cubin", "ptx"])
def test_two_different_files_are_timed_if_both_are_right(tmp_path: Path, recorded, kind: str) -> None:
    """Blocks of 512 and of 1024 columns sum in another order: the same to the last bits."""
    a, b = (file(recorded["row_sum_kernel", block], kind) for block in (1024, 512))
    record = recorded["row_sum_kernel", 1024]
    exactly = ab(tmp_path, a, b, "--args", record)
    assert list(exactly["wrong"]) == [CANDIDATE]
    assert exactly["blocks"] == []
    timed = ab(tmp_path, a, b, "--args", record, "--rtol", "1e-5")
    assert timed["wrong"] == {}
    assert timed["blocks"]
    assert timed["kernels"]["reference"] == timed["kernels"]["control"] != timed["kernels"]["candidate"]


def test_a_wrong_file_is_never_timed(tmp_path: Path, recorded) -> None:
    a, b = (file(recorded["add_kernel", block], "cubin") for block in (1024, 512))
    found = ab(tmp_path, a, b, "--args", recorded["add_kernel", 1024], "--rtol", "0.01")
    assert list(found["wrong"]) == [CANDIDATE]
    assert found["blocks"] == []


def test_the_code_of_two_assemblers_is_timed(tmp_path: Path, recorded) -> None:
    """As of two ptxas versions: two cubins of one PTX, and the same bits out of both."""
    from tritonhook.ptx.module import Ptx
    from tritonhook.ptxas.toolchain import find_toolchain

    capture = recorded["row_sum_kernel", 1024]
    ptx = Ptx(file(capture, "ptx").read_text())
    other = tmp_path / "other.cubin"
    other.write_bytes(find_toolchain().assemble_or_raise(ptx, ("-O1",)).cubin.data)
    timed = ab(tmp_path, file(capture, "cubin"), other, "--args", capture)
    assert timed["wrong"] == {}
    assert timed["blocks"]


def test_a_script_is_run_and_its_main_launch_timed(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    script = tmp_path / "script.py"
    script.write_text(
        f"import sys\nsys.path[:0] = [{TARGETS!r}]\nimport ab_targets\n"
        "ab_targets.add(1 << 12)()\n"
        "ab_targets.softmax(int(sys.argv[1]), 4096)()\n"
    )
    timed = ab(tmp_path, script, script_arguments=("4096",))
    assert timed["target"].endswith("softmax_kernel")
    assert timed["wrong"] == {}
    assert timed["blocks"]


def test_every_side_of_a_compiled_function_has_its_own_names(tmp_path: Path, monkeypatch) -> None:
    from tritonhook.capture.store import CaptureFolder

    module = tmp_path / "compiled_target.py"
    module.write_text(
        "import torch\ndef softmax():\n    x = torch.arange(64 << 15, device='cuda').sin().view(64, -1)\n"
        "    compiled = torch.compile(lambda x: torch.softmax(x * 1.5, -1), dynamic=False)\n"
        "    return lambda: compiled(x)\n"
    )
    wanted = Plan(
        "compiled_target:softmax", tmp_path / "out", Rename(prefix="cutlass_"), path=(str(tmp_path), *sys.path)
    )
    timed = run(wanted, processes=1, seconds=2)
    assert timed.wrong == {}
    assert any("its own launch and buffers" in note for note in timed.notes)
    for side, prefix in (("reference", "triton_"), ("candidate", "cutlass_triton_"), ("control", "cutlasz_triton_")):
        folder = CaptureFolder.open(tmp_path / "out" / "0" / side)
        names = [folder.capture(record).kernel for record in folder.records]
        assert names
        assert all(name.startswith(prefix) for name in names)
