"""What the steady loops of a kernel are made of, from its cubin. Counts only; what they mean is inspect.py's.

The code comes from `nvdisasm -json`, registers and stack from the image's attributes. A steady loop is an innermost
natural loop with matrix instructions in it; the spin-waits on barriers inside it do not make it an outer one.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import struct
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

INSTRUCTION_BYTES = 16
SPIN_INSTRUCTIONS = 8  # a loop shorter than this waits for a barrier
MATRIX = ("HMMA", "QMMA", "OMMA", "IMMA")
ENDS = ("BRA", "BRX", "JMP", "JMX", "EXIT", "RET", "KILL")
# Attributes of .nv.info sections with the form (symbol, value), from the names cuobjdump prints.
FRAME_SIZE, MIN_STACK_SIZE, REGCOUNT = 0x11, 0x12, 0x2F
INDEXED = 0x04  # form of an attribute: its payload is an index and values

_TARGET = re.compile(r"0x([0-9a-f]+)\)?\s*$")


class Instruction(NamedTuple):
    predicate: str
    opcode: str
    operands: str

    @property
    def base(self) -> str:
        return self.opcode.partition(".")[0]

    @property
    def is_matrix(self) -> bool:
        return self.base in MATRIX

    @property
    def is_filler(self) -> bool:
        """Does nothing: NOP, or never executed (@!UPT), as ptxas 12.9 pads its code."""
        return self.base == "NOP" or self.predicate == "@!UPT"


@dataclass(frozen=True)
class Loop:
    """A steady loop. `offset`: bytes from the kernel's start to its header."""

    offset: int
    instructions: tuple[Instruction, ...]

    @cached_property
    def opcodes(self) -> Counter[str]:
        return Counter(i.base for i in self.instructions)

    @property
    def matrix(self) -> int:
        return sum(i.is_matrix for i in self.instructions)

    @property
    def matrix_opcode(self) -> str:
        """With its modifiers, such as "QMMA.SF.16832.F32.E4M3.E4M3.E8"."""
        return Counter(i.opcode for i in self.instructions if i.is_matrix).most_common(1)[0][0]

    @property
    def fillers(self) -> int:
        return sum(i.is_filler for i in self.instructions)

    @property
    def others(self) -> int:
        """Neither matrix instructions nor fillers: what the model counts as N."""
        return len(self.instructions) - self.matrix - self.fillers


@dataclass(frozen=True)
class Code:
    """One kernel of a cubin. registers at launch, frame (stack) in bytes; syscalls: calls into the driver's library."""

    kernel: str
    instructions: tuple[Instruction, ...]
    loops: tuple[Loop, ...]
    registers: int
    frame: int
    syscalls: int

    def count(self, *opcodes: str) -> int:
        return sum(i.base in opcodes for i in self.instructions)


class DisassembleError(RuntimeError):
    """nvdisasm is missing, or printed what is not understood."""


def read(cubin: bytes) -> Code:
    """The one kernel of a cubin. Raises DisassembleError."""
    listed = _disassemble(cubin)
    if len(listed) != 1:
        raise DisassembleError(f"the cubin has {len(listed)} functions, {', '.join(listed) or 'none'}: expected one")
    ((kernel, code),) = listed.items()
    attributes = list(_attributes(cubin))
    frame = max((v for kind, v in attributes if kind in (FRAME_SIZE, MIN_STACK_SIZE)), default=0)
    registers = max((v for kind, v in attributes if kind == REGCOUNT), default=0)
    syscalls = len(set(re.findall(rb"__cuda_syscall\w*", cubin)))
    return Code(kernel, code, steady_loops(code), registers, frame, syscalls)


# --- loops -------------------------------------------------------------------------------------------------------


def steady_loops(code: Sequence[Instruction]) -> tuple[Loop, ...]:
    """Innermost loops with matrix instructions, in the order of the code."""
    firsts, successors = _blocks(code)
    bodies = _natural_loops(successors)
    ends = [*firsts[1:], len(code)]
    real = {h: b for h, b in bodies.items() if sum(ends[i] - firsts[i] for i in b) >= SPIN_INSTRUCTIONS}
    loops = []
    for header, body in sorted(real.items()):
        if any(other != header and other in body for other in real):
            continue
        inside = tuple(code[i] for block in sorted(body) for i in range(firsts[block], ends[block]))
        if any(i.is_matrix for i in inside):
            loops.append(Loop(firsts[header] * INSTRUCTION_BYTES, inside))
    return tuple(loops)


def _blocks(code: Sequence[Instruction]) -> tuple[list[int], list[list[int]]]:
    """First instruction and successors of each basic block."""
    targets = {i: t for i, instruction in enumerate(code) if (t := _target(instruction)) is not None and t < len(code)}
    after = {i + 1 for i, instruction in enumerate(code) if instruction.base in ENDS and i + 1 < len(code)}
    firsts = sorted({0, *targets.values(), *after})
    number = {first: block for block, first in enumerate(firsts)}
    successors = []
    for block in range(len(firsts)):
        end = firsts[block + 1] if block + 1 < len(firsts) else len(code)
        following = [number[targets[end - 1]]] if end - 1 in targets else []
        if end in number and _goes_on(code[end - 1]):
            following.append(number[end])
        successors.append(following)
    return firsts, successors


def _target(instruction: Instruction) -> int | None:
    if not instruction.opcode.startswith(("BRA", "JMP")):
        return None
    found = _TARGET.search(instruction.operands)
    return int(found[1], 16) // INSTRUCTION_BYTES if found else None


def _goes_on(instruction: Instruction) -> bool:
    if instruction.base not in ENDS:
        return True
    # `BRA UP0, 0x100` has its condition among the operands.
    return bool(instruction.predicate) or (instruction.base == "BRA" and "," in instruction.operands)


def _natural_loops(successors: Sequence[Sequence[int]]) -> dict[int, set[int]]:
    """Blocks of each loop by its header: back edges go to a block that dominates their source."""
    predecessors: list[list[int]] = [[] for _ in successors]
    for block, following in enumerate(successors):
        for s in following:
            predecessors[s].append(block)
    dominators = _dominators(predecessors)
    loops: dict[int, set[int]] = {}
    for tail, following in enumerate(successors):
        for header in following:
            if dominators[tail] >> header & 1:
                body, stack = loops.setdefault(header, {header}), [tail]
                while stack:
                    block = stack.pop()
                    if block not in body:
                        body.add(block)
                        stack += predecessors[block]
    return loops


def _dominators(predecessors: Sequence[Sequence[int]]) -> list[int]:
    """A set of blocks, as the bits of an int, for each block. Only itself for a block that nothing leads to."""
    everything = (1 << len(predecessors)) - 1
    found = [everything if before and block else 1 << block for block, before in enumerate(predecessors)]
    changed = True
    while changed:
        changed = False
        for block, before in enumerate(predecessors):
            if block == 0 or not before:
                continue
            common = everything
            for p in before:
                common &= found[p]
            common |= 1 << block
            if common != found[block]:
                found[block], changed = common, True
    return found


# --- reading the image -------------------------------------------------------------------------------------------


def _disassemble(cubin: bytes) -> dict[str, tuple[Instruction, ...]]:
    tool = find_nvdisasm()
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run([tool, "-json", file.name], capture_output=True, timeout=120, check=False)
    if done.returncode:
        raise DisassembleError(f"{tool} could not read the cubin: {done.stderr.decode(errors='replace').strip()}")
    try:
        functions: list[dict[str, Any]] = json.loads(done.stdout)[1]
        return {
            f["function-name"]: tuple(
                Instruction(i.get("predicate", ""), i["opcode"], i.get("operands", "")) for i in f["sass-instructions"]
            )
            for f in functions
        }
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise DisassembleError(f"{tool} printed JSON of an unknown form ({error!r})") from None


def find_nvdisasm() -> str:
    """SM120_ATTN_NVDISASM, the wheel nvidia-cuda-nvdisasm, PATH, the CUDA toolkit. Raises DisassembleError."""
    named = os.environ.get("SM120_ATTN_NVDISASM")
    candidates = [named] if named else [*_in_wheels(), shutil.which("nvdisasm"), "/usr/local/cuda/bin/nvdisasm"]
    tried = [str(path) for path in candidates if path]
    for path in tried:
        if Path(path).is_file() and os.access(path, os.X_OK):
            return path
    raise DisassembleError(f"nvdisasm is not found; pip install nvidia-cuda-nvdisasm. Tried: {', '.join(tried)}")


def _in_wheels() -> Iterator[str]:
    spec = importlib.util.find_spec("nvidia")
    for root in (spec.submodule_search_locations or []) if spec else []:
        for folder in ("cu13/bin", "cuda_nvdisasm/bin"):
            path = Path(root) / folder / "nvdisasm"
            if path.exists():
                yield str(path)


def _attributes(cubin: bytes) -> Iterator[tuple[int, int]]:
    """(attribute, value) of the image's .nv.info sections, those that are about a function."""
    for name, data in _sections(cubin):
        if not name.startswith(b".nv.info"):
            continue
        at = 0
        while at + 4 <= len(data):
            form, attribute, size = struct.unpack_from("<BBH", data, at)
            at += 4
            if form != INDEXED:  # the value stands in the size's place
                continue
            if size == 8 and attribute in (FRAME_SIZE, MIN_STACK_SIZE, REGCOUNT):
                yield attribute, struct.unpack_from("<II", data, at)[1]
            at += size


def _sections(image: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Name and bytes of each section of an ELF64 file."""
    if image[:4] != b"\x7fELF":
        raise DisassembleError("not a cubin: no ELF header")
    (table,) = struct.unpack_from("<Q", image, 0x28)
    size, count, names_at = struct.unpack_from("<HHH", image, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", image, table + i * size) for i in range(count)]
    names = headers[names_at]
    for name, kind, _, _, offset, length in headers:
        start = names[4] + name
        text = image[start : image.index(b"\0", start)]
        yield text, b"" if kind == 8 else image[offset : offset + length]  # 8: SHT_NOBITS
