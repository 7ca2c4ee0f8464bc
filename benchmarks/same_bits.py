"""Which kernels of libraries store the same bits: in another order, in each configuration, alone and in a batch?

    pip install torch liger-kernel fla-core einops; git clone https://github.com/BobMcDear/attorch
    TRITON_TUTORIALS=FOLDER PYTHONPATH=attorch python -m benchmarks same_bits [--only NAME ...] [--limit S] [--jobs N]

Needs no GPU. Each program is a function of a batch `x`, in a small shape, with its gradient; `verify` runs it dry for
sm_90a, with --orders, with --configs, then with --rows. A program that fails, or takes longer than --limit, is left out
of that question, with the reason. --jobs N asks N questions at a time; --within S ends all of them after S seconds, and
what was not asked until then is left out too. `deterministic` and `configs` count kernels, `batch` counts programs.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.common import REPOSITORY, environment, write_json

NEEDS = ("triton", "torch")
QUICK = ("--only", "01-vector-add")
ORDERS = 3
LIMIT_S = 240.0
KERNELS, BATCH = "kernels", "batch"
ROWS = "32, 256"
_TUTORIAL = """
import sys; sys.path[:0] = [{targets!r}]
from ab_tutorial_targets import tutorial
t = tutorial({name!r})
"""
_LIGER = "from liger_kernel.transformers import functional as f\nw, b = (torch.randn(256).cuda() for _ in 'wb')\n"
_LIGER += "labels = (torch.arange(32) % 7).cuda()\n"
# Without its `__init__`, which imports models of transformers where flash-linear-attention is installed too.
_OWN = """import importlib.util, sys, types
found, sys.modules["fla"] = importlib.util.find_spec("fla"), types.ModuleType("fla")
sys.modules["fla"].__path__ = list(found.submodule_search_locations)
sys.modules["fla"].__version__ = "0"
"""
_FLA = "w, b = (torch.randn(256).cuda() for _ in 'wb')\nfrom {} import *\n"
_ATTORCH = "import attorch\nlabels = (torch.arange(32) % 7).cuda()\nm = attorch.{}.cuda()\n"
_SEQUENCE = "2, 64, 2, 32"
_QKV = """k, v = (torch.nn.functional.normalize(torch.randn(2, 64, 2, 32), dim=-1).cuda().to(torch.bfloat16) for _ in "kv")
gate = torch.nn.functional.logsigmoid(torch.randn(2, 64, 2)).cuda()
beta = torch.rand(2, 64, 2).cuda().to(torch.bfloat16)
from fla.ops.{} import *
"""  # noqa: E501


def _tutorial(name: str) -> str:
    return _TUTORIAL.format(name=name, targets=str(REPOSITORY / "benchmarks/timing/targets"))


# By library and name: what comes before, the result of x, the shape of x, its dtype, further arguments with rows.
Program = tuple[str, str, str, str, str]


def _liger(expression: str, rows: str = "", shape: str = ROWS, dtype: str = "bfloat16") -> Program:
    return _LIGER, f"f.liger_{expression}", shape, dtype, rows


def _attorch(module: str, expression: str = "m(x)", shape: str = ROWS, rows: str = "") -> Program:
    return _ATTORCH.format(module), expression, shape, "float32", rows


def _fla(module: str, expression: str, shape: str = ROWS) -> Program:
    own = module.removeprefix("ops.")
    before = _FLA.format(f"fla.{module}") if own == module else _QKV.format(own)
    rows = ", ".join(re.findall(r"\b(?:k|v|gate|beta)\b", expression))
    return _OWN + before, expression, shape, "bfloat16", rows


def programs() -> dict[str, dict[str, Program]]:
    return {
        "attorch": {
            **{name: _attorch(f"{name}()") for name in ("GELU", "SiLU")},
            "Softmax": _attorch("Softmax(-1)"),
            "LogSoftmax": _attorch("LogSoftmax(-1)"),
            "LayerNorm": _attorch("LayerNorm(256)"),
            "RMSNorm": _attorch("RMSNorm(256)"),
            "Linear": _attorch("Linear(256, 64)"),
            "Linear and GELU": _attorch("Linear(256, 64, act_func='gelu')"),
            "GLU": _attorch("GLU(-1)"),
            "L1Loss": _attorch("L1Loss(reduction='none')", "m(x, x * 2)"),
            "MSELoss": _attorch("MSELoss(reduction='mean')", "m(x, x * 2)"),
            "HuberLoss": _attorch("HuberLoss()", "m(x, x * 2)"),
            "CrossEntropyLoss": _attorch("CrossEntropyLoss()", "m(x, labels)", rows="labels"),
            "NLLLoss": _attorch("NLLLoss(reduction='none')", "m(x, labels)", rows="labels"),
            "Dropout": _attorch("Dropout(0.0)"),
            "BatchNorm1d": _attorch("BatchNorm1d(256)"),
            "Conv2d": _attorch("Conv2d(16, 16, 3)", shape="4, 16, 8, 8"),
        },
        "Triton's tutorials": {
            "01-vector-add": (_tutorial("01-vector-add"), "t.add(x, x * 2)", ROWS, "float32", ""),
            "02-fused-softmax": (_tutorial("02-fused-softmax"), "t.softmax(x)", ROWS, "float32", ""),
            "03-matrix-multiplication": (
                _tutorial("03-matrix-multiplication") + "w = torch.randn(256, 64).cuda().half()\n",
                "t.matmul(x, w)", ROWS, "float16", "",
            ),
            "04-low-memory-dropout": (
                _tutorial("04-low-memory-dropout"),
                "t.dropout(x.flatten(), (x.flatten() > 0).int(), 0.5).view_as(x)", ROWS, "float32", "",
            ),
            "05-layer-norm": (
                _tutorial("05-layer-norm") + "w, b = (torch.randn(256).cuda().requires_grad_() for _ in 'wb')\n",
                "t.LayerNorm.apply(x, (256,), w, b, 1e-5)", ROWS, "float32", "",
            ),
            "06-fused-attention": (
                _tutorial("06-fused-attention"), "t._attention.apply(x, x, x, True, 0.5, False)",
                "1, 2, 128, 64", "float16", "",
            ),
        },
        "fla-core": {
            "layer_norm": _fla("modules.layernorm", "layer_norm(x, w.bfloat16(), b.bfloat16())"),
            "rms_norm": _fla("modules.layernorm", "rms_norm(x, w.bfloat16(), None)"),
            "rms_norm_gated": _fla("modules.fused_norm_gate", "rms_norm_gated(x, x * 2, w.bfloat16(), None)"),
            "l2_norm": _fla("modules.l2norm", "l2_norm(x)"),
            "swiglu": _fla("modules.activations", "swiglu(x, x * 2)"),
            "token_shift": _fla("modules.token_shift", "token_shift(x)", "2, 32, 64"),
            "fused_recurrent_retention": _fla("ops.retention", "fused_recurrent_retention(x, k, v)[0]", _SEQUENCE),
            "chunk_retention": _fla("ops.retention", "chunk_retention(x, k, v)[0]", _SEQUENCE),
            "chunk_simple_gla": _fla("ops.simple_gla", "chunk_simple_gla(x, k, v, gate)[0]", _SEQUENCE),
            "chunk_delta_rule": _fla("ops.delta_rule", "chunk_delta_rule(x, k, v, beta)[0]", _SEQUENCE),
            "parallel_attn": _fla("ops.attn", "parallel_attn(x, k, v)", _SEQUENCE),
        },
        "liger-kernel": {
            "rms_norm": _liger("rms_norm(x, w.bfloat16(), 1e-6)"),
            "layer_norm": _liger("layer_norm(x, w.bfloat16(), b.bfloat16(), 1e-6)"),
            "softmax": _liger("softmax(x)"),
            "sparsemax": _liger("sparsemax(x)", dtype="float32"),
            "swiglu": _liger("swiglu(x, x * 2)"),
            "geglu": _liger("geglu(x, x * 2)"),
            "relu_squared": _liger("relu_squared(x)"),
            "dyt": _liger("dyt(x, torch.ones(1).cuda().bfloat16(), w.bfloat16(), b.bfloat16())"),
            "cross_entropy": _liger("cross_entropy(x, labels, reduction='none')", "labels"),
            "kl_div": _liger("kl_div(x, x.softmax(-1), reduction='none')", dtype="float32"),
            "jsd": _liger("jsd(x.log_softmax(-1), (x * 2).log_softmax(-1))", dtype="float32"),
            "tvd": _liger("tvd(x.softmax(-1), (x * 2).softmax(-1), reduction='none')", dtype="float32"),
            "fused_add_rms_norm": _liger("fused_add_rms_norm(x, x * 2, w.bfloat16(), 1e-6)[0]"),
            "group_norm": _liger("group_norm(x.view(-1, 32, 8), b[:32], b[:32], 32, 8, 1e-5)", dtype="float32"),
            "fused_linear_cross_entropy": _liger(
                "fused_linear_cross_entropy(x, torch.outer(w, b)[:128].bfloat16(), labels, reduction='none')", "labels"
            ),
        },
    }  # fmt: skip


def script_of(program: Program) -> str:
    """The program, also for a real GPU: its numbers are drawn on the CPU."""
    before, expression, shape, dtype, rows = program
    further = f", {rows}" if rows else ""
    return f"""import torch
torch.manual_seed(0)
{before}
def run(x{further}):
    return {expression}

x = torch.randn({shape}).to(torch.{dtype}).cuda().requires_grad_()
out = run(x{further})
if out.requires_grad:
    out.backward(torch.linspace(-1, 1, out.numel()).reshape(out.shape).to(out.dtype).cuda())
"""


def verified(script: Path, words: list[str], limit_s: float, ends: float) -> tuple[list[dict[str, Any]], str]:
    """The kernels of a run of verify, and why there are none. ends: when no question may run any longer."""
    limit_s = min(limit_s, ends - time.monotonic())
    if limit_s < 1:
        return [], "not tried: the run was ended before it"
    line = [sys.executable, "-W", "ignore", "-m", "tritonhook", "verify", str(script), *words, "--json"]
    process = subprocess.Popen(line, stdout=-1, stderr=-1, text=True, start_new_session=True)
    try:
        stdout, stderr = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # with the script's own process
        process.communicate()
        return [], f"over the limit of {limit_s:.0f} s"
    if stdout.startswith("{"):
        return json.loads(stdout)["kernels"], ""
    said = [one for one in stderr.splitlines() if not one.startswith("running ")]
    named = [one for one in said if "Error" in one and "ended with" not in one]
    return [], (named or said or ["no output"])[-1][:200]


Asked = tuple[str, str, str]  # library, program, question


def ask(folder: Path, limit_s: float, ends: float, asked: Asked) -> tuple[list[dict[str, Any]], str]:
    library, name, question = asked
    program = programs()[library][name]
    script = folder / library / question / f"{name.replace(' ', '_').replace('-', '_')}.py"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(script_of(program))
    rows = ",".join(filter(None, ("run.x", program[4].replace(" ", ""))))
    if question == BATCH:
        return verified(script, ["--rows", rows], limit_s, ends)
    orders, no_orders = verified(script, ["--orders", str(ORDERS)], limit_s, ends)
    configs, no_configs = verified(script, ["--configs"], limit_s, ends)
    return [*orders, *configs], no_orders or ("" if "nothing to compare" in no_configs else no_configs)


def counted(rows: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The verdicts of a library: of its kernels, by name, for orders and configurations, of its programs for batches.
    judged: without those that were not executed."""
    made: dict[str, Any] = {"programs": len(rows)}
    for question, label in (("orders", "deterministic"), ("configs", "configs")):
        worst: dict[str, str] = {}
        order = ["NOT JUDGED", "SAME", "OTHER BITS", "WRONG", "NONDETERMINISTIC"]
        for kernel in (kernel for row in rows.values() for kernel in row.get(KERNELS, ())):
            if kernel["question"] == question:
                name, verdict = kernel["kernel"], kernel["verdict"]
                worst[name] = max(worst.get(name, verdict), verdict, key=order.index)
        made[label] = verdicts_of(list(worst.values()))
    made["batch"] = verdicts_of([kernel["verdict"] for row in rows.values() for kernel in row.get(BATCH, ())])
    made["left_out"] = {
        f"{name}: {question}": row[f"no_{question}"]
        for name, row in rows.items()
        for question in (KERNELS, BATCH)
        if row.get(f"no_{question}")
    }
    return made


def verdicts_of(verdicts: list[str]) -> dict[str, int]:
    counts = {verdict: verdicts.count(verdict) for verdict in sorted(set(verdicts))}
    return counts | {"judged": len(verdicts) - counts.get("NOT JUDGED", 0)}


def brief(row: dict[str, Any]) -> dict[str, Any]:
    """What the result keeps of a program: each kernel's verdict, reason and groups."""
    return {
        question: [
            {
                **{name: kernel[name] for name in ("kernel", "question", "verdict", "why")},
                "groups": {one["label"]: one["group"] for one in kernel["executions"]},
            }
            for kernel in row.get(question, ())
        ]
        for question in (KERNELS, BATCH)
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", nargs="*", metavar="NAME", help="libraries or programs")
    parser.add_argument("--limit", type=float, default=LIMIT_S, metavar="S", help="seconds for a question of a program")
    parser.add_argument("--within", type=float, default=math.inf, metavar="S", help="seconds for all questions")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="questions at a time")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    chosen: list[Asked] = [
        (library, name, question)
        for question in (KERNELS, BATCH)
        for library, several in programs().items()
        for name in several
        if not arguments.only or library in arguments.only or name in arguments.only
    ]
    found: dict[str, dict[str, Any]] = {}
    for library, name, _ in chosen:
        found.setdefault(library, {}).setdefault(name, {})
    document: dict[str, Any] = {}
    ends = time.monotonic() + arguments.within
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(arguments.jobs) as pool:
        asking = partial(ask, Path(folder), arguments.limit, ends)
        running = {pool.submit(asking, asked): asked for asked in chosen}
        for done in as_completed(running):
            library, name, question = running[done]
            row = found[library][name]
            row[question], row[f"no_{question}"] = done.result()
            verdicts = ", ".join(f"{one['kernel']} {one['verdict']}" for one in row[question])
            print(f"{name}: {question}: {verdicts or row[f'no_{question}']}", flush=True)
            document = {
                "environment": environment("torch", "triton"),
                "orders": ORDERS,
                "summary": {library: counted(rows) for library, rows in found.items()},
                "programs": {library: {n: brief(r) for n, r in rows.items()} for library, rows in found.items()},
            }
            if not arguments.quick:
                write_json(arguments.out, document)  # as it goes: one at a time takes an hour
    return document
