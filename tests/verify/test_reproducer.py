"""A reproducer stands alone: its program compares what two cubins store, and its report has all that was found."""

from __future__ import annotations

import base64
import json
import os
import shutil
import struct
import subprocess
import sys
import zlib
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hangs import HANG_S
from ptx_modules import HEADER
from repository import SUPPORT

from tritonhook.capture.launches.contents import NORMAL
from tritonhook.capture.launches.record import Buffer, Descriptor, Launch, Packed, Pointer, Scalar, Scratch, Tiling
from tritonhook.errors import UsageError
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.tool import Tool, find_ptxas
from tritonhook.verify.differential import Case, Recipe, Verified
from tritonhook.verify.judgement import Judgement, Latitude, Observation
from tritonhook.verify.minimise import Trial
from tritonhook.verify.model import Build, Verdict
from tritonhook.verify.reproduce import (
    Reproducer,
    Side,
    Tried,
    _sides,
    _start,
    program,
    report,
    write_reproducer,
)

TEXT = (
    HEADER
    + ".visible .entry k(.param .u64 p0, .param .u32 p1, .param .u64 p2)\n{\n"
    + "\t.reg .b64 %rd<1>;\n\tld.param.u64 %rd0, [p0];\n\tst.global.b32 [%rd0], 1;\n\tret;\n}\n"
)
LAUNCH = Launch(
    "k",
    (2, 1, 1),
    (32, 1, 1),
    (Pointer("out", 0), Scalar("n", "i32", 7), Pointer("x", 1, 8), Scratch(64)),
    (Buffer(8, "float32"), Buffer(16, "int32")),
)
CONTENTS = (struct.pack("<2f", 1.0, 2.0), bytes(range(16)))
FOUND = Reproducer(
    "ptxas 12.8 stores other values",
    Trial(TEXT, "k", LAUNCH, CONTENTS),
    (
        Side("ptxas 12.8.93 -O3", ("-O3",), (b"\1\2\3\4\5\6\7\7", CONTENTS[1]), ("SHF.L.W.U32.HI R4,R3,0x8,R2",)),
        Side("ptxas 13.5.37 -O0", ("-O0",), (b"\1\2\3\4\5\6\7\x08", CONTENTS[1]), ("LEA R6,P0,R2,-R7,0x8",)),
    ),
    gpu="NVIDIA H200, driver 580.1",
    tried=(Tried("ptxas 12.9.86 -O3", "as ptxas 12.8.93 -O3"),),
)


@pytest.fixture(scope="module")
def libcuda(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a libcuda.so.1 that needs no GPU."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("requires a C compiler")
    folder = tmp_path_factory.mktemp("libcuda")
    source = SUPPORT / "fake_libcuda.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", folder / "libcuda.so.1", source], check=True)
    return folder


def cubin(path: Path, kernel: int) -> Path:
    """A file that is a cubin by its header; behind it stands the fake kernel."""
    header = b"\x7fELF" + bytes(12) + struct.pack("<HHIQQQ", 2, 190, 1, 0, 0, 64)
    path.write_bytes(header.ljust(128, b"\0") + bytes([kernel]))
    return path


def start(folder: Path, libcuda: Path | None, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": "" if libcuda is None else str(libcuda)}
    command = [sys.executable, "-S", "-E", str(folder / "reproduce.py"), *map(str, arguments)]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=HANG_S, check=False, cwd="/"
    )


@pytest.mark.parametrize(
    ("kernels", "code", "said"),
    [
        ((1, 1), 0, ("SAME: both store the same bytes",)),
        ((1, 2), 1, ("buffer 0 (float32): 2 of 2 elements differ", "0x40810101", "4.0313", "0x41820202", "DIFFERENT")),
        ((1, 0xEE), 1, ("b.cubin: cuCtxSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS", "a.cubin: finished")),
        ((1, 0xDD), 1, ("b.cubin: no end within 60 s", "DIFFERENT")),
    ],
)  # fmt: skip
def test_the_program_compares_two_cubins(
    kernels: tuple[int, int], code: int, said: tuple[str, ...], libcuda: Path, tmp_path: Path
) -> None:
    write_reproducer(tmp_path, FOUND)
    text = (tmp_path / "reproduce.py").read_text()
    assert "timeout=LIMIT_S" in text
    if 0xDD in kernels:  # that one hangs: to wait for a second is enough
        text = text.replace("timeout=LIMIT_S", "timeout=LIMIT_S if cubin.endswith('a.cubin') else 1")
    (tmp_path / "reproduce.py").write_text(text)
    paths = [cubin(tmp_path / name, kernel) for name, kernel in zip(("a.cubin", "b.cubin"), kernels, strict=True)]
    done = start(tmp_path, libcuda, *paths)
    assert done.returncode == code, done.stdout + done.stderr
    for words in said:
        assert words in done.stdout


def test_the_program_assembles_with_two_ptxas(libcuda: Path, tmp_path: Path) -> None:
    write_reproducer(tmp_path, FOUND)
    ptxas = find_ptxas()
    done = start(tmp_path, libcuda, ptxas.path, ptxas.path)
    commands = [line for line in done.stdout.splitlines() if line.startswith("$")]
    assert [("-O3" in line, "-O0" in line) for line in commands] == [(True, False), (False, True)], done.stderr
    assert all("-arch=sm_90a" in line and str(tmp_path / "kernel.ptx") in line for line in commands)


@pytest.mark.parametrize("with_ptxas", [False, True])
def test_without_a_driver_it_says_what_it_needs(with_ptxas: bool, tmp_path: Path) -> None:
    write_reproducer(tmp_path, FOUND)
    given = find_ptxas().path if with_ptxas else cubin(tmp_path / "a.cubin", 1)
    done = start(tmp_path, None, given, given)
    assert done.returncode == 2
    assert "libcuda.so.1 cannot be loaded: this needs an NVIDIA GPU and its driver" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_ptxas_that_refuses_is_told(libcuda: Path, tmp_path: Path) -> None:
    write_reproducer(tmp_path, replace(FOUND, trial=replace(FOUND.trial, ptx=TEXT.replace("st.global", "st.nowhere"))))
    ptxas = find_ptxas().path
    done = start(tmp_path, libcuda, ptxas, ptxas)
    assert done.returncode == 2 and "cannot assemble kernel.ptx" in done.stderr and "nowhere" in done.stderr


def test_the_report_has_the_assemblers_the_differing_elements_and_the_code(tmp_path: Path) -> None:
    paths = write_reproducer(tmp_path / "new" / "folder", FOUND)
    assert [path.name for path in paths] == ["kernel.ptx", "reproduce.py", "report.md"] and paths[0].read_text() == TEXT
    text = paths[2].read_text()
    assert {"| ptxas 12.9.86 -O3 | as ptxas 12.8.93 -O3 |", "| 1 | 0x07070605 | 0x08070605 |"} <= set(text.splitlines())
    assert all(part in text for side in FOUND.sides for part in (*side.code, side.label)) and FOUND.gpu in text
    launch = replace(LAUNCH, buffers=(LAUNCH.buffers[0], Buffer(2000, "int16")))
    sides = tuple(replace(side, stored=(bytes(8), bytes([n]) * 2000), code=()) for n, side in enumerate(FOUND.sides))
    text = report(replace(FOUND, sides=sides, trial=replace(FOUND.trial, launch=launch)))
    assert "1,000 of 1,000 elements differ" in text and text.count("| 0x0000 | 0x0101 |") == 8


def test_the_program_has_the_whole_case() -> None:
    tiling = Tiling(9, (64, 8), (128,), (64, 8), (1, 1))
    further = (Packed("some", "00ff" * 8, ((8, 1, 4),)), Descriptor("x", 1, 16, tiling))
    launch = replace(
        LAUNCH, parameters=(*LAUNCH.parameters, *further), cluster=(2, 1, 1), shared=4096, cooperative=True
    )
    text = program(replace(FOUND, trial=replace(FOUND.trial, launch=launch)))
    case = json.loads(text.partition('json.loads(r"""')[2].partition('"""')[0])
    contents = [zlib.decompress(base64.b64decode(buffer.pop("data"))) for buffer in case["buffers"]]
    assert tuple(contents) == CONTENTS
    assert case["arguments"] == [
        {"buffer": 0, "offset": 0},
        {"bytes": "07000000"},
        {"buffer": 1, "offset": 8},
        {"scratch": 64},
        {"bytes": "00ff" * 8, "pointers": [[8, 1, 4]]},
        {"buffer": 1, "offset": 16, "tiling": json.loads(json.dumps(asdict(tiling)))},
    ]
    sizes = {"grid": [2, 1, 1], "block": [32, 1, 1], "cluster": [2, 1, 1], "shared": 4096, "cooperative": True}
    assert sizes.items() <= case.items()


def recipe(version: str, *options: str, others: tuple[Recipe, ...] = ()) -> Recipe:
    return Recipe(Tool(Path(version), version, "fake"), options, others=others)


def different(
    *groups: tuple[str, ...], reference: str = "1.1 -O3", build: str | None = "2.2 -O3", verdict: Verdict | None = None
) -> Verified:
    worst = Observation(verdict or Verdict.DIFFERENT, "", NORMAL, build)
    builds = (Build(reference, Path("k.cubin"), "k"),)
    return Verified("k", "", Judgement(worst.verdict, (worst,)), builds, groups=groups)


def test_the_sides_are_the_reference_and_the_build_that_differs_most() -> None:
    """Options without an effect on the machine code go; a build that stores the same stands for the PTX itself."""
    second = recipe("2.2", "-lineinfo", "--fmad=false", "--verbose")
    made = [recipe("1.1", "-v", "-O3"), recipe("2.2", "-O0", others=(second,)), recipe("3.3")]
    wanted = recipe("1.1", "-O3"), recipe("2.2", "--fmad=false")
    assert _sides(different(), made) == wanted
    alike = ("2.2 -O3",), ("ptx", "unknown", "3.3 -O3", "1.1 -O3")
    assert _sides(different(*alike, reference="ptx"), made) == (recipe("3.3"), wanted[1])


@pytest.mark.parametrize(
    "result",
    [
        different(verdict=Verdict.CRASH),
        different(build=None),
        Verified("k", "", Judgement(Verdict.SAME)),
        different(("2.2 -O3",), ("ptx", "other"), reference="ptx"),
        different(reference="ptx"),
    ],
)
def test_what_cannot_be_minimised(result: Verified) -> None:
    with pytest.raises(UsageError, match="^k: "):
        _sides(result, [recipe("1.1"), recipe("2.2")])


def test_the_kernel_starts_as_both_sides_read_it() -> None:
    """Given a module of a newer PTX ISA than the older side reads; then it is lowered to what that one reads."""
    sides = [Recipe(Tool(Path("ptxas"), version, "fake"), ("-O3",)) for version in ("13.1.80", "12.8.93")]
    ptx = Ptx(TEXT.replace(Ptx(TEXT).version, "9.0", 1))
    worst = Observation(Verdict.DIFFERENT, "", NORMAL, "12.8.93 -O3")
    case = Case("k", LAUNCH, Latitude(), ())
    trial = _start(case, ptx, Verified("k", "", Judgement(Verdict.DIFFERENT, (worst,))), sides)
    assert Ptx(trial.ptx).version == "8.7"
    assert [len(data) for data in trial.contents] == [8, 16] and all(map(any, trial.contents))
