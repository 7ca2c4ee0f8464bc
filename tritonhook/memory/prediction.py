"""The local-memory pool: how much device memory the driver reserves for a kernel's stack. Arithmetic only.

The driver keeps one pool per context, with room for every thread that can be resident on the GPU, and sizes it
for the deepest stack launched so far: kernels do not add up, the deepest one counts. A kernel that calls a driver
syscall (`__cuda_syscall_...`) gets the syscall's frames too. Its undefined symbols show the call; its own frame does
not: that of the bulk copy is 0.

And the GPUs by name: streaming multiprocessors and resident threads, which decide how large it is. watcher.py watches a
pool grow.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tritonhook.cubin.image import Cubin
from tritonhook.cubin.resources import Resources
from tritonhook.errors import UsageError

DEFAULT_STACK = 1024  # bytes per thread of a fresh context: cuCtxGetLimit(CU_LIMIT_STACK_SIZE)
# CUDA C++ Programming Guide, "Technical Specifications per Compute Capability": most resident threads per SM.
_THREADS = {80: 2048, 86: 1536, 89: 1536, 90: 2048, 100: 2048, 120: 1536, 121: 1536}
_CORES = "NVIDIA's product page: CUDA cores / 128 per SM"
_WHITEPAPER = "NVIDIA, RTX Blackwell GPU Architecture whitepaper"
_PUBLISHED = "given with the published measurement"
_H100 = "NVIDIA, H100 Tensor Core GPU Architecture whitepaper"


@dataclass(frozen=True, slots=True)
class GpuSpecs:
    """GPU properties that decide the local-memory pool.

    sms: streaming multiprocessors in use. threads_per_sm: most resident threads of one. arch: compute capability as a
    number, e.g. 120, or None. source: where the numbers are from. memory_gib: NVIDIA's product pages, or None.
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
    """Find a GPU by its name, as people or the driver write it: "RTX 5090", "NVIDIA GeForce RTX 5090 Laptop GPU".

    Raises UsageError with the names in the table, and never guesses: a wrong SM count would give a wrong answer.
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
    """Make the specs of a GPU that is missing in the table. Raises UsageError without threads_per_sm."""
    if threads_per_sm is None:
        raise UsageError("--sms: give --threads-per-sm too: it follows from the architecture, which is not known")
    return GpuSpecs(f"{sms} SMs", sms, threads_per_sm, None, "given on the command line")


def _plain(name: str) -> str:
    return " ".join(_NOISE.sub(" ", name.lower()).split())


# --- the prediction -------------------------------------------------------------------------------


MIB = 1 << 20
UNBOUNDED = 0xFFFFFFFF  # MIN_STACK_SIZE if the code has recursion or alloca (ptxas 13.5 and newer)
# Stack limit that the driver set after the first launch of a kernel with this syscall, as published:
# bulk 14,448, 2d tile 14,512, 4d tile 14,608 (forums.developer.nvidia.com and issues; docs/explanation/gpu-memory.md).
SYSCALL_STACK = {"cp_async_bulk_unicast": 14_448, "tensor_2d_tile_unicast": 14_512, "tensor_4d_tile_unicast": 14_608}
_ANY_SYSCALL = (min(SYSCALL_STACK.values()), max(SYSCALL_STACK.values()))
# Undefined symbols that make the driver reserve a buffer, with what it took at the default limits on an H100 under
# CUDA 13.0 (benchmarks/results/memory_h100.json, E9 and E10): for printf all at load, for the heap 138 MiB at load and
# its 8 MiB and a page at the first launch. Not part of the bracket: other GPUs and drivers were not seen.
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
    """Local memory that one kernel makes the driver reserve, per thread.

    frame: bytes of its own deepest call chain, from the image; None where the image has no bound.
    stack: bytes per thread with the syscalls' frames; None if `frame` is None, and then `why_unknown` has the reason.
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
        """The kernel that decides, or None."""
        known = {need: need.stack.high for need in self.needs if need.stack is not None}
        return max(known, key=known.__getitem__, default=None)

    @property
    def cause(self) -> str:
        """Reason why the pool grows, or does not, or why that is unknown: one sentence."""
        if self.unknown:
            return f"{self.unknown[0].kernel}: {self.unknown[0].why_unknown}"
        deepest = self.deepest
        if deepest is None or deepest.stack is None:
            return "no kernel to predict"
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
        """Advice to avoid the growth; None without growth."""
        if self.unknown:
            return "remove the recursion or alloca (ptxas 13.5 and newer shows where), or set the stack limit yourself"
        deepest = self.deepest
        if deepest is not None and any("cp_async_bulk" in name for name in deepest.syscalls):
            return (
                "make the loads .shared::cta: Triton 3.7 and newer does, and for 3.4 to 3.6 "
                "`tritonhook.enable(rewrites=['tma-cta'])`, `tritonhook run --rewrite tma-cta` or "
                "`tritonhook rename FILE --rewrite tma-cta`"
            )
        if deepest is not None and deepest.stack is not None and deepest.stack.high > DEFAULT_STACK:
            return "make the kernel's local arrays, spills or call chains smaller"
        return None


def stack_need(kernel: str, resources: Resources, unbounded: bool = False) -> StackNeed:
    """Compute the stack need of one kernel from its image. unbounded: ptxas could not compute the size of its stack."""
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
    """Compute the stack needs of an image's kernels. unbounded: kernels whose stack size ptxas could not compute."""
    without_bound = set(unbounded)
    return tuple(stack_need(kernel, r, kernel in without_bound) for kernel, r in cubin.resources.items())


def pool_bytes(stack: int, gpu: GpuSpecs, overhead: int = 0) -> int:
    """Compute the size of the whole pool for `stack` bytes per thread, rounded as NVIDIA's open driver does."""
    slice_bytes = _align(32 * (stack + overhead), _WARP_BYTES)
    return _align(slice_bytes * (gpu.threads_per_sm // 32) * 2, _TPC_BYTES) * gpu.sms // 2


def net_growth(stack: int, gpu: GpuSpecs, before: int = DEFAULT_STACK) -> int:
    """Compute how much an existing pool grows, in bytes: the stack difference times the threads that the GPU can
    hold."""
    return max(0, stack - before) * gpu.resident_threads


def predict(needs: Sequence[StackNeed], gpu: GpuSpecs) -> Prediction:
    """Predict how much the pool of a fresh context grows: by what the deepest kernel needs, not by the sum.

    The bracket goes from the growth of an existing pool to that of a first pool with 512 bytes of
    overhead per thread, widened by 3%: all published measurements lie within (tests/memory/test_prediction.py).
    """
    basis = "the formula and its bracket from published measurements; not measured on this GPU by this project"
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
