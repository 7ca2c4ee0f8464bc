"""Execute one launch of a kernel, from its PTX or from its machine code: what do its buffers hold after it?"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from tritonhook.capture.launches.limits import LOCAL_BYTES, PARAMETER_BYTES, why_not
from tritonhook.capture.launches.record import Launch
from tritonhook.cubin.resources import reserved_in_image
from tritonhook.emulate.launch import Placed, place
from tritonhook.emulate.machine import MOST_STEPS, WARP, Code, Machine
from tritonhook.emulate.memory import Memory
from tritonhook.emulate.ptx.decode import decode
from tritonhook.emulate.ptx.kernel import Kernel, read_kernel
from tritonhook.emulate.sass.decode import decode as decode_sass
from tritonhook.emulate.sass.kernel import SassKernel
from tritonhook.emulate.waves import Loaded, Watcher, Waves
from tritonhook.errors import NotUnderstood, UsageError
from tritonhook.ptx.module import Ptx

MOST_BUFFER_BYTES = 384 << 20  # of a launch whose buffers nobody else holds
_BYTES = {"p": 1, "rb": 1, "rs": 2, "r": 4, "rd": 8}  # of a register, by its prefix
_SASS_REGISTER = re.compile(r"\bU?[RP]\d+")
_NUMBER = re.compile(r"(?<![\w$%.+])-?\d[\w.]*")
_PRODUCT, _TENSOR = re.compile(r"\bw?gmma\b|\bmma\b|tcgen05|\w*MMA\b"), re.compile(r"tcgen05|\b(?:UTC|LDTM|STTM)")
_THREAD_BYTES, _PRODUCT_BYTES = 1024, 5120  # beside registers: numbers of the machine, and what steps compute with
_TENSOR_BYTES = 128 * 512 * 4  # tensor memory of a CTA


@dataclass(frozen=True, slots=True)
class Ran:
    """contents: of the launch's buffers after it. steps: of groups of threads. unknown: what was not understood of the
    kernel's instructions, whether they were reached or not. polled: whether all threads of a wave
    have polled or waited."""

    contents: tuple[bytes, ...]
    steps: int
    unknown: tuple[NotUnderstood, ...] = ()
    polled: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """How to execute a launch. ctas: those that are executed, by their linear numbers; whole clusters are. seed:
    chooses the order of CTAs, warps and atomics; 0 is program order. most_steps: of a wave; more count as hung, and so
    does what takes longer than limit_s from `began` on (time.monotonic). shared, local, registers: the bytes of these
    until something is written, of the first two in PTX alone. other_nan: operations of PTX give NaNs of other bits
    (of numbers.OTHER_NANS): PTX leaves open which. absent: see Memory. room: CTAs that the GPU holds at
    once; 0: as many as fit into memory."""

    launch: Launch
    ctas: Sequence[int]
    seed: int = 0
    most_steps: int = MOST_STEPS
    limit_s: float = float("inf")
    shared: int = 0
    registers: int = 0
    other_nan: int = 0
    local: int = 0
    absent: int = 0
    room: int = 0
    began: float = field(default_factory=time.monotonic)


def load_ptx(kernel: Kernel, run: Run, contents: Sequence[bytes]) -> Loaded:
    """Put a launch into memory. contents: of its buffers, before the launch. Raises UsageError if no GPU can run it."""
    launch, begin = run.launch, kernel.shared.begin
    variables = sum(one.size for one in kernel.module)
    _check(kernel.entry, launch, kernel.target, kernel.shared.size - begin, kernel.local.size)
    for what, size, most in (
        ("parameters", kernel.parameters.size, PARAMETER_BYTES),
        ("variables of the module", variables, MOST_BUFFER_BYTES),
    ):
        if size > most:
            raise UsageError(f"{kernel.entry}: {size:,} bytes of {what}: at most {most:,} are possible")
    memory = Memory(kernel.shared.size + launch.shared, kernel.local.size, b"", run.shared, run.local, run.absent)
    placed = place(run.launch, contents, memory)
    given = bytearray(kernel.parameters.size)
    _check_count(kernel.entry, len(kernel.parameters.variables), placed)
    for (variable, offset), value in zip(kernel.parameters.variables, placed.arguments, strict=True):
        given[offset : offset + variable.size] = value[: variable.size].ljust(variable.size, b"\0")
    parameters = memory.allocate(bytes(given), "the parameters")
    allocated = {one.name: memory.allocate(one.contents, f"variable {one.name}") for one in kernel.module}
    for one in kernel.module:
        for offset, name, behind in one.pointers:
            if next((other.space for other in kernel.module if other.name == name), "") != "global":
                raise NotUnderstood(f".{one.space}", why=f"the initialiser of {one.name}")
            memory.point(allocated[one.name], offset, allocated[name].address + behind)
    registers = sum(_BYTES.get(prefix, 16) for prefix in kernel.register_prefixes)
    return Loaded(
        memory,
        placed,
        lambda machine: decode(kernel, machine, parameters, allocated, launch.shared, run.registers, run.other_nan),
        _cta_bytes(launch, memory, registers, kernel.text),
        kernel,
        None if run.registers else (run.other_nan,),
    )


def run_ptx(kernel: Kernel | Ptx, run: Run, contents: Sequence[bytes]) -> Ran:
    """Execute PTX. contents: of the launch's buffers before it. Raises NotUnderstood, Fault, Hang, Unfinished."""
    if isinstance(kernel, Ptx):
        name = run.launch.kernel
        kernel = read_kernel(kernel, name if name in kernel.entries else None)
    return execute(load_ptx(kernel, run, contents), run)


def load_code(kernel: SassKernel, run: Run, contents: Sequence[bytes]) -> Loaded:
    """Put a launch into memory. contents: of its buffers, before the launch. Raises UsageError if no GPU can run it."""
    launch = run.launch
    own_shared = kernel.shared - reserved_in_image(kernel.arch)
    _check(kernel.sass.kernel, launch, f"sm_{kernel.arch}", own_shared, kernel.stack, kernel.registers)
    memory = Memory(kernel.shared + launch.shared, kernel.stack)
    original, kernel = kernel, kernel.linked(memory)
    placed = place(launch, contents, memory)
    parameters = kernel.pack(placed.arguments)
    address = memory.allocate(parameters, "the parameters").address
    text = " ".join(f"{one.opcode} {one.operands}" for one in kernel.sass.instructions)
    registers = 4 * len(set(_SASS_REGISTER.findall(text)))

    def decoded(machine: Machine) -> tuple[Code, tuple[NotUnderstood, ...]]:
        return decode_sass(
            kernel, machine, kernel.constants(machine.geometry, parameters, address, launch.shared), run.registers
        )

    size = _cta_bytes(launch, memory, registers, text)
    use = None if run.registers else (parameters,)
    return Loaded(memory, placed, decoded, size, original, use)


def run_code(kernel: SassKernel, run: Run, contents: Sequence[bytes], watcher: Watcher | None = None) -> Ran:
    """Execute machine code. contents: of the launch's buffers before it. Raises NotUnderstood, Fault, Hang,
    Unfinished."""
    return execute(load_code(kernel, run, contents), run, watcher)


def run_together(kernel: Kernel | SassKernel, run: Run, inputs: Sequence[Sequence[bytes]]) -> list[tuple[bytes, ...]]:
    """Execute a launch on several contents of its buffers at once: each has CTAs and global memory of its own. Returns
    what the buffers then hold. What one of them raises ends all; so does a copy by descriptor, as NotUnderstood."""
    loaded = load_ptx(kernel, run, inputs[0]) if isinstance(kernel, Kernel) else load_code(kernel, run, inputs[0])
    memory, buffers = loaded.memory, loaded.placed.buffers
    memory.divide(buffers, inputs)
    Waves(loaded, run).execute()
    return [tuple(memory.contents(one, world) for one in buffers) for world in range(len(inputs))]


def execute(loaded: Loaded, run: Run, watcher: Watcher | None = None) -> Ran:
    """Execute a launch that lies in memory. Raises NotUnderstood, Fault, Hang, Unfinished."""
    waves = Waves(loaded, run, watcher)
    waves.execute()
    contents = tuple(loaded.memory.contents(one) for one in loaded.placed.buffers)
    return Ran(contents, waves.steps, waves.unknown, waves.polled)


def _check(entry: str, launch: Launch, arch: str, shared: int, local: int, registers: int = 0) -> None:
    """Check a launch. Raises UsageError if no GPU can execute it. shared, local: static, in bytes. registers: of a
    thread."""
    why = why_not(launch, arch, shared, registers)
    if local > LOCAL_BYTES:
        why = f"{local:,} bytes of local memory in a thread: a GPU allows {LOCAL_BYTES:,}"
    if why is not None:
        raise UsageError(f"{entry}: {why}")


def _cta_bytes(launch: Launch, memory: Memory, registers: int, text: str) -> int:
    """Estimate the bytes that a CTA takes. registers: bytes of a thread. text: opcodes and operands; each number in it
    has a row of all threads."""
    of_thread, tensor = _bytes_of(text)
    threads = -(-math.prod(launch.block) // WARP) * WARP
    return (registers + of_thread + memory.local_bytes) * threads + memory.shared_bytes + tensor


@lru_cache(maxsize=64)
def _bytes_of(text: str) -> tuple[int, int]:
    """Estimate the bytes that steps take beside registers: of a thread, and of a CTA for tensor memory."""
    of_thread = _PRODUCT_BYTES if _PRODUCT.search(text) else _THREAD_BYTES
    return of_thread + 8 * len(set(_NUMBER.findall(text))), _TENSOR_BYTES * (_TENSOR.search(text) is not None)


def _check_count(entry: str, parameters: int, placed: Placed) -> None:
    if len(placed.arguments) != parameters:
        raise UsageError(f"{entry} has {parameters} parameters, the launch {len(placed.arguments)}")
