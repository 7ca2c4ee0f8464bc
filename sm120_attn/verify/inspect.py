"""The subcommand `inspect`: compile kernels for any GPU, present or not, and count their instructions.

    python -m sm120_attn inspect [--json] [--arch sm_120a] [--head-dim 128] [--causal | --no-causal] [--set tile_n=64]

Kernels are assembled, and never run. tritonhook reads their machine code. The loops over tiles of keys are counted; the
rest of a kernel runs once.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..config import ARCHS, DTYPES, FP8, Config, why_not
from ..planner import LONG_SUM_KEYS, Shape, plan

if TYPE_CHECKING:
    from tritonhook.cubin.resources import Resources
    from tritonhook.cubin.sass import Instruction, Sass

MATRIX = ("HMMA", "QMMA", "OMMA", "IMMA")
COLUMNS = ("MUFU", "LDSM", "SHFL", "PRMT", "MOV", "NOP")
LOCAL = ("LDL", "STL")  # accesses to local memory: spilled registers, or arrays with an index known only at run time


@dataclass(frozen=True)
class TileLoop:
    """A loop over tiles of keys: an innermost loop with matrix instructions."""

    instructions: tuple[Instruction, ...]

    @cached_property
    def opcodes(self) -> Counter[str]:
        return Counter(i.base_opcode for i in self.instructions)

    @property
    def matrix(self) -> int:
        """Number of matrix instructions."""
        return sum(self.opcodes[name] for name in MATRIX)

    @property
    def matrix_opcode(self) -> str:
        """The matrix instruction with its modifiers, such as "QMMA.SF.16832.F32.E4M3.E4M3.E8"."""
        return Counter(i.opcode for i in self.instructions if i.base_opcode in MATRIX).most_common(1)[0][0]

    @property
    def fillers(self) -> int:
        """Number of instructions without effect: NOP, or never executed (@!UPT). ptxas 12.9 pads its code with them."""
        return sum(i.base_opcode == "NOP" or i.predicate == "@!UPT" for i in self.instructions)

    @property
    def others(self) -> int:
        """Number of instructions that are neither matrix instructions nor fillers."""
        return len(self.instructions) - self.matrix - self.fillers


@dataclass(frozen=True)
class KernelCode:
    """The code of one kernel.

    registers: per thread at launch. stack_bytes: per thread. syscalls: number of driver functions that it calls.
    """

    kernel: str
    instructions: tuple[Instruction, ...]
    loops: tuple[TileLoop, ...]
    registers: int
    stack_bytes: int
    syscalls: int

    def count(self, *opcodes: str) -> int:
        return sum(i.base_opcode in opcodes for i in self.instructions)


@dataclass(frozen=True)
class Inspected:
    """A kernel, its code, and the version of the ptxas that assembled it."""

    config: Config
    code: KernelCode
    ptxas: str | None


def configs(
    archs: tuple[str, ...], head_dims: tuple[int, ...], masks: tuple[bool, ...], dtype: str = "bf16"
) -> Iterator[Config]:
    """Yield the kernels that `plan` chooses for long sequences.

    For FP8 the output is bf16, and there are two kernels: first the kernel for up to LONG_SUM_KEYS keys, which sums on
    one level, then the kernel for more keys, which sums on two levels.
    """
    lengths = (LONG_SUM_KEYS, 2 * LONG_SUM_KEYS) if dtype in FP8 else (4096,)
    for arch, head_dim, causal, length in itertools.product(archs, head_dims, masks, lengths):
        shape = Shape(
            arch=arch, dtype=dtype, head_dim=head_dim, batch=4, heads=16, heads_kv=16, seqlen_q=length, seqlen_k=length,
            causal=causal, out_dtype="bf16" if dtype in FP8 else "",
        )  # fmt: skip
        yield plan(shape).config


def inspect(config: Config) -> Inspected:
    """Compile a kernel offline and read its code.

    Raises ValueError for a config that cannot be built, ImportError without the DSL or tritonhook, RuntimeError if the
    code cannot be read.
    """
    from ..compile.compiler import compile_offline

    assembled = compile_offline(config)
    return Inspected(config, read_code(assembled.cubin), assembled.ptxas)


def read_code(cubin: bytes) -> KernelCode:
    """Read a cubin with one kernel. Raises ImportError without tritonhook, RuntimeError if it cannot be read."""
    codes = read_codes(cubin)
    if len(codes) != 1:
        raise RuntimeError(f"the cubin has {len(codes)} kernels ({', '.join(c.kernel for c in codes)}): must have one")
    return codes[0]


def read_codes(cubin: bytes) -> tuple[KernelCode, ...]:
    """Read all kernels of a cubin, sorted by name. Raises the same errors as read_code."""
    try:
        from tritonhook.cubin.image import Cubin
        from tritonhook.cubin.sass import parse_nvdisasm
        from tritonhook.errors import TritonHookError
        from tritonhook.ptxas.tool import find_nvdisasm
        from tritonhook.ptxas.toolchain import run_nvdisasm
    except ImportError as error:
        raise ImportError(
            f"machine code is read with tritonhook, which cannot be imported ({error}); install it with: "
            "pip install tritonhook"
        ) from error
    try:
        image = Cubin.from_bytes(cubin)
        listing = run_nvdisasm(find_nvdisasm(), cubin)
        texts = {kernel: image.text(kernel) for kernel in image.kernels}
        listings = parse_nvdisasm(listing, texts, image.indirect_targets or {})
    except TritonHookError as error:
        raise RuntimeError(str(error)) from error
    return tuple(_code(kernel, listings[kernel], image.resources[kernel]) for kernel in sorted(texts))


def _code(kernel: str, sass: Sass, used: Resources) -> KernelCode:
    stack_bytes = max(used.stack or 0, used.min_stack or 0)
    return KernelCode(
        kernel, sass.instructions, loops_over_tiles(sass), used.registers or 0, stack_bytes, len(used.syscalls)
    )


def loops_over_tiles(sass: Sass) -> tuple[TileLoop, ...]:
    """Find the innermost loops with matrix instructions, in the order of the code."""
    loops = (TileLoop(tuple(sass.instructions[i] for i in loop.instructions)) for loop in sass.innermost_loops)
    return tuple(loop for loop in loops if loop.matrix)


# --- results -----------------------------------------------------------------------------------------------------


def report(kernels: list[Inspected]) -> dict[str, Any]:
    """Make the JSON document: each kernel's steady loop, the other loops over tiles of keys, and the kernels."""
    records = [loop for kernel in kernels for loop in loop_records(kernel)]
    return {
        "evidence": "assembled",
        "loops": [loop for loop in records if loop["steady"]],
        "other_loops": [loop for loop in records if not loop["steady"]],
        "kernels": [kernel_record(kernel) for kernel in kernels],
    }


def kernel_record(kernel: Inspected) -> dict[str, Any]:
    code = kernel.code
    return {
        "kernel": kernel.config.name,
        "arch": kernel.config.arch,
        "entry": code.kernel,
        "ptxas": kernel.ptxas,
        "config": asdict(kernel.config),
        "instructions": len(code.instructions),
        "registers": code.registers,
        "shared_bytes": kernel.config.shared_bytes,
        "stack_bytes": code.stack_bytes,
        "spill_instructions": code.count(*LOCAL),
        "syscalls": code.syscalls,
        "calls": code.count("CALL"),
        "utmaldg": code.count("UTMALDG"),
        "setmaxreg": code.count("USETMAXREG"),
        "loops_over_tiles": len(code.loops),
    }


def loop_records(kernel: Inspected) -> list[dict[str, Any]]:
    """Make the records of all loops over tiles.

    The steady loop is the one with the fewest instructions per matrix instruction. The other loops handle few tiles:
    they mask keys or rescale the output.
    """
    records = [_loop_record(kernel, number, loop) for number, loop in enumerate(kernel.code.loops)]
    steady = min(records, key=lambda record: record["instructions"] / record["mma"], default=None)
    return [record | {"steady": record is steady} for record in records]


def _loop_record(kernel: Inspected, number: int, loop: TileLoop) -> dict[str, Any]:
    return {
        "kernel": kernel.config.name,
        "arch": kernel.config.arch,
        "ptxas": kernel.ptxas,
        "loop": number,
        "instructions": len(loop.instructions),
        "mma": loop.matrix,
        "mma_opcode": loop.matrix_opcode,
        "instructions_per_256_mma": round(256 * len(loop.instructions) / loop.matrix, 1),
        "other": loop.others,
        "fillers": loop.fillers,
        **{name: loop.opcodes[name] for name in COLUMNS},
        "spills": sum(loop.opcodes[name] for name in LOCAL),
        "stack_bytes": kernel.code.stack_bytes,
        "syscalls": kernel.code.syscalls,
    }


def table(kernels: list[Inspected]) -> str:
    """Format a table of the loops, followed by a line for each kernel."""
    head = ("kernel", "arch", "loop", "steady", "instr", "MMA", "per 256", "other", *COLUMNS, "spills")
    rows: list[tuple[str, ...]] = [head]
    keys = ("kernel", "arch", "loop", "steady", "instructions", "mma", "instructions_per_256_mma", "other", *COLUMNS)
    for kernel in kernels:
        for record in loop_records(kernel):
            shown = record | {"steady": "yes" if record["steady"] else "no"}
            rows.append(tuple(str(shown[key]) for key in (*keys, "spills")))
    lines = [_line(rows, row) for row in rows]
    for kernel in kernels:
        r = kernel_record(kernel)
        lines.append(
            f"{r['kernel']} {r['arch']}: ptxas {r['ptxas'] or 'not known'}, {r['registers']} registers at launch, "
            f"{r['shared_bytes']} bytes of shared memory, stack {r['stack_bytes']}, spill instructions "
            f"{r['spill_instructions']}, syscalls {r['syscalls']}, calls {r['calls']}, UTMALDG {r['utmaldg']}, "
            f"USETMAXREG {r['setmaxreg']}"
        )
    lines.append("Assembled; nothing was run.")
    return "\n".join(lines)


def _line(rows: list[tuple[str, ...]], row: tuple[str, ...]) -> str:
    widths = [max(len(r[i]) for r in rows) for i in range(len(row))]
    cells = [cell.ljust(w) if i < 2 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))]
    return "  ".join(cells).rstrip()


# --- the subcommand ----------------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--arch", action="append", choices=ARCHS, help="compile only for this target; may be repeated")
    parser.add_argument("--dtype", choices=DTYPES, default="bf16", help="dtype of the inputs (default: bf16)")
    parser.add_argument("--head-dim", action="append", type=int, help="may be repeated (default: 64 and 128)")
    parser.add_argument(
        "--causal",
        action=argparse.BooleanOptionalAction,
        help="compile only kernels with a causal mask, or only those without",
    )
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help="set a field of Config")
    parser.add_argument("--json", action="store_true", help="print JSON")


def main(arguments: argparse.Namespace) -> int:
    archs = tuple(arguments.arch or ARCHS)
    masks = (False, True) if arguments.causal is None else (arguments.causal,)
    fields = dict(parse_field(text) for text in arguments.set)
    head_dims = tuple(arguments.head_dim or (64, 128))
    chosen = [replace(c, **fields) for c in configs(archs, head_dims, masks, arguments.dtype)]
    kernels = [inspect(config) for config in shown(dict.fromkeys(chosen))]
    print(json.dumps(report(kernels), indent=1) if arguments.json else table(kernels))
    return 0


def shown(chosen: Collection[Config]) -> Iterator[Config]:
    """Yield the configs; print the name of each on stderr before it is compiled, because compilation takes minutes.

    Raises ValueError before it yields the first one if a config cannot be built.
    """
    for wrong in filter(None, map(why_not, chosen)):
        raise ValueError(wrong)
    for number, config in enumerate(chosen, 1):
        print(f"{number} of {len(chosen)}: {config.name} {config.arch}", file=sys.stderr, flush=True)
        yield config


def parse_field(text: str) -> tuple[str, Any]:
    """Split FIELD=VALUE; the value gets the type of the field's default. Raises ValueError if that fails."""
    name, _, value = text.partition("=")
    defaults = asdict(Config())
    if name not in defaults or not value:
        raise ValueError(f"--set {text!r}: must be FIELD=VALUE, and FIELD one of {', '.join(defaults)}")
    kind = type(defaults[name])
    if kind is bool:
        if value not in ("true", "false"):
            raise ValueError(f"--set {text!r}: the value must be true or false")
        return name, value == "true"
    try:
        return name, kind(value)
    except ValueError:
        raise ValueError(f"--set {text!r}: the value must be of type {kind.__name__}") from None
