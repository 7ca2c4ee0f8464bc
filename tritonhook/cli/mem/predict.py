"""Predict how much memory kernels make the driver reserve on a GPU, without that GPU.

tritonhook mem predict captures --gpu "RTX 5090"
tritonhook mem predict kernel.ptx --ptxas 12.9.86 --sms 170 --threads-per-sm 1536
tritonhook mem predict kernel.cubin --gpu GB10 --fail-over 256MiB    # a gate for CI

Kernels share one pool; the kernel with the deepest stack decides its size. Exit codes: 0; with --fail-over 1 if
the upper end of the range is above SIZE or not known; 2 error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tritonhook.capture.model import Capture, Stage
from tritonhook.capture.selection import settings_of, titles
from tritonhook.capture.store import by_module, read_capture
from tritonhook.cli._inputs import captures_at, no_kernels, place, read_bytes
from tritonhook.cli._parser import Group, option, part
from tritonhook.cli._progress import working
from tritonhook.cli._results import Results, give
from tritonhook.cubin.image import Cubin
from tritonhook.errors import UsageError
from tritonhook.memory.prediction import GpuSpecs, StackNeed, find_gpu, make_gpu, parse_bytes, predict, stack_needs
from tritonhook.ptx.module import Ptx, recursive_entries
from tritonhook.ptxas.tool import find_ptxas
from tritonhook.ptxas.toolchain import Assembled, AssembleError, assemble

# ptxas 13.5 prints this for recursion and alloca; older versions print nothing and write 0 into the image.
_UNBOUNDED = re.compile(r"Stack size for entry function '([^']+)' cannot be statically determined")


def load_needs(paths: Sequence[str], gpu: GpuSpecs, ptxas: str | None) -> list[StackNeed]:
    """List the stack needs of all kernels in these files and folders. Raises TritonHookError; its text has the path."""
    needs = [need for path in paths for need in _needs(Path(path), gpu, ptxas)]
    if not needs:
        folder = next((path for path in paths if Path(path).is_dir()), None)
        raise UsageError(f"{', '.join(paths)}: no kernels in it") if folder is None else no_kernels(folder)
    return needs


def _needs(place: Path, gpu: GpuSpecs, ptxas: str | None) -> Iterator[StackNeed]:
    if place.is_dir():
        by_record = captures(place)
        called = titles({r: (c.kernel, c.arch, settings_of(c.options)) for r, c in by_record.items()})
        for module in by_module(by_record):
            own = {capture.kernel: called[record] for record, capture in module.items()}
            capture = next(iter(module.values()))
            for need in _of_capture(capture, f"{place}: {own[capture.kernel]}", gpu, ptxas):
                yield replace(need, kernel=own.get(need.kernel, need.kernel))
        return
    data = read_bytes(place)
    if data[:4] == b"\x7fELF":
        yield from _of_cubin(Cubin.from_bytes(data, str(place)), str(place), gpu)
    else:
        yield from _of_ptx(Ptx.from_bytes(data, str(place)), str(place), gpu, ptxas)


def captures(place: Path) -> dict[str, Capture]:
    """Read one captured kernel, or all kernels of a capture folder, by record."""
    if (place / "capture.json").exists():
        return {place.name: read_capture(place)}
    folder = captures_at(place)
    return {record: folder.capture(record) for record in folder.records}


def _of_capture(capture: Capture, label: str, gpu: GpuSpecs, ptxas: str | None) -> tuple[StackNeed, ...]:
    if ptxas is None and Stage.CUBIN in capture.artifacts:
        recursive = recursive_entries(capture.ptx) if Stage.PTX in capture.artifacts else ()
        return _of_cubin(Cubin.from_bytes(capture.cubin, label), label, gpu, recursive)
    return _of_ptx(capture.ptx, label, gpu, ptxas, capture.assembler.options)


def _of_cubin(cubin: Cubin, label: str, gpu: GpuSpecs, recursive: Sequence[str] = ()) -> tuple[StackNeed, ...]:
    if gpu.arch is not None and (cubin.arch // 10 != gpu.arch // 10 or cubin.arch > gpu.arch):
        raise UsageError(
            f"{label}: machine code for sm_{cubin.arch}, which {gpu.name} (sm_{gpu.arch}) cannot run; "
            f"compile the kernel for sm_{gpu.arch}, or give its PTX if that has a target without a suffix"
        )
    return stack_needs(cubin, recursive)


def _of_ptx(
    ptx: Ptx, label: str, gpu: GpuSpecs, ptxas: str | None, options: Sequence[str] | None = None
) -> tuple[StackNeed, ...]:
    made = assemble(find_ptxas(ptxas), ptx, [*(options or ()), f"--gpu-name={_target(ptx, label, gpu)}"])
    if not isinstance(made, Assembled):
        raise AssembleError(made)
    return stack_needs(made.cubin, {*recursive_entries(ptx), *_UNBOUNDED.findall(made.log)})


def _target(ptx: Ptx, label: str, gpu: GpuSpecs) -> str:
    """Choose the target for ptxas: the PTX's own, or the GPU's if the PTX is for an older target and can run on the
    GPU."""
    match = re.fullmatch(r"sm_(\d+)([af]?)", ptx.target)
    number = int(match[1]) if match else 0
    if gpu.arch is None or number == gpu.arch:
        return ptx.target
    same_family = number // 10 == gpu.arch // 10 and number <= gpu.arch
    if match and match[2] == "" and number <= gpu.arch:
        return f"sm_{gpu.arch}"
    if match and match[2] == "f" and same_family:
        return f"sm_{gpu.arch}f"
    raise UsageError(
        f"{label}: PTX for {ptx.target}, which {gpu.name} (sm_{gpu.arch}) cannot run; compile it for that GPU"
    )


@dataclass(frozen=True, kw_only=True)
class GpuOptions(Group):
    gpu: str | None = option(metavar="NAME", help='name of the GPU, e.g. "RTX 5090"')
    sms: int | None = option(type=int, metavar="N", help="streaming multiprocessors, for a GPU not in the table")
    threads_per_sm: int | None = option(type=int, metavar="N", help="maximum of resident threads per SM")

    def wanted(self) -> GpuSpecs:
        """Return the GPU that the options describe. Raises UsageError if they describe none or two."""
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
    fail_over: str | None = option(
        metavar="SIZE", help="exit with 1 if the upper end of the range exceeds SIZE, e.g. 256MiB"
    )
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
