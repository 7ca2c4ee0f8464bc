"""Predict the size of the local-memory pool, the device memory that the driver reserves for stacks. Arithmetic only.

The driver keeps one pool per context, with room for each thread that can be resident on the GPU. Its size follows from
the largest stack per thread among the kernels launched so far, not from their sum. A kernel that calls a driver syscall
(`__cuda_syscall_...`) also needs the syscall's frames. The kernel's undefined symbols show the call. Its own frame size
does not contain the syscall's frames (the size is 0 for a kernel with a bulk copy).

The size also depends on the GPU: this module has a table of GPUs with their streaming multiprocessors and resident
threads.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tritonhook.cubin.image import Cubin
from tritonhook.cubin.resources import Resources
from tritonhook.errors import UsageError

DEFAULT_STACK = 1024  # stack bytes per thread in a new context: cuCtxGetLimit(CU_LIMIT_STACK_SIZE)
# Maximum resident threads per SM: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
_THREADS = {80: 2048, 86: 1536, 89: 1536, 90: 2048, 100: 2048, 120: 1536, 121: 1536}
_CORES = "NVIDIA's product page: CUDA cores / 128 per SM"
_WHITEPAPER = "NVIDIA, RTX Blackwell GPU Architecture whitepaper"
_PUBLISHED = "published together with the measurement"
_H100 = "NVIDIA, H100 Tensor Core GPU Architecture whitepaper"


@dataclass(frozen=True, slots=True)
class GpuSpecs:
    """GPU properties that determine the size of the local-memory pool.

    sms: number of enabled streaming multiprocessors. threads_per_sm: maximum resident threads per multiprocessor. arch:
    compute capability as a number, e.g. 120, or None. source: origin of the numbers. memory_gib: from NVIDIA's product
    pages, or None.
    """

    name: str
    sms: int
    threads_per_sm: int
    arch: int | None
    source: str
    memory_gib: int | None = None

    def __post_init__(self) -> None:
        for what, value in (("SMs", self.sms), ("threads per SM", self.threads_per_sm)):
            if value <= 0:
                raise UsageError(f"{self.name}: {value} {what}; give a number above 0")
        if self.threads_per_sm % 32:
            raise UsageError(
                f"{self.name}: {self.threads_per_sm} threads per SM is not a multiple of 32, the threads of a warp"
            )

    @property
    def resident_threads(self) -> int:
        return self.sms * self.threads_per_sm


def _row(name: str, sms: int, arch: int, source: str, memory_gib: int) -> GpuSpecs:
    source = f"{source}; threads per SM: CUDA C++ Programming Guide, {arch / 10:.1f}"
    return GpuSpecs(name, sms, _THREADS[arch], arch, source, memory_gib)


GPUS = (
    _row("RTX 5090", 170, 120, _WHITEPAPER, 32),
    _row("RTX 5090 Laptop", 82, 120, _PUBLISHED, 24),
    _row("RTX 5080", 84, 120, _WHITEPAPER, 16),
    _row("RTX 5080 Laptop", 60, 120, _CORES, 16),
    _row("RTX 5070 Ti", 70, 120, _PUBLISHED, 16),
    _row("RTX 5070", 48, 120, _WHITEPAPER, 12),
    _row("RTX 5070 Laptop", 36, 120, _CORES, 8),
    _row("RTX 5060 Ti", 36, 120, _CORES, 16),
    _row("RTX 5060", 30, 120, _CORES, 8),
    _row("RTX 5050", 20, 120, _CORES, 8),
    _row("RTX PRO 6000 Blackwell", 188, 120, _PUBLISHED, 96),
    _row("GB10", 48, 121, _PUBLISHED, 120),
    _row("H100 SXM", 132, 90, _H100, 80),
    _row("H100 PCIe", 114, 90, _H100, 80),
    _row("H200", 132, 90, "NVIDIA's H200 data sheet: the H100 SXM's GPU", 141),
    _row("B200", 148, 100, "as cudaGetDeviceProperties reports it (public logs)", 180),
    _row("A100", 108, 80, "NVIDIA, A100 Tensor Core GPU Architecture whitepaper", 80),
    _row("RTX 4090", 128, 89, "NVIDIA, Ada GPU Architecture whitepaper", 24),
    _row("RTX 3090", 82, 86, "NVIDIA, Ampere GA102 GPU Architecture whitepaper", 24),
)
_ALIASES = {
    "dgx spark": "GB10",
    "rtx pro 6000": "RTX PRO 6000 Blackwell",
    "h100": "H100 SXM",
    "h100 80gb hbm3": "H100 SXM",
}
_NOISE = re.compile(
    r"\b(nvidia|geforce|gpu|workstation|server|max-q|edition|blackwell (?=workstation|server|max-q))\b", re.ASCII
)


def find_gpu(name: str) -> GpuSpecs:
    """Find a GPU in the table by its common name or the driver's name: "RTX 5090", "NVIDIA GeForce RTX 5090 Laptop
    GPU".

    Raises UsageError, which lists the table's names, for any other name: a guess could give a wrong SM count.
    """
    wanted = _plain(name)
    wanted = _plain(_ALIASES.get(wanted, wanted))
    for gpu in GPUS:
        if _plain(gpu.name) == wanted:
            return gpu
    raise UsageError(
        f"--gpu {name!r}: not in the table; give --sms and --threads-per-sm instead. It has: "
        + ", ".join(gpu.name for gpu in GPUS)
    )


def make_gpu(sms: int, threads_per_sm: int | None) -> GpuSpecs:
    """Make the specs of a GPU that is not in the table. Raises UsageError if threads_per_sm is None."""
    if threads_per_sm is None:
        raise UsageError("--sms: give --threads-per-sm too, as it depends on the architecture, which is not known")
    return GpuSpecs(f"{sms} SMs", sms, threads_per_sm, None, "given on the command line")


def _plain(name: str) -> str:
    return " ".join(_NOISE.sub(" ", name.lower()).split())


# --- the prediction -------------------------------------------------------------------------------


MIB = 1 << 20
UNBOUNDED = 0xFFFFFFFF  # value of MIN_STACK_SIZE if the code has recursion or alloca (ptxas 13.5 and newer)
# Stack limit in bytes per thread that the driver sets at the first launch of a kernel with this syscall. Published on
# forums.developer.nvidia.com and in issues (docs/explanation/gpu-memory.md).
SYSCALL_STACK = {"cp_async_bulk_unicast": 14_448, "tensor_2d_tile_unicast": 14_512, "tensor_4d_tile_unicast": 14_608}
_ANY_SYSCALL = (min(SYSCALL_STACK.values()), max(SYSCALL_STACK.values()))
# Undefined symbols that make the driver reserve a buffer, and its size at the default limits on an H100 under CUDA 13.0
# (benchmarks/results/memory_h100.json, E9 and E10). The printf buffer is reserved at load. Of the heap, 138 MiB are
# reserved at load, 8 MiB and a page at the first launch. These sizes are not part of the predicted range, since no
# other GPU and driver was measured.
BUFFERS = {
    "vprintf": ("printf buffer", 64 * MIB),
    "malloc": ("device heap", 148 * MIB),
    "free": ("device heap", 148 * MIB),
}
# Open drivers (NVK, tinygrad) round the memory of a warp up to 512 bytes, and that of a TPC (two SMs) up to 32 KiB.
_WARP_BYTES, _TPC_BYTES = 512, 32 * 1024
_SYSCALL_OVERHEAD = 512  # bytes per thread, fitted to the largest published growth; not confirmed by NVIDIA
_WIDENING = 0.03  # published measurements are up to 2 % outside the formula's range, so it is widened by 3 %
_PAGE = 2 * MIB  # page size in which the driver maps memory


@dataclass(frozen=True, slots=True)
class Bracket:
    """A range of sizes in bytes, both ends included."""

    low: int
    high: int

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


@dataclass(frozen=True, slots=True)
class StackNeed:
    """The stack per thread that the driver reserves for one kernel.

    frame: bytes of the kernel's own largest call chain, from the image; None if the image has no bound. stack: bytes
    per thread including the syscalls' frames; None if `frame` is None. syscalls: driver functions that the kernel
    calls.
    buffers: other buffers that the driver reserves for the kernel, each with its name and default bytes. why_unknown:
    reason why `stack` is None.
    """

    kernel: str
    frame: int | None
    stack: Bracket | None
    syscalls: tuple[str, ...] = ()
    buffers: tuple[tuple[str, int], ...] = ()
    why_unknown: str | None = None


@dataclass(frozen=True, slots=True)
class Prediction:
    """Predicted growth of the pool on one GPU if kernels are launched in a new context.

    needs: the stack needs of all kernels, of which the largest counts. growth: bytes; None if a kernel's stack has no
    bound. basis: origin of the numbers.
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
        """The kernel that needs the largest stack, which determines the pool; None if no need is known."""
        known = {need: need.stack.high for need in self.needs if need.stack is not None}
        return max(known, key=known.__getitem__, default=None)

    @property
    def cause(self) -> str:
        """One sentence: why the pool grows or does not grow, or why that is not known."""
        if self.unknown:
            return f"{self.unknown[0].kernel}: {self.unknown[0].why_unknown}"
        deepest = self.deepest
        if deepest is None or deepest.stack is None:
            return "there is no kernel to predict"
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
        """How to avoid the growth; None if the pool does not grow."""
        if self.unknown:
            return "remove the recursion or alloca (ptxas 13.5 and newer shows where), or set the stack limit yourself"
        deepest = self.deepest
        if deepest is not None and any("cp_async_bulk" in name for name in deepest.syscalls):
            return (
                "let the bulk loads use .shared::cta: Triton 3.7 and newer does so; for 3.4 to 3.6 use "
                "`tritonhook.enable(rewrites=['tma-cta'])`, `tritonhook run --rewrite tma-cta` or "
                "`tritonhook rename FILE --rewrite tma-cta`"
            )
        if deepest is not None and deepest.stack is not None and deepest.stack.high > DEFAULT_STACK:
            return "make the kernel's local arrays, spills or call chains smaller"
        return None


def stack_need(kernel: str, resources: Resources, unbounded: bool = False) -> StackNeed:
    """Compute the stack need of one kernel from its image. unbounded: True if ptxas could not compute its stack
    size."""
    buffers = tuple(dict.fromkeys(BUFFERS[name] for name in resources.externs if name in BUFFERS))
    frames = [size for size in (resources.stack, resources.min_stack) if size is not None]
    syscalls = resources.syscalls
    if unbounded or UNBOUNDED in frames:
        reason = "its stack is not bounded (recursion or alloca); the cubin does not record how deep it goes"
        return StackNeed(kernel, None, None, syscalls, buffers, reason)
    if not frames:
        return StackNeed(kernel, None, None, syscalls, buffers, "the image has neither FRAME_SIZE nor MIN_STACK_SIZE")
    frame = max(frames)
    called = [_syscall_stack(name) for name in syscalls]
    stack = Bracket(max([frame, *(low for low, _ in called)]), frame + max((high for _, high in called), default=0))
    return StackNeed(kernel, frame, stack, syscalls, buffers)


def stack_needs(cubin: Cubin, unbounded: Iterable[str] = ()) -> tuple[StackNeed, ...]:
    """Compute the stack need of each kernel of an image. unbounded: kernels whose stack size ptxas could not
    compute."""
    without_bound = set(unbounded)
    return tuple(stack_need(kernel, r, kernel in without_bound) for kernel, r in cubin.resources.items())


def pool_bytes(stack: int, gpu: GpuSpecs, overhead: int = 0) -> int:
    """Compute the size of the pool in bytes for `stack` bytes per thread, rounded as in open drivers."""
    slice_bytes = _align(32 * (stack + overhead), _WARP_BYTES)
    return _align(slice_bytes * (gpu.threads_per_sm // 32) * 2, _TPC_BYTES) * gpu.sms // 2


def net_growth(stack: int, gpu: GpuSpecs, before: int = DEFAULT_STACK) -> int:
    """Compute the growth of an existing pool in bytes: the difference of the stacks times the GPU's resident threads.
    before: stack bytes per thread so far."""
    return max(0, stack - before) * gpu.resident_threads


def predict(needs: Sequence[StackNeed], gpu: GpuSpecs) -> Prediction:
    """Predict the growth of the pool in a new context, from the kernel that needs the largest stack.

    The lower end of the range is the growth of an existing pool. The upper end is the size of a new pool with 512 bytes
    of overhead per thread. The range is widened by 3%, so that it contains all published measurements
    (tests/memory/test_prediction.py).
    """
    basis = "the formula, with a range from published measurements; not measured on this GPU by this project"
    if gpu.arch == 90:
        basis = "the formula, exact on an H100 SXM with known frames"
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
    """Parse a size such as "256MiB", "1.5 GiB" or "4096" (bytes). Units are binary only, as in drivers. Raises
    UsageError."""
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
