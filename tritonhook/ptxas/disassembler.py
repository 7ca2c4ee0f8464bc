"""Disassemble machine code with nvdisasm: a whole cubin, or pieces of code of one target."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tritonhook.cubin.sass import INSTRUCTION_BYTES
from tritonhook.errors import ToolError
from tritonhook.ptxas.process import run_tool, temporary_file
from tritonhook.ptxas.tool import Tool


def run_nvdisasm(nvdisasm: Tool, cubin: bytes, symbols: Sequence[int] = ()) -> bytes:
    """Return the JSON that nvdisasm prints for an image. Raises ToolError.

    symbols: the indices of the functions to print; none: all of them.
    """
    chosen = ["-fun", ",".join(map(str, symbols))] if symbols else []
    with temporary_file("kernel.cubin", cubin) as path:
        done = run_tool([str(nvdisasm.path), "-json", *chosen, str(path)])
    if done.timed_out or done.returncode or not done.stdout:
        reason = "no output" if not done.returncode else f"exit {done.returncode}"
        detail = done.stderr.decode("utf-8", "replace").strip()
        raise ToolError(f"nvdisasm {nvdisasm.version} could not read the cubin ({reason}): {detail}")
    return done.stdout


def disassemble_raw(nvdisasm: Tool, arch: str, codes: Sequence[bytes]) -> list[tuple[str, ...]]:
    """Return the opcodes of each piece of code for one target, all from one run of nvdisasm. Raises ToolError."""
    return [tuple(i["opcode"] for i in listed) for listed in list_raw(nvdisasm, arch, codes)]


def list_raw(nvdisasm: Tool, arch: str, codes: Sequence[bytes]) -> list[list[dict[str, Any]]]:
    """Return nvdisasm's instructions of each piece of code for one target, all from one run: its start takes longer
    than a kernel. Targets of branches count from the first piece. Raises ToolError."""
    if not codes:
        return []
    with temporary_file("code.bin", b"".join(codes)) as path:
        done = run_tool([str(nvdisasm.path), "-json", "--binary", arch.replace("sm_", "SM"), str(path)])
    try:
        listed = [i for f in json.loads(done.stdout)[1] for i in f["sass-instructions"]]
        if (
            done.timed_out
            or sum(map(len, codes)) != len(listed) * INSTRUCTION_BYTES
            or any("opcode" not in i for i in listed)
        ):
            raise ValueError(f"{len(listed)} instructions")
    except (ValueError, KeyError, TypeError, IndexError) as error:
        detail = done.stderr.decode("utf-8", "replace").strip() or str(error)
        raise ToolError(
            f"nvdisasm {nvdisasm.version} could not read code for {arch} ({detail}); "
            "`pip install -U nvidia-cuda-nvdisasm` brings one that knows newer targets"
        ) from None
    pieces, start = [], 0
    for code in codes:
        end = start + len(code) // INSTRUCTION_BYTES
        pieces.append(listed[start:end])
        start = end
    return pieces
