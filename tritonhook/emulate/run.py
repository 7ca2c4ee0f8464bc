"""Execute one launch of a kernel, from its PTX: what do its buffers hold after it?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tritonhook.capture.launches.record import Launch
from tritonhook.emulate.launch import geometry_of, place
from tritonhook.emulate.machine import MOST_STEPS, Machine
from tritonhook.emulate.memory import Memory
from tritonhook.emulate.ptx.decode import decode
from tritonhook.emulate.ptx.kernel import Kernel, read_kernel
from tritonhook.errors import NotUnderstood, UsageError
from tritonhook.ptx.module import Ptx


@dataclass(frozen=True, slots=True)
class Ran:
    """contents: of the launch's buffers after it. steps: of groups of threads. unknown: what was not understood of the
    kernel's instructions, whether they were reached or not."""

    contents: tuple[bytes, ...]
    steps: int
    unknown: tuple[NotUnderstood, ...] = ()


def run_ptx(
    kernel: Kernel | Ptx,
    launch: Launch,
    contents: Sequence[bytes],
    ctas: Sequence[int],
    seed: int = 0,
    most_steps: int = MOST_STEPS,
) -> Ran:
    """Execute these CTAs of a launch. contents: of the buffers before it. Raises NotUnderstood, Fault, Hang."""
    if isinstance(kernel, Ptx):
        kernel = read_kernel(kernel, launch.kernel if launch.kernel in kernel.entries else None)
    memory = Memory(kernel.dynamic_shared + launch.shared, kernel.local.size)
    placed = place(launch, contents, memory)
    if len(placed.arguments) != len(kernel.parameters.variables):
        raise UsageError(
            f"{kernel.entry} has {len(kernel.parameters.variables)} parameters, the launch {len(placed.arguments)}"
        )
    given = bytearray(kernel.parameters.size)
    for (variable, offset), value in zip(kernel.parameters.variables, placed.arguments, strict=True):
        given[offset : offset + variable.size] = value[: variable.size].ljust(variable.size, b"\0")
    parameters = memory.allocate(bytes(given), "the parameters")
    variables = {one.name: memory.allocate(one.contents, f"variable {one.name}") for one in kernel.module}
    machine = Machine(geometry_of(launch, ctas), memory, seed, most_steps)
    code, unknown = decode(kernel, machine, parameters, variables, launch.shared)
    machine.run(code)
    return Ran(tuple(memory.contents(one) for one in placed.buffers), most_steps - machine.steps_left, unknown)
