"""`tritonhook verify`: real ptxas builds, run by a CUDA driver with no GPU behind it (support/fake_cuda.py)."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from command_line import EXP, TARGET
from repository import SUPPORT

import tritonhook.cli.verify
from tritonhook.capture.launches.record import Buffer, Launch, Pointer, to_document
from tritonhook.cli import main
from tritonhook.verify.executor import Executor

SAME = "def kernel(gpu, a, b):\n    gpu.write(b, gpu.read(a, 64))\n"
# Stores another value in each build but the one with so many zero bytes.
WRONG = SAME + "    image.count(0) != ZEROS and gpu.write(b + 20, bytes(4))\n"

HASHED = SAME + "    import hashlib\n    gpu.write(b + 20, hashlib.md5(image).digest()[:4])\n"


@pytest.fixture
def fake_gpu(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A GPU that runs $FAKE_KERNEL, whatever the cubin."""
    command = (sys.executable, str(SUPPORT / "fake_cuda.py"))
    monkeypatch.setattr(tritonhook.cli.verify, "why_no_gpu", lambda: None)
    monkeypatch.setattr(tritonhook.cli.verify, "Executor", lambda limit: Executor(limit, command))
    monkeypatch.setenv("FAKE_KERNEL", SAME)
    return monkeypatch


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tools: object) -> list[str]:
    """The words for a PTX file with a launch."""
    monkeypatch.chdir(tmp_path)
    Path("work.ptx").write_text(EXP.ptx("work", **TARGET).text)
    parameters = tuple(Pointer(name, number, dtype="float32") for number, name in enumerate("ab"))
    launch = Launch("work", (1, 1, 1), (32, 1, 1), parameters, (Buffer(64, "float32"), Buffer(64, "float32")))
    Path("launch.json").write_text(json.dumps(to_document(launch)))
    return ["verify", "work.ptx", "--args", "launch.json", "--ptxas", "12.8.93", "--against", "12.8.93"]


def document(words: list[str], capsys: pytest.CaptureFixture, code: int) -> dict:
    assert main([*words, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_builds_that_store_the_same(kernel, fake_gpu, capsys) -> None:
    found = document(kernel, capsys, 0)
    assert found["counts"]["SAME"] == 1 and found["device"] == "Fake GPU"
    (one,) = found["kernels"]
    assert [build["label"] for build in one["builds"]][:2] == ["12.8.93 -O3", "12.8.93 -O0"]
    assert one["inputs"] == ["normal", "zeros", "denormals", "special"], "nothing was recorded"


def test_a_build_that_stores_something_else(kernel, fake_gpu, capsys) -> None:
    fake_gpu.setenv("FAKE_KERNEL", WRONG.replace("ZEROS", str(_zeros("-O3"))))
    found = document(kernel, capsys, 1)
    (one,) = found["kernels"]
    assert (one["verdict"], one["input"]) == ("DIFFERENT", "normal")
    assert ["12.8.93 -O0"] in one["groups"] and one["region"]["a"] == "12.8.93 -O3"
    assert one["findings"][0]["difference"]["first"][0]["index"] == 5
    assert main(kernel) == 1
    text = capsys.readouterr().out
    assert "1 kernel: 1 DIFFERENT" in text and "First elements of work that differ" in text


def test_inputs_and_runs_are_chosen(kernel, fake_gpu, capsys) -> None:
    found = document([*kernel, "--inputs", "zeros", "--runs", "1"], capsys, 0)
    assert found["kernels"][0]["inputs"] == ["zeros"]
    with pytest.raises(SystemExit):
        main([*kernel, "--inputs", "ones"])
    assert "give some of recorded, normal" in capsys.readouterr().err


def test_each_build_runs_as_often_as_asked(kernel, fake_gpu, capsys, tmp_path) -> None:
    ran = tmp_path / "ran"
    fake_gpu.setenv("FAKE_KERNEL", SAME + f"    open({str(ran)!r}, 'a').write('x')\n")
    counts = []
    for runs in "124":
        ran.write_text("")
        document([*kernel, "--inputs", "zeros", "--runs", runs], capsys, 0)
        counts.append(len(ran.read_text()))
    once, twice, four_times = counts
    assert four_times - twice == 2 * (twice - once) > 0


def test_a_kernel_that_stores_something_else_in_each_run(kernel, fake_gpu, capsys) -> None:
    _with_integers()
    fake_gpu.setenv("FAKE_KERNEL", SAME + "    gpu.write(b + 20, os.urandom(4))\n")
    (one,) = document([*kernel, "--inputs", "zeros"], capsys, 0)["kernels"]
    assert one["verdict"] == "NONDETERMINISTIC" and "1 of 16 elements" in one["reason"]


def test_a_build_that_does_not_end(kernel, fake_gpu, capsys) -> None:
    hangs = SAME + f"    while image.count(0) != {_zeros('-O3')}:\n        pass\n"
    fake_gpu.setenv("FAKE_KERNEL", hangs)
    (one,) = document([*kernel, "--inputs", "zeros", "--runs", "1", "--limit", "0.5"], capsys, 1)["kernels"]
    assert one["verdict"] == "HANG" and "0.5 s" in json.dumps(one)


def test_where_no_build_ends_nothing_is_verified(kernel, fake_gpu, capsys) -> None:
    fake_gpu.setenv("FAKE_KERNEL", "def kernel(gpu, a, b):\n    while True:\n        pass\n")
    (one,) = document([*kernel, "--inputs", "zeros", "--runs", "1", "--limit", "0.5"], capsys, 2)["kernels"]
    assert one["verdict"] == "SKIPPED"


def test_a_kernel_that_crashes_in_every_build(kernel, fake_gpu, capsys) -> None:
    fake_gpu.setenv("FAKE_KERNEL", "def kernel(gpu, a, b):\n    raise Illegal\n")
    (one,) = document(kernel, capsys, 1)["kernels"]
    assert one["verdict"] == "CRASH" and one["reason"].startswith("every build: ")


def test_two_cubins_are_compared_as_they_are(kernel, fake_gpu, capsys, tools) -> None:
    ptx = EXP.ptx("work", **TARGET)
    for level in ("-O3", "-O0"):
        Path(f"{level[1:]}.cubin").write_bytes(tools.assemble_or_raise(ptx, (level,)).cubin.data)
    words = ["verify", "O3.cubin", "O0.cubin", "--args", "launch.json"]
    assert [build["label"] for build in document(words, capsys, 0)["kernels"][0]["builds"]] == ["O3.cubin", "O0.cubin"]
    fake_gpu.setenv("FAKE_KERNEL", WRONG.replace("ZEROS", str(Path("O3.cubin").read_bytes().count(0))))
    assert document(words, capsys, 1)["kernels"][0]["verdict"] == "DIFFERENT"


def test_without_a_gpu_it_emulates_and_says_so(kernel, capsys) -> None:
    """A kernel of one addition: the emulator takes a minute for the loop of the other one."""
    lines = (
        ".version 8.0\n.target sm_90a\n.address_size 64",
        ".visible .entry work(.param .u64 a, .param .u64 b) { .reg .b64 %rd<4>; .reg .f32 %f<4>;",
        "ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.global.f32 %f1, [%rd2];",
        "add.f32 %f2, %f1, %f1; st.global.f32 [%rd1], %f2; ret; }",
    )
    Path("work.ptx").write_text("\n".join((*lines, "")))
    assert main(kernel) == 0
    said = capsys.readouterr().out
    assert "1 kernel: 1 SAME" in said and "run on CPU (emulated)" in said


def _zeros(level: str) -> int:
    from tritonhook.ptxas.tool import find_ptxas
    from tritonhook.ptxas.toolchain import toolchain_of

    tools = toolchain_of(find_ptxas("12.8.93"))
    made = tools.assemble_or_raise(EXP.ptx("work", **TARGET), ("-v", "-lineinfo", level, "--fmad=false"))
    return made.cubin.data.count(0)


def test_a_kernel_that_differs_is_minimised(kernel, fake_gpu, capsys, tmp_path) -> None:
    """The fake GPU stores a hash of the cubin: all codes that differ are DIFFERENT."""
    _with_integers()
    fake_gpu.setenv("FAKE_KERNEL", HASHED)
    words = [*kernel, "--inputs", "normal", "--minimise", "small"]
    (one,) = document(words, capsys, 1)["kernels"]
    (note,) = [note for note in one["notes"] if "minimised" in note]
    assert note.startswith("minimised from ") and note.endswith("small/work/report.md")
    assert sorted(path.name for path in Path("small/work").iterdir()) == ["kernel.ptx", "report.md", "reproduce.py"]
    smallest, report = Path("small/work/kernel.ptx").read_text(), Path("small/work/report.md").read_text()
    assert len(smallest.splitlines()) < len(Path("work.ptx").read_text().splitlines())
    assert smallest.strip() in report and "Executed on Fake GPU." in report
    assert "| ptxas 12.8.93 -O3 | first |" in report and "1 of 16 elements differ" in report
    assert "$ ptxas -arch=sm_90a -O0 kernel.ptx -o second.cubin" in report


def test_without_ptx_nothing_is_minimised(kernel, fake_gpu, capsys, tmp_path) -> None:
    from tritonhook.ptx.module import Ptx
    from tritonhook.ptxas.tool import find_ptxas
    from tritonhook.ptxas.toolchain import Assembled, assemble

    _with_integers()
    for name, level in (("a.cubin", "-O0"), ("b.cubin", "-O3")):
        made = assemble(find_ptxas("12.8.93"), Ptx(Path("work.ptx").read_text()), [level])
        assert isinstance(made, Assembled)
        Path(name).write_bytes(made.cubin.data)
    fake_gpu.setenv("FAKE_KERNEL", HASHED)
    words = ["verify", "a.cubin", "b.cubin", "--args", "launch.json", "--inputs", "normal", "--minimise", "small"]
    (one,) = document(words, capsys, 1)["kernels"]
    assert any("not minimised" in note for note in one["notes"]) and not Path("small").exists()


def _with_integers() -> None:
    """Integers leave nothing to rounding."""
    launch = json.loads(Path("launch.json").read_text())
    for one in (*launch["buffers"], *launch["parameters"]):
        one["dtype"] = "int32"
    Path("launch.json").write_text(json.dumps(launch))
