"""`tritonhook show`: one line a kernel, resources of every front end, short ids that every verb takes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from command_line import failing
from repository import GOLDEN
from screens import Screens

import tritonhook
from tests.cubin.test_resources import module
from tritonhook.capture.model import Assembler, Capture, Stage
from tritonhook.capture.store import CaptureFolder
from tritonhook.capture.store.ids import short_ids
from tritonhook.capture.store.writer import CaptureWriter
from tritonhook.cli import main
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.toolchain import Toolchain

MANGLED = "_Z12softmax_rowsIfLi4EEvPKT_PS0_y"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRITONHOOK_OUT", raising=False)
    return tmp_path


def keep(
    writer: CaptureWriter, kernel: str, cubin: bytes, ptx: str | None = None, constants: dict[str, int] | None = None
) -> str:
    """Put a kernel into a capture folder; returns its record."""
    contents = {Stage.CUBIN: cubin} | ({} if ptx is None else {Stage.PTX: ptx.encode()})
    files = {stage: f"{len(list(Path().iterdir()))}-{kernel[:9]}.{stage.value}" for stage in contents}
    for stage, path in files.items():
        Path(path).write_bytes(contents[stage])
    options = {"num_warps": 4, "num_stages": 3, "constants": constants or {}}
    number = f"{len(list((writer.out / 'kernels').iterdir())):064x}"[::-1]
    assembler = Assembler("/opt/ptxas", "12.8.93", ("-v", "--gpu-name=sm_90a"))
    metadata = {"front_end": "Triton", "shared": 4096}
    capture = Capture(kernel, number, "sm_90a", dict.fromkeys(files, ""), assembler, options, metadata, False)
    return writer.add_files(capture, files)


@pytest.fixture
def folder(tools: Toolchain) -> CaptureFolder:
    """Six kernels: one that spills, one with an array beside it and no PTX, one of C++, one in two configurations."""
    writer = CaptureWriter(Path("tritonhook-captures"))
    spilling = module(100)
    assembled = tools.assemble_or_raise(spilling, ("-v", "--maxrregcount=32"))
    keep(writer, "k", assembled.cubin.data, spilling.text)
    keep(writer, "foo", (GOLDEN / "sm_90a.module.cubin").read_bytes())
    named = Ptx(spilling.text.replace(" k(", f" {MANGLED}("))
    keep(writer, MANGLED, tools.assemble_or_raise(named).cubin.data, named.text)
    for block in (128, 256):
        keep(writer, "add_a_vector_of_half_precision_values_to_another_one", tile(tools, block), None, {"BLOCK": block})
    writer.close()
    return CaptureFolder.open("tritonhook-captures")


def tile(tools: Toolchain, block: int) -> bytes:
    ptx = module(block // 16).text.replace(" k(", " add_a_vector_of_half_precision_values_to_another_one(")
    return tools.assemble_or_raise(Ptx(ptx)).cubin.data


def shown(capsys: pytest.CaptureFixture, *words: str) -> str:
    capsys.readouterr()
    assert main(["show", *words]) == 0
    return str(capsys.readouterr().out)


def test_a_kernel_has_one_line_in_every_terminal(folder: CaptureFolder, screens: Screens) -> None:
    screens.check_command("show-folder", "show")
    screens.check_command("show-folder-sorted", "show", "--sort", "spills", "--filter", "softmax|BLOCK|^k$")
    screens.check_command("show-kernel", "show", f"tritonhook-captures/{folder.ids['foo-' + '1' + '0' * 15]}")


def test_spills_are_in_every_view_and_equal_those_of_ptxas(
    folder: CaptureFolder, tools: Toolchain, capsys: pytest.CaptureFixture
) -> None:
    log = tools.assemble_or_raise(module(100), ("-v", "--maxrregcount=32")).cubin.resources["k"]
    stores, loads = log.spill_stores, log.spill_loads
    assert stores and loads
    document = json.loads(shown(capsys, "--json"))
    kernels = {kernel["kernel"]: kernel for kernel in document["kernels"]}
    (spilling, foo) = (kernels[name]["resources"] for name in ("k", "foo"))
    assert (spilling["spill_stores"], spilling["spill_loads"], spilling["stack"]) == (stores, loads, log.stack)
    assert (foo["spill_stores"], foo["local_stores"], foo["stack"]) == (None, 4, 48)
    own = kernels["k"]["id"]
    assert json.loads(shown(capsys, own, "--json"))["resources"] == spilling
    text = shown(capsys, own)
    assert f"spill stores   {stores:,} bytes" in text and f"stack          {log.stack} bytes" in text
    code = shown(capsys, own, "--sass")
    assert 4 * code.count(" STL ") + 8 * code.count(" STL.64 ") == stores
    assert 4 * code.count(" LDL ") + 4 * code.count(" LDL.LU ") + 8 * code.count(" LDL.LU.64 ") == loads
    assert f"{stores:,}/{loads:,}" in shown(capsys) and "not known" in shown(capsys)
    assert main(["show", own, "--html", "k.html"]) == 0
    assert f"{stores:,} bytes" in Path("k.html").read_text()
    assert main(["show", "--html", "all.html"]) == 0
    assert f"{stores:,}/{loads:,}" in Path("all.html").read_text()
    capsys.readouterr()
    assert main(["diff", own, kernels[MANGLED]["id"], "--no-control", "--json"]) == 1
    resources = {r["field"]: r for r in json.loads(capsys.readouterr().out)["resources"]}
    assert (resources["spill_stores"]["a"], resources["spill_stores"]["b"]) == (stores, 0)
    main(["diff", own, kernels["foo"]["id"]])
    assert "spill stores    " in (text := capsys.readouterr().out) and "local stores" in text and "not known" in text


def test_every_verb_takes_an_id_in_place_of_a_folder(
    folder: CaptureFolder, here: Path, capsys: pytest.CaptureFixture
) -> None:
    record = next(record for record in folder.records if record.startswith("k-"))
    own = folder.ids[record]
    for name in (own, own[:4], f"tritonhook-captures/{own}", f"{here}/tritonhook-captures/{own}"):
        document = json.loads(shown(capsys, name, "--json"))
        assert document["kernel"] == "k" and document["path"].endswith(f"tritonhook-captures/kernels/{record}")
    assert main(["diff", own, own]) == 0
    assert main(["diff", own, "--rename"]) in (0, 1)
    assert main(["lab", "probe", own, "--names", "cutlass_k"]) in (0, 1)
    assert main(["mem", "predict", own, "--gpu", "H100"]) == 0
    assert main(["rename", own, "--prefix", "cutlass_", "-o", "renamed.ptx"]) == 0
    assert Ptx(Path("renamed.ptx").read_text()).entries == ("cutlass_k",)
    assert "no such file" not in capsys.readouterr().err


def test_an_id_that_nothing_or_too_much_fits_is_refused(folder: CaptureFolder, capsys: pytest.CaptureFixture) -> None:
    for verb in ("show", "rename"):
        assert main([verb, "0123abcd"]) == 2
        error = capsys.readouterr().err
        assert "0123abcd: no such file or folder, and no kernel in tritonhook-captures has an id" in error
        assert main([verb, "01a"]) == 2
        assert "01a: no such file or folder, and too short for an id" in capsys.readouterr().err
    Path("deadbeef").write_text("a file comes before an id")
    assert main(["show", "deadbeef"]) == 2
    assert "id" not in capsys.readouterr().err.split()


def test_ids_are_as_long_as_they_must_be() -> None:
    records = [f"kernel-{n}" for n in range(9_000)]
    ids = short_ids(records)
    assert len(set(ids.values())) == len(records) and min(map(len, ids.values())) == 6
    assert max(map(len, ids.values())) > 6  # some begin alike
    assert not any(
        a != b and b.startswith(a) for a, b in zip(sorted(ids.values()), sorted(ids.values())[1:], strict=False)
    )
    assert {record: ids[record] for record in records[:3]} == short_ids(records[:3])  # others come, ids stay


def test_sort_and_filter(folder: CaptureFolder, capsys: pytest.CaptureFixture) -> None:
    def order(*words: str) -> list[str]:
        return [kernel["kernel"][:4] for kernel in json.loads(shown(capsys, *words, "--json"))["kernels"]]

    assert order("--sort", "spills")[0] == "k" and order("--sort", "spills")[-1] == "foo"  # not known comes last
    assert order("--sort", "name")[0] == "_Z12" and order("--sort", "stack")[1] == "foo"
    assert order("--filter", "softmax") == ["_Z12"]
    assert order("--filter", "BLOCK=256") == ["add_"] and order("--filter", "nothing") == []
    assert "4 kernels left out by --filter" in shown(capsys, "--filter", "softmax")
    assert main(["show", "--filter", "("]) == 2
    assert "--filter (: not a regular expression" in capsys.readouterr().err


def test_what_is_not_known_is_sorted_last(tools: Toolchain, capsys: pytest.CaptureFixture) -> None:
    writer = CaptureWriter(Path("other"))
    keep(writer, "k", tools.assemble_or_raise(module(100), ("-v", "--maxrregcount=32")).cubin.data)  # without its PTX
    small = Ptx(module(8).text.replace(" k(", " small("))
    keep(writer, "small", tools.assemble_or_raise(small).cubin.data, small.text)
    writer.close()
    for words, first in ((("--sort", "instrs"), "k"), (("--sort", "spills"), "small")):
        assert json.loads(shown(capsys, "other", *words, "--json"))["kernels"][0]["kernel"] == first


def test_wide_shows_all_and_a_pipe_is_not_padded(
    folder: CaptureFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    pipe, wide = shown(capsys), shown(capsys, "--wide")
    for name, value in {"COLUMNS": "60", "TERM": "dumb"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    narrow = shown(capsys)
    assert "softmax_rows<float, 4>" in wide and "add_a_vector_of_half_precision_values_to_another_one" in wide
    assert "4 warps, 3 stages, BLOCK=128" in wide and "from cache" in wide and "256]" in narrow
    monkeypatch.setenv("COLUMNS", "40")
    for order in ("regs", "instrs"):
        (headings,) = (line for line in shown(capsys, "--sort", order).splitlines() if line.startswith("id "))
        assert headings.split()[-1] == order, "the column of the order is not left out"
    assert max(map(len, narrow.splitlines())) <= 60 < max(map(len, pipe.splitlines()))
    assert "add_a_vector_of_half_precision_values_to_another_one" in pipe and "from cache" not in pipe
    assert not any(line != line.rstrip() for text in (wide, pipe) for line in text.splitlines())


@pytest.fixture
def configurations(tmp_path: Path, triton_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two configurations of add_kernel in the folder "captures"."""
    kernels = pytest.importorskip("triton_kernels", reason="needs Triton")
    monkeypatch.chdir(tmp_path)
    with tritonhook.session("captures"):
        for block in (128, 256):
            kernels.compile_kernel(block=block)


def test_a_kernel_is_named_by_its_configuration(configurations: None, capsys: pytest.CaptureFixture) -> None:
    assert main(["show", "captures", "--filter", r"BLOCK=256", "--json"]) == 0
    (kernel,) = json.loads(capsys.readouterr().out)["kernels"]
    assert kernel["title"] == "add_kernel[BLOCK=256]"
    assert main(["show", "captures/add_kernel[BLOCK=256]", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["hash"] == kernel["hash"]
    assert main(["diff", "captures/add_kernel[BLOCK=128]", f"captures/{kernel['record']}"]) == 1
    assert "add_kernel[BLOCK=128] → add_kernel[BLOCK=256]" in (said := capsys.readouterr().out)
    assert "control name" not in said
    assert "2 kernels match" in failing(capsys, "show", "captures/add_kernel")
    assert "no such kernel" in failing(capsys, "show", "captures/add_kernel[BLOCK=1]")


def test_the_stages_of_a_kernel_are_printed_and_compared(configurations: None, capsys: pytest.CaptureFixture) -> None:
    a, b = "captures/add_kernel[BLOCK=128]", "captures/add_kernel[BLOCK=256]"
    for option, part in {
        "--ptx": ".visible .entry",
        "--ttgir": "tt.func",
        "--llir": "define",
        "--ttir": "tt.func",
    }.items():
        assert main(["show", a, option]) == 0
        assert part in capsys.readouterr().out
    assert main(["show", a, "--source"]) == 0
    assert "def add_kernel" in capsys.readouterr().out
    for option, part in {"--code": "- ", "--ptx": ".reqntid", "--ttgir": "256", "--ttir": "256"}.items():
        assert main(["diff", a, b, option]) == 1
        assert part in capsys.readouterr().out
    assert "--code: not for two capture folders" in failing(capsys, "diff", "captures", "captures", "--code")
