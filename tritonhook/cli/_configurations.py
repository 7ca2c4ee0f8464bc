"""`tritonhook emulate script.py --configs`: run a script dry, and look for faults of each kernel that it launches, with
several num_stages and num_warps."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tritonhook.capture.dry_run.gpu import CONFIGS, Compared, DryRun, Emulation
from tritonhook.cli._programs import run_emulated, script_command
from tritonhook.emulate.sanitizer.findings import HINT
from tritonhook.errors import UsageError, listed
from tritonhook.report.results.emulation import EmulatedKernel, KernelFault
from tritonhook.verify.schema import read_executions

_SETTINGS = {"num_stages": (1, 2, 3, 4), "num_warps": (1, 2, 4, 8)}


def in_configurations(words: Sequence[str], arch: str, bounds: str, limit_s: float) -> list[EmulatedKernel]:
    """Run a script, and return a kernel for each one in each configuration that compiles. Raises UsageError."""
    dry = DryRun.of(arch)
    with tempfile.TemporaryDirectory(prefix="tritonhook-configs-") as folder:
        found = Path(folder) / "findings"
        compared = Compared(folder, settings=_SETTINGS, once=True)
        emulation = Emulation(True, math.inf, compared=compared, bounds=bounds, findings=str(found))
        command, out = script_command(words, False), Path(folder) / "captures"
        run_emulated(command, dry, emulation, out, words[0], "not all was executed")
        kernels = list(_kernels(Path(folder), found))
    if not kernels:
        raise UsageError(f"{words[0]}: it launched no kernel of Triton")
    return kernels


def _kernels(folder: Path, found: Path) -> Iterator[EmulatedKernel]:
    lines = map(json.loads, found.read_text().splitlines() if found.is_file() else ())
    findings = [line["finding"] for line in lines if "finding" in line]
    for one in read_executions(folder):
        if one.kind == CONFIGS:
            faults = tuple(
                KernelFault(kind, f"{kind} at {listed(dict.fromkeys(lines))}{HINT if HINT in text else ''}", ())
                for kernel, kind, lines, text, label in findings
                if (kernel, label) == (one.kernel, one.label)
            )
            reason = "" if faults else one.reason
            yield EmulatedKernel(f"{one.kernel}[{one.label}]", one.launch, reason, 0, (), faults)
