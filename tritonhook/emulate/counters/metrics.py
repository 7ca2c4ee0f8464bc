"""Counters of a launch by instruction, source line and kernel, in Nsight Compute's names and units, and the evidence
for their rules. A counter is None if no rule is known for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tritonhook.emulate.counters.observer import Tally


MEASURED, DOCUMENTED = "measured on an H100", "documented"
INSTRUCTIONS, GLOBAL, SHARED, LOCAL = "instructions", "global memory", "shared memory", "local memory"
WGMMA = "operands of wgmma"
_BANKS = dict.fromkeys((INSTRUCTIONS, GLOBAL, SHARED), DOCUMENTED)
# Documented: the CUDA programming guide states 32 banks of 4 bytes and sectors of 32 bytes for these architectures.
RULES: Mapping[int, Mapping[str, str]] = {
    90: dict.fromkeys((INSTRUCTIONS, GLOBAL, SHARED, LOCAL, WGMMA), MEASURED),
    **dict.fromkeys((80, 86, 87, 89, 120, 121), _BANKS),
    100: {INSTRUCTIONS: DOCUMENTED},
    103: {INSTRUCTIONS: DOCUMENTED},
}
_LSU = {  # opcodes by the space that they access, and by ncu's name of the access
    (GLOBAL, "ld"): ("LDG", "LDGSTS", "LD"), (GLOBAL, "st"): ("STG", "ST"), (GLOBAL, "atom"): ("ATOMG", "ATOM"),
    (GLOBAL, "red"): ("REDG", "RED"), (SHARED, "ld"): ("LDS", "LDSM", "LD"), (SHARED, "st"): ("STS", "STSM", "ST"),
}  # fmt: skip
_NO_RULE = re.compile(r"(UTMA\w+|UBLK\w+|SYNCS|ARRIVES|STAS|REDAS|REDS|LDTM|STTM|UTC\w+)$")
_GENERIC = re.compile(r"(LD|ST|ATOM|RED)$")
# Opcodes for whose accesses ncu's source page shows no sectors and no wavefronts (measured on an H100).
_WITHOUT_COUNTERS = {90: re.compile(r"(UTMALDG|UTMASTG|UTMACMDFLUSH|UBLKCP|UBLKRED|SYNCS|ARRIVES|STAS)$")}
_WARPGROUP = re.compile(r"[HQIB]GMMA\.64x(\d+)x(\d+)\b")
_MMA = re.compile(r"([HIQBD]MMA)(?:\.SF)?\.(\d+x\d+x\d+|\d+)")
_SHAPES = {"1688": (16, 8), "1684": (16, 4), "16816": (16, 16), "16832": (16, 32), "16864": (16, 64), "8816": (8, 16)}
_ROW, _WAVEFRONT, _WARPS = 32, 128, 4  # bytes of a row of a wgmma operand; bytes of a wavefront; warps of a warpgroup
_IN_GLOBAL = "global_requests", "tags", "sectors", "sectors_ideal", "turns", "global_bytes"
_IN_SHARED = "shared_requests", "wavefronts", "wavefronts_ideal"
_TENSOR_TYPES = (  # part of an opcode, and its type; the first part that an opcode contains decides
    ("DMMA", "FP64"), ("IMMA", "INT8"), ("IGMMA", "INT8"), ("QMMA", "FP8"), ("QGMMA", "FP8"), ("BF16", "BF16"),
    ("TF32", "TF32"), ("HMMA", "FP16"), ("HGMMA", "FP16"),
)  # fmt: skip
_SCALAR_TYPES = {"F": "FP32", "D": "FP64", "H": "FP16"}
_FLOPS = {"FADD": 1, "FMUL": 1, "FFMA": 2, "DADD": 1, "DMUL": 1, "DFMA": 2, "HADD2": 2, "HMUL2": 2, "HFMA2": 4}


@dataclass(frozen=True, slots=True)
class Counters:
    """Counters of one instruction, source line or kernel. None: no rule is known.

    instructions: executions by warps. threads: executions by lanes. threads_on: executions by lanes that no predicate
    turns off. ..._requests: accesses by warps. tags: accessed lines of 128 bytes. sectors: accessed sectors of 32
    bytes. ..._ideal: what the counter would be with contiguous bytes, or without bank conflicts. global_bytes: bytes
    that lanes request. turns: like sectors, but an atomic's sectors count again for each lane with the same address.
    wavefronts: of shared memory. local_bytes, local_sectors: of the stack, spills included. tensor_ops, flops:
    multiplications and additions by tensor cores and by floating-point instructions."""

    instructions: int = 0
    threads: int = 0
    threads_on: int = 0
    divergent_branches: int = 0
    global_requests: int | None = 0
    tags: int | None = 0
    sectors: int | None = 0
    sectors_ideal: int | None = 0
    turns: int | None = 0
    global_bytes: int | None = 0
    shared_requests: int | None = 0
    wavefronts: int | None = 0
    wavefronts_ideal: int | None = 0
    local_bytes: int = 0
    local_sectors: int | None = 0
    tensor_instructions: int = 0
    tensor_ops: int = 0
    flops: int = 0

    @property
    def sectors_excess(self) -> int | None:
        return _less(self.sectors, self.sectors_ideal)

    @property
    def wavefronts_excess(self) -> int | None:
        return _less(self.wavefronts, self.wavefronts_ideal)

    @property
    def ways(self) -> int | None:
        """Wavefronts per executed instruction, rounded down: ncu's N-way conflicts."""
        return None if self.wavefronts is None else self.wavefronts // max(self.instructions, 1)

    @property
    def ncu(self) -> dict[str, int | None]:
        """The counters by their names on ncu's source page."""
        return {
            "Instructions Executed": self.instructions,
            "Thread Instructions Executed": self.threads,
            "Predicated-On Thread Instructions Executed": self.threads_on,
            "Divergent Branches": self.divergent_branches,
            "L1 Tag Requests Global": self.tags,
            "L2 Theoretical Sectors Global": self.sectors,
            "L2 Theoretical Sectors Global Ideal": self.sectors_ideal,
            "L2 Theoretical Sectors Global Excessive": self.sectors_excess,
            "L2 Theoretical Sectors Local": self.local_sectors,
            "L1 Wavefronts Shared": self.wavefronts,
            "L1 Wavefronts Shared Ideal": self.wavefronts_ideal,
            "L1 Wavefronts Shared Excessive": self.wavefronts_excess,
            "L1 Conflicts Shared N-Way": self.ways,
        }


def is_uncounted(base: str, arch: int) -> bool:
    """Whether ncu's source page shows no sectors and no wavefronts for an opcode that accesses memory."""
    pattern = _WITHOUT_COUNTERS.get(arch)
    return pattern is not None and pattern.match(base) is not None


def pipe_of(opcode: str) -> str:
    """Return the pipe and type of an instruction that multiplies or adds: e.g. "FP32", or "tensor BF16" on tensor
    cores. Return "" for other instructions."""
    base = opcode.partition(".")[0]
    if base in _FLOPS:
        return _SCALAR_TYPES[base[0]]
    kind = next((kind for part, kind in _TENSOR_TYPES if part in opcode), None)
    return f"tensor {kind}" if kind is not None and "MMA" in base else ""


def _less(all_: int | None, ideal: int | None) -> int | None:
    return None if all_ is None or ideal is None else all_ - ideal


def total(several: Iterable[Counters]) -> Counters:
    """Add up counters. Unknown counters count as 0; `Counted.without` lists their opcodes."""
    several = tuple(several)
    return Counters(*(sum(getattr(one, field.name) or 0 for one in several) for field in fields(Counters)))


@dataclass(frozen=True, slots=True)
class CountedInstruction:
    """One instruction with its counters. index: its index in the kernel. text: the instruction with predicate and
    operands. file, line: its place in the source; "" and 0 if unknown."""

    index: int
    opcode: str
    text: str
    file: str
    line: int
    counters: Counters

    @property
    def base(self) -> str:
        return self.opcode.partition(".")[0]


@dataclass(frozen=True, slots=True)
class Counted:
    """Counters of one launch. ctas: number of executed CTAs. of_ctas: number of CTAs of the launch. agree: whether all
    clusters (or CTAs), each executed alone, have the same counters; None if all CTAs were executed together.
    distinct_sectors: number of sectors of global memory that loads, stores and atomics touch; None if clusters were
    executed alone."""

    kernel: str
    arch: int
    ctas: int
    of_ctas: int
    instructions: tuple[CountedInstruction, ...]
    agree: bool | None = None
    distinct_sectors: int | None = None

    @property
    def evidence(self) -> Mapping[str, str]:
        """The evidence for the rules of this architecture, by subject, e.g. "shared memory"."""
        return RULES.get(self.arch, {})

    @property
    def total(self) -> Counters:
        """The sum of all instructions' counters."""
        return total(one.counters for one in self.instructions)

    @property
    def operations(self) -> dict[str, int]:
        """Number of multiplications and additions, by pipe and type (`pipe_of`)."""
        found: dict[str, int] = {}
        for one in self.instructions:
            if pipe := pipe_of(one.opcode):
                found[pipe] = found.get(pipe, 0) + one.counters.flops + one.counters.tensor_ops
        return {pipe: count for pipe, count in found.items() if count}

    def executed(self, *bases: str) -> int:
        """Count the instructions that warps executed with these base opcodes."""
        return sum(one.counters.instructions for one in self.instructions if one.base in bases)

    @property
    def factor(self) -> float | None:
        """The factor by which to multiply the counted events to get those of the whole launch. None: unknown, because
        the counters of the CTAs differ."""
        return 1.0 if self.ctas == self.of_ctas else self.of_ctas / self.ctas if self.agree else None

    @property
    def without(self) -> tuple[str, ...]:
        """Base opcodes of executed instructions with unknown counters. No total includes these counters."""
        unknown = (one for one in self.instructions if one.counters.instructions)
        return tuple(sorted({one.base for one in unknown if None in (one.counters.sectors, one.counters.wavefronts)}))

    @property
    def lines(self) -> dict[tuple[str, int], Counters]:
        """Counters by file and line of the source."""
        found: dict[tuple[str, int], list[Counters]] = {}
        for one in self.instructions:
            if one.line:
                found.setdefault((one.file, one.line), []).append(one.counters)
        return {place: total(several) for place, several in found.items()}

    @property
    def raw(self) -> dict[str, int]:
        """Totals by their names on ncu's raw page. A total is omitted if one of its counters is unknown."""
        whole = self.total
        found = {
            "smsp__inst_executed.sum": whole.instructions,
            "smsp__thread_inst_executed.sum": whole.threads,
            "smsp__thread_inst_executed_pred_on.sum": whole.threads_on,
            "sm__inst_executed_pipe_tensor.sum": sum(
                one.counters.instructions for one in self.instructions if "MMA" in one.opcode.partition("x")[0]
            ),  # HFMA2.MMA uses this pipe, too
        }
        done = [one.counters for one in self.instructions if one.counters.instructions]
        unknown = {GLOBAL: None in (one.sectors for one in done), SHARED: None in (one.wavefronts for one in done)}
        for (space, how), bases in _LSU.items():
            if space not in self.evidence or unknown[space]:
                continue
            of = total(one.counters for one in self.instructions if one.base in bases)
            own = total(one.counters for one in self.instructions if one.base == bases[0])
            if how in ("ld", "st"):
                found[f"smsp__inst_executed_op_{space.split()[0]}_{how}.sum"] = own.instructions
            if space == GLOBAL:
                found[f"l1tex__t_sectors_pipe_lsu_mem_global_op_{how}.sum"] = of.turns or 0
            if space == GLOBAL and how in ("ld", "st"):
                found[f"l1tex__t_requests_pipe_lsu_mem_global_op_{how}.sum"] = of.global_requests or 0
            if space == SHARED:
                found[f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{how}.sum"] = of.wavefronts or 0
                found[f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{how}.sum"] = of.wavefronts_excess or 0
        return found


def counters(opcode: str, operands: str, tally: Tally, arch: int) -> Counters:
    """Convert the counts of one instruction to counters; None for counters without a rule on this architecture."""
    base, rules = opcode.partition(".")[0], RULES.get(arch, {})
    is_tensor, operations, wavefronts = _tensor(opcode, operands)
    is_generic = _GENERIC.match(base) is not None and rules.get(SHARED) != MEASURED
    has_no_rule = is_generic or _NO_RULE.match(base) is not None
    is_odd = tally.odd > 0 or (has_no_rule and tally.warps > 0)
    has_accesses = tally.global_requests or tally.shared_requests or is_odd or (wavefronts and tally.warps)
    has_wgmma = not wavefronts or WGMMA in rules
    in_global = {name: getattr(tally, name) for name in _IN_GLOBAL}
    in_shared = {name: getattr(tally, name) for name in _IN_SHARED}
    if wavefronts:
        read = wavefronts * tally.warps // (_WAVEFRONT * _WARPS)
        in_shared = dict(zip(_IN_SHARED, (tally.warps, read, read), strict=True))
    if has_accesses and (is_odd or GLOBAL not in rules):
        in_global = dict.fromkeys(_IN_GLOBAL)
    if has_accesses and (is_odd or tally.mixed or SHARED not in rules or not has_wgmma):
        in_shared = dict.fromkeys(_IN_SHARED)
    if is_uncounted(base, arch):
        in_global, in_shared = dict.fromkeys(_IN_GLOBAL, 0), dict.fromkeys(_IN_SHARED, 0)
    return Counters(
        tally.warps,
        tally.threads,
        tally.on,
        tally.divergent,
        **in_global,
        **in_shared,
        local_bytes=tally.local_bytes,
        local_sectors=tally.local_sectors if LOCAL in rules or not tally.local_sectors else None,
        tensor_instructions=tally.warps * is_tensor,
        tensor_ops=tally.warps * operations,
        flops=tally.on * _FLOPS.get(base, 0),
    )


def _tensor(opcode: str, operands: str) -> tuple[bool, int, int]:
    """Return whether an instruction uses tensor cores, its operations per warp, and the bytes of its operands in shared
    memory. A warpgroup reads each of its tiles once."""
    if (match := _WARPGROUP.match(opcode)) is not None:
        n, k = int(match[1]), int(match[2])
        rows = n + (64 if operands.split(",")[1].strip().startswith("gdesc") else 0)
        return True, 2 * 16 * n * k, rows * _ROW
    if (match := _MMA.match(opcode)) is not None:
        if "x" in match[2]:
            m, n, k = map(int, match[2].split("x"))
        else:
            m, k = _SHAPES.get(match[2], (0, 0))
            n = 8
        return True, 2 * m * n * k, 0
    return False, 0, 0
