"""Changes to compiled kernels, each with the truth of who changed it.

Code is changed in the bytes of the cubin, so that only somebody who reads code can see it; nvdisasm confirms what each
change is. PTX is changed as text, and assembled."""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache

from tritonhook.capture.model import Assembler, Capture, Stage
from tritonhook.cubin.elf import read_elf
from tritonhook.cubin.image import EIATTR_FRAME_SIZE, EIATTR_REGCOUNT, Cubin
from tritonhook.cubin.sass import Instruction
from tritonhook.errors import ToolError
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.tool import find_ptxas
from tritonhook.ptxas.toolchain import MAX_RUNS, Assembled, Toolchain, assemble, list_words, may_draw, reading_toolchain

Seed = Callable[[Capture, random.Random], "Capture | None"]
_STEP = 16  # bytes of an instruction
_TRIES, _AT_A_TIME = 6, 8

SAME_INPUT = "ptxas, which made another code from the same input"
SAME_CODE = "ptxas, which made equal code with other resources from the same input"
BY_OPTIONS = "ptxas options"
BY_PTX = "LLVM (ptx)"


# --- in the bytes of the cubin -------------------------------------------------------------------


class Code:
    """A kernel's code in its cubin, to be changed byte by byte."""

    def __init__(self, capture: Capture, tools: Toolchain) -> None:
        self.capture, self.tools = capture, tools
        self.cubin = Cubin.from_bytes(capture.cubin, capture.kernel)
        section = self.cubin.section(".text.{kernel}", capture.kernel)
        assert section is not None
        self.start = section.file_range[0]
        self.instructions = _listing(capture.cubin, capture.kernel)

    def changed(self, edits: Iterable[tuple[int, bytes]]) -> Capture:
        """The capture with other bytes at these places of the file."""
        data = bytearray(self.cubin.data)
        for place, content in edits:
            data[place : place + len(content)] = content
        return with_cubin(self.capture, bytes(data))

    def word(self, number: int) -> bytes:
        at = self.start + number * _STEP
        return self.cubin.data[at : at + _STEP]

    def with_word(self, number: int, word: bytes) -> Capture:
        return self.changed([(self.start + number * _STEP, word)])

    def try_bits(
        self, rng: random.Random, bits: range, wanted: Callable[[Instruction, Instruction], bool], only: Sequence[int]
    ) -> Capture | None:
        """Flip one of these bits in one of these instructions so that nvdisasm sees what is wanted."""
        for _ in range(_TRIES if only else 0):
            tried = [(rng.choice(only), rng.choice(bits)) for _ in range(_AT_A_TIME)]
            flipped = [
                (int.from_bytes(self.word(n), "little") ^ 1 << bit).to_bytes(_STEP, "little") for n, bit in tried
            ]
            words = [word for (n, _), new in zip(tried, flipped, strict=True) for word in (self.word(n), new)]
            try:
                listed = list_words(self.tools.nvdisasm, self.capture.arch, words)
            except ToolError:  # one of them is no instruction any more
                continue
            read = [listed[word] for word in words]
            for (n, _), new, a, b in zip(tried, flipped, read[::2], read[1::2], strict=True):
                if wanted(a, b):
                    return self.changed([(self.start + n * _STEP, new)])
        return None


@cache
def _listing(cubin: bytes, kernel: str) -> tuple[Instruction, ...]:
    return reading_toolchain().disassemble(Cubin.from_bytes(cubin, kernel), [kernel])[kernel].instructions


def with_cubin(capture: Capture, cubin: bytes) -> Capture:
    return replace(capture, artifacts={**capture.artifacts, Stage.CUBIN: cubin})


def _code(capture: Capture) -> Code:
    return Code(capture, reading_toolchain())


_NO_JUMP = ("BRA", "JMP", "CALL", "RET", "EXIT", "BSSY", "BRX", "NOP")


def _numbers(code: Code, fits: Callable[[Instruction], bool]) -> list[int]:
    return [n for n, one in enumerate(code.instructions) if fits(one) and not one.base_opcode.startswith(_NO_JUMP)]


def _only_operands(a: Instruction, b: Instruction) -> bool:
    return (a.predicate, a.opcode, a.control) == (b.predicate, b.opcode, b.control) and a.operands != b.operands


def _of_operands(bits: range, shape: str, only: str = "") -> Seed:
    """A seed that flips one of these bits, so that nothing changes but what `shape` matches in the operands. only: what
    the operands must have, by default the same."""
    changing, there = re.compile(shape), re.compile(only or shape)

    def seed(capture: Capture, rng: random.Random) -> Capture | None:
        code = _code(capture)
        return code.try_bits(
            rng,
            bits,
            lambda a, b: _only_operands(a, b) and changing.sub("", a.operands) == changing.sub("", b.operands),
            _numbers(code, lambda one: there.search(one.operands) is not None),
        )

    return seed


immediate = _of_operands(
    range(32, 56), r"0x[0-9a-f]+|(?<![\w.])\d[\w.+-]*", r"(?:^|, )-?(?:0x[0-9a-f]+|[\d.]+(?:e[+-]?\d+)?)(?:,|$)"
)
operand = _of_operands(range(24, 30), r"\bR\d+\b")  # another register
bank_offset = _of_operands(range(38, 54), r"c\[0x[0-9a-f]+\]\[[^\]]*\]")


def stall(capture: Capture, rng: random.Random) -> Capture | None:
    """One stall cycle or wait bit of the schedule."""
    code = _code(capture)
    return code.try_bits(rng, range(105, 122), lambda a, b: a[:4] == b[:4], _numbers(code, lambda one: True))


def barrier(capture: Capture, rng: random.Random) -> Capture | None:
    """A barrier becomes a NOP."""
    code = _code(capture)
    barriers = [n for n, one in enumerate(code.instructions) if one.base_opcode in ("BAR", "WARPSYNC", "SYNCS")]
    nops = [n for n, one in enumerate(code.instructions) if one.base_opcode == "NOP"]
    if not barriers or not nops:
        return None
    return code.with_word(rng.choice(barriers), code.word(nops[0]))


def moved(capture: Capture, rng: random.Random) -> Capture | None:
    """Two neighbours that differ change places."""
    code = _code(capture)
    pairs = [n for n in range(len(code.instructions) - 1) if code.word(n) != code.word(n + 1)]
    number = rng.choice(pairs)
    place = code.start + number * _STEP
    return code.changed([(place, code.word(number + 1) + code.word(number))])


def one_more_register(capture: Capture, rng: random.Random) -> Capture | None:
    """The count of registers that the driver reads, one higher; the instructions stay."""
    return _attribute(capture, EIATTR_REGCOUNT, 1, lambda count: count < 255)


def larger_frame(capture: Capture, rng: random.Random) -> Capture | None:
    """A stack frame 16 bytes larger; the instructions stay."""
    return _attribute(capture, EIATTR_FRAME_SIZE, 16, lambda size: True)


def _attribute(capture: Capture, kind: int, more: int, fits: Callable[[int], bool]) -> Capture | None:
    """A value of the section .nv.info, of this kernel's symbol, raised."""
    data, cubin = capture.cubin, Cubin.from_bytes(capture.cubin, capture.kernel)
    info = next(header for header in read_elf(data).headers if header.name == ".nv.info")
    pattern = struct.pack("<BBHI", 4, kind, 8, cubin.symbols[capture.kernel])
    at = data.find(pattern, info.offset, info.offset + info.size)
    if at < 0:
        return None
    (value,) = struct.unpack_from("<I", data, at + 8)
    if not fits(value):
        return None
    return with_cubin(capture, data[: at + 8] + struct.pack("<I", value + more) + data[at + 12 :])


def constant_bank(capture: Capture, rng: random.Random) -> Capture | None:
    """One byte of a constant bank that the program brings along."""
    data = capture.cubin
    banks = [
        header
        for header in read_elf(data).headers
        if header.name.startswith((".nv.constant", ".nv.global.init"))
        and not header.name.startswith(".nv.constant0")
        and header.size
    ]
    if not banks:
        return None
    bank = rng.choice(banks)
    at = bank.offset + rng.randrange(bank.size)
    return with_cubin(capture, data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :])


# --- in the PTX, or in how it is assembled -------------------------------------------------------


def assembled(capture: Capture, text: str, version: str, options: tuple[str, ...]) -> Capture | None:
    """The capture with this PTX, assembled; None if ptxas rejects it."""
    try:
        result = assemble(find_ptxas(version), Ptx(text), options)
    except Exception:
        return None
    if not isinstance(result, Assembled):
        return None
    artifacts = {**capture.artifacts, Stage.PTX: text, Stage.CUBIN: result.cubin.data}
    target = [one for one in capture.assembler.arguments or () if one.startswith("--gpu-name")]
    return replace(capture, artifacts=artifacts, assembler=Assembler(None, version, (*options, *target)))


def reassembled(capture: Capture, text: str) -> Capture | None:
    """Assemble a changed PTX with the same ptxas and options."""
    version, options = capture.assembler.version, capture.assembler.options
    return None if version is None or options is None else assembled(capture, text, version, options)


def _ptx_change(pattern: str, change: Callable[[re.Match[str], random.Random], str]) -> Seed:
    expression = re.compile(pattern, re.MULTILINE)

    def seed(capture: Capture, rng: random.Random) -> Capture | None:
        text = str(capture.text(Stage.PTX))
        places = list(expression.finditer(text))
        rng.shuffle(places)
        for match in places[:4]:
            made = reassembled(capture, text[: match.start()] + change(match, rng) + text[match.end() :])
            if (made := _with_effect(made, capture)) is not None:  # dead code has no effect
                return made
        return None

    return seed


def _with_effect(made: Capture | None, capture: Capture) -> Capture | None:
    """The capture, unless its code is the old one or, for an architecture whose ptxas draws, one of the draws."""
    drawn = _draws(capture.cubin, capture) if may_draw(capture.arch) else ()
    return None if made is None or _code_bytes(made) in {_code_bytes(capture), *drawn} else made


_known_draws: dict[bytes, set[bytes]] = {}


def _draws(cubin: bytes, capture: Capture) -> set[bytes]:
    """The codes of some runs of ptxas with its memory at addresses by chance."""
    if cubin not in _known_draws:
        tool, options = find_ptxas(capture.assembler.version), capture.assembler.options or ()
        made = [assemble(tool, Ptx(str(capture.text(Stage.PTX))), options, fixed_layout=False) for _ in range(MAX_RUNS)]
        _known_draws[cubin] = {one.cubin.text(capture.kernel) for one in made if isinstance(one, Assembled)}
    return _known_draws[cubin]


def _code_bytes(capture: Capture) -> bytes:
    return Cubin.from_bytes(capture.cubin, capture.kernel).text(capture.kernel)


ptx_immediate = _ptx_change(
    r"(?P<head>^\s*(?:add|and|or|shl|mul|mad|fma|setp)[\w.]*\s[^;]*, )(?P<value>\d+);",
    lambda match, rng: f"{match['head']}{int(match['value']) ^ 1};",
)
ptx_barrier = _ptx_change(r"^\s*bar\.sync\s+0;", lambda match, rng: "\tbar.sync \t1;")
ptx_operation = _ptx_change(r"(?<=\t)(?:add|min|mul)\.f32", lambda match, rng: "max.f32")
ptx_more_work = _ptx_change(r"^\s*ret;", lambda match, rng: "\tmembar.gl;\n\tbar.sync 0;\n\tret;")


def ptx_spill(capture: Capture, rng: random.Random) -> Capture | None:
    """A directive `.maxnreg` that is too low."""
    text = str(capture.text(Stage.PTX))
    at = text.find("{", text.find(".entry"))
    if ".maxnreg" in text or at < 0:
        return None
    return _with_effect(reassembled(capture, f"{text[:at]}.maxnreg 24\n{text[at:]}"), capture)


def otherwise(*further: str, by: str | None = None) -> Seed:
    """Assemble with further options, or by another ptxas."""

    def seed(capture: Capture, rng: random.Random) -> Capture | None:
        version, options = capture.assembler.version, capture.assembler.options
        if version in (None, by) or options is None:
            return None
        made = assembled(capture, str(capture.text(Stage.PTX)), str(by or version), (*options, *further))
        return _with_effect(made, capture)

    return seed


# What is changed: the seed, and what `changed by` must begin with.
SEEDS: dict[str, tuple[Seed, str]] = {
    "immediate, in the cubin": (immediate, SAME_INPUT),
    "operand, in the cubin": (operand, SAME_INPUT),
    "constant bank's offset, in the cubin": (bank_offset, SAME_INPUT),
    "constant bank's bytes, in the cubin": (constant_bank, SAME_INPUT),
    "schedule bit, in the cubin": (stall, SAME_INPUT),
    "barrier removed, in the cubin": (barrier, SAME_INPUT),
    "instruction moved, in the cubin": (moved, SAME_INPUT),
    "one more register, in the cubin": (one_more_register, SAME_CODE),
    "larger stack frame, in the cubin": (larger_frame, SAME_CODE),
    "immediate, in the PTX": (ptx_immediate, BY_PTX),
    "operation, in the PTX": (ptx_operation, BY_PTX),
    "barrier, in the PTX": (ptx_barrier, BY_PTX),
    "more work, in the PTX": (ptx_more_work, BY_PTX),
    "spills, in the PTX": (ptx_spill, BY_PTX),
    "ptxas -O1": (otherwise("-O1"), BY_OPTIONS),
    "ptxas --maxrregcount 32": (otherwise("--maxrregcount", "32"), BY_OPTIONS),
    "ptxas 13.5.37": (otherwise(by="13.5.37"), "ptxas "),
    "ptxas 12.6.85": (otherwise(by="12.6.85"), "ptxas "),
}
