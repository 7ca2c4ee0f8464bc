"""Sass: the instructions, basic blocks and loops of one kernel's machine code. Also classifies opcodes.

Opcodes and operands come from `nvdisasm -json`, control fields from the instruction bytes (nvdisasm prints none).
compare/diff.py compares two kernels.
"""

from __future__ import annotations

import functools
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import and_
from typing import Any, ClassVar, NamedTuple

from tritonhook._display import Brief
from tritonhook.errors import CubinError

INSTRUCTION_BYTES = 16  # since sm_70
_CONTROL_SHIFT, _CONTROL_MASK = 105, 0x1FFFFF

# A loop of fewer instructions is a spin-wait on a barrier: it is not counted, so the loop around it can be innermost.
MIN_LOOP_INSTRUCTIONS = 8
MIN_BLOCK_INSTRUCTIONS = 8

_TARGET = re.compile(r"(-?0x[0-9a-f]+)\)?\s*$")
_RELATIVE = ("BRA", "BSSY", "CALL.REL", "RET.REL", "LEPC", "WARPSYNC.COLLECTIVE")  # target relative to the instruction
_REGISTER = re.compile(r"\b(U?R|U?P|B|UB|SB)(?:\d+|Z|T)\b")
_ADDRESS = re.compile(r"0x[0-9a-f]+")
# nvdisasm 12.8 to 13.5 omit a comma in LDG with .EL: `R0desc[UR4][R4.64]`.
_COMMA_LOST = re.compile(r"(?<=[\dZ])desc,?(?=\[)")


class Instruction(NamedTuple):
    """One instruction. A NamedTuple, because it is fast to make and a diff makes thousands.

    offset: bytes from the function's start. predicate: e.g. "@!P0" or "". opcode: with all modifiers.
    control: 21 bits that ptxas sets for the issue logic: stall cycles (4), yield (1), write barrier (3),
    read barrier (3), wait mask (6), reuse (4).
    """

    offset: int
    predicate: str
    opcode: str
    operands: str
    control: int

    @property
    def stall(self) -> int:
        return self.control & 0xF

    @property
    def yield_bit(self) -> bool:
        """The yield bit; if set, there is *no* hint to switch to another warp."""
        return bool(self.control >> 4 & 1)

    @property
    def wait_mask(self) -> int:
        return self.control >> 11 & 0x3F

    @property
    def base_opcode(self) -> str:
        return self.opcode.partition(".")[0]

    @property
    def shape(self) -> str:
        """The instruction with registers and branch targets erased: equal shapes do the same work."""
        return _shape(self.predicate, self.opcode, self.operands)

    def at(self, offset: int) -> Instruction:
        """Copy the instruction to another offset; a relative branch target moves with it."""
        operands = self.operands
        if self.opcode.startswith(_RELATIVE):
            operands = _TARGET.sub(lambda match: hex(int(match[1], 16) - self.offset + offset), operands)
        return Instruction(offset, self.predicate, self.opcode, operands, self.control)


@lru_cache(maxsize=65536)
def _shape(predicate: str, opcode: str, operands: str) -> str:
    text = _REGISTER.sub(r"\1", operands)
    if opcode.startswith(("BRA", "BSSY", "CALL", "WARPSYNC", "BRX", "JMP")):
        text = _ADDRESS.sub("addr", text)
    guard = _REGISTER.sub(r"\1", predicate)
    return f"{guard} {opcode} {text}" if guard else f"{opcode} {text}"


@dataclass(frozen=True, slots=True)
class Block:
    """A basic block: instructions [first, end), and the numbers of the blocks that can follow."""

    first: int
    end: int
    successors: tuple[int, ...]


@dataclass(frozen=True, slots=True, repr=False)
class Loop(Brief):
    """A natural loop: the blocks of all back edges to one header block, taken together.

    instructions: indices, ascending. innermost: it contains no other loop of at least MIN_LOOP_INSTRUCTIONS.
    """

    header: int
    instructions: tuple[int, ...]
    blocks: tuple[int, ...]
    innermost: bool


@dataclass(frozen=True, slots=True, repr=False)
class Sass(Brief):
    """The code of one kernel. `indirect_targets`: byte offsets that its indirect branches can reach."""

    _shown: ClassVar[tuple[str, ...]] = ("kernel", "instructions", "loops")

    kernel: str
    instructions: tuple[Instruction, ...]
    indirect_targets: tuple[int, ...] = ()
    blocks: tuple[Block, ...] = field(init=False)
    loops: tuple[Loop, ...] = field(init=False)

    def __post_init__(self) -> None:
        blocks = _blocks(self.instructions, self.indirect_targets)
        object.__setattr__(self, "blocks", blocks)
        object.__setattr__(self, "loops", _loops(blocks))

    @property
    def innermost_loops(self) -> tuple[Loop, ...]:
        return tuple(loop for loop in self.loops if loop.innermost)

    def opcode_counts(self, indices: Iterable[int] | None = None) -> Counter[str]:
        """Count instructions per base opcode, of all code or of these indices."""
        chosen = self.instructions if indices is None else [self.instructions[i] for i in indices]
        counts: Counter[str] = Counter()
        for opcode, count in Counter([instruction.opcode for instruction in chosen]).items():
            counts[opcode.partition(".")[0]] += count
        return counts

    def is_rescheduled(self, loop: Loop) -> bool:
        """Check whether ptxas's second scheduler scheduled this loop: more than half of its instructions are in blocks
        for which `_is_yielded` holds."""
        yielded = sum(b.end - b.first for i in loop.blocks if self._is_yielded(b := self.blocks[i]))
        return 2 * yielded > len(loop.instructions)

    def _is_yielded(self, block: Block) -> bool:
        """Check whether a block has at least 8 instructions and nearly all of them have the yield bit.

        ptxas's second scheduler makes all blocks of a loop like this. One instruction may lack the bit, and one more
        for every fifty (120 of 123 had it in code for sm_80).
        """
        size = block.end - block.first
        if size < MIN_BLOCK_INSTRUCTIONS:
            return False
        return sum(i.yield_bit for i in self.instructions[block.first : block.end]) >= size - 1 - size // 50


def parse_nvdisasm(
    output: str | bytes, texts: Mapping[str, bytes], targets: Mapping[str, tuple[int, ...]]
) -> dict[str, Sass]:
    """Read kernels from the output of `nvdisasm -json`.

    texts: instruction bytes per kernel. targets: per kernel, the byte offsets that its indirect branches can reach.
    Raises CubinError if the output has another form, lacks a kernel, or does not match the code bytes, because code
    that was not read must never count as equal.
    """
    try:
        _, functions = json.loads(output)
        listed = _with_subroutines(functions)
    except (ValueError, KeyError, TypeError) as error:
        raise CubinError(f"nvdisasm printed JSON of an unknown form ({error})") from None
    code: dict[str, Sass] = {}
    for kernel, text in texts.items():
        if not listed.get(kernel):
            raise CubinError(f"nvdisasm printed no instructions for {kernel!r}; it has: {', '.join(listed) or 'none'}")
        words = words_of(text)
        if len(listed[kernel]) != len(words):
            raise CubinError(
                f"{kernel}: nvdisasm printed {len(listed[kernel])} instructions, the code section holds {len(words)}"
            )
        try:
            instructions = tuple(instructions_of(listed[kernel], words))
        except (KeyError, AttributeError, TypeError) as error:
            raise CubinError(f"{kernel}: nvdisasm printed an instruction of an unknown form ({error!r})") from None
        code[kernel] = Sass(kernel, instructions, targets.get(kernel, ()))
    return code


def _with_subroutines(functions: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """List the instructions of each kernel. nvdisasm 12.8 to 13.1 list a subroutine at the end of a kernel as a
    function of its own, with a name that starts with "$"; 13.5 lists it in the kernel."""
    listed: dict[str, list[dict[str, Any]]] = {}
    kernel, end = "", 0
    for function in functions:
        name, start, lines = function["function-name"], function.get("start", 0), function["sass-instructions"]
        if name.startswith("$") and start == end > 0:
            listed[kernel] = [*listed[kernel], *lines]
            end += len(lines) * INSTRUCTION_BYTES
        else:
            listed[name], kernel, end = lines, name, start + len(lines or ()) * INSTRUCTION_BYTES
    return listed


def words_of(text: bytes) -> list[bytes]:
    """Split a code section into the bytes of its instructions."""
    ends = range(INSTRUCTION_BYTES, len(text) + 1, INSTRUCTION_BYTES)
    return [text[end - INSTRUCTION_BYTES : end] for end in ends]


def instructions_of(listed: Sequence[Mapping[str, Any]], words: Sequence[bytes]) -> Iterator[Instruction]:
    """Make an Instruction of each item of nvdisasm's listing and the bytes of that instruction. Raises KeyError,
    AttributeError or TypeError if the listing has another form."""
    for index, (item, word) in enumerate(zip(listed, words, strict=True)):
        yield Instruction(
            index * INSTRUCTION_BYTES,
            item.get("predicate", ""),
            item["opcode"],
            _COMMA_LOST.sub(",desc", item.get("operands", "")),
            int.from_bytes(word, "little") >> _CONTROL_SHIFT & _CONTROL_MASK,
        )


_INDIRECT = ("BRX", "JMX")  # prefixes, which include BRXU and JMXU (with a uniform register)
_ENDS = ("BRA", "BRX", "JMP", "JMX", "EXIT", "RET", "BREAK", "KILL", "BPT")


def _branch_target(instruction: Instruction) -> int | None:
    """Find the index of the instruction that a direct branch goes to."""
    if not instruction.opcode.startswith(("BRA", "JMP")):
        return None
    match = _TARGET.search(instruction.operands)
    return int(match[1], 16) // INSTRUCTION_BYTES if match else None


def _falls_through(instruction: Instruction) -> bool:
    if not instruction.opcode.startswith(_ENDS) or instruction.base_opcode == "BPT":
        return True
    # In `BRA UP0, 0x100` and `BRA.DIV R1, ...`, the condition is an operand.
    return bool(instruction.predicate) or (instruction.base_opcode == "BRA" and "," in instruction.operands)


def _blocks(code: tuple[Instruction, ...], indirect: tuple[int, ...]) -> tuple[Block, ...]:
    count = len(code)
    jumps = [t // INSTRUCTION_BYTES for t in indirect if t // INSTRUCTION_BYTES < count]
    ends = [i for i, instruction in enumerate(code) if instruction.opcode.startswith(_ENDS)]
    targets = {i: target for i in ends if (target := _branch_target(code[i])) is not None and 0 <= target < count}
    leaders = {0, *jumps, *targets.values(), *(i + 1 for i in ends if i + 1 < count)}
    starts = sorted(leaders) if count else []
    number = {start: i for i, start in enumerate(starts)}
    blocks = []
    for i, first in enumerate(starts):
        end = starts[i + 1] if i + 1 < len(starts) else count
        last = code[end - 1]
        following = {number[end]} if end < count and _falls_through(last) else set()
        if end - 1 in targets:
            following.add(number[targets[end - 1]])
        if last.opcode.startswith(_INDIRECT):
            following |= {number[jump] for jump in jumps}
        blocks.append(Block(first, end, tuple(sorted(following))))
    return tuple(blocks)


def _loops(blocks: tuple[Block, ...]) -> tuple[Loop, ...]:
    """Find natural loops by dominators: an outlined slow path that jumps back does then not count as a loop."""
    after, before = [block.successors for block in blocks], [list[int]() for _ in blocks]
    for tail, successors in enumerate(after):
        for header in successors:
            before[header].append(tail)
    dominators = _dominators(after, before)
    bodies: dict[int, dict[int, None]] = {}
    for tail, successors in enumerate(after):
        for header in successors:
            if dominators[tail] >> header & 1:
                _walk(tail, before, bodies.setdefault(header, {header: None}))
    sizes = {h: sum(blocks[i].end - blocks[i].first for i in body) for h, body in bodies.items()}
    real = {h: body for h, body in bodies.items() if sizes[h] >= MIN_LOOP_INSTRUCTIONS}
    loops = []
    for header, body in sorted(real.items()):
        indices = sorted(i for b in body for i in range(blocks[b].first, blocks[b].end))
        innermost = not any(other != header and other in body for other in real)
        loops.append(Loop(header, tuple(indices), tuple(sorted(body)), innermost))
    return tuple(loops)


def _dominators(after: Sequence[Sequence[int]], before: Sequence[Sequence[int]]) -> list[int]:
    """Compute the dominators of each block, i.e. the blocks on every path to it, as a bit set. after, before: the
    successors and the predecessors of each block.

    Paths begin at the first block and at every block that no earlier block leads to, e.g. the target of an indirect
    branch that the image does not list.
    """
    begins, seen = set[int](), dict[int, None]()
    for may_lead_back in (False, True):
        for block in range(len(after)):
            if block not in seen and (may_lead_back or not any(other < block for other in before[block])):
                begins.add(block)
                _walk(block, after, seen)
    dominators, changed = [(1 << len(after)) - 1] * len(after), True
    while changed:
        changed = False
        for block in seen:
            common = 0 if block in begins else functools.reduce(and_, map(dominators.__getitem__, before[block]))
            changed |= dominators[block] != common | 1 << block
            dominators[block] = common | 1 << block
    return dominators


def _walk(start: int, edges: Sequence[Sequence[int]], seen: dict[int, None]) -> None:
    """Add all blocks to `seen` that are reachable from `start` along `edges`; do not go beyond blocks in `seen`."""
    stack = [start]
    while stack:
        if (block := stack.pop()) not in seen:
            seen[block] = None
            stack.extend(edges[block])


# --- classes of work ------------------------------------------------------------------------------


# The first matching pattern decides. Opcodes as nvdisasm prints them for sm_70 to sm_121.
_CLASSES = (
    ("tensor", r"[HIDQBO]MMA|[HIQB]GMMA|UTC.*MMA|WARPGROUP"),
    ("global memory", r"LD|LDG|ST|STG|LDL|STL|ATOM|ATOMG|RED|REDG|CCTL|LDC|LDCU|ULDC|UTMA.*|UBLK.*|LDGSTS|LDGDEPBAR"),
    ("shared memory", r"LDS|STS|LDSM|STSM|ATOMS|LDT|STT|LDTM|STTM|MOVM|UTCCP|SHFL|MATCH|UTCATOMSWS"),
    ("floating point", r"U?F(?!LO|ENCE).*|MUFU|H(?:ADD|MUL|FMA|SET|MNMX).*|D(?:ADD|MUL|FMA|SETP).*|U?I2F.*"),
    (
        "synchronisation",
        r"BAR|U?SYNCS.*|DEPBAR|MEMBAR|FENCE|WARPSYNC|NANOSLEEP|ERRBAR|ELECT|UTCBAR|UCGABAR.*|ACQBULK|ARRIVES|B2R|R2B",
    ),
    (
        "control",
        r"BRA|BRX|JMP|JMX|EXIT|RET|CALL|BSSY|BSYNC|BREAK|BPT|KILL|YIELD|NOP|BMOV|LEPC|PREEXIT|USETMAXREG",
    ),
)
_COMPILED = tuple((name, re.compile(pattern)) for name, pattern in _CLASSES)
CLASSES = (*(name for name, _ in _CLASSES), "integer and moves")


@lru_cache(maxsize=4096)
def opcode_class(base_opcode: str) -> str:
    """Look up the class of an opcode, one of CLASSES. Without a matching pattern, it is "integer and moves"."""
    return next((name for name, pattern in _COMPILED if pattern.fullmatch(base_opcode)), CLASSES[-1])


def class_counts(opcodes: Mapping[str, int]) -> dict[str, int]:
    """Count instructions per class; every class is present."""
    counts = dict.fromkeys(CLASSES, 0)
    for name, count in opcodes.items():
        counts[opcode_class(name)] += count
    return counts
