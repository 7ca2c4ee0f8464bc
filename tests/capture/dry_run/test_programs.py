"""`tritonhook run --arch`: whole programs without a GPU and without torch. What they compile, capture and are told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from dry_runs import run_dry
from repository import ROOT, SUPPORT

from tritonhook.capture.dry_run.gpu import DryRun
from tritonhook.capture.model import Capture, Stage
from tritonhook.capture.policy.model import Pin, write_policy
from tritonhook.capture.selection import Kernel, kernels_in
from tritonhook.capture.store import CaptureFolder
from tritonhook.capture.store.reader import RecordedLaunch
from tritonhook.cli import main

pytest.importorskip("triton", minversion="3.6")
pytestmark = pytest.mark.usefixtures("warm_start")

Go = Callable[..., "subprocess.CompletedProcess[str]"]
PRELUDE = f"""
import sys
sys.path.insert(0, {str(SUPPORT)!r})
import triton, triton_kernels as kernels
from fake_tensors import Storage, Tensor
x = Tensor(Storage(1 << 20, 4000))
"""
LAUNCH = "kernels.add_kernel[(8,)](x, x, x, 1000, BLOCK=128, num_warps=2)\n"
CONFIGS = "[triton.Config(dict(BLOCK=block), num_warps=warps) for block in (64, 128) for warps in (2, 4)]"
GEMM = """
def gemm(kernel, **options):
    h = Tensor(Storage(1 << 20, 1 << 20), "float16")
    kernel[(1, 1)](h, h, h, 512, 512, 512, 512, 512, 512, **options)
"""
LARGE = "dict(BLOCK_M=64, BLOCK_N=128, BLOCK_K=256)"  # 288 KiB of shared memory with 3 stages
SMALL = "dict(BLOCK_M=64, BLOCK_N=64, BLOCK_K=32)"


@pytest.fixture
def go(tmp_path: Path, triton_cache: Path) -> Go:
    """`tritonhook run --arch` of a script, or of a command; the captures go to tmp_path/out."""

    return lambda script, *options, **how: run_dry(tmp_path, PRELUDE + script, *options, **how)


def captured(tmp_path: Path) -> list[Capture]:
    folder = CaptureFolder.open(tmp_path / "out")
    return [folder.capture(record) for record in folder.records]


# --- what a program that launches several kernels is told, and what is captured of it ------------


SEVERAL = (
    LAUNCH
    + GEMM
    + f"""
kernels.fused_kernel[(8,)](x, x, x, 1000, BLOCK=128)
for _ in range(2):
    gemm(kernels.gemm_kernel, **{LARGE})
seen = []
triton.knobs.runtime.launch_enter_hook.add(lambda metadata: seen.append(metadata.get()["name"]))
kernels.multiply_kernel[(8,)](x, x, x, 1000, BLOCK=128, num_ctas=2, launch_cooperative_grid=True, launch_pdl=True)
import os
print(seen, repr(os.environ["CUDA_VISIBLE_DEVICES"]))
"""
)


@dataclass(frozen=True)
class Several:
    """A program's run, and its captures by kernel."""

    path: Path
    done: subprocess.CompletedProcess[str]
    captures: dict[str, tuple[str, Capture]]

    def launch(self, kernel: str) -> RecordedLaunch:
        (one,) = CaptureFolder.open(self.path).launches(self.captures[kernel][0])
        return one


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Several:
    folder = tmp_path_factory.mktemp("several")
    done, out = run_dry(folder, PRELUDE + SEVERAL, "--launch-anyway"), folder / "out"
    captures = CaptureFolder.open(out).captures()
    assert all(isinstance(capture, Capture) for capture in captures.values())
    return Several(out, done, {capture.kernel: (record, capture) for record, capture in captures.items()})  # type: ignore[union-attr,misc]


def test_kernels_are_compiled_and_captured_with_their_launches(several: Several) -> None:
    assert "dry run for sm_90a, nothing was launched: 4 kernels seen" in several.done.stderr
    assert several.captures.keys() == {"add_kernel", "fused_kernel", "gemm_kernel", "multiply_kernel"}
    one = several.launch("add_kernel")
    assert (one.launch.grid, one.launch.block, one.count) == ((8, 1, 1), (64, 1, 1), 1)
    _, capture = several.captures["add_kernel"]
    assert capture.dry_run and (capture.arch, Stage.CUBIN in capture.artifacts) == ("sm_90a", True)


def test_clusters_cooperative_grids_and_hooks_of_others(several: Several) -> None:
    launch = several.launch("multiply_kernel").launch
    assert (launch.cluster, launch.cooperative, launch.pdl) == ((2, 1, 1), True, True)
    assert several.done.stdout == "['multiply_kernel'] ''\n", "no GPU is visible to anything else"


def test_a_kernel_without_room_is_named_and_the_rest_goes_on(several: Several) -> None:
    assert several.done.stderr.count("gemm_kernel: needs ") == 1
    assert "of shared memory, the GPU has 232,448" in several.done.stderr


@pytest.mark.parametrize("arch", [pytest.param(80, marks=pytest.mark.nightly), 90, 120])
def test_the_ptx_is_what_triton_compiles_for_that_target(several: Several, go, tmp_path, arch) -> None:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton_kernels import fused_kernel

    if arch == 90:
        _, capture = several.captures["fused_kernel"]
    else:
        # The launch's script is the source of the kernel's lines in both, as the module is the same.
        go("kernels.fused_kernel[(8,)](x, x, x, 1000, BLOCK=128)\n", arch=f"sm_{arch}")
        (capture,) = captured(tmp_path)
    source = ASTSource(
        fn=fused_kernel,
        signature={"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32", "BLOCK": "constexpr"},
        constexprs={"BLOCK": 128},
        attrs={(i,): [["tt.divisibility", 16]] for i in range(3)},
    )
    own = triton.compile(source, target=GPUTarget("cuda", arch, 32))
    assert capture.text(Stage.PTX) == own.asm["ptx"]
    assert capture.cubin == own.asm["cubin"]


def test_verbs_say_that_nothing_was_launched_and_launch_nothing_again(several: Several, tmp_path, capsys) -> None:
    out, kernel = str(several.path), str(several.path / "kernels" / several.captures["add_kernel"][0])
    for words in (["show", out], ["show", kernel], ["lock", out, "-o", str(tmp_path / "tritonhook.lock")]):
        assert main(words) == 0
        assert "dry run: compiled, not launched" in capsys.readouterr().out, words
    launch = str(next(Path(kernel).glob("launches/*.json")))
    for words in (["ab", out], ["ab", kernel, kernel], ["ab", kernel, kernel, "--args", launch]):
        assert main(words) == 2
        assert "launches were recorded in a dry run" in capsys.readouterr().err, words


# --- autotuning ----------------------------------------------------------------------------------


OWN = """
from triton.runtime.autotuner import Autotuner
class Own(Autotuner):
    def run(self, *args, **named):
        self.nargs = dict(zip(self.arg_names, args))
        times = {config: self._bench(*args, config=config, **named) for config in self.prune_configs(named)}
        self.nargs = None
        self.fn.run(*args, **named, **min(times, key=times.get).all_kwargs())
kernel.__class__ = Own
"""


def test_of_an_autotuned_kernel_the_first_configuration_that_fits_is_compiled(go, tmp_path) -> None:
    """Also by a tuner of a library, with another `run`, such as FlagGems's. Neither a program's own clock nor the cache
    of measurements is used."""
    done = go(f"""
def clock(call, quantiles):
    raise SystemExit("measured")
kernel = triton.autotune({CONFIGS}, key=["n"], do_bench=clock, cache_results=True)(kernels.add_kernel)
for n in (1000, 1024):
    kernel[(8,)](x, x, x, n)
assert kernel.cache_results and kernel.do_bench is clock
print(triton.testing.do_bench(lambda: None), triton.testing.do_bench(lambda: None, quantiles=[0.5, 0.2]))
kernel = triton.autotune({CONFIGS}, key=["n"])(kernels.multiply_kernel)
{OWN}
kernel[(8,)](x, x, x, 1000)
{GEMM}
gemm(triton.autotune([triton.Config({LARGE}), triton.Config({SMALL})], key=["m"])(kernels.gemm_kernel))
gemm(triton.autotune([triton.Config({LARGE}), triton.Config({LARGE}, num_warps=8)], key=["m"])(kernels.two_gemms))
""".replace("kernels.two_gemms", "kernels.fresh(kernels.gemm_kernel)"), "--launch-anyway")  # fmt: skip
    assert done.stdout == "inf [inf, inf]\n"
    found = [(c.kernel, c.options["constants"].get("BLOCK"), c.options["num_warps"]) for c in captured(tmp_path)]
    assert [one for one in found if one[1]] == [("add_kernel", 64, 2)] * 2 + [("multiply_kernel", 64, 2)], (
        "n is part of the key, and gives other code as a multiple of 16"
    )
    assert not list(tmp_path.rglob("*.autotune.json"))
    assert done.stderr.count("gemm_kernel: needs ") == 1, "of the one of which no configuration fits"
    folder = CaptureFolder.open(tmp_path / "out")
    shared = [one.launch.shared for record in folder.records for one in folder.launches(record)]
    assert any(0 < one <= 227 << 10 for one in shared), "of the other one the configuration that fits"


def test_all_configurations_are_compiled_and_none_is_called_the_winner(go, tmp_path) -> None:
    script = f"kernel = triton.autotune({CONFIGS}, key=['n'])(kernels.add_kernel)\nkernel[(8,)](x, x, x, 1000)\n"
    go(script, "--autotune", "all")
    assert len(captured(tmp_path)) == 4
    folder = CaptureFolder.open(tmp_path / "out")
    assert folder.tunings == ()
    (tried,) = folder.configurations
    assert len(set(tried.by_record.values())) == 4 and tried.key[0] == "n=1000"
    (kernel,) = kernels_in(folder, dry=True)
    assert isinstance(kernel, Kernel) and len(kernel.siblings) == 3, "`tune --assemble-only` knows them all"


def test_what_a_policy_pins_is_compiled_and_the_rest_is_named(go, tmp_path) -> None:
    kind = ("n=1000", "float32", "float32", "float32")
    config = "BLOCK: 128, num_warps: 4, num_ctas: 1, num_stages: 3, maxnreg: None"
    write_policy(tmp_path / "pins.toml", (), [Pin("add_kernel", "sm_90a", kind, config)])
    script = f"kernel = triton.autotune({CONFIGS}, key=['n'])(kernels.add_kernel)\n"
    script += "print(kernel.configs[-1])\nfor n in (1000, 1024):\n    kernel[(8,)](x, x, x, n)\n"
    done = go(script, "--autotune", "pinned", "--policy", "pins.toml")
    assert done.stdout == f"{config}\n"
    found = {(c.options["constants"]["BLOCK"], c.options["num_warps"]) for c in captured(tmp_path)}
    assert found == {(128, 4), (64, 2)}, "1,000 is pinned, 1,024 is not"
    assert done.stderr.count("add_kernel: the policy pins no configuration for this call") == 1


def test_a_kernel_for_which_ptxas_takes_too_long_is_left_out(go, tmp_path) -> None:
    done = go(LAUNCH + LAUNCH + "print('went on')\n", "--ptxas-limit", "0.0001")
    assert done.stdout == "went on\n"
    folder = CaptureFolder.open(tmp_path / "out")
    assert folder.notes == ("add_kernel: ptxas was ended after 0.0001 s (--ptxas-limit): no machine code",)
    assert captured(tmp_path) == []


# --- a script that is locked ---------------------------------------------------------------------


def test_a_script_is_locked_for_several_architectures(tmp_path, triton_cache, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text(PRELUDE + LAUNCH)
    assert main(["lock", "script.py", "--arch", "sm_90a,sm_120a", "-o", "kernels.lock"]) == 0
    printed = capsys.readouterr().out
    assert "2 kernels" in printed
    assert "dry run: compiled, not launched" in printed
    text = (tmp_path / "kernels.lock").read_text()
    assert [text.count(line) for line in ('arch = "sm_90a"', 'arch = "sm_120a"', "dry_run = true")] == [1, 1, 2]
    assert main(["show", "kernels.lock"]) == 0


def test_a_script_without_an_architecture_is_not_locked(tmp_path, capsys) -> None:
    (tmp_path / "script.py").write_text("")
    assert main(["lock", str(tmp_path / "script.py"), "-o", str(tmp_path / "a.lock")]) == 2
    assert "give --arch" in capsys.readouterr().err
    assert main(["lock", str(tmp_path), "--arch", "sm_90a", "-o", str(tmp_path / "a.lock")]) == 2
    assert "give a script" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["ab"], ["tune"], ["verify"], ["mem", "watch"]])
def test_what_only_a_real_run_gives_is_refused_inside_of_a_dry_run(words, tmp_path, capsys, monkeypatch) -> None:
    (tmp_path / "script.py").write_text("")
    for name, value in DryRun(90).to_environment().items():
        monkeypatch.setenv(name, value)
    assert main([*words, str(tmp_path / "script.py")]) == 2
    assert "this is a dry run, which launches nothing" in capsys.readouterr().err


# --- other processes -----------------------------------------------------------------------------


def test_child_processes_modules_and_pytest(go, tmp_path) -> None:
    (tmp_path / "test_it.py").write_text(f"{PRELUDE}\ndef test_it():\n    {LAUNCH}")
    child = "import subprocess\nsubprocess.run([sys.executable, 'script.py', 'child'], check=True)\n"
    go(f"if len(sys.argv) > 1:\n    {LAUNCH}else:\n    " + child.replace("\n", "\n    ") + "\n")
    assert [capture.dry_run for capture in captured(tmp_path)] == [True]
    go(LAUNCH, command=("-m", "script"))
    go("", command=("--", sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"))
    folder = CaptureFolder.open(tmp_path / "out")
    assert len(folder.records) == 1
    assert len({sighting.process for sighting in folder.sightings}) == 3


def test_kernels_of_a_dry_run_and_of_a_gpu_are_kept_apart(go, tmp_path, triton_cache) -> None:
    """In one folder: the launches of one are made again, those of the other not."""
    launch = f"import fake_driver\nwith fake_driver.active():\n    {LAUNCH}"
    (tmp_path / "script.py").write_text(PRELUDE + launch)
    assert main(["run", "--launches", "--out", str(tmp_path / "out"), str(tmp_path / "script.py")]) == 0
    assert main(["run", "--launches", "--out", str(tmp_path / "out"), str(tmp_path / "script.py")]) == 0
    assert [capture.dry_run for capture in captured(tmp_path)] == [False]
    go(LAUNCH)
    assert sorted(capture.dry_run for capture in captured(tmp_path)) == [False, True]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--arch", "sm_91"], "--arch sm_91: not supported by dry runs; choose from sm_75"),
        (["--arch", "sm_80a"], "not supported"),
        (["--arch", "hopper"], "not supported"),
        (["--autotune", "all"], "give --arch too"),
        (["--memory", "none"], "give --arch too"),
        (["--arch", "sm_90a", "--autotune", "pinned"], "give --policy FILE"),
        (["--arch", "sm_90a", "--ptxas-limit", "0"], "give a number above 0"),
        (["--arch", "sm_90a", "--launch-values"], "a dry run has no values"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_line(words, why, tmp_path, capsys) -> None:
    (tmp_path / "script.py").write_text("")
    assert main(["run", *words, str(tmp_path / "script.py")]) == 2
    error = capsys.readouterr().err
    assert why in error
    assert error.count("\n") == 1


def test_an_architecture_that_triton_s_ptxas_does_not_know(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr("tritonhook.ptxas.tool.targets", lambda tool: ("sm_80", "sm_90a"))
    (tmp_path / "script.py").write_text("")
    assert main(["run", "--arch", "sm_120a", str(tmp_path / "script.py")]) == 2
    assert "sm_120a: not a target of ptxas" in capsys.readouterr().err


def test_without_the_flag_no_process_is_told_of_dry_runs(tmp_path, triton_cache) -> None:
    script = tmp_path / "script.py"
    names = "[name for name in sys.modules if name.startswith('tritonhook.capture.dry_run.')]"
    script.write_text(f"import json, os, sys, triton\nprint(json.dumps([{names}, 'TRITONHOOK_DRY_RUN' in os.environ]))")
    words = [sys.executable, "-m", "tritonhook", "run", "--out", str(tmp_path / "out"), str(script)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert json.loads(done.stdout) == [["tritonhook.capture.dry_run.gpu"], False]
