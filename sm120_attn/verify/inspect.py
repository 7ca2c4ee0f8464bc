"""What the assembler made of the kernels, for GPUs that are not at hand: compiled here, counted, put into the model.

    python -m sm120_attn inspect [--json] [--arch sm_120a] [--head-dim 128] [--causal | --no-causal] [--set tile_n=64]

Everything is *assembled* only. Counts are of the steady loops; the rest of a kernel runs once.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..config import ARCHS, DTYPES, FP8, Config
from ..planner import Shape, plan
from . import model, sass

COLUMNS = ("MUFU", "LDSM", "SHFL", "PRMT", "MOV", "NOP")
LOCAL = ("LDL", "STL")  # of spilled registers, or of arrays that are indexed at run time


@dataclass(frozen=True)
class Inspected:
    """A kernel, its code, and which ptxas assembled it."""

    config: Config
    code: sass.Code
    ptxas: str | None


def configs(
    archs: tuple[str, ...], head_dims: tuple[int, ...], masks: tuple[bool, ...], dtype: str = "bf16"
) -> Iterator[Config]:
    """The kernels that `plan` gives long sequences; of FP8 with an output in bf16."""
    for arch in archs:
        for head_dim in head_dims:
            for causal in masks:
                shape = Shape(
                    arch=arch, dtype=dtype, head_dim=head_dim, batch=4, heads=16, heads_kv=16, seqlen_q=4096,
                    seqlen_k=4096, causal=causal, out_dtype="bf16" if dtype in FP8 else "",
                )  # fmt: skip
                yield plan(shape).config


def inspect(config: Config) -> Inspected:
    """Compiles it offline. Raises ValueError for a config that cannot be built, DisassembleError, ImportError."""
    from ..compile.offline import compile_offline

    assembled = compile_offline(config)
    return Inspected(config, sass.read(assembled.cubin), assembled.ptxas)


def report(kernels: list[Inspected]) -> dict[str, Any]:
    """What --json prints: `loops`, the steady loop of each kernel; `other_loops` over tiles of keys; and `kernels`."""
    records = [loop for kernel in kernels for loop in loop_records(kernel)]
    return {
        "evidence": "assembled",
        "model_caveat": model.CAVEAT,
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
        "stack_bytes": code.frame,
        "spill_instructions": code.count(*LOCAL),
        "syscalls": code.syscalls,
        "calls": code.count("CALL"),
        "utmaldg": code.count("UTMALDG"),
        "setmaxreg": code.count("USETMAXREG"),
        "loops_over_tiles": len(code.loops),
    }


def loop_records(kernel: Inspected) -> list[dict[str, Any]]:
    """Of all loops over tiles. Steady is the one with the fewest instructions per matrix instruction: the others mask
    keys or rescale the output, and few tiles pass them."""
    records = [_loop_record(kernel, number, loop) for number, loop in enumerate(kernel.code.loops)]
    steady = min(records, key=lambda record: record["instructions"] / record["mma"], default=None)
    return [record | {"steady": record is steady} for record in records]


def _loop_record(kernel: Inspected, number: int, loop: sass.Loop) -> dict[str, Any]:
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
        "stack_bytes": kernel.code.frame,
        "syscalls": kernel.code.syscalls,
        "model": {
            prediction.rate: [round(prediction.low, 3), round(prediction.high, 3)]
            for prediction in model.predict(loop, kernel.config)
        },
        "model_clocks": {
            prediction.rate: [round(clocks, 3) for clocks in model.clocks_per_product(prediction, kernel.config)]
            for prediction in model.predict(loop, kernel.config)
        },
    }


def table(kernels: list[Inspected]) -> str:
    head = (
        "kernel",
        "arch",
        "loop",
        "steady",
        "instr",
        "MMA",
        "per 256",
        "other",
        *COLUMNS,
        "spills",
        "full rate",
        "half rate",
    )
    rows = [head]
    for kernel in kernels:
        for record in loop_records(kernel):
            rates = [f"{low:.2f}-{high:.2f}" for low, high in record["model"].values()]
            rows.append(
                (
                    *(str(record[key]) for key in ("kernel", "arch", "loop")),
                    "yes" if record["steady"] else "no",
                    *(str(record[key]) for key in ("instructions", "mma")),
                    *(str(record[key]) for key in ("instructions_per_256_mma", "other")),
                    *(str(record[name]) for name in COLUMNS),
                    str(record["spills"]),
                    *rates,
                )
            )
    lines = [_line(rows, row) for row in rows]
    for kernel in kernels:
        r = kernel_record(kernel)
        lines.append(
            f"{r['kernel']} {r['arch']}: ptxas {r['ptxas'] or 'not known'}, {r['registers']} registers at launch, "
            f"{r['shared_bytes']} bytes of shared memory, stack {r['stack_bytes']}, spill instructions "
            f"{r['spill_instructions']}, syscalls {r['syscalls']}, calls {r['calls']}, UTMALDG {r['utmaldg']}, "
            f"USETMAXREG {r['setmaxreg']}"
        )
    lines.append(f"Assembled, nothing was run. The last two columns are {model.CAVEAT}")
    return "\n".join(lines)


def _line(rows: list[tuple[str, ...]], row: tuple[str, ...]) -> str:
    widths = [max(len(r[i]) for r in rows) for i in range(len(row))]
    cells = [cell.ljust(w) if i < 2 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))]
    return "  ".join(cells).rstrip()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--arch", action="append", choices=ARCHS, help="only this target (may be repeated)")
    parser.add_argument("--dtype", choices=DTYPES, default="bf16", help="of the inputs (default: bf16)")
    parser.add_argument("--head-dim", action="append", type=int, help="default: 64 and 128")
    parser.add_argument("--causal", action=argparse.BooleanOptionalAction, help="only with, or only without the mask")
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help="replace a field of Config")
    parser.add_argument("--json", action="store_true", help="print JSON")


def main(arguments: argparse.Namespace) -> int:
    archs = tuple(arguments.arch or ARCHS)
    masks = (False, True) if arguments.causal is None else (arguments.causal,)
    fields = dict(parse_field(text) for text in arguments.set)
    head_dims = tuple(arguments.head_dim or (64, 128))
    chosen = [replace(c, **fields) for c in configs(archs, head_dims, masks, arguments.dtype)]
    kernels = [inspect(config) for config in dict.fromkeys(chosen)]
    print(json.dumps(report(kernels), indent=1) if arguments.json else table(kernels))
    return 0


def parse_field(text: str) -> tuple[str, Any]:
    """FIELD=VALUE as a field of Config, with the value in the type of its default."""
    name, _, value = text.partition("=")
    defaults = asdict(Config())
    if name not in defaults or not value:
        raise ValueError(f"--set {text!r}: must be FIELD=VALUE, with one of {', '.join(defaults)}")
    kind = type(defaults[name])
    if kind is bool:
        if value not in ("true", "false"):
            raise ValueError(f"--set {text!r}: must be true or false")
        return name, value == "true"
    try:
        return name, kind(value)
    except ValueError:
        raise ValueError(f"--set {text!r}: must be of type {kind.__name__}") from None
