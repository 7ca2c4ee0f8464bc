"""Check the attention kernels against a reference, time them, or find their fastest configuration."""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .api import kernels_for, launcher
from .config import TORCH_NAMES
from .mma import config as mma_config
from .verify import check_result
from .verify.bench import BASELINES, KERNELS, Shape
from .verify.check import Verdict

SHAPES = tuple(
    Shape(batch, 16, length, head_dim, causal)
    for batch, length in ((16, 1024), (4, 4096), (1, 16384))
    for head_dim in (128, 64)
    for causal in (False, True)
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand; return its exit code: 0, 1 if a kernel is wrong, or 2 if no kernel could run."""
    options = _parser().parse_args(arguments)
    reason = _why_not()
    if reason is not None:
        print(f"python -m gluon_kernels {options.verb}: {reason}", file=sys.stderr)
        return 2
    try:
        return {"check": _check, "bench": _bench, "tune": _tune}[options.verb](options)
    except (ValueError, ImportError) as error:
        print(f"python -m gluon_kernels {options.verb}: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m gluon_kernels", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    kernels = argparse.ArgumentParser(add_help=False)
    kernels.add_argument("--kernel", choices=KERNELS, help="default: every kernel for this GPU")
    kernels.add_argument("--dtypes", nargs="+", choices=TORCH_NAMES, default=["bf16"], help="default: bf16")
    check = verbs.add_parser(
        "check", parents=[kernels], help="compare with a float64 reference; exit code 0: right, 1: wrong, 2: not run"
    )
    check.add_argument("--head-dims", nargs="+", type=_positive, default=[64, 128])
    check.add_argument("--quick", action="store_true", help="check fewer sequence lengths")
    check.add_argument(
        "--json", type=Path, metavar="FILE", help="also write counts, worst cases and a hash of the sources to FILE"
    )
    bench = verbs.add_parser(
        "bench", parents=[kernels], help="measure TFLOPS, also of torch, cuDNN, FlexAttention and FlashAttention-4"
    )
    bench.add_argument("--baselines", nargs="*", choices=BASELINES, default=list(BASELINES))
    bench.add_argument("--rounds", type=_positive, default=25)
    tune = verbs.add_parser("tune", help="time configurations of the mma.sync kernel, fastest first")
    tune.add_argument("--dtype", choices=mma_config.DTYPES, default="bf16")
    tune.add_argument("--head-dim", type=int, choices=mma_config.HEAD_DIMS, default=128)
    tune.add_argument("--causal", action="store_true")
    tune.add_argument("--batch", type=_positive, default=4)
    tune.add_argument("--length", type=_positive, default=4096)
    return parser


def _positive(text: str) -> int:
    """Parse a number of at least 1."""
    if not text.isascii() or not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 1")
    return int(text)


def _why_not() -> str | None:
    """Return the reason why no kernel can run on this machine, or None."""
    try:
        import torch
    except ImportError as error:
        return f"needs torch, which cannot be imported ({error}); install it with: pip install torch"
    if not torch.cuda.is_available():
        return "needs an NVIDIA GPU that torch can use"
    try:
        kernels_for(_arch())
        from .device import triton_compat  # noqa: F401  # raises ImportError if Triton is too old
    except ValueError as error:
        return str(error)
    except ImportError as error:
        return f"needs Triton 3.6 or newer, which cannot be imported ({error}); install it with: pip install triton"
    return None


def _arch() -> int:
    import torch

    major, minor = torch.cuda.get_device_capability()
    return int(10 * major + minor)


def _chosen(options: argparse.Namespace) -> list[str]:
    here = kernels_for(_arch())
    return [options.kernel] if options.kernel else [kernel for kernel in KERNELS if kernel in here]


def _check(options: argparse.Namespace) -> int:
    from .verify import check

    if options.json and not options.json.parent.is_dir():
        raise ValueError(f"--json {options.json}: the folder {options.json.parent} does not exist; make it first")
    rows: list[dict[str, Any]] = []
    wrong = ran = 0
    for kernel in _chosen(options):
        try:
            attention = launcher(kernel).attention
        except ImportError as error:
            print(f"{kernel}: not run: {error}")
            continue
        for dtype, head_dim in itertools.product(options.dtypes, options.head_dims):
            cases = check.matrix((dtype,), (head_dim,), options.quick)
            found = list(check.run(attention, cases, fp8_loss=check.FP8_LOSS.get(kernel, 0.0)))
            rows.append(check_result.row(kernel, dtype, head_dim, found))
            if options.json:
                _write(options.json, check_result.document(rows, options.quick, *_machine()))
            right, failed = _report(f"{kernel} {dtype} D{head_dim}", found)
            wrong, ran = wrong + failed, ran + right + failed
            if right and dtype in check.FP8:
                wrong += _check_accuracy(kernel, attention, dtype, head_dim, options.quick)
    return 1 if wrong else 0 if ran else 2


def _check_accuracy(kernel: str, attention: Any, dtype: str, head_dim: int, quick: bool) -> int:
    """Check the accuracy of fp8 on difficult data and print the largest errors; return the number of failures."""
    from .verify import check, fp8_accuracy

    lengths = fp8_accuracy.LENGTHS[:1] if quick else fp8_accuracy.LENGTHS
    cases = fp8_accuracy.accuracy_cases(dtype, head_dim, lengths)
    found = [
        fp8_accuracy.judge_accuracy(c, attention, i, "cuda", kernel in check.FP8_LOSS) for i, c in enumerate(cases)
    ]
    failed = [one for one in found if one.reason]
    for one in failed:
        print(f"{kernel} {dtype} D{head_dim}: WRONG {asdict(one.case)}: {one.reason}")
    rms, row = max(one.rms_ratio for one in found), max(one.row_ratio for one in found)
    print(
        f"{kernel} {dtype} D{head_dim}: exact enough for {len(found) - len(failed)} cases, not for {len(failed)}; "
        f"error, divided by that of an exact softmax with fp8 probabilities: at most {rms:.2f}, in one row {row:.2f}",
        flush=True,
    )
    return len(failed)


def _machine() -> tuple[str, dict[str, str]]:
    """Read the GPU's name and the versions of torch and Triton."""
    import torch
    import triton

    return torch.cuda.get_device_name(), {"torch": torch.__version__, "triton": triton.__version__}


def _write(path: Path, document: dict[str, Any]) -> None:
    try:
        path.write_text(json.dumps(document, indent=1) + "\n")
    except OSError as error:
        raise ValueError(f"--json {path}: cannot write: {error.strerror}") from None


def _report(subject: str, verdicts: list[Verdict]) -> tuple[int, int]:
    """Print the verdicts; return how many cases were right and how many wrong."""
    failed = [v for v in verdicts if v.reason]
    for verdict in failed[:10]:
        print(f"{subject}: WRONG {asdict(verdict.case)}: {verdict.reason}")
    for reason, count in Counter(v.skipped for v in verdicts if v.skipped).items():
        print(f"{subject}: {count} cases not run: {reason}")
    right = [v for v in verdicts if v.right]
    worst = max((v.error / v.allowed for v in right if v.error is not None and v.allowed), default=0.0)
    counts = f"{len(right)} right, {len(failed)} wrong"
    print(f"{subject}: {counts}; largest error: {worst:.2f} times the allowed error", flush=True)
    return len(right), len(failed)


def _bench(options: argparse.Namespace) -> int:
    from .verify import bench

    subjects = [f"{kernel}_{dtype}" for kernel in _chosen(options) for dtype in options.dtypes]
    rows = bench.bench(SHAPES, subjects, options.baselines, options.rounds)
    print(bench.table(rows))
    return 0 if any(row.times for row in rows) else 2


def _tune(options: argparse.Namespace) -> int:
    from . import tune
    from .device.other_scheduler import best_trigger
    from .verify import bench

    causal = "top-left" if options.causal else None
    shape = Shape(options.batch, 16, options.length, options.head_dim, options.causal)
    config = mma_config.default_config(_arch(), options.dtype, options.head_dim, causal, options.length)
    config.require(_arch())
    expected = bench.torch_output(shape.inputs(), shape)
    tried = tune.tune(
        launcher("mma").attention,
        mma_config.candidates(config, _arch(), best_trigger(_arch())),
        *bench.in_dtype(shape.inputs(), options.dtype),
        causal=causal,
        verify=lambda out: bench.agree(options.dtype, out, expected),
    )
    for one in tried:
        if one.timed is not None:
            print(f"{shape.flops / one.timed.median_ms / 1e9:8.1f} TFLOPS  {one.config}")
    for one in tried:
        if one.timed is None:
            print(f"not timed: {one.config}: {one.reason}")
    print(f"fastest: {tune.best(tried)}")
    return 0
