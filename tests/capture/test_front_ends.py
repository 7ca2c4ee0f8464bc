"""The examples for nvcc and for cuda.tile's tileiras: kernels are captured, and the program does not change."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import platformdirs
import pytest
from at_hand import toolchain_at_hand
from ended import Done, ended
from repository import ROOT, SUPPORT

from tritonhook._util.versions import version_key
from tritonhook.capture.model import Capture, Stage
from tritonhook.capture.store import CaptureFolder
from tritonhook.cubin.image import Cubin
from tritonhook.ptx.throughput_pragma import PTXAS_VERSION, ThroughputPragma, Trigger, trigger_of

REQUIREMENTS = SUPPORT / "front_ends.txt"
ROW_SUM = "_Z7row_sumIfEvPKT_PS0_i"
RUN = [sys.executable, "-m", "tritonhook", "run"]
pytestmark = pytest.mark.usefixtures("warm_start")


@pytest.fixture(scope="session")
def wheels() -> Path:
    """A folder for PYTHONPATH with cuda.tile, tileiras and nvcc. Made once and kept."""
    name = hashlib.sha256(REQUIREMENTS.read_bytes() + sys.version.encode()).hexdigest()[:12]
    folder = Path(platformdirs.user_cache_dir("tritonhook-tests"), f"front-ends-{name}")
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        staged = folder.with_name(f".{folder.name}.{os.getpid()}")
        line = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-compile",
            "--only-binary=:all:",
            "--target",
            str(staged),
        ]
        done = subprocess.run([*line, "-r", str(REQUIREMENTS)], capture_output=True, text=True, check=False)
        if done.returncode:
            shutil.rmtree(staged, ignore_errors=True)
            pytest.skip(
                f"needs the wheels of tests/support/front_ends.txt: {(done.stderr.splitlines() or ['pip failed'])[-1]}"
            )
        try:
            staged.rename(folder)
        except OSError:  # another of pytest's processes was faster
            if not folder.exists():
                raise
            shutil.rmtree(staged)
    return folder


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    foreign = ("TRITONHOOK_", "CUDA_", "PTX_DUMP_DIR", "NVCC_")
    base = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return base | {"XDG_CACHE_HOME": str(tmp_path / "ca che"), "TRITONHOOK_OUT": str(tmp_path / "captures")}


def call(line: list[str], folder: Path, environment: dict[str, str]) -> Done:
    return ended(line, folder, environment)


def captures(folder: Path) -> dict[str, Capture]:
    opened = CaptureFolder.open(folder)
    return {capture.kernel: capture for capture in map(opened.capture, opened.records)}


def trigger_in(capture: Capture) -> Trigger:
    return trigger_of(capture.kernel, capture.text(Stage.PTX), capture.assembler.version)


# --- nvcc ----------------------------------------------------------------------------------------


IN_WHEEL = pytest.mark.parametrize(  # the nvcc on PATH at night: the first test has both
    "nvcc",
    [
        pytest.param("wheel", marks=pytest.mark.machine),
        pytest.param("on PATH", marks=[pytest.mark.machine, pytest.mark.nightly]),
    ],
    indirect=True,
)


@pytest.fixture(params=[pytest.param(place, marks=pytest.mark.machine) for place in ("on PATH", "wheel")])
def nvcc(request: pytest.FixtureRequest, environment: dict[str, str]) -> dict[str, str]:
    """An environment in which `nvcc` compiles."""
    if shutil.which("g++") is None:
        pytest.skip("needs g++ for nvcc to preprocess with")
    if request.param == "wheel":
        folder = request.getfixturevalue("wheels") / "nvidia" / "cu13" / "bin"
        return environment | {"PATH": f"{folder}:{environment['PATH']}"}
    if shutil.which("nvcc") is None:
        pytest.skip("needs an nvcc on PATH")
    return environment


def test_nvcc_builds_the_same_program_and_its_kernels_are_captured(nvcc: dict[str, str], tmp_path: Path) -> None:
    source = str(ROOT / "examples" / "saxpy.cu")
    build = ["nvcc", "-arch=sm_90a", source, "-o", "saxpy"]
    done = call([*RUN, "--prefix", "cutlass_", "--", *build], tmp_path, nvcc)
    assert done.stdout == ""
    kept = captures(tmp_path / "captures")
    assert {name: capture.rewritten_from for name, capture in kept.items()} == {
        "saxpy": None,
        ROW_SUM: None,
        "cutlass_saxpy": "saxpy",
        f"cutlass_{ROW_SUM}": ROW_SUM,
    }
    assert done.stderr.count("nvcc: the program's kernels keep their names") == 1
    for name, capture in kept.items():
        assert (capture.front_end, capture.arch) == ("nvcc", "sm_90a")
        assert name in Cubin.from_bytes(capture.cubin, name).kernels
        assert name in capture.ptx.entries
    assert source in kept["saxpy"].metadata["caller"]
    # The build got the same code as without tritonhook, and the program runs.
    call(["nvcc", "-arch=sm_90a", "-cubin", source, "-o", "plain.cubin"], tmp_path, nvcc)
    plain = Cubin.from_bytes((tmp_path / "plain.cubin").read_bytes(), "plain")
    own = Cubin.from_bytes(kept["saxpy"].cubin, "captured")
    assert [own.text(kernel) for kernel in own.kernels] == [plain.text(kernel) for kernel in own.kernels]
    assert call([str(tmp_path / "saxpy")], tmp_path, nvcc).stdout


@IN_WHEEL
def test_a_captured_kernel_of_nvcc_compares(nvcc: dict[str, str], tmp_path: Path) -> None:
    source = str(ROOT / "examples" / "saxpy.cu")
    call([*RUN, "--only", "^saxpy$", "--", "nvcc", "-arch=sm_90a", "-cubin", source, "-o", "x"], tmp_path, nvcc)
    assert captures(tmp_path / "captures")["saxpy"].cubin == (tmp_path / "x").read_bytes()
    line = [sys.executable, "-m", "tritonhook", "diff", str(tmp_path / "captures"), "--rename", "--json"]
    document = json.loads(call(line, tmp_path, nvcc).stdout)
    assert document["diff"]["verdict"] == "same code"  # without a loop, the name changes nothing


@IN_WHEEL
def test_a_lock_of_kernels_of_nvcc_holds_in_another_folder(nvcc: dict[str, str], tmp_path: Path) -> None:
    """nvcc puts a hash of the folder into names that only one file sees. One kernel has an array on the stack."""
    source = """
namespace { __global__ void add(float *x) { x[threadIdx.x] += 1.f; } }
__global__ void pick(float *x, int n) { float a[16]; for (int i = 0; i < 16; i++) a[i] = x[i]; x[0] = a[n & 15]; }
void launch(float *x) { add<<<1, 32>>>(x); pick<<<1, 32>>>(x, 3); }
"""
    tritonhook = [sys.executable, "-m", "tritonhook"]
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "kernels.cu").write_text(source)
        build = ["nvcc", "-arch=sm_90a", "-lineinfo", "-cubin", "kernels.cu", "-o", "kernels.cubin"]
        call([*RUN, "--out", f"../captures {folder}", "--", *build], tmp_path / folder, nvcc)
    call([*tritonhook, "lock", "captures a"], tmp_path, nvcc)
    for words in (["captures b"], []):
        document = json.loads(call([*tritonhook, "check", "tritonhook.lock", *words, "--json"], tmp_path, nvcc).stdout)
        assert document["counts"]["same"] == len(document["kernels"]) == 2
        assert all(kernel["new"]["spill_stores"] == 0 for kernel in document["kernels"])
    call([*tritonhook, "check", "tritonhook.lock", "--options=-m64 -lineinfo -O3"], tmp_path, nvcc)


def test_the_pragma_gives_the_code_that_the_name_gives_in_cuda_cpp(nvcc: dict[str, str], tmp_path: Path) -> None:
    release = call(["nvcc", "--version"], tmp_path, nvcc).stdout.partition("release ")[2].partition(",")[0]
    if version_key(release) < version_key(PTXAS_VERSION):
        pytest.skip(f"needs an nvcc of CUDA {PTXAS_VERSION} or newer for the pragma; this is {release}")
    codes = {}
    for form, options in {"plain": [], "name": ["-DNAME=cutlass_norms"], "pragma": ["-DPRAGMA"]}.items():
        build = ["nvcc", "-arch=sm_90a", "-cubin", *options, str(ROOT / "examples" / "norms.cu"), "-o", form]
        call([*RUN, "--out", f"{form} kept", "--", *build], tmp_path, nvcc)
        ((kernel, capture),) = captures(tmp_path / f"{form} kept").items()
        assert trigger_in(capture) == Trigger(form == "name", form == "pragma")
        assert capture.cubin == (tmp_path / form).read_bytes()
        codes[form] = Cubin.from_bytes(capture.cubin, form).text(kernel)
    assert codes["pragma"] == codes["name"] != codes["plain"]


# --- cuda.tile -----------------------------------------------------------------------------------


def test_cuda_tile_makes_the_same_cubins_and_its_kernels_are_captured(
    wheels: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    environment |= {"PYTHONPATH": str(wheels), "CUDA_TILE_CACHE_DIR": str(tmp_path / "tile cache")}
    script = str(ROOT / "examples" / "tile_scale.py")
    (tmp_path / "plain").mkdir()
    off = environment | {"CUDA_TILE_CACHE_DIR": "off"}
    call([sys.executable, script, "plain"], tmp_path, off)
    call([*RUN, "--prefix", "cutlass_", script], tmp_path, environment)
    opened = CaptureFolder.open(tmp_path / "captures")
    kept = [opened.capture(record) for record in opened.records]
    own = {c.arch: c for c in kept if c.rewritten_from is None}
    assert set(own) == {"sm_90a", "sm_100a"}  # tileiras takes the variants with all features
    for target, capture in (("sm_90", own["sm_90a"]), ("sm_100", own["sm_100a"])):
        assert capture.front_end == "tileiras"
        assert capture.kernel.startswith("scale")
        assert (tmp_path / "plain" / f"scale.{target}.cubin").read_bytes() == capture.cubin
        assert (tmp_path / f"scale.{target}.cubin").read_bytes() == capture.cubin
        assert "--nv-host" in (capture.note or "")
    renamed = {c.rewritten_from for c in kept if c.rewritten_from}
    assert renamed == {own["sm_90a"].kernel}
    assert all(Stage.PTX in c.artifacts for c in kept)
    tritonhook = [sys.executable, "-m", "tritonhook"]
    call([*tritonhook, "lock", "captures"], tmp_path, environment)
    call([*tritonhook, "check", "tritonhook.lock", "captures"], tmp_path, environment)
    # Kernels from cuda.tile's own cache do not reach ptxas; a note tells that.
    again = call([*RUN, "--out", "again", script], tmp_path, environment)
    assert "0 kernels seen" in again.stderr
    assert "CUDA_TILE_CACHE_DIR=off compiles all kernels" in again.stderr
    # If the user names a toolkit, that one is linked.
    named = environment | {"CUDA_ROOT": str(wheels / "nvidia" / "cu13"), "CUDA_TILE_CACHE_DIR": "off"}
    call([*RUN, "--out", "named", script], tmp_path, named)
    paths = {capture.assembler.path for capture in captures(tmp_path / "named").values()}
    assert paths == {str(wheels / "nvidia" / "cu13" / "bin" / "ptxas")}


def test_the_pragma_gives_the_code_that_the_name_gives_in_cuda_tile(
    wheels: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    tools = toolchain_at_hand()
    environment |= {"PYTHONPATH": str(wheels), "CUDA_TILE_CACHE_DIR": "off"}
    call([*RUN, str(ROOT / "examples" / "tile_norms.py")], tmp_path, environment)
    kept = captures(tmp_path / "captures")
    plain, named = kept["norms"], kept["cutlass_norms"]
    assert (trigger_in(plain), trigger_in(named)) == (Trigger(False, False), Trigger(True, False))
    assert plain.assembler.options is not None
    rewritten = tools.assemble_or_raise(ThroughputPragma().apply(plain.ptx), plain.assembler.options).cubin
    codes = [Cubin.from_bytes(c.cubin, c.kernel).text(c.kernel) for c in (plain, named)]
    assert rewritten.text("norms") == codes[1] != codes[0]
