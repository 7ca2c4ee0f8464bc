"""Do other people's tests, unmodified, pass without a GPU?

    FOREIGN_TESTS=FOLDER python -m benchmarks foreign_tests [--seconds 60] [--only TEXT ...] [--jobs N] [--workers N]
        [--gpu] [--until SECONDS] [--reports FOLDER] [--out FILE]

FOLDER has the unpacked sources that PROJECTS names, such as liger_kernel-0.6.4 (an sdist of PyPI: `pip download
--no-deps --no-binary :all:`) and attorch or triton (clones). Each file of tests runs once: `pytest --kernel-arch sm_90a
--kernel-emulate --kernel-limit 10 --kernel-shrink 2`, and is interrupted after --seconds. A test that was not reached
by then is "not run". --jobs: files side by side. --workers: of pytest-xdist, for each file. --gpu: this machine's GPU
then executes the same tests, without tritonhook's options. --until: no file is begun later than this. --reports: where
pytest's reports stay, to look into failures.

Samples: for each file, how many tests passed, failed, were skipped or ran dry, not run; seconds of the wall clock; each
failure and each reason to skip. `why`: what was found when a failure was looked into. `gpu`: what the GPU said of the
tests that were judged by emulation, and the names of those where the two differ.
"""

from __future__ import annotations

import argparse
import ast
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.common import REPOSITORY, coverage, environment

NEEDS = ("torch", "triton", "FOREIGN_TESTS")
OPTIONS = (
    *("--kernel-arch", "sm_90a", "--kernel-emulate", "--kernel-limit", "10", "--kernel-shrink", "2"),
    *("-o", "addopts="),  # options of the project may need plugins that are not here
)
QUICK = ("--seconds", "20", "--only", "gelu_tanh")
_KINDS = "passed", "failed", "skipped", "dry", "not_run"
_JUDGED = _KINDS[:2]


@dataclass(frozen=True, slots=True)
class Project:
    """folder: of the sources. path: of its package in it. files: of tests. options: of its own tests."""

    folder: str
    path: str
    files: tuple[str, ...]
    options: tuple[str, ...] = ()


_LIGER = ("softmax", "layer_norm", "group_norm", "rms_norm", "dyt", "fused_add_rms_norm", "poly_norm", "sparsemax")
_LIGER_ALSO = ("swiglu", "geglu", "kl_div", "tvd", "jsd", "cross_entropy", "rope", "embedding")
_CONCH = ("gelu_tanh_and_mul", "silu_and_mul", "rms_norm", "gemma_rms_norm", "rotary_embedding", "copy_blocks", "nms")
_CONCH_ALSO = ("reshape_and_cache", "int8_quant_kernels", "fp8_quant_kernels", "quantize_blockwise")
_ATTORCH = ("softmax_layers", "rms_norm_layer", "layer_norm_layer", "cross_entropy_loss_layer", "p_loss_layers")
_ATTORCH_ALSO = ("act_layers", "glu_layer", "nll_loss_layer", "dropout_layer", "linear_layer", "pooling_layer")
_TRITON = ("block_pointer", "conversions", "core", "libdevice", "matmul", "mxfp", "pipeliner", "random", "standard")
_TRITON_ALSO = ("tensor_descriptor", "tuple", "warp_specialization")
_CUDA = ("libdevice", "mixed_io", "tensor_descriptor", "tma_descriptor", "tma_store_gemm")
_TRITON_KERNELS = ("compaction", "matmul", "mxfp", "reduce", "specialize", "swiglu", "tensor", "topk")
_FLA = ("activation", "conv", "cross_entropy", "kl_div", "l2norm", "layernorm", "layernorm_gated")
_FLA_ALSO = ("rotary", "token_shift")
_FLA_OPS = ("gla", "retention", "hgrn", "solve_tril", "delta", "simple_gla")
PROJECTS = (
    Project(
        "liger_kernel-0.6.4", "src", tuple(f"test/transformers/test_{name}.py" for name in (*_LIGER, *_LIGER_ALSO))
    ),
    Project("conch_triton_kernels-1.3", "", tuple(f"tests/{name}_test.py" for name in (*_CONCH, *_CONCH_ALSO))),
    Project("attorch", "", tuple(f"tests/test_{name}.py" for name in (*_ATTORCH, *_ATTORCH_ALSO)), ("--subset",)),
    Project("scattermoe", "", ("tests/test_mlp.py",)),
    Project(
        "flash-linear-attention",
        "",
        (
            *(f"tests/modules/test_{name}.py" for name in (*_FLA, *_FLA_ALSO)),
            *(f"tests/ops/test_{name}.py" for name in _FLA_OPS),
        ),
    ),
    Project(
        "triton",
        "",
        (
            *(f"python/test/unit/language/test_{name}.py" for name in (*_TRITON, *_TRITON_ALSO)),
            *(f"python/test/unit/cuda/test_{name}.py" for name in _CUDA),
            *(f"python/test/gluon/test_{name}.py" for name in ("core", "lowerings")),
        ),
    ),
    Project("triton/python/triton_kernels", ".", tuple(f"tests/test_{name}.py" for name in _TRITON_KERNELS)),
)
# What was found when failures were looked into: project and test (a regex), and why it fails.
WHY: Mapping[tuple[str, str], str] = {
    ("liger_kernel-0.6.4", r"layer_norm\[dtype1"): "theirs: the kernel keeps mean and rstd in BF16. With exact "
    "arithmetic otherwise, 11 of 20 seeds break the test's tolerance for dW; a GPU's generator makes "
    "other numbers of a seed",
    ("liger_kernel-0.6.4", r"^gw\d"): "theirs: sizes are drawn when tests are collected, so that processes of "
    "pytest-xdist collect different tests",
    ("attorch", r"test_glu_layer"): "theirs: too narrow a tolerance for FP16; on an H200, without emulation, 24 of the "
    "1,920 tests of this file failed",
    (
        "attorch",
        r"test_linear_layer.*logsigmoid",
    ): "theirs: too narrow a tolerance for FP32 products; on an H100, "
    "without emulation, 72 of 144 such tests failed, and five of the six that fail here among them",
    ("flash-linear-attention", r"sqrelu|gelu"): "theirs: the same four tests fail on an H100, without emulation",
    ("triton", r"test_const\["): "theirs: tests of a newer frontend; they fail on an H100, too",
    ("triton", r"constexpr_function"): "theirs: a test of a newer frontend; the kernel does not compile",
    ("triton", r"test_mma_shared_inputs"): "theirs: Triton ends the process, on an H100, too",
    ("triton", r"test_pointer_arguments"): "ours: a dry run takes tensors of the CPU's memory for the GPU's",
    ("triton", r"test_scaled_dot"): "theirs: inputs without a seed; one element beyond the tolerance, near 0",
    (
        "triton/python/triton_kernels",
        r"float8_e4m3fn",
    ): "not known: the test wants the largest element to the last bit, and the reference adds on the CPU",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=60, help="for each file")
    parser.add_argument("--only", nargs="*", default=[""], metavar="TEXT", help="files whose path has one of these")
    parser.add_argument("--jobs", type=int, default=1, help="files side by side")
    parser.add_argument("--workers", type=int, default=0, help="processes of pytest-xdist for each file")
    parser.add_argument("--gpu", action="store_true", help="the GPU of this machine executes the same tests, too")
    parser.add_argument("--until", type=float, default=math.inf, help="no file is begun after so many seconds")
    parser.add_argument("--reports", type=Path, help="folder for pytest's reports")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    folder = Path(os.environ["FOREIGN_TESTS"])
    files = [
        (project, file)
        for project in PROJECTS
        for file in project.files
        if any(text in f"{project.folder}/{file}" for text in arguments.only)
        and (folder / project.folder / file).is_file()
    ]
    end = time.monotonic() + arguments.until
    with ThreadPoolExecutor(arguments.jobs) as pool:
        samples = list(filter(None, pool.map(lambda one: _sample(arguments, folder, end, *one), files)))
    found = environment("torch", "triton", "pytest", "numpy")
    found |= {name: getattr(arguments, name) for name in ("seconds", "jobs", "workers")} | {
        "options": " ".join(OPTIONS),
        "files_not_begun": len(files) - len(samples),
    }
    return {"summary": summary(samples), "environment": found, "samples": samples}


def summary(samples: list[dict[str, Any]]) -> dict[str, Any]:
    total = Counter({kind: sum(one[kind] for one in samples) for kind in _KINDS})
    left_out = {
        "dry: compiled, values not judged": total["dry"],
        "skipped": total["skipped"],
        "not reached in the time of their file": total["not_run"],
    }
    figures: dict[str, Any] = {"tests": total.total(), **total, "seconds": sum(one["seconds"] for one in samples)}
    if any("gpu" in one for one in samples):
        figures["judged_by_a_gpu_too"] = sum(one["gpu"]["compared"] for one in samples)
        figures["judged_otherwise_by_a_gpu"] = sum(len(one["gpu"]["differ"]) for one in samples)
    for folder in dict.fromkeys(one["project"] for one in samples):
        own = [one for one in samples if one["project"] == folder]
        figures[folder] = {kind: sum(one[kind] for one in own) for kind in _KINDS}
    return coverage(total.total(), left_out) | figures


def _pytest(
    arguments: argparse.Namespace, folder: Path, project: Project, file: str, options: tuple[str, ...] = ()
) -> tuple[list[ElementTree.Element], str, float]:
    """Run the tests of one file: the cases of pytest's report, its output, seconds. With options no GPU is visible."""
    here = folder / project.folder
    paths = [str(here / project.path), str(here), str(REPOSITORY), os.environ.get("PYTHONPATH", "")]
    workers = ("-n", str(arguments.workers), "--dist", "worksteal") if arguments.workers else ()
    hidden = {"CUDA_VISIBLE_DEVICES": ""} if options else {}
    with tempfile.TemporaryDirectory() as temporary:
        report = Path(temporary) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--junitxml={report}"]
        began = time.monotonic()
        process = subprocess.Popen(
            [*command, *workers, *options, *project.options, file],
            cwd=here,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))} | hidden,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=_hears_interrupts,
        )
        try:
            said, _ = process.communicate(timeout=arguments.seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)  # pytest then reports what has ended
            try:
                said, _ = process.communicate(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()
                said, _ = process.communicate()
        cases = list(ElementTree.parse(report).iter("testcase")) if report.exists() else []
        if arguments.reports is not None and report.exists():
            shutil.copy(report, arguments.reports / f"{'emulated' if options else 'gpu'}-{file.replace('/', '-')}.xml")
    return cases, said, time.monotonic() - began


def _sample(
    arguments: argparse.Namespace, folder: Path, end: float, project: Project, file: str
) -> dict[str, Any] | None:
    """Run the tests of one file by emulation, and with --gpu on the GPU; None if there is no time left to begin."""
    if time.monotonic() > end:
        return None
    cases, said, seconds = _pytest(arguments, folder, project, file, OPTIONS)
    collected = re.search(r"(?:collected |\[)(\d+) items?", said)
    outcomes = Counter(map(_outcome, cases))
    one: dict[str, Any] = {
        "project": project.folder,
        "file": file,
        **{kind: outcomes[kind] for kind in _KINDS[:-1]},
        "not_run": int(collected[1]) - sum(outcomes[kind] for kind in _KINDS[:-1]) if collected else 0,
        "seconds": seconds,
        "error": "" if cases else said[-2000:],
        "skips": Counter((skip.get("message") or "")[:200] for one in cases for skip in one.findall("skipped")),
        "failures": {
            _name(one): {"said": (trouble.get("message") or "")[:300], "why": _why(project, one)}
            for one in cases
            if (trouble := _trouble(one)) is not None
        },
    }
    if arguments.gpu:
        judged = {_key(case): _outcome(case) for case in cases if _outcome(case) in _JUDGED}
        one["gpu"] = _compared(judged, _pytest(arguments, folder, project, file)[0])
    print(*(f"{name}: {value}" for name, value in one.items() if type(value) in (str, int, float)), flush=True)
    return one


def _compared(judged: Mapping[tuple[str, str], str], executed: Iterable[ElementTree.Element]) -> dict[str, Any]:
    """Compare the GPU's outcomes of tests with those of the emulation."""
    ended = {_key(one): _JUDGED[_trouble(one) is not None] for one in executed if one.find("skipped") is None}
    both = judged.keys() & ended.keys()
    return {
        "compared": len(both),
        "differ": {
            name: f"GPU: {ended[file, name]}" for file, name in sorted(both) if judged[file, name] != ended[file, name]
        },
    }


def _hears_interrupts() -> None:
    """Undo what a shell does to programs in its background."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _trouble(case: ElementTree.Element) -> ElementTree.Element | None:
    failure = case.find("failure")
    return case.find("error") if failure is None else failure


def _outcome(case: ElementTree.Element) -> str:
    if _trouble(case) is not None:
        return "failed"
    if case.find("skipped") is not None:
        return "skipped"
    properties = {one.get("name"): one.get("value", "") for one in case.iter("property")}
    if "emulated" not in properties:
        return "not_run"  # it was interrupted
    _, _, *kinds = ast.literal_eval(properties["emulated"])
    return "dry" if any(kind.startswith("dry") for kind in kinds) else "passed"


def _key(case: ElementTree.Element) -> tuple[str, str]:
    return str(case.get("classname")), _name(case)


def _name(case: ElementTree.Element) -> str:
    return str(case.get("name"))


def _why(project: Project, case: ElementTree.Element) -> str | None:
    return next((why for (of, test), why in WHY.items() if of == project.folder and re.search(test, _name(case))), None)
