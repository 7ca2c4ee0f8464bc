"""Disassemble machine code with nvdisasm: a whole cubin, or pieces of code of one target."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from tritonhook.cubin.sass import Instruction, instructions_of
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


def list_words(nvdisasm: Tool, arch: str, words: Iterable[bytes]) -> dict[bytes, Instruction]:
    """Return the instruction of each 16 bytes for one target, all from one run of nvdisasm: its start takes longer than
    a kernel. Each stands where nvdisasm saw it; `Instruction.at` moves it. Raises ToolError."""
    known = list(dict.fromkeys(words))
    if not known:
        return {}
    with temporary_file("code.bin", b"".join(known)) as path:
        done = run_tool([str(nvdisasm.path), "-json", "--binary", arch.replace("sm_", "SM"), str(path)])
    try:
        listed = [item for function in json.loads(done.stdout)[1] for item in function["sass-instructions"]]
        if done.timed_out or len(listed) != len(known):
            raise ValueError(f"{len(listed)} instructions")
        return dict(zip(known, instructions_of(listed, known), strict=True))
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        detail = done.stderr.decode("utf-8", "replace").strip() or str(error)
        raise ToolError(
            f"nvdisasm {nvdisasm.version} could not read code for {arch} ({detail}); "
            "`pip install -U nvidia-cuda-nvdisasm` brings one that knows newer targets"
        ) from None
