"""`tritonhook verify` with a script and --orders, --configs, --set, --rows or --stages: run the script dry, execute its
kernels several times on the CPU, and compare the bits that they store."""

from __future__ import annotations

import ast
import math
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritonhook._util.imports import check_numpy
from tritonhook.capture.dry_run.gpu import ALL, FIRST, TUNED, Compared, DryRun, Emulation
from tritonhook.capture.dry_run.process import assembled
from tritonhook.cli._programs import program_command, run_emulated
from tritonhook.errors import UsageError

if TYPE_CHECKING:
    from tritonhook.cli.verify import Options
    from tritonhook.report.result import Result

ARCH = "sm_90a"

_ROWS = re.compile(r"(?:\w+\.)?\w+(?::\d+)?")


def compare_bits(options: Options) -> tuple[Result, int]:
    """Run the script dry, and compare the bits that its kernels store. Also return the exit code: 1 if bits differ,
    else 2 if a kernel was not judged. Raises UsageError."""
    from tritonhook.report.results.same_bits import SameBits
    from tritonhook.verify.same_bits import judge_all
    from tritonhook.verify.schema import read_executions

    check_numpy()
    settings = _settings(options.set)
    if options.rows is not None and not all(_ROWS.fullmatch(word) for word in options.rows.split(",")):
        raise UsageError(f"--rows {options.rows}: must be ARG, ARG:DIM or FUNCTION.ARG:DIM, or a list with commas")
    if options.rows is not None and (options.configs or settings or options.stages or options.orders > 1):
        raise UsageError("--rows: not allowed with --configs, --set, --stages or --orders; run verify once for each")
    dry = assembled(DryRun.of(options.arch or ARCH, autotune=ALL if options.configs else FIRST))
    with tempfile.TemporaryDirectory(prefix="tritonhook-bits-") as folder:
        compared = Compared(folder, options.orders, options.configs, settings, options.rows or "", options.stages)
        emulation = Emulation(options.sanitize, options.limit or math.inf, compared=compared)
        words = [*options.target, *(options.rest or ())]
        command = program_command(words)
        run_emulated(command, dry, emulation, Path(folder) / "captures", words[0], "nothing was compared")
        executions = read_executions(Path(folder))
        judged = judge_all(Path(folder), executions)
    if not judged:
        why = "it launched no autotuned kernel" if options.configs else "it launched no Triton kernel"
        if options.set:
            why = "no kernel that it launched has a constant or an option that --set names"
        raise UsageError(f"{options.target[0]}: nothing to compare: {why}")
    tuned = list(dict.fromkeys(one.kernel for one in executions if one.kind == TUNED))
    result = SameBits.of(" ".join(options.target), dry.arch, judged, tuned)
    return result, result.exit_code


def _settings(words: Sequence[str]) -> dict[str, list[Any]]:
    """Parse the values of --set, e.g. ["num_warps=4,8", "BLOCK_K=32,64"]. Raises UsageError."""
    settings: dict[str, list[Any]] = {}
    for word in words:
        name, _, values = word.partition("=")
        if not name.isidentifier() or not values or name in settings:
            raise UsageError(f"--set {word}: write NAME=VALUE,VALUE,..., each name once, as in num_warps=4,8")
        settings[name] = [_value(value) for value in values.split(",")]
    return settings


def _value(text: str) -> Any:
    """Parse a Python literal; other text stays text."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
