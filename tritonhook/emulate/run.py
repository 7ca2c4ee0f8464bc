"""Execute one launch of a kernel, from its PTX or from its machine code, and return the contents of its buffers."""

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

MOST_BUFFER_BYTES = 384 << 20  # most bytes of buffers (or of a module's variables) that the emulator allocates itself
_BYTES = {"p": 1, "rb": 1, "rs": 2, "r": 4, "rd": 8}  # bytes of a register, by the prefix of its name
_SASS_REGISTER = re.compile(r"\bU?[RP]\d+")
_NUMBER = re.compile(r"(?<![\w$%.+])-?\d[\w.]*")
_PRODUCT, _TENSOR = re.compile(r"\bw?gmma\b|\bmma\b|tcgen05|\w*MMA\b"), re.compile(r"tcgen05|\b(?:UTC|LDTM|STTM)")
# Estimated bytes per thread beside its registers, for the machine's arrays and for intermediate results of steps: for
# kernels without tensor core products, and for kernels with them.
_THREAD_BYTES, _PRODUCT_BYTES = 1024, 5120
_TENSOR_BYTES = 128 * 512 * 4  # tensor memory of a CTA


@dataclass(frozen=True, slots=True)
class Ran:
    """A launch that was executed. contents: bytes of each buffer after the launch. steps: executed instructions,
    counted once per group of threads. unknown: errors of the instructions that were not understood, executed or not.
    polled: whether at some time all threads of a wave polled or waited."""

    contents: tuple[bytes, ...]
    steps: int
    unknown: tuple[NotUnderstood, ...] = ()
    polled: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """How to execute a launch.

    ctas: linear numbers of the CTAs to execute; CTAs of the same clusters are added. seed: chooses the order of CTAs,
    warps and atomics; 0 is program order. most_steps: a wave with more steps raises Hang. limit_s: seconds after
    `began` (time.monotonic) at which the run raises Hang. shared, local, registers: value of each byte of shared
    memory, local memory and registers until the kernel writes it; shared and local are for PTX only. other_nan: one of
    numbers.OTHER_NANS, the NaN that operations of PTX give (PTX does not define its bits); 0: a GPU's NaN. absent: see
    Memory; PTX only. room: number of CTAs that the GPU holds at once; 0: as many as fit into the emulator's memory."""

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
    """Prepare a launch of PTX: memory, arguments and a decoder. contents: bytes of each buffer before the launch.
    Raises UsageError if no GPU can run it."""
    launch, begin = run.launch, kernel.shared.begin
    variables = sum(one.size for one in kernel.module)
    _check(kernel.entry, launch, kernel.target, kernel.shared.size - begin, kernel.local.size)
    for what, size, most in (
        ("parameters", kernel.parameters.size, PARAMETER_BYTES),
        ("variables of the module", variables, MOST_BUFFER_BYTES),
    ):
        if size > most:
            raise UsageError(f"{kernel.entry}: {size:,} bytes of {what}; at most {most:,} are possible")
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
    """Execute a launch of PTX. contents: bytes of each buffer before the launch. Raises NotUnderstood, Fault, Hang,
    Unfinished."""
    if isinstance(kernel, Ptx):
        name = run.launch.kernel
        kernel = read_kernel(kernel, name if name in kernel.entries else None)
    return execute(load_ptx(kernel, run, contents), run)


def load_code(kernel: SassKernel, run: Run, contents: Sequence[bytes]) -> Loaded:
    """Prepare a launch of machine code, see `load_ptx`."""
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
    """Execute a launch of machine code. contents: bytes of each buffer before the launch. Raises NotUnderstood, Fault,
    Hang, Unfinished."""
    return execute(load_code(kernel, run, contents), run, watcher)


def run_together(kernel: Kernel | SassKernel, run: Run, inputs: Sequence[Sequence[bytes]]) -> list[tuple[bytes, ...]]:
    """Execute a launch on several contents of its buffers at once, each with its own CTAs and its own global memory.

    inputs: for each launch, the contents of the buffers before it. Return the contents after each launch. An error in
    one launch ends all. A copy by TMA descriptor raises NotUnderstood."""
    loaded = load_ptx(kernel, run, inputs[0]) if isinstance(kernel, Kernel) else load_code(kernel, run, inputs[0])
    memory, buffers = loaded.memory, loaded.placed.buffers
    memory.divide(buffers, inputs)
    Waves(loaded, run).execute()
    return [tuple(memory.contents(one, world) for one in buffers) for world in range(len(inputs))]


def execute(loaded: Loaded, run: Run, watcher: Watcher | None = None) -> Ran:
    """Execute a prepared launch. Raises NotUnderstood, Fault, Hang, Unfinished."""
    waves = Waves(loaded, run, watcher)
    waves.execute()
    contents = tuple(loaded.memory.contents(one) for one in loaded.placed.buffers)
    return Ran(contents, waves.steps, waves.unknown, waves.polled)


def _check(entry: str, launch: Launch, arch: str, shared: int, local: int, registers: int = 0) -> None:
    """Raise UsageError if no GPU can execute a launch. shared, local: bytes that the kernel declares. registers: number
    of registers per thread."""
    why = why_not(launch, arch, shared, registers)
    if local > LOCAL_BYTES:
        why = f"{local:,} bytes of local memory per thread; a GPU allows {LOCAL_BYTES:,}"
    if why is not None:
        raise UsageError(f"{entry}: {why}")


def _cta_bytes(launch: Launch, memory: Memory, registers: int, text: str) -> int:
    """Estimate the emulator's memory for a CTA, in bytes. registers: bytes of a thread's registers. text: opcodes and
    operands; each constant in it takes an array with one element per thread."""
    of_thread, tensor = _bytes_of(text)
    threads = -(-math.prod(launch.block) // WARP) * WARP
    return (registers + of_thread + memory.local_bytes) * threads + memory.shared_bytes + tensor


@lru_cache(maxsize=64)
def _bytes_of(text: str) -> tuple[int, int]:
    """Estimate the bytes beside registers: per thread, and per CTA for tensor memory. text: see `_cta_bytes`."""
    of_thread = _PRODUCT_BYTES if _PRODUCT.search(text) else _THREAD_BYTES
    return of_thread + 8 * len(set(_NUMBER.findall(text))), _TENSOR_BYTES * (_TENSOR.search(text) is not None)


def _check_count(entry: str, parameters: int, placed: Placed) -> None:
    if len(placed.arguments) != parameters:
        raise UsageError(f"{entry} has {parameters} parameters, but the launch has {len(placed.arguments)}")
