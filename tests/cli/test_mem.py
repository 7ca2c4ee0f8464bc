"""`tritonhook mem`: predict, watch, compare; exit codes, and messages where there is no GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from at_hand import ptxas_at_hand
from hangs import HANG_S
from repository import GOLDEN, ROOT
from stored_kernels import KERNELS, keep_module

from tests.memory.test_prediction import TILE_2D
from tests.ptx.test_cta_loads import module
from tests.ptx.test_module_statements import RECURSION
from tritonhook.capture.model import Assembler, Capture, Stage
from tritonhook.capture.store import CaptureWriter
from tritonhook.cli import main
from tritonhook.memory.prediction import MIB

CLUSTER, CTA = str(GOLDEN / "sm_120a.tensor_load.cluster.cubin"), str(GOLDEN / "sm_120a.tensor_load.cta.cubin")


def ptxas(version: str) -> str:
    """That version, of those that the supported Tritons bring; skips where another Triton is installed."""
    return ptxas_at_hand(version).version


@pytest.fixture
def ask(capsys):
    """Run a command; gives its exit code and what it printed on both streams."""

    def run(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(["mem", *words])
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err
        return code, printed.out, printed.err

    return run


# --- predict -------------------------------------------------------------------------------------


def test_predict_says_how_much_why_and_what_to_do(ask) -> None:
    code, out, _ = ask("predict", CLUSTER, "--gpu", "RTX 5090")
    assert code == 0
    first, second, *_ = out.splitlines()
    assert first == "The driver will reserve 3,258 MiB to 3,858 MiB of local memory"
    assert second == "Memory prediction: NVIDIA GeForce RTX 5090" or second == "Memory prediction: RTX 5090"
    for words in (TILE_2D, "14,512 to 14,520", "261,120 threads", "remedy:", "--rewrite tma-cta", "170 SMs x 1,536"):
        assert words in " ".join(out.split())


@pytest.mark.parametrize(
    ("cubin", "limit", "code"),
    [(CLUSTER, "256MiB", 1), (CLUSTER, "3857MiB", 1), (CLUSTER, "3858MiB", 0), (CTA, "1MiB", 0), (CTA, "0", 0)],
)
def test_the_gate_of_ci(ask, cubin, limit, code) -> None:
    found, out, _ = ask("predict", cubin, "--gpu", "RTX 5090", "--fail-over", limit)
    assert found == code
    assert ("above the limit" in out) == bool(code)


def test_several_kernels_count_once(ask) -> None:
    _, one, _ = ask("predict", CLUSTER, "--gpu", "GB10", "--json")
    _, all_of_them, _ = ask("predict", CTA, CLUSTER, CLUSTER, "--gpu", "GB10", "--json")
    one, all_of_them = json.loads(one), json.loads(all_of_them)
    assert one["growth_bytes"] == all_of_them["growth_bytes"]
    assert len(all_of_them["kernels"]) == 3
    assert one["gpu"]["sms"] == 48 and one["deepest"] == "load"
    assert 1077 * MIB in range(one["growth_bytes"]["low"], one["growth_bytes"]["high"])


def test_ptx_is_assembled_first(ask, tmp_path) -> None:
    (tmp_path / "k.ptx").write_text(module().text.replace(".version 8.8", ".version 8.7"))
    code, out, _ = ask("predict", str(tmp_path / "k.ptx"), "--gpu", "RTX 5090", "--ptxas", ptxas("12.8.93"), "--json")
    assert code == 0
    (kernel,) = json.loads(out)["kernels"]
    assert kernel["syscalls"] == [TILE_2D]


def test_ptx_of_an_older_plain_target_is_assembled_for_the_gpu(ask, tmp_path) -> None:
    # PTX for sm_90 runs on an RTX 5090, and gets the driver call there that it has not got on an H100
    (tmp_path / "k.ptx").write_text(module().text.replace("sm_120a", "sm_90"))
    for gpu, calls in (("RTX 5090", 1), ("H100", 0)):
        _, out, _ = ask("predict", str(tmp_path / "k.ptx"), "--gpu", gpu, "--json")
        (kernel,) = json.loads(out)["kernels"]
        assert len(kernel["syscalls"]) == calls


@pytest.mark.parametrize("version", ["12.8.93", "12.9.86"])
def test_recursion_is_not_known_and_does_not_pass_the_gate(ask, tmp_path, version) -> None:
    text = RECURSION.format(a="f", b="f", c="g").replace(".version 8.8", ".version 8.7")
    (tmp_path / "k.ptx").write_text(text)
    code, out, _ = ask(
        "predict", str(tmp_path / "k.ptx"), "--gpu", "H100", "--ptxas", ptxas(version), "--fail-over", "1GiB", "--json"
    )
    document = json.loads(out)
    assert (code, document["growth_bytes"], document["failed"]) == (1, None, True)
    assert {k["kernel"]: k["stack_bytes"] is None for k in document["kernels"]} == {"k": True, "other": False}
    _, out, _ = ask("predict", str(tmp_path / "k.ptx"), "--gpu", "H100", "--ptxas", ptxas(version))
    assert "Not known how much" in out and "not bounded" in out
    _, out, _ = ask(
        "predict", str(tmp_path / "k.ptx"), "--gpu", "H100", "--ptxas", ptxas(version), "--fail-over", "1GiB"
    )
    assert "not known whether the growth is above the limit of 1,024 MiB; this counts" in " ".join(out.split())


def test_a_capture_folder_is_read_whole(ask, tmp_path) -> None:
    capture(tmp_path / "out", "load", Path(CLUSTER).read_bytes())
    capture(tmp_path / "out", "small", Path(CTA).read_bytes())
    code, out, _ = ask("predict", str(tmp_path / "out"), "--sms", "170", "--threads-per-sm", "1536", "--json")
    document = json.loads(out)
    assert (code, len(document["kernels"]), document["deepest"]) == (0, 2, "load")
    assert document["gpu"]["name"] == "170 SMs"


def test_the_kernels_of_one_module_are_read_once(ask, tmp_path) -> None:
    """Their captures share one cubin: a row for each kernel, not for each pair of kernels."""
    (tmp_path / "cache").mkdir()
    keep_module(tmp_path / "out", tmp_path / "cache")
    _, out, _ = ask("predict", str(tmp_path / "out"), "--sms", "132", "--threads-per-sm", "2048", "--json")
    assert sorted(kernel["kernel"] for kernel in json.loads(out)["kernels"]) == sorted(KERNELS)


def capture(out: Path, name: str, cubin: bytes, ptx: str | None = None) -> None:
    """A capture folder with this kernel in it."""
    files = {Stage.CUBIN: out.parent / f"{name}.cubin", Stage.PTX: out.parent / f"{name}.ptx"}
    files[Stage.CUBIN].write_bytes(cubin)
    files[Stage.PTX].write_text(ptx or "")
    if ptx is None:
        del files[Stage.PTX]
    paths = {stage: str(path) for stage, path in files.items()}
    writer = CaptureWriter(out)
    writer.add_files(Capture(name, f"hash-{name}", "sm_120a", dict.fromkeys(paths, ""), Assembler()), paths)
    writer.close()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["predict", CLUSTER], "name the GPU"),
        (["predict", CLUSTER, "--gpu", "RTX 6090"], "not in the table"),
        (["predict", CLUSTER, "--gpu", "GB10", "--sms", "3"], "do not combine"),
        (["predict", CLUSTER, "--sms", "170"], "give --threads-per-sm too, as it"),
        (["predict", CLUSTER, "--gpu", "H100"], "machine code for sm_120"),
        (["predict", "nowhere.cubin", "--gpu", "H100"], "nowhere.cubin: cannot read: No such file"),
        (["predict", CLUSTER, "--gpu", "GB10", "--fail-over", "much"], "is not a size"),
        (["watch"], "no script given"),
        (["watch", "nowhere.py"], "nowhere.py: no such script"),
        (["compare", "--variants", "one", __file__], "at least two different names"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(ask, words, sentence) -> None:
    code, out, err = ask(*words)
    assert (code, out) == (2, "")
    assert sentence in err


# --- watch and compare, without a GPU ------------------------------------------------------------


def run(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    base = {n: v for n, v in os.environ.items() if not n.startswith("TRITONHOOK")} | {"PYTHONPATH": str(ROOT)}
    line = [sys.executable, "-m", "tritonhook", "mem", *words]
    return subprocess.run(line, cwd=place, env=base, capture_output=True, text=True, check=False, timeout=HANG_S)


needs_no_gpu = pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="says what a machine without a GPU says")


@needs_no_gpu
@pytest.mark.parametrize("words", [("watch",), ("watch", "--fail-over", "1GiB"), ("compare", "--variants", "a,b")])
def test_without_a_gpu_no_script_is_run(tmp_path, words) -> None:
    (tmp_path / "script.py").write_text("print('ran')")
    done = run(tmp_path, *words, "script.py")
    assert (done.returncode, done.stdout) == (2, "")
    (said,) = done.stderr.splitlines()
    assert said.startswith(f"tritonhook mem {words[0]}: no NVIDIA driver here: ") and "mem predict" in said


@pytest.fixture
def as_if_with_gpu(tmp_path, monkeypatch) -> Path:
    """The folder for scripts, on a machine of which this process believes that it has a GPU."""
    monkeypatch.setattr("tritonhook.cli._programs.why_no_gpu", lambda: None)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@needs_no_gpu
def test_watch_runs_the_script_and_says_what_is_missing(as_if_with_gpu, capfd) -> None:
    pytest.importorskip("triton", minversion="3.6")
    Path("script.py").write_text("import sys, triton; print('ran', sys.argv[1:]); sys.exit(int(sys.argv[1]))")
    assert main(["mem", "watch", "--save", "seen.json", "script.py", "7", "--x"]) == 7
    said = capfd.readouterr()
    assert said.out == "ran ['7', '--x']\n"
    assert "no GPU was seen" in said.err and "Traceback" not in said.err
    assert json.loads(Path("seen.json").read_text())["timelines"] == []
    assert main(["mem", "watch", "script.py", "0"]) == 2  # the script's 0 is no result of the watch
    assert main(["mem", "watch", "--fail-over", "1GiB", "script.py", "0"]) == 2


def test_compare_runs_each_variant_in_a_process_of_its_own(as_if_with_gpu, capfd) -> None:
    Path("script.py").write_text("import os, sys; print(os.getpid(), sys.argv[1:], file=sys.stderr)")
    assert main(["mem", "compare", "--variants", "plain,tma", "script.py", "--size"]) == 2
    said = capfd.readouterr()
    lines = [line.split(" ", 1) for line in said.err.splitlines() if line.endswith("]")]
    assert said.out == "" and [words for _, words in lines] == ["['--size', 'plain']", "['--size', 'tma']"]
    assert lines[0][0] != lines[1][0]
    assert "tritonhook mem compare: nothing was measured for plain or tma" in said.err
    assert main(["mem", "compare", "--variants", "a,b", "--", "false"]) == 1
    assert "nothing to compare" in capfd.readouterr().err
