"""Predict how much memory kernels make the driver reserve on a GPU, without that GPU.

tritonhook mem predict captures --gpu "RTX 5090"
tritonhook mem predict kernel.ptx --ptxas 12.9.86 --sms 170 --threads-per-sm 1536
tritonhook mem predict kernel.cubin --gpu GB10 --fail-over 256MiB    # a gate for CI

Kernels share one pool: the one with the deepest stack decides its size. Exit codes: 0; with --fail-over 1 if
the upper end of the range is above SIZE or not known; 2 trouble.
"""

from __future__ import annotations

from dataclasses import dataclass

from tritonhook.cli._inputs import place
from tritonhook.cli._parser import Group, option, part
from tritonhook.cli._streams import Results, give, working
from tritonhook.cli.mem._inputs import load_needs
from tritonhook.errors import UsageError
from tritonhook.memory.gpu_specs import GpuSpecs, find_gpu, make_gpu
from tritonhook.memory.prediction import parse_bytes, predict


@dataclass(frozen=True, kw_only=True)
class GpuOptions(Group):
    gpu: str | None = option(metavar="NAME", help='name of the GPU, e.g. "RTX 5090"')
    sms: int | None = option(type=int, metavar="N", help="streaming multiprocessors, for a GPU not in the table")
    threads_per_sm: int | None = option(type=int, metavar="N", help="maximum of resident threads per SM")

    def wanted(self) -> GpuSpecs:
        """The GPU the options name. Raises UsageError if they name none or two."""
        if self.gpu is not None:
            if self.sms is not None or self.threads_per_sm is not None:
                raise UsageError("--gpu names a GPU with its SMs; do not combine it with --sms and --threads-per-sm")
            return find_gpu(self.gpu)
        if self.sms is None:
            raise UsageError('name the GPU: --gpu "RTX 5090", or --sms and --threads-per-sm')
        return make_gpu(self.sms, self.threads_per_sm)


@dataclass(frozen=True, kw_only=True)
class Options(Group):
    kernels: tuple[str, ...] = place(
        nargs="+", metavar="CAPTURE|CUBIN|PTX", help="capture folders, captured kernels or their ids, cubins, PTX files"
    )
    on: GpuOptions = part(GpuOptions)
    ptxas: str | None = option(metavar="VERSION|PATH", help="assemble PTX with this ptxas (default: the newest)")
    fail_over: str | None = option(metavar="SIZE", help="exit with 1 if the upper end is above, e.g. 256MiB")
    results: Results = part(Results)


def run(options: Options) -> int:
    limit = None if options.fail_over is None else parse_bytes(options.fail_over)
    gpu = options.on.wanted()
    with working("reading and assembling the kernels"):
        needs = load_needs(options.kernels, gpu, options.ptxas)
    prediction = predict(needs, gpu)
    failed = limit is not None and (prediction.growth is None or prediction.growth.high > limit)
    from tritonhook.report.results.stacks import MemoryPrediction

    give(options.results, MemoryPrediction.of(prediction, limit, failed))
    return int(failed)
