"""Whether a trial of the minimiser is miscompiled, by the machine code alone: one ptxas's code has the proof of a known
bug, and another's has not."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence

from tritonhook.cubin.image import Cubin
from tritonhook.ptxas.pool import Job, sweep
from tritonhook.ptxas.tool import Tool, find_nvdisasm, run_tool, temporary_file
from tritonhook.verify.minimise import StillDiffers, Trial

Proof = Callable[[Sequence[str]], bool]
_MERGE = re.compile(r"F2FP\S*MERGE_C (R\d+),.*\b(RZ|R\d+)(?:\.H\d)?$")


def keeps_garbage(code: Sequence[str]) -> bool:
    """Whether a pair of fp8 numbers is merged with a register that no conversion has written."""
    converted = {"RZ"}
    for line in code:
        if match := _MERGE.match(line):
            if match[2] not in converted:
                return True
            converted.add(match[1])
    return False


def rotates(code: Sequence[str]) -> bool:
    """Whether two funnel shifts turn a 64-bit number around by 8."""
    return sum(line.startswith("SHF.L.W.U32.HI") and ",0x8," in line for line in code) >= 2


def differs_in_code(wrong: Tool, right: Tool, proof: Proof) -> StillDiffers:
    """A judge of the minimiser: `wrong`'s code has the proof, and `right`'s has not."""
    known: dict[bytes, bool] = {}  # whether a code has it: a run of nvdisasm takes as long as ten of ptxas

    def judge(trials: Sequence[Trial]) -> list[bool]:
        pairs = list(zip(_codes(trials, wrong), _codes(trials, right), strict=True))
        new = list(dict.fromkeys(code for pair in pairs for code in pair if code is not None and code not in known))
        known.update(zip(new, map(proof, _listings(new)), strict=True))
        return [a is not None and b is not None and known[a] and not known[b] for a, b in pairs]

    return judge


def _codes(trials: Sequence[Trial], ptxas: Tool) -> list[bytes | None]:
    """What a ptxas makes of each trial; None where it makes nothing."""
    jobs = [Job(trial.ptx, ptxas, keep_cubin=True) for trial in trials]
    made = {job.key: outcome.cubin for job, outcome in sweep(jobs)}
    cubins = [made[job.key] for job in jobs]
    return [data and Cubin.from_bytes(data).text(trial.entry) for trial, data in zip(trials, cubins, strict=True)]


def _listings(codes: Sequence[bytes]) -> list[list[str]]:
    """The instructions of each code for sm_90, without guards, all from one run of nvdisasm."""
    if not codes:
        return []
    with temporary_file("code.bin", b"".join(codes)) as path:
        done = run_tool([str(find_nvdisasm().path), "-json", "--binary", "SM90", str(path)])
    (function,) = json.loads(done.stdout)[1]
    lines = [f"{i['opcode']} {i.get('operands', '')}".strip() for i in function["sass-instructions"]]
    found, start = [], 0
    for code in codes:
        found.append(lines[start : start + len(code) // 16])
        start += len(code) // 16
    return found
