"""Keep only those configurations of autotuned kernels that store the same bits as a chosen configuration. The machine
code of each is executed on the CPU, with all CTAs of one launch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tritonhook.capture.launches.contents import RECORDED
from tritonhook.capture.selection import Kernel, KernelSelector, Skipped
from tritonhook.capture.store import CaptureFolder, read_launch
from tritonhook.cubin.image import Cubin
from tritonhook.errors import TritonHookError, UsageError
from tritonhook.verify.cpu import how_far, stored_by
from tritonhook.verify.differential import case_of


def held(captures: CaptureFolder, kernels: Sequence[Kernel], config: str) -> Iterator[Kernel | Skipped]:
    """Yield the kernels, each with only the configurations that store the same bits as `config`, e.g.
    "num_warps=4,BLOCK=64". If the autotuner's choice stores other bits, `config` replaces it. Kernels without
    autotuning are yielded unchanged. Raises UsageError if `config` fits no configuration of any kernel, or several of
    one kernel."""
    selector = KernelSelector.of(f"kernel[{config}]")
    if selector is None or not selector.settings:
        raise UsageError(f"--same-bits-as {config}: write NAME=VALUE,..., as in num_warps=4,BLOCK=64")
    chosen: dict[Kernel, Kernel] = {}
    for kernel in (one for one in kernels if one.config is not None):
        fitting = [one for one in (kernel, *kernel.siblings) if selector.settings.items() <= dict(one.settings).items()]
        if len(fitting) > 1:
            several = "; ".join(str(one.config) for one in fitting)
            raise UsageError(f"--same-bits-as {config}: fits several configurations of {kernel.name}: {several}")
        if fitting:
            chosen[kernel] = fitting[0]
    if not chosen:
        there = "; ".join(str(one.config) for own in kernels for one in (own, *own.siblings) if one.config)
        there = f"configurations with different code: {there}" if there else "no kernel is autotuned"
        raise UsageError(f"--same-bits-as {config}: no kernel has this configuration; {there}")
    for kernel in kernels:
        if kernel in chosen:
            yield _held(captures, kernel, chosen[kernel])
        elif kernel.config is None:
            yield kernel
        else:
            yield Skipped(kernel.name, kernel.record, f"it has no configuration {config}", kernel.share)


def _held(captures: CaptureFolder, kernel: Kernel, reference: Kernel) -> Kernel | Skipped:
    """Compare the configurations of one kernel with `reference`. Skipped if `reference` cannot be executed."""
    problem = reference.launches[0].problem
    try:
        wanted = _stored(captures, reference, problem)
    except (TritonHookError, MemoryError) as error:
        return Skipped(kernel.name, kernel.record, f"{reference.config}: not executed: {error}", kernel.share)
    same, notes, launch = [], [], read_launch(reference.launches[0].path)
    for one in (kernel, *kernel.siblings):
        try:
            stored = wanted if one is reference else _stored(captures, one, problem)
            why = how_far(launch, wanted, stored)
        except (TritonHookError, MemoryError) as error:
            why = f"not executed: {error}"
        if why:
            notes.append(f"no candidate: {one.config}: {why}")
        else:
            same.append(one)
    first = kernel if kernel in same else replace(reference, function=kernel.function, keys=kernel.keys)
    others = tuple(one for one in same if one.record != first.record)
    return replace(first, share=kernel.share, siblings=others, notes=tuple(notes))


def _stored(captures: CaptureFolder, kernel: Kernel, problem: str) -> tuple[bytes, ...]:
    """Execute the launch of a configuration that has the arguments `problem`. Raises as stored_by, and UsageError if no
    such launch was recorded."""
    path = next((one.path for one in kernel.launches if one.problem == problem), None)
    if path is None:
        raise UsageError("no launch with the same arguments was recorded")
    capture = captures.capture(kernel.record)
    case = case_of(capture.kernel, read_launch(path), path.parent, capture.ptx)
    return stored_by(Cubin.from_bytes(capture.cubin, capture.kernel), case, None, RECORDED)
