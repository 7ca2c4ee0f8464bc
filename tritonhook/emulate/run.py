"""Execute one launch of a kernel, from its PTX or from its machine code: what do its buffers hold after it?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tritonhook.capture.launches.record import Launch
from tritonhook.cubin.image import Cubin
from tritonhook.emulate.launch import Placed, geometry_of, place
from tritonhook.emulate.machine import MOST_STEPS, Code, Machine
from tritonhook.emulate.memory import Memory
from tritonhook.emulate.ptx.decode import decode
from tritonhook.emulate.ptx.kernel import Kernel, read_kernel
from tritonhook.emulate.sass.decode import decode as decode_sass
from tritonhook.emulate.sass.kernel import SassKernel, read_sass_kernel
from tritonhook.errors import NotUnderstood, UsageError
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.toolchain import reading_toolchain


@dataclass(frozen=True, slots=True)
class Ran:
    """contents: of the launch's buffers after it. steps: of groups of threads. unknown: what was not understood of the
    kernel's instructions, whether they were reached or not."""

    contents: tuple[bytes, ...]
    steps: int
    unknown: tuple[NotUnderstood, ...] = ()


@dataclass(frozen=True, slots=True)
class Run:
    """How to execute a launch. ctas: those that are executed, by their linear numbers; whole clusters are. seed:
    chooses the order of atomics. most_steps, limit_s: more count as hung. shared, registers: the bytes of both in
    PTX, until something is written. late: see Memory."""

    launch: Launch
    ctas: Sequence[int]
    seed: int = 0
    most_steps: int = MOST_STEPS
    limit_s: float = float("inf")
    shared: int = 0
    registers: int = 0
    late: bool = False

    @property
    def executed(self) -> tuple[int, ...]:
        """The CTAs that are executed: those of `ctas`, and the others of their clusters."""
        return geometry_of(self.launch, self.ctas).ctas

    def machine(self, memory: Memory) -> Machine:
        return Machine(geometry_of(self.launch, self.ctas), memory, self.seed, self.most_steps, self.limit_s)

    def result(self, machine: Machine, placed: Placed, unknown: tuple[NotUnderstood, ...] = ()) -> Ran:
        contents = tuple(machine.memory.contents(one) for one in placed.buffers)
        return Ran(contents, self.most_steps - machine.steps_left, unknown)


@dataclass(frozen=True, slots=True)
class Ready:
    """PTX before it is executed. machine: its threads and memory."""

    machine: Machine
    code: Code
    placed: Placed
    unknown: tuple[NotUnderstood, ...]


def ready_ptx(kernel: Kernel, run: Run, contents: Sequence[bytes]) -> Ready:
    """Put a launch into memory and decode its kernel. contents: of the launch's buffers before it."""
    launch = run.launch
    memory = Memory(kernel.shared.size + launch.shared, kernel.local.size, garbage=run.shared, late=run.late)
    placed = place(run.launch, contents, memory)
    given = bytearray(kernel.parameters.size)
    _check_count(kernel.entry, len(kernel.parameters.variables), placed)
    for (variable, offset), value in zip(kernel.parameters.variables, placed.arguments, strict=True):
        given[offset : offset + variable.size] = value[: variable.size].ljust(variable.size, b"\0")
    parameters = memory.allocate(bytes(given), "the parameters")
    variables = {one.name: memory.allocate(one.contents, f"variable {one.name}") for one in kernel.module}
    machine = run.machine(memory)
    code, unknown = decode(kernel, machine, parameters, variables, launch.shared, run.registers)
    return Ready(machine, code, placed, unknown)


def run_ptx(kernel: Kernel | Ptx, run: Run, contents: Sequence[bytes]) -> Ran:
    """Execute PTX. contents: of the launch's buffers before it. Raises NotUnderstood, Fault, Hang."""
    if isinstance(kernel, Ptx):
        name = run.launch.kernel
        kernel = read_kernel(kernel, name if name in kernel.entries else None)
    ready = ready_ptx(kernel, run, contents)
    ready.machine.run(ready.code)
    return run.result(ready.machine, ready.placed, ready.unknown)


def run_cubin(cubin: Cubin, entry: str, run: Run, contents: Sequence[bytes]) -> Ran:
    """Execute machine code. Raises NotUnderstood, Fault, Hang."""
    return run_code(read_sass_kernel(cubin, reading_toolchain().disassemble(cubin, [entry])[entry]), run, contents)


def run_code(kernel: SassKernel, run: Run, contents: Sequence[bytes]) -> Ran:
    """Execute machine code that was read before. Raises NotUnderstood, Fault, Hang."""
    memory = Memory(kernel.shared + run.launch.shared, kernel.stack)
    kernel = kernel.linked(memory)
    placed = place(run.launch, contents, memory)
    parameters = kernel.pack(placed.arguments)
    address = memory.allocate(parameters, "the parameters").address
    machine = run.machine(memory)
    code, unknown = decode_sass(kernel, machine, kernel.constants(machine.geometry, parameters, address))
    machine.run(code)
    return run.result(machine, placed, unknown)


def _check_count(entry: str, parameters: int, placed: Placed) -> None:
    if len(placed.arguments) != parameters:
        raise UsageError(f"{entry} has {parameters} parameters, the launch {len(placed.arguments)}")
