"""`tritonhook emulate`: kernels run on the CPU, and faults of the kernels themselves."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path

import pytest

pytest.importorskip("numpy")

from command_line import failing
from damage import no_hang
from stored_kernels import MODULE, made

from tritonhook.capture.launches.record import to_document
from tritonhook.capture.launches.schema import from_json
from tritonhook.capture.model import Stage
from tritonhook.capture.store import CaptureFolder, CaptureWriter
from tritonhook.cli import main

PTX = """.version 8.0
.target sm_90a
.address_size 64
.file 1 "/home/add.py"
.shared .align 16 .b8 room[256];
.visible .entry work(.param .u64 out)
{
.reg .b32 %r<9>; .reg .b64 %rd<9>;
.loc 1 12 3
ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r3, room; add.u32 %r3, %r3, %r2;
st.shared.b32 [%r3], %r1;
bar.sync 0;
xor.b32 %r4, %r3, 128; ld.shared.b32 %r5, [%r4];
cvt.u64.u32 %rd2, %r2; add.u64 %rd1, %rd1, %rd2;
st.global.b32 [%rd1], %r5;
ret;
}
"""
TRY = "mbarrier.try_wait.parity.shared.b64"
LAUNCH = {
    "format": 1,
    "kernel": "work",
    "grid": [1, 1, 1],
    "block": [64, 1, 1],
    "parameters": [{"name": "out", "dtype": "int32", "shape": [64]}],
}


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    Path("kernel.ptx").write_text(PTX)
    Path("launch.json").write_text(json.dumps(LAUNCH))
    return ["emulate", "kernel.ptx", "--args", "launch.json"]


def test_one_launch_runs_and_its_buffers_are_kept(kernel, capsys) -> None:
    assert main([*kernel, "--contents", "out", "--json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)["kernels"]
    assert one["reason"] == "" and one["faults"] == [] and len(one["stored"]) == 1 and one["steps"] > 0
    data = Path("out/work-0.bin").read_bytes()
    assert [int.from_bytes(data[at : at + 4], "little") for at in range(0, 256, 4)] == [*range(32, 64), *range(32)]


def test_a_fault_is_told_with_its_lines(kernel, capsys) -> None:
    Path("kernel.ptx").write_text(PTX.replace("bar.sync 0;", ""))
    assert main(kernel) == 1
    said = capsys.readouterr().out
    assert "1 of 1 kernel finished: 1 fault" in said and "race in work" in said
    assert "write by warp 1 of CTA 0" in said and "read by warp 0 of CTA 0" in said
    assert "add.py:12" in said and "st.shared.b32 [%r3], %r1" in said


def test_what_is_not_understood_is_no_fault(kernel, capsys) -> None:
    Path("kernel.ptx").write_text(PTX.replace("bar.sync 0;", "mov.u32 %r6, %clock;"))
    assert main(kernel) == 2
    said = capsys.readouterr().out
    assert "0 of 1 kernel finished\n" in said and "NOT UNDERSTOOD: line 12" in said


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("trap;", "fault"),
        (f"mbarrier.init.shared.b64 [room], 2; W: {TRY} %p1, [room], 0; @!%p1 bra W;", "hang"),
    ],
)  # fmt: skip
def test_what_does_not_end_well_is_a_fault_with_its_line(kernel, capsys, line, kind) -> None:
    Path("kernel.ptx").write_text(PTX.replace("bar.sync 0;", line).replace(".reg .b32", ".reg .pred %p<3>; .reg .b32"))
    assert main([*kernel, "--limit", "60", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    (fault,) = (one for one in document["kernels"][0]["faults"] if one["kind"] == kind)
    assert fault["places"][0]["line"] == 12 and document["kernels"][0]["reason"]


@pytest.mark.parametrize(("ctas", "exits"), [(132, 0), (133, 1)])
def test_a_barrier_of_more_ctas_than_the_gpu_holds_is_a_fault(kernel, capsys, ctas, exits) -> None:
    """With so much shared memory, an H100 holds one on each of its 132 multiprocessors."""
    meet = f"""ret; .reg .pred %p<3>; MEET: red.global.add.u32 [%rd1], 1;
W: ld.volatile.global.u32 %r6, [%rd1]; setp.lt.u32 %p1, %r6, {ctas}; @%p1 bra W; ret;"""
    first = "ld.param.u64 %rd1, [out];"
    Path("kernel.ptx").write_text(PTX.replace("ret;", meet).replace(first, f"{first} bra MEET;"))
    Path("launch.json").write_text(json.dumps(LAUNCH | {"grid": [ctas], "block": [1], "shared": 200_000}))
    assert main([*kernel, "--input", "zeros", "--json"]) == exits
    faults = json.loads(capsys.readouterr().out)["kernels"][0]["faults"]
    assert [one["kind"] for one in faults] == ["CTAs without room"] * exits
    assert not faults or (faults[0]["places"][0]["line"] == 17 and "H100 80GB HBM3 holds 132 at" in faults[0]["text"])


@pytest.mark.parametrize(("size", "bounds", "exits"), [(64, "view", 0), (63, "view", 1), (63, "storage", 0)], ids=str)
def test_a_tensor_ends_where_its_view_ends(kernel, capsys, size, bounds, exits) -> None:
    """A view in the middle of a pool of 256 numbers, which the kernel writes 64 of."""
    view = {"kind": "pointer", "name": "out", "buffer": 0, "offset": 256, "dtype": "int32", "shape": [size]}
    pool = {"size": 1024, "dtype": "int32", "values": None}
    document = to_document(from_json(json.dumps(LAUNCH), "launch.json")) | {
        "buffers": [pool],
        "parameters": [view | {"stride": [1]}],
    }
    Path("launch.json").write_text(json.dumps(document))
    assert main([*kernel, "--bounds", bounds, "--input", "zeros", "--json", "--contents", "out"]) == exits
    faults = json.loads(capsys.readouterr().out)["kernels"][0]["faults"]
    assert [one["kind"] for one in faults] == ["out of bounds"] * exits
    if not exits:
        data = Path("out/work-0.bin").read_bytes()
        assert len(data) == 1024 and [*data[256:512:4]] == [*range(32, 64), *range(32)]


def test_what_is_too_long_to_read_in_time_is_no_fault(kernel, capsys) -> None:
    Path("kernel.ptx").write_text(PTX.replace("bar.sync 0;", "add.u32 %r6, %r6, 1;\n" * 200_000))
    assert main([*kernel, "--limit", "0.5"]) == 2
    assert "not read and decoded within 0.5 s" in capsys.readouterr().out
    Path("kernel.ptx").write_text(PTX.replace("bar.sync 0;", "add.u32 %r6, %r6, 1;\n" * 300_000))
    assert "at most 300,000 are emulated" in failing(capsys, *kernel)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"grid": [1, 65536]}, "grid y of 65,536: a GPU allows 65,535"),
        ({"grid": [2**31]}, "grid x of 2,147,483,648: a GPU allows 2,147,483,647"),
        ({"block": [2048]}, "block x of 2,048: a GPU allows 1,024"),
        ({"block": [32, 1, 65]}, "block z of 65: a GPU allows 64"),
        ({"block": [1024, 2]}, "a block of 2,048 threads: a GPU allows 1,024"),
        ({"cluster": [32], "grid": [32]}, "a cluster of 32 blocks: a GPU allows 16"),
        ({"cluster": [2], "grid": [3]}, "grid x of 3 is not a multiple of cluster x, 2"),
        ({"shared": 232192}, "232,448 bytes of shared memory in a block: sm_90a allows 232,448"),
        ({"shared": 232193}, "232,449 bytes of shared memory in a block: sm_90a allows 232,448"),
        ({"parameters": [{"dtype": "int32", "shape": [5 * 10**10]}]}, "200,000,000,000 bytes in the buffers"),
        ({"parameters": [{"kind": "scratch", "size": 2**50}]}, "1,125,899,906,842,624 bytes in the buffers"),
    ],
)
def test_what_a_launch_may_not_ask_for_is_named(kernel, capsys, change, text) -> None:
    Path("launch.json").write_text(json.dumps(LAUNCH | change))
    if change == {"shared": 232192}:
        assert main(kernel) == 0
    else:
        assert text in failing(capsys, *kernel)


def test_contents_replace_nothing_that_was_not_asked_for(kernel, capsys, tmp_path) -> None:
    Path("out").mkdir()
    mine = Path("out/work-0.bin")
    mine.write_bytes(b"mine")
    assert "exists; pass --force" in failing(capsys, *kernel, "--contents", "out")
    assert mine.read_bytes() == b"mine"
    assert main([*kernel, "--contents", "out", "--force"]) == 0
    assert mine.stat().st_size == 256
    capsys.readouterr()
    for target in ("elsewhere", "kernel.ptx"):  # one is not there, one is
        mine.unlink()
        mine.symlink_to(tmp_path / target)
        assert "a link" in failing(capsys, *kernel, "--contents", "out", "--force")
        assert mine.is_symlink() and not Path("elsewhere").exists() and Path("kernel.ptx").read_text() == PTX
    mine.unlink()
    os.mkfifo(mine)
    with no_hang():
        assert "nobody reads this pipe" in failing(capsys, *kernel, "--contents", "out", "--force")
    assert "cannot make this folder" in failing(capsys, *kernel, "--contents", "kernel.ptx/out")


@pytest.fixture
def folder(kernel, tmp_path) -> Path:
    """Captures of two kernels of one name, and of one whose launch asks for too much."""
    writer = CaptureWriter(tmp_path / "captures")
    for number, (name, grid) in enumerate((("work", [1]), ("work", [1]), ("large", [1, 65536]))):
        capture, files = made(tmp_path, name, MODULE, f"{number}" * 64)
        text = PTX.replace(" work(", f" {name}(") + f"// {number}\n"
        Path(files[Stage.PTX]).write_text(text.replace("xor.b32 %r4, %r3, 128", f"xor.b32 %r4, %r3, {128 * number}"))
        record = writer.add_files(capture, files)
        launch = from_json(json.dumps(LAUNCH | {"kernel": name, "grid": grid}).encode(), "launch")
        writer.add_launch(record, launch, {})
        writer.add_launch_counts({(record, launch.key): 1})
    writer.close()
    return tmp_path / "captures"


def test_kernels_of_a_folder_have_files_of_their_own_and_one_that_fails_loses_no_other(folder, capsys) -> None:
    assert main(["emulate", str(folder), "--contents", "out", "--json"]) == 2
    kernels = {one["kernel"]: one for one in json.loads(capsys.readouterr().out)["kernels"]}
    assert kernels["work"]["reason"] == "" and "grid y of 65,536" in kernels["large"]["reason"]
    files = list(Path("out").iterdir())
    assert len({one.read_bytes() for one in files}) == len(files) == 2


def test_each_kernel_of_a_folder_is_counted_if_it_was_tried(folder, capsys, tmp_path) -> None:
    """One fails to compile, of one no launch was recorded."""
    writer = CaptureWriter(folder)
    writer.add_crash("broken", "", {"log": "line 3; error : nonsense"})
    writer.add_files(*made(tmp_path, "idle", MODULE, "9" * 64))
    writer.close()
    assert main(["emulate", str(folder)]) == 2
    assert "2 of 5 kernels finished: no fault found in these\n" in capsys.readouterr().out
    for entry, code in (("work", 0), ("large", 2), ("broken", 2), ("idle", 2)):
        assert main(["emulate", str(folder), "--entry", entry]) == code
    capsys.readouterr()
    assert main(["verify", "--cpu", str(folder), "--inputs", "normal"]) == 2
    assert "2 of 5 kernels verified: 2 SAME, 3 SKIPPED" in capsys.readouterr().out
    assert main(["verify", "--cpu", str(folder), "--inputs", "normal", "--entry", "work"]) == 0
    assert "2 kernels: 2 SAME" in capsys.readouterr().out
    assert main(["tune", "--assemble-only", str(folder), "--levers", "O1", "--trust"]) == 2
    assert " of 3 of 5 kernels to race" in capsys.readouterr().out
    assert main(["tune", "--assemble-only", str(folder), "--levers", "O1", "--trust", "--entry", "work"]) == 0
    assert " of 2 kernels to race" in capsys.readouterr().out


def test_options_are_checked(kernel, capsys) -> None:
    assert "--ctas and --orders must be positive" in failing(capsys, *kernel, "--ctas", "0")
    assert "no recorded launch" in failing(capsys, "emulate", "kernel.ptx")


CONFLICT = PTX.replace("shl.b32 %r2, %r1, 2;", "shl.b32 %r2, %r1, 5;").replace("room[256]", "room[2048]")


def test_counting_names_the_line_with_conflicts(kernel, capsys) -> None:
    Path("kernel.ptx").write_text(CONFLICT)
    Path("launch.json").write_text(
        json.dumps(LAUNCH | {"parameters": [{"name": "out", "dtype": "int32", "shape": [512]}]})
    )
    assert main([*kernel, "--count"]) == 0
    assert "add.py:12: 8-way bank conflict, 28 of 32 wavefronts in excess" in capsys.readouterr().out
    assert main([*kernel, "--count", "--csv"]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    (store,) = (row for row in rows if row["Source"].startswith("STS"))
    assert (store["Instructions Executed"], store["L1 Wavefronts Shared"], store["L1 Conflicts Shared N-Way"]) == (
        *("2", "16", "8"),
    )
    floors = []
    for gpu in ("H100", "NVIDIA H200"):
        assert main([*kernel, "--count", "--gpu", gpu, "--json"]) == 0
        (one,) = json.loads(capsys.readouterr().out)["kernels"]
        floors.append({unit: cycles / one["mhz"] for unit, cycles in one["floor_cycles"].items()})
    first, second = floors
    assert first["shared memory"] == second["shared memory"] and first["memory"] == second["memory"] * 4800 / 3350
    for gpu, why in (("GTX 9", "not known; known: A100,"), ("B200", "its rates are not known"), ("A100", "of sm_80")):
        assert why in failing(capsys, *kernel, "--count", "--gpu", gpu)
    assert "only with --count" in failing(capsys, *kernel, "--gpu", "H100")


def test_what_cannot_be_counted_is_a_reason(kernel, capsys) -> None:
    Path("kernel.ptx").write_text(PTX.replace("bar.sync 0;", "mov.u32 %r6, %clock; st.shared.b32 [%r3], %r6;"))
    assert main([*kernel, "--count"]) == 2
    assert "NOT UNDERSTOOD" in capsys.readouterr().out


def test_a_launch_is_taken_from_a_captured_kernel_by_its_id(folder, capsys) -> None:
    captures = CaptureFolder.open(folder)
    record = next(record for record in captures.records if captures.launches(record))
    assert main(["emulate", "kernel.ptx", "--args", f"{folder}/{captures.ids[record]}", "--json"]) == 0
    capsys.readouterr()
    assert "no such" in failing(capsys, "emulate", "kernel.ptx", "--args", f"{folder}/0000")


@pytest.mark.parametrize(("kind", "code"), [("f32", 1), ("u32", 0)])
def test_an_order_that_changes_the_result_is_a_fault(kernel, capsys, kind, code) -> None:
    body = f"cvt.rn.f32.u32 %r4, %r1; mul.f32 %r4, %r4, 0f3DCCCCCD; red.global.add.{kind} [%rd1], %r4;"
    Path("kernel.ptx").write_text(f"{PTX.partition('st.shared')[0]}{body}\nret;\n}}\n")
    Path("launch.json").write_text(json.dumps(LAUNCH | {"grid": [4, 1, 1]}))
    assert main([*kernel, "--orders", "3"]) == code
    said = capsys.readouterr().out
    assert ("nondeterministic in work: argument out" in said and "add.py:12" in said) == bool(code)
    assert main(["verify", "--cpu", *kernel[1:], "--orders", "3", "--inputs", "normal"]) == code
    assert ("red.global.add" in capsys.readouterr().out) == bool(code)


def test_orders_are_positive_and_have_their_own_seeds(kernel, capsys) -> None:
    for words in (["--orders", "0"], ["--orders", "2", "--seed", "1"]):
        assert main([*kernel, *words]) == 2
    assert "--orders" in capsys.readouterr().err
