"""Disassemble machine code with nvdisasm: a whole cubin, or pieces of code of one target."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

from tritonhook.cubin.sass import INSTRUCTION_BYTES, Instruction, Sass, instructions_of
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


def count_live_registers(nvdisasms: Iterable[Tool], cubin: bytes, sass: Sass) -> tuple[int, ...] | None:
    """The number of general registers that are live at each instruction of a kernel, by the first nvdisasm that knows.

    nvdisasm has it in its listing alone: it refuses the option with -json. 13.x analyses no cubin of an older ptxas,
    Triton's own does. None if none of them gives a number for each instruction; it lists no NOPs at the end.
    Raises ToolError.
    """
    length = max((n for n, one in enumerate(sass.instructions, 1) if one.opcode != "NOP"), default=0)
    with temporary_file("kernel.cubin", cubin) as path:
        for nvdisasm in nvdisasms:
            done = run_tool([str(nvdisasm.path), "--life-range-mode", "count", str(path)])
            live = dict(_live_of(done.stdout.decode("utf-8", "replace"), sass.kernel))
            if list(live) == [number * INSTRUCTION_BYTES for number in range(len(live))] and len(live) >= length > 0:
                return (*live.values(), *[0] * (len(sass.instructions) - len(live)))
    return None


def _live_of(listing: str, kernel: str) -> Iterator[tuple[int, int]]:
    """The offset of each instruction, and the first column of the table beside it, which is empty for 0: as in
    `/*0010*/  MOV R2, c[0x0][0x160] ;  // |   2   |        |`."""
    section = ""
    for line in listing.splitlines():
        code, _, table = line.strip().partition("// |")
        if code.startswith(".section\t"):
            section = code.removeprefix(".section\t").partition(",")[0]
        elif section == f".text.{kernel}" and code.startswith("/*") and table:
            yield int(code[2 : code.index("*/")], 16), int(table.partition("|")[0].strip() or 0)
