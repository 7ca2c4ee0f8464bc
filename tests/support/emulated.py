"""Run a few lines of PTX on the emulated machine, a value of each thread in and out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tritonhook.capture.launches.record import Buffer, Launch, Pointer
from tritonhook.emulate.run import Ran, Run, run_ptx
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.tool import find_ptxas
from tritonhook.ptxas.toolchain import Assembled, assemble
from tritonhook.verify.cpu import run_cubin

HEADER = ".version 8.7\n.target {target}\n.address_size 64\n"
DTYPES = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64"}


def launch_of(*buffers, threads=32, grid=1, shared=0, cluster=(1, 1, 1)):
    """A launch whose parameters are these buffers (arrays)."""
    made = tuple(Buffer(one.nbytes, DTYPES[one.itemsize]) for one in buffers)
    parameters = tuple(Pointer(f"x{number}", number) for number in range(len(buffers)))
    return Launch("k", (grid, 1, 1), (threads, 1, 1), parameters, made, cluster, shared)


def module_of(body: str, count: int, target="sm_90a", declarations="") -> Ptx:
    """The body of a kernel with parameters x0, x1, ...; %rd20, %rd21, ... hold their addresses, %r20 is the thread's
    number in the grid."""
    parameters = ", ".join(f".param .u64 x{number}" for number in range(count))
    loads = "\n".join(f"ld.param.u64 %rd2{number}, [x{number}];" for number in range(count))
    return Ptx(
        HEADER.format(target=target)
        + f"""{declarations}
.visible .entry k({parameters}) {{
.reg .pred %p<30>; .reg .b8 %rb<9>; .reg .b16 %rs<30>; .reg .b32 %r<30>; .reg .b64 %rd<30>; .reg .f32 %f<9>;
{loads}
mov.u32 %r28, %ctaid.x; mov.u32 %r29, %ntid.x; mov.u32 %r20, %tid.x; mad.lo.u32 %r20, %r28, %r29, %r20;
{body}
ret;
}}"""
    )


def run_body(body: str, *buffers, target="sm_90a", declarations="", threads=32, grid=1, ctas=None, **options):
    """Run what `module_of` makes. Gives the buffers after it."""
    launch = launch_of(*buffers, threads=threads, grid=grid, cluster=options.pop("cluster", (1, 1, 1)))
    ran: Ran = run_ptx(
        module_of(body, len(buffers), target, declarations),
        Run(launch, ctas or range(grid), **options),
        [one.tobytes() for one in buffers],
    )
    return [np.frombuffer(data, one.dtype) for data, one in zip(ran.contents, buffers, strict=True)]


def run_both(body: str, *buffers, declarations="", target="sm_90a", **launch):
    """Run what `module_of` makes, and the machine code that ptxas makes of it, which has to store the same bytes."""
    found = run_body(body, *buffers, declarations=declarations, target=target, **launch)
    made = assemble(find_ptxas(), module_of(body, len(buffers), target, declarations), ["-O3"])
    assert isinstance(made, Assembled), made
    run = Run(launch_of(*buffers, **launch), range(launch.get("grid", 1)))
    ran = run_cubin(made.cubin, "k", run, [one.tobytes() for one in buffers])
    assert [one.tobytes() for one in found] == [*ran.contents]
    return found


_REGISTER = {1: ("rs", "u8"), 2: ("rs", "b16"), 4: ("r", "b32"), 8: ("rd", "b64")}


def compute(lines: str, out: Sequence[int] | int = 4, **inputs: object) -> np.ndarray:
    """What `d` holds after these lines, in which a, b, c are values of as many threads as `inputs` has.

    out: the bytes of d. inputs: arrays of unsigned by name.
    """
    arrays = {name: np.asarray(value) for name, value in inputs.items()}
    threads = max(len(one) for one in arrays.values())
    loads, names = [], dict[str, str]()
    for number, (name, one) in enumerate(arrays.items()):
        prefix, kind = _REGISTER[one.itemsize]
        names[name] = f"%{prefix}{number + 1}"
        loads.append(f"mad.wide.u32 %rd9, %r20, {one.itemsize}, %rd2{number}; ld.global.{kind} {names[name]}, [%rd9];")
    size = int(out)  # type: ignore[call-overload]
    prefix, kind = _REGISTER[size]
    names["d"] = f"%{prefix}10"
    result = len(arrays)
    body = "\n".join(loads) + "\n" + " ".join(names.get(word, word) for word in _words(lines))
    body += f"\nmad.wide.u32 %rd9, %r20, {size}, %rd2{result}; st.global.{kind} [%rd9], {names['d']};"
    buffers = [*arrays.values(), np.zeros(threads, f"u{size}")]
    return run_body(body, *buffers, threads=threads)[result]


def _words(lines: str) -> list[str]:
    for mark in ",;{}|!":
        lines = lines.replace(mark, f" {mark} ")
    return lines.split()
