"""`tritonhook show FILE`: what a cubin, PTX, a fat binary or a shared library holds."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from command_line import failing
from repository import GOLDEN
from screens import Screens

from tests.cubin.test_fatbin import compressed, entry, fatbin
from tests.cubin.test_resources import module
from tritonhook.cli import main
from tritonhook.cubin.image import Cubin
from tritonhook.cubin.sass import parse_nvdisasm
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.toolchain import Toolchain

EXP, MODULE = "sm_90a.exp.plain", "sm_90a.module"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in (EXP, MODULE):
        shutil.copy(GOLDEN / f"{name}.cubin", tmp_path)
    return tmp_path


def document(capsys: pytest.CaptureFixture, *words: str) -> dict:
    capsys.readouterr()
    assert main(["show", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def libraries() -> dict[str, bytes]:
    """Two cubins as they lie in files of each kind."""
    exp, several = (Path(f"{name}.cubin").read_bytes() for name in (EXP, MODULE))
    host = b"\x7fELF\x02\x01\x01" + b"\0" * 11 + b"\x3e\0" + b"host code" * 100  # machine 0x3e: x86-64
    return {
        "plain.fatbin": fatbin(entry(exp), entry(several), entry(b"ptx", kind=1)),
        "packed.fatbin": fatbin(compressed(exp, "zstd"), compressed(several, "lz4"), entry(b"ptx", kind=1)),
        "lib.so": host + fatbin(entry(exp)) + host + fatbin(compressed(several, "zstd"), entry(b"ptx", kind=1)),
    }


def test_a_file_in_every_terminal(screens: Screens) -> None:
    screens.check_command("show-file", "show", f"{MODULE}.cubin")
    screens.check_command("show-file-sass", "show", f"{EXP}.cubin", "--sass")


def test_a_cubin_shows_its_kernels_and_their_instructions(capsys: pytest.CaptureFixture) -> None:
    found = document(capsys, f"{EXP}.cubin")
    (kernel,) = found["kernels"]
    cubin = Cubin.from_bytes(Path(f"{EXP}.cubin").read_bytes())
    output = (GOLDEN / f"{EXP}.json").read_bytes()
    sass = parse_nvdisasm(output, {"cutlasz_k": cubin.text("cutlasz_k")}, {})["cutlasz_k"]
    resources = cubin.resources["cutlasz_k"]
    assert (found["kind"], found["what"], kernel["kernel"], kernel["arch"]) == ("file", "cubin", "cutlasz_k", "sm_90")
    assert kernel["resources"]["registers"] == resources.registers
    assert kernel["resources"]["instructions"] == len(sass.instructions) == sum(kernel["mix"].values())
    assert kernel["mix"]["floating point"] == sum(i.base_opcode in ("FFMA", "MUFU", "FMUL") for i in sass.instructions)
    (loop,) = kernel["loops"]
    (expected,) = sass.loops
    assert (loop["instructions"], loop["innermost"]) == (len(expected.instructions), True)
    assert "code" not in kernel and "code" in document(capsys, f"{EXP}.cubin", "--sass")["kernels"][0]


@pytest.mark.parametrize("name", ["plain.fatbin", "packed.fatbin", "lib.so"])
def test_fat_binaries_and_libraries(name: str, capsys: pytest.CaptureFixture) -> None:
    Path(name).write_bytes(libraries()[name])
    found = document(capsys, name)
    assert found["what"] == ("fat binary" if name.endswith("fatbin") else "shared library or object file")
    apart = [kernel for cubin in (EXP, MODULE) for kernel in document(capsys, f"{cubin}.cubin")["kernels"]]
    assert found["kernels"] == apart
    assert found["notes"] == ["1 PTX module not shown"]
    only = document(capsys, name, "--entry", "foo")
    assert [kernel["kernel"] for kernel in only["kernels"]] == ["foo"]
    assert "no such kernel; the kernels are: cutlasz_k, " in failing(capsys, "show", name, "--entry", "bar")


def test_a_kernel_is_named_as_people_wrote_it(tools: Toolchain, capsys: pytest.CaptureFixture) -> None:
    text = module(8).text.replace(" k(", " _Z5saxpyifPKfPf(")
    Path("k.cubin").write_bytes(tools.assemble_or_raise(Ptx(text)).cubin.data)
    for name in ("saxpy", "_Z5saxpyifPKfPf"):
        assert [kernel["kernel"] for kernel in document(capsys, "k.cubin", "--entry", name)["kernels"]] == [
            "_Z5saxpyifPKfPf"
        ]
    assert main(["show", "k.cubin"]) == 0
    assert "saxpy  " in (shown := capsys.readouterr().out) and "_Z5" not in shown


def test_compressed_cubins_that_were_not_read_are_told(
    capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("lib.so").write_bytes(libraries()["lib.so"])
    monkeypatch.setitem(sys.modules, "zstandard", None)
    monkeypatch.setattr("tritonhook.cubin.shipped._library", lambda name: None)  # nor is the system's
    found = document(capsys, "lib.so")
    assert [kernel["kernel"] for kernel in found["kernels"]] == ["cutlasz_k"]
    note = found["notes"][1]
    assert note.startswith("cubins: 1 compressed and not read") and "`pip install lz4 zstandard`" in note


def test_ptx_is_assembled_and_its_spills_are_those_of_the_log(tools: Toolchain, capsys: pytest.CaptureFixture) -> None:
    Path("k.ptx").write_text(module(300).text)
    found = document(capsys, "k.ptx", "--ptxas", "12.8.93")
    told = tools.assemble_or_raise(module(300)).cubin.resources["k"]
    resources = found["kernels"][0]["resources"]
    assert told.spill_stores and (resources["spill_stores"], resources["spill_loads"]) == (
        told.spill_stores,
        told.spill_loads,
    )
    assert found["what"] == "PTX file" and "assembled here by ptxas 12.8.93" in found["notes"]


def test_the_code_is_annotated(capsys: pytest.CaptureFixture) -> None:
    assert main(["show", f"{EXP}.cubin", "--sass"]) == 0
    lines = capsys.readouterr().out.splitlines()
    cubin = Cubin.from_bytes(Path(f"{EXP}.cubin").read_bytes())
    code = [line for line in lines if line[4:6] == "  " and line[0] == "0"]
    assert len(code) == len(cubin.text("cutlasz_k")) // 16
    loop = [line for line in code if line[22:23] == "|"]
    assert len(loop) == document(capsys, f"{EXP}.cubin")["kernels"][0]["loops"][0]["instructions"]
    assert sum("MUFU.EX2" in line for line in loop) == 8 and not any("EXIT" in line for line in loop)


def test_without_nvdisasm_instructions_are_not_known(
    capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tritonhook.cli import show
    from tritonhook.errors import ToolError

    def missing() -> None:
        raise ToolError("nvdisasm: not found")

    monkeypatch.setattr(show, "reading_toolchain", missing)
    found = document(capsys, f"{EXP}.cubin")
    assert (found["kernels"][0]["mix"], found["kernels"][0]["loops"]) == (None, None)
    assert found["kernels"][0]["resources"]["registers"] == 24
    assert found["notes"] == ["instructions and loops are not known: nvdisasm: not found"]
    assert main(["show", f"{EXP}.cubin"]) == 0
    assert "Instructions by class" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "not PTX"),
        (b"hello", "not PTX"),
        (b"\x89PNG\0\0", "a binary file without GPU code"),
        (b"\x7fELF" + b"\0" * 200, "without machine code for GPUs"),
        (fatbin(entry(b"x", kind=1)), "it holds only 1 PTX module"),
        ((GOLDEN / f"{EXP}.cubin").read_bytes()[:700], "truncated"),
    ],
)
def test_what_is_no_file_with_gpu_code_is_refused(data: bytes, said: str, capsys: pytest.CaptureFixture) -> None:
    Path("file.bin").write_bytes(data)
    message = failing(capsys, "show", "file.bin")
    assert "file.bin: " in message and said.lower() in message.lower()
