"""python -m gluon_kernels check|bench|tune: are the kernels right, how fast are they, and under which name."""

from __future__ import annotations

import argparse
import importlib
import itertools
import sys
from collections import Counter
from dataclasses import asdict

from . import config_mma
from .bench import BASELINES, KERNELS, Shape
from .operators import kernels_for
from .reference import TORCH_NAMES

SHAPES = tuple(
    Shape(batch, 16, length, head_dim, causal)
    for batch, length in ((16, 1024), (4, 4096), (1, 16384))
    for head_dim in (128, 64)
    for causal in (False, True)
)


def main(arguments: list[str] | None = None) -> int:
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
    kernels.add_argument("--kernel", choices=KERNELS, help="this one; by default all for this GPU")
    kernels.add_argument("--dtypes", nargs="+", choices=TORCH_NAMES, default=["bf16"], help="default: bf16")
    check = verbs.add_parser(
        "check", parents=[kernels], help="against a float64 reference; 0 right, 1 wrong, 2 not run"
    )
    check.add_argument("--head-dims", nargs="+", type=_positive, default=[64, 128])
    check.add_argument("--quick", action="store_true", help="few lengths")
    check.add_argument("--mutations", action="store_true", help="wrong kernels too: each must be found")
    bench = verbs.add_parser("bench", parents=[kernels], help="TFLOPS beside those of torch, cuDNN, Flex and FA4")
    bench.add_argument("--baselines", nargs="*", choices=BASELINES, default=list(BASELINES))
    bench.add_argument("--rounds", type=_positive, default=25)
    tune = verbs.add_parser("tune", help="configurations and names of the mma.sync kernel, fastest first")
    tune.add_argument("--dtype", choices=config_mma.BITS, default="bf16")
    tune.add_argument("--head-dim", type=int, choices=config_mma.HEAD_DIMS, default=128)
    tune.add_argument("--causal", action="store_true")
    tune.add_argument("--batch", type=_positive, default=4)
    tune.add_argument("--length", type=_positive, default=4096)
    return parser


def _positive(text: str) -> int:
    """An argument that counts something."""
    if not text.isascii() or not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)


def _why_not() -> str | None:
    """Why nothing can run here, or None."""
    try:
        import torch
    except ImportError as error:
        return f"needs torch, which cannot be imported ({error}); install it with: pip install torch"
    if not torch.cuda.is_available():
        return "needs an NVIDIA GPU that torch can use"
    try:
        kernels_for(_arch())
        from . import gluon_api  # noqa: F401  too old a Triton says so
    except ValueError as error:
        return str(error)
    except ImportError as error:
        return f"needs Triton 3.6 or newer, which cannot be imported ({error}); install it with: pip install triton"
    return None


def _arch() -> int:
    import torch

    major, minor = torch.cuda.get_device_capability()
    return 10 * major + minor


def _chosen(options) -> list[str]:
    here = kernels_for(_arch())
    return [options.kernel] if options.kernel else [name for name, module in KERNELS.items() if module in here]


def _check(options) -> int:
    from . import check

    wrong = ran = 0
    for kernel in _chosen(options):
        try:
            module = importlib.import_module(f".{KERNELS[kernel]}", __package__)
        except ImportError as error:
            print(f"{kernel}: not run: {error}")
            continue
        for dtype, head_dim in itertools.product(options.dtypes, options.head_dims):
            cases = check.matrix((dtype,), (head_dim,), options.quick)
            found = check.run(module.attention, cases, fp8_loss=check.FP8_LOSS.get(KERNELS[kernel], 0.0))
            right, failed = _report(f"{kernel} {dtype} D{head_dim}", list(found))
            wrong, ran = wrong + failed, ran + right + failed
        if options.mutations:
            wrong += _mutations(kernel, options)
    return 1 if wrong else 0 if ran else 2


def _report(subject: str, verdicts) -> tuple[int, int]:
    """Print what came of the cases; how many were right and how many wrong."""
    failed = [v for v in verdicts if v.reason]
    for verdict in failed[:10]:
        print(f"{subject}: WRONG {asdict(verdict.case)}: {verdict.reason}")
    for reason, count in Counter(v.skipped for v in verdicts if v.skipped).items():
        print(f"{subject}: {count} cases not run: {reason}")
    right = [v for v in verdicts if v.right]
    worst = max((v.error / v.allowed for v in right if v.allowed), default=0.0)
    print(f"{subject}: {len(right)} right, {len(failed)} wrong; largest error {worst:.2f} of the allowed", flush=True)
    return len(right), len(failed)


def _mutations(kernel: str, options) -> int:
    from . import check

    missed = 0
    for found in check.run_mutations(KERNELS[kernel], options.dtypes[0], options.head_dims[0]):
        missed += found.verdict is None
        print(f"mutation {found.mutation}: {'NOT FOUND' if found.verdict is None else found.verdict.reason}")
    return missed


def _bench(options) -> int:
    from . import bench

    subjects = [f"{kernel}_{dtype}" for kernel in _chosen(options) for dtype in options.dtypes]
    rows = bench.bench(SHAPES, subjects, options.baselines, options.rounds)
    print(bench.table(rows))
    return 0 if any(row.times for row in rows) else 2


def _tune(options) -> int:
    from . import bench, tune
    from .attention_mma import attention

    causal = "top-left" if options.causal else None
    shape = Shape(options.batch, 16, options.length, options.head_dim, options.causal)
    config = config_mma.default_config(_arch(), options.dtype, options.head_dim, causal, options.length)
    config.require(_arch())
    inputs = _in_dtype(shape.inputs(), options.dtype)
    expected = bench.torch_output(shape.inputs(), shape)
    tried = tune.tune(
        attention,
        config_mma.candidates(config, _arch()),
        *inputs,
        causal=causal,
        verify=lambda out: bench.agree(options.dtype, out, expected),
    )
    for one in tried:
        if one.timed is not None:
            print(f"{shape.flops / one.timed.median_ms / 1e9:8.1f} TFLOPS  {one.config}")
    for one in tried:
        if one.timed is None:
            print(f"not timed: {one.config}: {one.reason}")
    print(f"fastest: {tune.best(tried, config_mma.BASE_NAME)}")
    return 0


def _in_dtype(inputs, dtype: str):
    import torch

    return [x.to(getattr(torch, TORCH_NAMES[dtype])) for x in inputs]


if __name__ == "__main__":
    sys.exit(main())
