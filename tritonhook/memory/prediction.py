"""The local-memory pool: how much device memory the driver reserves for a kernel's stack. Arithmetic only.

The driver keeps one pool per context, with room for every thread that can be resident on the GPU, and sizes it
for the deepest stack launched so far: kernels do not add up, the deepest one counts. A kernel that calls a driver
syscall (`__cuda_syscall_...`) gets the syscall's frames too. Its undefined symbols show the call; its own frame does
not: that of the bulk copy is 0.

watcher.py watches a pool grow; gpu_specs.py has the numbers of the GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tritonhook.cubin.image import Cubin
from tritonhook.cubin.resources import Resources
from tritonhook.errors import UsageError
from tritonhook.memory.gpu_specs import DEFAULT_STACK, GpuSpecs

MIB = 1 << 20
UNBOUNDED = 0xFFFFFFFF  # MIN_STACK_SIZE where ptxas (13.5 and newer) found recursion or alloca
# Stack limit that the driver set after the first launch of a kernel with this syscall, as published:
# bulk 14,448, 2d tile 14,512, 4d tile 14,608 (forums.developer.nvidia.com and issues; docs/explanation/gpu-memory.md).
SYSCALL_STACK = {"cp_async_bulk_unicast": 14_448, "tensor_2d_tile_unicast": 14_512, "tensor_4d_tile_unicast": 14_608}
_ANY_SYSCALL = (min(SYSCALL_STACK.values()), max(SYSCALL_STACK.values()))
# Undefined symbols that make the driver reserve a buffer, with what it took at the default limits on an H100 under
# CUDA 13.0 (benchmarks/memory/pool.py, E9 and E10): for printf all at load, for the heap 138 MiB at load and its 8 MiB
# and a page at the first launch. Not part of the bracket: other GPUs and drivers were not seen.
BUFFERS = {
    "vprintf": ("printf buffer", 64 * MIB),
    "malloc": ("device heap", 148 * MIB),
    "free": ("device heap", 148 * MIB),
}
# The rounding that open drivers use (NVK, tinygrad): a warp's slice to 512 bytes, a TPC's (two SMs) to 32 KiB.
_WARP_BYTES, _TPC_BYTES = 512, 32 * 1024
_SYSCALL_OVERHEAD = 512  # bytes per thread that fit the largest published deltas; not confirmed by NVIDIA
_WIDENING = 0.03  # the published points lie up to 2 % outside of the formula's own bracket
_PAGE = 2 * MIB  # the driver maps memory in these


@dataclass(frozen=True, slots=True)
class Bracket:
    """The least and the most bytes that it can be."""

    low: int
    high: int

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


@dataclass(frozen=True, slots=True)
class StackNeed:
    """What one kernel makes the driver reserve per thread.

    frame: bytes of its own deepest call chain, from the image; None where the image has no bound.
    stack: bytes per thread with the syscalls' frames; None if `frame` is None, and then `why_unknown` says why.
    syscalls: driver functions that it calls. buffers: what else the driver reserves for it, name and default bytes.
    """

    kernel: str
    frame: int | None
    stack: Bracket | None
    syscalls: tuple[str, ...] = ()
    buffers: tuple[tuple[str, int], ...] = ()
    why_unknown: str | None = None


@dataclass(frozen=True, slots=True)
class Prediction:
    """The growth of the pool on one GPU when these kernels are launched in a fresh context.

    needs: of all kernels; the deepest decides. growth: bytes; None if a kernel's stack has no bound.
    basis: where the numbers come from, as text.
    """

    gpu: GpuSpecs
    needs: tuple[StackNeed, ...]
    growth: Bracket | None
    basis: str

    @property
    def unknown(self) -> tuple[StackNeed, ...]:
        return tuple(need for need in self.needs if need.stack is None)

    @property
    def deepest(self) -> StackNeed | None:
        """The kernel that decides; None if none is known."""
        known = {need: need.stack.high for need in self.needs if need.stack is not None}
        return max(known, key=known.__getitem__, default=None)

    @property
    def cause(self) -> str:
        """Why the pool grows, or does not, or why that is not known: one sentence."""
        if self.unknown:
            return f"{self.unknown[0].kernel}: {self.unknown[0].why_unknown}"
        deepest = self.deepest
        if deepest is None or deepest.stack is None:
            return "no kernel was given"
        per_thread = _range(deepest.stack)
        room = f"for each of the {self.gpu.resident_threads:,} threads that {self.gpu.name} can hold"
        if deepest.syscalls:
            return (
                f"{deepest.kernel} calls the driver's {', '.join(deepest.syscalls)}, for which the driver reserves "
                f"{per_thread} bytes of stack {room}, at the first launch"
            )
        if deepest.stack.high > DEFAULT_STACK:
            return f"{deepest.kernel} needs {per_thread} bytes of stack, reserved {room} at the first launch"
        return f"no kernel needs more than the {DEFAULT_STACK:,} bytes of stack per thread that every context has"

    @property
    def remedy(self) -> str | None:
        """How to avoid the growth; None if there is nothing to avoid."""
        if self.unknown:
            return "remove the recursion or alloca (ptxas 13.5 and newer says where), or set the stack limit yourself"
        deepest = self.deepest
        if deepest is not None and any("cp_async_bulk" in name for name in deepest.syscalls):
            return (
                "make the loads .shared::cta: Triton 3.7 and newer does, and for 3.4 to 3.6 "
                "`tritonhook.enable(rewrites=['tma-cta'])`, `tritonhook run --rewrite tma-cta` or "
                "`tritonhook mem fix FILE`"
            )
        if deepest is not None and deepest.stack is not None and deepest.stack.high > DEFAULT_STACK:
            return "make the kernel's local arrays, spills or call chains smaller"
        return None


def stack_need(kernel: str, resources: Resources, unbounded: bool = False) -> StackNeed:
    """The need of one kernel, from its image. unbounded: ptxas could not compute the size of its stack."""
    buffers = tuple(dict.fromkeys(BUFFERS[name] for name in resources.externs if name in BUFFERS))
    frames = [size for size in (resources.stack, resources.min_stack) if size is not None]
    syscalls = resources.syscalls
    if unbounded or UNBOUNDED in frames:
        reason = "its stack is not bounded (recursion or alloca); the cubin does not say how deep it goes"
        return StackNeed(kernel, None, None, syscalls, buffers, reason)
    if not frames:
        return StackNeed(kernel, None, None, syscalls, buffers, "the image has neither FRAME_SIZE nor MIN_STACK_SIZE")
    frame = max(frames)
    called = [_syscall_stack(name) for name in syscalls]
    stack = Bracket(max([frame, *(low for low, _ in called)]), frame + max((high for _, high in called), default=0))
    return StackNeed(kernel, frame, stack, syscalls, buffers)


def stack_needs(cubin: Cubin, unbounded: Iterable[str] = ()) -> tuple[StackNeed, ...]:
    """The needs of an image's kernels. unbounded: those whose stack size ptxas could not tell."""
    without_bound = set(unbounded)
    return tuple(stack_need(kernel, r, kernel in without_bound) for kernel, r in cubin.resources.items())


def pool_bytes(stack: int, gpu: GpuSpecs, overhead: int = 0) -> int:
    """The whole pool for `stack` bytes per thread, rounded as open drivers do."""
    slice_bytes = _align(32 * (stack + overhead), _WARP_BYTES)
    return _align(slice_bytes * (gpu.threads_per_sm // 32) * 2, _TPC_BYTES) * gpu.sms // 2


def net_growth(stack: int, gpu: GpuSpecs, before: int = DEFAULT_STACK) -> int:
    """The growth of an existing pool: the difference in stack times the threads that the GPU can hold."""
    return max(0, stack - before) * gpu.resident_threads


def predict(needs: Sequence[StackNeed], gpu: GpuSpecs) -> Prediction:
    """Predict how much the pool of a fresh context grows: by what the deepest kernel needs, not by the sum.

    The bracket goes from the growth of an existing pool to that of a first pool with 512 bytes of
    overhead per thread, widened by 3%: all published measurements lie within (tests/memory/test_prediction.py).
    """
    basis = "the formula and its bracket from published measurements; not measured on this GPU by this project"
    if gpu.arch == 90:
        basis = "the formula, exact on an H100 SXM with known frames (docs/explanation/gpu-memory.md)"
    prediction = Prediction(gpu, tuple(needs), None, basis)
    stacks = [need.stack for need in needs if need.stack is not None]
    if prediction.unknown or not stacks:
        return prediction
    deepest = Bracket(max(stack.low for stack in stacks), max(stack.high for stack in stacks))
    return Prediction(gpu, tuple(needs), _growth(deepest, gpu), basis)


def _growth(stack: Bracket, gpu: GpuSpecs) -> Bracket:
    if stack.high <= DEFAULT_STACK:
        return Bracket(0, 0)
    low, high = net_growth(stack.low, gpu), net_growth(stack.high, gpu)
    if gpu.arch == 90:
        return Bracket(low, _align(high, _PAGE))
    high = pool_bytes(stack.high, gpu, _SYSCALL_OVERHEAD)
    return Bracket(round(low * (1 - _WIDENING)), round(high * (1 + _WIDENING)))


def parse_bytes(text: str) -> int:
    """Read "256MiB", "1.5 GiB" or "4096" as bytes; only binary units, in which drivers count. Raises UsageError."""
    units = {"": 1, "b": 1, "kib": 1 << 10, "mib": MIB, "gib": 1 << 30}
    number = text.strip()
    unit = number.lstrip("0123456789.").strip()
    try:
        value = float(number[: len(number) - len(unit)] if unit else number) * units[unit.lower()]
    except (KeyError, ValueError):
        raise UsageError(f"{text!r} is not a size: write e.g. 256MiB or 1.5GiB") from None
    return round(value)


def _syscall_stack(name: str) -> tuple[int, int]:
    for part, size in SYSCALL_STACK.items():
        if part in name:
            return size, size
    return _ANY_SYSCALL if "cp_async_bulk" in name else (0, _ANY_SYSCALL[1])


def _range(bracket: Bracket) -> str:
    return f"{bracket.low:,}" if bracket.low == bracket.high else f"{bracket.low:,} to {bracket.high:,}"


def _align(value: int, unit: int) -> int:
    return -(-value // unit) * unit
