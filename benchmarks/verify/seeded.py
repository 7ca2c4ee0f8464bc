"""Cubins of real kernels in which one instruction was altered, for a check that `verify` finds each of them.

    python -m benchmarks seeded FOLDER      # makes them; needs Triton, ptxas and nvdisasm, no GPU

Kernels: seeded_kernels.py, assembled for sm_90a. An alteration flips one bit of one instruction: of an immediate, of
the number of a register, of a rounding mode, of a comparison, of a minimum or maximum, or the negation of a predicate.
nvdisasm must then read one other word in that instruction, and the same text everywhere else. FOLDER gets for each
kernel `base.cubin`, two launches with the contents of the buffers beside them, and `NUMBER.cubin` for each alteration;
and `seeded.json`, a list of them with the instruction before and after. The second launch has shorter rows and numbers
up to 110, so that lanes outside of the problem, and tiny results, count.

On the machine with the GPU, from another script:

    from benchmarks.verify import seeded
    with Executor() as executor:                   # tritonhook.verify.executor
        rows = seeded.execute(FOLDER, executor)    # the list of seeded.json, each with "found"

`found` is "DIFFERENT" where the altered cubin stores something else than the base, "CRASH" or "HANG", else "SAME". The
comparison is bit by bit and allows nothing, since both sides come from one run of ptxas.

The altered result is live: it reaches a store, as far as that can be read without running the kernel. Values are
followed through registers, predicates and shared memory. Only such alterations are made. None reaches an address, a
branch or a guard of a memory access: it would crash rather than compute something else. What can still be without an
effect: a value that no lane within the problem uses, and one that is rounded or cut to the same result.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import re
import struct
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice, product
from pathlib import Path
from typing import Any

from benchmarks.common import write_json
from tritonhook.cubin.image import Cubin
from tritonhook.cubin.sass import Instruction, Sass
from tritonhook.ptxas.tool import find_nvdisasm, run_tool, temporary_file
from tritonhook.ptxas.toolchain import reading_toolchain

RESULT = None
KINDS = ("immediate", "predicate", "register", "rounding", "comparison", "minimum")
LAUNCHES = ("launch", "shorter")
KERNELS: int | None = None  # at most
PER_KIND = 4  # alterations of one kind in one kernel, at most
# The bits that are tried: the guard's negation; the low bits of three registers; bits of an immediate; rounding and
# comparison; the negation of a source predicate. Most others have no meaning, or make no instruction.
_BITS = (15, 24, 25, 26, 32, 33, 34, 36, 54, 55, 63, 64, 65, 66, 76, 77, 78, 79, 90)
_REGISTER = re.compile(r"(?<![\w.])(U?[RP])(\d+)\b")
_PREDICATE = re.compile(r"!?U?P(?:\d+|T)")
_IMMEDIATE = re.compile(r"-?0x[0-9a-f]+|-?\d+(?:\.\d+)?(?:e[-+]?\d+)?|[-+]?(?:INF|QNAN)", re.IGNORECASE)
_ROUNDING = re.compile(r"\.(?:RM|RP|RZ)\b")
# Comparisons that one bit makes of each, and that give another answer for more than equal numbers.
_COMPARED = {"LT": ("NE",), "GT": ("NE",), "NE": ("LT", "GT"), "GE": ("EQ",), "LE": ("EQ",), "EQ": ("LE", "GE")}
# Where a rounding is not seen in what is stored: numbers are made whole, or are doubled.
_NOT_ROUNDED = ("clamp_to_int8", "dropout")
_FLOAT_BITS = (54, 55, 63)  # the upper bits of an immediate's fraction, the lowest of its exponent, its sign
_MEMORY = ("LD", "ST", "ATOM", "RED", "CCTL", "UBLK", "UTMA", "SYNCS")
_CONTROL = ("BRA", "EXIT", "BSSY", "BSYNC", "CALL", "RET", "WARPSYNC", "BAR", "NOP", "BRX", "JMP", "BREAK", "YIELD")
_WIDE = re.compile(r"\.(64|128)\b")


@dataclass(frozen=True, slots=True)
class Alteration:
    """One altered instruction. offset: in bytes in the kernel's code. bit: of the instruction. before, after: the
    instruction's text."""

    kernel: str
    entry: str
    cubin: str
    kind: str
    offset: int
    bit: int
    before: str
    after: str


# --- which values go where -----------------------------------------------------------------------


def written_and_read(one: Instruction) -> tuple[frozenset[str], frozenset[str]]:
    """The registers and predicates that an instruction writes and reads."""
    operands = [part.strip() for part in re.split(r",(?![^\[]*\])", one.operands)] if one.operands else []
    guard = frozenset(_names(one.predicate, 1))
    base = one.base_opcode
    count = 0
    if base not in _CONTROL and not base.startswith(("ST", "RED", "CCTL")):
        count = 1
        while count < len(operands) and count < 3 and re.fullmatch(r"U?P(?:\d|T)", operands[count]):
            if base in ("ISETP", "FSETP", "PLOP3", "DSETP", "UISETP", "IADD3", "LEA", "UIADD3", "ULEA", "LOP3", "FCHK"):
                count += 1
            else:
                break
    written = {name for operand in operands[:count] for name in _names(operand, _width(one, True))}
    read = {name for operand in operands[count:] for name in _names(operand, _width(one, False))}
    return frozenset(written), frozenset(read) | guard


def _width(one: Instruction, is_result: bool) -> int:
    """How many registers an operand may take; too many for a source does no harm."""
    base = one.base_opcode
    if base in ("HMMA", "IMMA", "LDSM"):
        return 4
    if match := re.match(r"HGMMA\.\d+x(\d+)x", one.opcode):
        return int(match[1]) // 2
    if ".WIDE" in one.opcode or (base in ("DADD", "DMUL", "DFMA", "DMNMX", "I2F", "F2F") and "64" in one.opcode):
        return 2
    if base.startswith(("LD", "ST", "ULD")) and (match := _WIDE.search(one.opcode)):
        return int(match[1]) // 32
    return 1 if is_result else 2 if ".64" in one.operands or "64" in one.opcode else 1


def _names(text: str, width: int) -> Iterator[str]:
    for match in _REGISTER.finditer(text):
        extra = 2 if text[match.end() :].startswith(".64") else 1
        for step in range(max(width, extra) if match[1].endswith("R") else 1):
            yield f"{match[1]}{int(match[2]) + step}"


class Reach:
    """Where the results of each instruction of a kernel go, through registers and shared memory."""

    def __init__(self, sass: Sass) -> None:
        self.code = sass.instructions
        self.flows = [written_and_read(one) for one in self.code]
        self.blocks = sass.blocks
        self.block_of = {at: number for number, block in enumerate(self.blocks) for at in range(block.first, block.end)}
        self.shared_loads = [at for at, one in enumerate(self.code) if one.base_opcode in ("LDS", "LDSM", "SHFL")]
        self.readers = [self._readers(at) for at in range(len(self.code))]

    def _readers(self, at: int) -> frozenset[int]:
        """The instructions that may read what this one writes."""
        written, _ = self.flows[at]
        found: set[int] = set()
        if self.code[at].base_opcode == "STS":
            found.update(self.shared_loads)
        for name in written:
            seen: set[int] = set()
            waiting = [(at + 1, self.block_of[at])]
            while waiting:
                start, number = waiting.pop()
                block = self.blocks[number]
                for place in range(start, block.end):
                    if name in self.flows[place][1]:
                        found.add(place)
                    if name in self.flows[place][0] and not self.code[place].predicate:
                        break
                else:
                    waiting += [(self.blocks[s].first, s) for s in block.successors if s not in seen]
                    seen.update(block.successors)
        return frozenset(found)

    def of(self, at: int) -> tuple[bool, bool]:
        """Whether the result reaches the data of a store to global memory; whether it reaches an address, a branch or a
        guard of a memory access."""
        stored = steers = False
        seen, waiting = {at}, [at]
        while waiting:
            place = waiting.pop()
            written = self.flows[place][0]
            for reader in self.readers[place]:
                one = self.code[reader]
                in_data = True
                if one.base_opcode in _CONTROL or one.base_opcode in ("R2UR", "VOTEU"):
                    steers = steers or one.base_opcode != "NOP"
                elif one.base_opcode.startswith(_MEMORY):
                    inside = " ".join(re.findall(r"\[[^\]]*\]", one.operands))
                    steering = {*_names(inside, 2), *_names(one.predicate, 1)}
                    if written & steering:
                        steers = True
                        in_data = False
                    elif one.base_opcode == "STG":
                        stored = True
                if in_data and reader not in seen:
                    seen.add(reader)
                    waiting.append(reader)
        return stored, steers


# --- alterations ---------------------------------------------------------------------------------


def alterations(name: str, cubin: Cubin) -> Iterator[tuple[Alteration, bytes]]:
    """Alterations of the only kernel of a cubin, at most PER_KIND of a kind, each with the altered cubin."""
    entry = cubin.only_kernel()
    sass = reading_toolchain().disassemble(cubin, [entry])[entry]
    reach = Reach(sass)
    text = cubin.text(entry)
    place = cubin.data.index(text)
    last_exit = max(at for at, one in enumerate(sass.instructions) if one.base_opcode == "EXIT")
    chosen: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
    for at, bit, kind, after in _flips(name, sass, text, last_exit):
        stored, steers = reach.of(at)
        if stored and not steers and _has_result(sass.instructions[at]):
            chosen[kind].append((at, bit, after))
    draw = random.Random(name)
    for kind in KINDS:
        for number, (at, bit, after) in enumerate(_spread(chosen[kind], draw)):
            changed = _flipped(text, at, bit)
            data = cubin.data[:place] + changed + cubin.data[place + len(text) :]
            before = _text(sass.instructions[at])
            file = f"{kind}-{number}.cubin"
            yield Alteration(name, entry, file, kind, 16 * at, bit, before, after), data


def _has_result(one: Instruction) -> bool:
    return bool(written_and_read(one)[0]) or one.base_opcode == "STS"


def _spread(found: Sequence[tuple[int, int, str]], draw: random.Random) -> list[tuple[int, int, str]]:
    """Take at most PER_KIND of them, in instructions as far apart as possible."""
    by_place: dict[int, list[tuple[int, int, str]]] = defaultdict(list)
    for one in found:
        by_place[one[0]].append(one)
    places = sorted(by_place)
    step = max(1.0, len(places) / PER_KIND)
    picked = dict.fromkeys(places[int(number * step)] for number in range(PER_KIND) if int(number * step) < len(places))
    return [draw.choice(by_place[at]) for at in picked]


def _flipped(text: bytes, at: int, bit: int) -> bytes:
    changed = bytearray(text)
    changed[16 * at + bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def _flips(name: str, sass: Sass, text: bytes, last: int) -> Iterator[tuple[int, int, str, str]]:
    """Every flip of one bit that alters one word of one instruction before the last EXIT: instruction, bit, kind, text
    after."""
    tried = [
        (at, bit)
        for at, one in enumerate(sass.instructions[:last])
        if one.base_opcode not in _CONTROL and not one.base_opcode.startswith(("S2", "CS2", "R2UR"))
        for bit in _BITS
    ]
    pieces = [_flipped(text[16 * at : 16 * at + 16], 0, bit) for at, bit in tried]
    registers = {name for written, _ in map(written_and_read, sass.instructions) for name in written}
    for (at, bit), after in zip(tried, _disassembled(pieces), strict=True):
        before = sass.instructions[at]
        kind = after and _kind(before, after, registers)
        tiny = kind == "immediate" and "0x" not in before.operands and bit not in _FLOAT_BITS
        unseen = (kind == "rounding" and name in _NOT_ROUNDED) or (name == "softmax" and _is_for_extremes(before))
        constant = "RZ,RZ" in before.operands  # a number for lanes that are masked, most often
        if kind and not (tiny or constant or unseen):
            yield at, bit, kind, _text(after)


def _kind(before: Instruction, after: Instruction, registers: set[str]) -> str | None:
    """What one flip altered; None if that is nothing that is wanted, or more than one word."""
    if before.base_opcode != after.base_opcode:
        return None
    a, b = (re.split(r",\s*(?![^\[]*\])", one.operands) for one in (before, after))
    words = [(x, y) for x, y in zip(a, b, strict=False) if x != y]
    if len(a) != len(b) or len(words) + (before.opcode != after.opcode) + (before.predicate != after.predicate) != 1:
        return None
    is_memory = before.base_opcode.startswith(_MEMORY)
    if before.predicate != after.predicate:
        negated = {before.predicate.replace("!", ""), after.predicate.replace("!", "")}
        return "predicate" if len(negated) == 1 and not is_memory else None
    if before.opcode != after.opcode:
        if before.opcode == _ROUNDING.sub("", after.opcode, count=1):
            return "rounding"
        parts = list(zip(before.opcode.split("."), after.opcode.split("."), strict=False))
        changed = [pair for pair in parts if pair[0] != pair[1]]
        same_length = before.opcode.count(".") == after.opcode.count(".")
        return "comparison" if same_length and changed and _is_compared(*changed[0]) else None
    ((x, y),) = words
    if is_memory or not re.search(r"\S", y):
        return None
    if _PREDICATE.fullmatch(x) and _PREDICATE.fullmatch(y):
        if x.lstrip("!") != y.lstrip("!"):
            return None
        if "MNMX" in before.opcode:
            return "minimum"
        return "predicate" if a.index(x) and "LOP3" not in before.opcode else None  # LOP3's is for its own predicate
    if _IMMEDIATE.fullmatch(x) and _IMMEDIATE.fullmatch(y):
        return "immediate" if a.index(x) else None
    found = [_REGISTER.fullmatch(word.removesuffix(".reuse").strip("-|")) for word in (x, y)]
    if all(found) and b.index(y) and y.removesuffix(".reuse") in registers:
        return "register"
    return None


def _is_for_extremes(one: Instruction) -> bool:
    """Whether an instruction of the softmax scales very small or very large numbers, which its inputs are not."""
    return bool(one.predicate) or "-126" in one.operands


def _is_compared(before: str, after: str) -> bool:
    unordered = before.endswith("U") and after.endswith("U")
    a, b = (word.removesuffix("U") if unordered else word for word in (before, after))
    return b in _COMPARED.get(a, ())


def _disassembled(codes: Sequence[bytes]) -> list[Instruction | None]:
    """Each of these instructions for sm_90; None for what is none: nvdisasm names those by their addresses."""
    left = list(range(len(codes)))
    while True:
        with temporary_file("code.bin", b"".join(codes[at] for at in left)) as path:
            done = run_tool([str(find_nvdisasm().path), "-json", "--binary", "SM90", str(path)])
        bad = {int(address, 16) // 16 for address in re.findall(rb"at address (0x[0-9a-f]+)", done.stderr)}
        if not bad:
            break
        left = [at for number, at in enumerate(left) if number not in bad]
    listed = [one for function in json.loads(done.stdout)[1] for one in function["sass-instructions"]]
    found = {at: _instruction(one, codes[at]) for at, one in zip(left, listed, strict=True)}
    return [found.get(at) for at in range(len(codes))]


def _instruction(item: dict[str, Any], code: bytes) -> Instruction:
    _, high = struct.unpack("<QQ", code)
    return Instruction(0, item.get("predicate", ""), item["opcode"], item.get("operands", ""), high >> 41 & 0x1FFFFF)


def _text(one: Instruction) -> str:
    return " ".join(filter(None, (one.predicate, one.opcode, one.operands)))


# --- files ---------------------------------------------------------------------------------------


def make(folder: Path) -> list[Alteration]:
    """Write all kernels and their alterations. Each altered cubin is disassembled as a whole, as a proof."""
    from benchmarks.verify.seeded_kernels import compiled

    done: list[Alteration] = []
    for name, made, launch in islice(compiled(), KERNELS):
        place = folder / name
        place.mkdir(parents=True, exist_ok=True)
        cubin = Cubin.from_bytes(made.asm["cubin"], name)
        (place / "base.cubin").write_bytes(cubin.data)
        (place / "kernel.ptx").write_text(made.asm["ptx"])
        write_inputs(place, launch)
        for alteration, data in alterations(name, cubin):
            check(cubin, data, alteration)
            (place / alteration.cubin).write_bytes(data)
            done.append(alteration)
        print(name, dict(Counter(one.kind for one in done if one.kernel == name)), flush=True)
    write_json(folder / "seeded.json", {"format": 1, "alterations": [asdict(one) for one in done]})
    return done


def write_inputs(place: Path, launch: dict[str, Any]) -> None:
    """Two launches with contents for each tensor: numbers up to 2, and shorter rows with numbers up to 110; integers of
    any kind."""
    for name, most, shorter in zip(LAUNCHES, (2, 110), (False, True), strict=True):
        draw = random.Random(launch["kernel"] + name * shorter)
        given = copy.deepcopy(launch)
        for one in given["parameters"]:
            if "dtype" in one:
                size = one["shape"][0]
                floats = struct.pack(f"<{size}f", *(draw.uniform(-most, most) for _ in range(size)))
                one["values"] = f"{name}-{one['name']}.bin"
                data = floats if one["dtype"] == "float32" else draw.randbytes(4 * size)
                (place / one["values"]).write_bytes(data)
            elif shorter and one.get("name") == "n":
                one["value"] = one["value"] * 9 // 100
        (place / f"{name}.json").write_text(json.dumps(given))


def check(base: Cubin, data: bytes, alteration: Alteration) -> None:
    """Raises AssertionError unless the altered cubin differs in one bit, and reads as said at that place alone."""
    assert sum((a ^ b).bit_count() for a, b in zip(base.data, data, strict=True)) == 1
    toolchain, entry = reading_toolchain(), alteration.entry
    a, b = (toolchain.disassemble(one, [entry])[entry] for one in (base, Cubin.from_bytes(data)))
    pairs = zip(a.instructions, b.instructions, strict=True)
    changed = [(x.offset, _text(x), _text(y)) for x, y in pairs if _text(x) != _text(y)]
    assert changed == [(alteration.offset, alteration.before, alteration.after)], (alteration, changed)


def execute(folder: Path | str, executor: Any) -> list[dict[str, Any]]:
    """Run every altered cubin beside its base, and say what was found. executor: verify's Executor."""
    from tritonhook.capture.launches.contents import RECORDED
    from tritonhook.capture.launches.schema import from_json
    from tritonhook.verify.model import Build, FailureKind, Order

    folder = Path(folder)
    rows: list[dict[str, Any]] = json.loads((folder / "seeded.json").read_bytes())["alterations"]
    for name, file in product(dict.fromkeys(row["kernel"] for row in rows), LAUNCHES):
        place, mine = folder / name, [row for row in rows if row["kernel"] == name]
        entry = mine[0]["entry"]
        launch = from_json((place / f"{file}.json").read_bytes(), name)
        builds = [Build(row["cubin"], place / row["cubin"], entry) for row in mine]
        order = Order(launch, (Build("base", place / "base.cubin", entry), *builds), (RECORDED,), 2, place)
        found = {one.build: one for one in executor.run(order)}
        for row in mine:
            ran = found[row["cubin"]]
            failed = ran.failure and ("HANG" if ran.failure.kind is FailureKind.HANG else "CRASH")
            outside = "CRASH" if ran.outside else None
            row[file] = failed or outside or ("DIFFERENT" if ran.differences else "SAME")
    for row in rows:
        launched = [row.pop(file) for file in LAUNCHES]
        row["found"] = next((one for one in launched if one != "SAME"), "SAME")
        row["by"] = [file for file, one in zip(LAUNCHES, launched, strict=True) if one == row["found"]]
    return rows


QUICK = ("{folder}",)
SMALL = {"PER_KIND": 1, "KERNELS": 2}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path)


def run(arguments: argparse.Namespace) -> None:
    done = make(arguments.folder)
    print(len(done), "alterations:", dict(Counter(one.kind for one in done)))
