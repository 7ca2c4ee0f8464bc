"""Predict how much memory kernels make the driver reserve on a GPU, without that GPU.

tritonhook mem predict captures --gpu "RTX 5090"
tritonhook mem predict kernel.ptx --ptxas 12.9.86 --sms 170 --threads-per-sm 1536
tritonhook mem predict kernel.cubin --gpu GB10 --fail-over 256MiB    # a gate for CI

Kernels share one pool: the one with the deepest stack decides its size. Exit codes: 0; with --fail-over 1 if
the upper end of the range is above SIZE or not known; 2 trouble.
"""

from __future__ import annotations

import argparse

from tritonhook.cli._places import add_place
from tritonhook.cli._progress import working
from tritonhook.cli._results import add_results, give
from tritonhook.cli.mem._inputs import load_needs
from tritonhook.errors import UsageError
from tritonhook.memory.calibration import stored
from tritonhook.memory.gpu_specs import Gpu, find_gpu, make_gpu
from tritonhook.memory.prediction import Calibration, parse_bytes, predict


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_place(
        parser,
        "kernels",
        nargs="+",
        metavar="CAPTURE|CUBIN|PTX",
        help="capture folders, captured kernels or their ids, cubins, PTX files",
    )
    add_gpu(parser)
    parser.add_argument("--ptxas", metavar="VERSION|PATH", help="assemble PTX with this ptxas (default: the newest)")
    parser.add_argument("--fail-over", metavar="SIZE", help="exit with 1 if the upper end is above, e.g. 256MiB")
    parser.add_argument(
        "--no-calibration", action="store_true", help="use the formula, even if `mem calibrate` has measured this GPU"
    )
    add_results(parser)


def add_gpu(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gpu", metavar="NAME", help='name of the GPU, e.g. "RTX 5090"')
    parser.add_argument("--sms", type=int, metavar="N", help="streaming multiprocessors, for a GPU not in the table")
    parser.add_argument("--threads-per-sm", type=int, metavar="N", help="maximum of resident threads per SM")


def wanted_gpu(arguments: argparse.Namespace) -> Gpu:
    """The GPU the options name. Raises UsageError if they name none or two."""
    if arguments.gpu is not None:
        if arguments.sms is not None or arguments.threads_per_sm is not None:
            raise UsageError("--gpu names a GPU with its SMs; do not combine it with --sms and --threads-per-sm")
        return find_gpu(arguments.gpu)
    if arguments.sms is None:
        raise UsageError('name the GPU: --gpu "RTX 5090", or --sms and --threads-per-sm')
    return make_gpu(arguments.sms, arguments.threads_per_sm)


def run(arguments: argparse.Namespace) -> int:
    limit = None if arguments.fail_over is None else parse_bytes(arguments.fail_over)
    gpu = wanted_gpu(arguments)
    with working("reading and assembling the kernels"):
        needs = load_needs(arguments.kernels, gpu, arguments.ptxas)
    prediction = predict(needs, gpu, None if arguments.no_calibration else _calibration(gpu))
    failed = limit is not None and (prediction.growth is None or prediction.growth.high > limit)
    from tritonhook.report.results.stacks import MemoryPrediction

    give(arguments, MemoryPrediction.of(prediction, limit, failed))
    return int(failed)


def _calibration(gpu: Gpu) -> Calibration | None:
    """What `mem calibrate` measured on a GPU of that name, as the table or the driver spells it."""
    for name, calibration in stored().items():
        try:
            if find_gpu(name).name == gpu.name:
                return calibration
        except UsageError:
            continue  # a GPU that the table does not have
    return None
