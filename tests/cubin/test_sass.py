"""Reading machine code: control fields, basic blocks, loops; incomplete input is always an error."""

from __future__ import annotations

import json
import struct
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from repository import GOLDEN

from tritonhook.cubin.image import Cubin
from tritonhook.cubin.sass import Instruction, Sass, instructions_of, parse_nvdisasm
from tritonhook.errors import CubinError, ToolError
from tritonhook.ptxas.tool import find_nvdisasm
from tritonhook.ptxas.toolchain import run_nvdisasm

NAMES = sorted(path.stem for path in GOLDEN.glob("*.json"))


@cache
def golden_cubin(name: str) -> Cubin:
    return Cubin.from_bytes((GOLDEN / f"{name}.cubin").read_bytes(), name)


def parse(name: str, output: str | bytes | None = None) -> dict[str, Sass]:
    cubin = golden_cubin(name)
    output = (GOLDEN / f"{name}.json").read_bytes() if output is None else output
    return parse_nvdisasm(output, {k: cubin.text(k) for k in cubin.kernels}, cubin.indirect_targets or {})


@cache
def golden(name: str) -> Sass:
    code = parse(name)
    return code[next(iter(code))]


# --- code written by hand ------------------------------------------------------------------------


def code(listing: str, indirect: tuple[str, ...] = (), yielded: frozenset[str] = frozenset()) -> Sass:
    """Code from lines of `opcode`, `opcode @label`, `opcode xN` and `label:`, N instructions of one kind.

    A guard is written as a first word that starts with `@`. Instructions under a label in `yielded` have
    the yield bit set.
    """
    labels: dict[str, int] = {}
    found: list[tuple[str, str, str, bool]] = []
    label = ""
    for word in filter(None, (line.split("#")[0].strip() for line in listing.splitlines())):
        if word.endswith(":"):
            label = word[:-1]
            labels[label] = 16 * len(found)
            continue
        predicate, _, rest = word.partition(" ") if word.startswith("@") else ("", "", word)
        opcode, _, operands = rest.partition(" ")
        times = int(operands[1:]) if operands.startswith("x") else 1
        found += [(predicate, opcode, "" if operands.startswith("x") else operands, label in yielded)] * times
    instructions = tuple(
        Instruction(
            16 * i,
            predicate,
            opcode,
            " ".join(f"0x{labels[w[1:]]:x}" if w.startswith("@") else w for w in operands.split()),
            (1 << 4) * bit,
        )
        for i, (predicate, opcode, operands, bit) in enumerate(found)
    )
    return Sass("k", instructions, tuple(labels[name] for name in indirect))


def loops(sass: Sass) -> list[tuple[int, int, bool]]:
    """Per loop: index of its first instruction, number of instructions, whether it is innermost."""
    return [
        (sass.blocks[loop.header].first, len(loop.instructions), loop.innermost)
        for loop in sorted(sass.loops, key=lambda loop: (sass.blocks[loop.header].first, -len(loop.instructions)))
    ]


LOOPS = {
    "straight": ("FADD x20\nEXIT", []),
    "self loop": ("MOV x3\nloop:\nFADD x9\n@P0 BRA @loop\nEXIT", [(3, 10, True)]),
    "endless loop from the first instruction": ("loop:\nFADD x9\nBRA @loop", [(0, 10, True)]),
    "condition as an operand": ("loop:\nFADD x9\nBRA UP0, @loop\nEXIT", [(0, 10, True)]),
    "condition as an operand: it falls through": (
        "loop:\nFADD x5\nBRA UP0, @skip\nFMUL x5\nskip:\nMOV x2\n@P0 BRA @loop\nEXIT", [(0, 14, True)]),
    "modifiers": ("loop:\nFADD x9\nBRA.U.ANY UP0, @loop\nEXIT", [(0, 10, True)]),
    "smallest loop": ("loop:\nFADD x7\n@P0 BRA @loop\nEXIT", [(0, 8, True)]),
    "spin-wait": ("loop:\nFADD x6\n@P0 BRA @loop\nEXIT", []),
    "nested": (
        "outer:\nMOV x2\ninner:\nFADD x9\n@P0 BRA @inner\nIADD3 x2\n@P1 BRA @outer\nEXIT",
        [(0, 15, False), (2, 10, True)]),
    "a spin-wait inside leaves the loop an innermost one": (
        "outer:\nMOV x9\nwait:\nSYNCS.PHASECHK\n@P0 BRA @wait\nFADD x2\n@P1 BRA @outer\nEXIT", [(0, 14, True)]),
    "two in one": (
        "outer:\nMOV x2\na:\nFADD x9\n@P0 BRA @a\nb:\nFMUL x9\n@P0 BRA @b\n@P1 BRA @outer\nEXIT",
        [(0, 23, False), (2, 10, True), (12, 10, True)]),
    "two back edges are one loop": ("loop:\nFADD x4\n@P0 BRA @loop\nFMUL x4\n@P1 BRA @loop\nEXIT", [(0, 10, True)]),
    "both arms of a branch belong to it": (
        "loop:\nFADD x5\n@P0 BRA @other\nFMUL x5\nBRA @tail\nother:\nMUFU x5\ntail:\nMOV x2\n@P1 BRA @loop\nEXIT",
        [(0, 20, True)]),
    "an outlined slow path that jumps back is none": (
        "FADD x10\n@P0 BRA @slow\nback:\nFMUL x10\nEXIT\nslow:\nMUFU x10\nBRA @back", []),
    "an outlined slow path of a loop is part of it": (
        "loop:\nFADD x5\n@P0 BRA @slow\nback:\nFMUL x5\n@P1 BRA @loop\nEXIT\nslow:\nMUFU x5\nBRA @back",
        [(0, 18, True)]),
    "irreducible: no block dominates the other": (
        "@P0 BRA @b\na:\nFADD x9\n@P1 BRA @b\nEXIT\nb:\nFMUL x9\n@P2 BRA @a\nEXIT", []),
    "behind the end": ("EXIT\nFADD x9\nself:\nNOP x9\nBRA @self", [(10, 10, True)]),
    "left by a guarded EXIT": ("loop:\nFADD x9\n@P0 EXIT\nBRA @loop", [(0, 11, True)]),
    "with a call": ("loop:\nFADD x9\nCALL.REL.NOINC R2\n@P0 BRA @loop\nEXIT", [(0, 11, True)]),
    "the trap behind each kernel": ("FADD x9\nEXIT\ntail:\nBRA @tail\nNOP x9", []),
}  # fmt: skip


@pytest.mark.parametrize(("listing", "expected"), LOOPS.values(), ids=LOOPS)
def test_loops(listing: str, expected: list[tuple[int, int, bool]]) -> None:
    assert loops(code(listing)) == expected


STATE_MACHINE = "next:\nLDG x3\nBRX R4\na:\nFADD x8\nBRA @next\nb:\nFMUL x8\nBRA @next\ndone:\nEXIT"


@pytest.mark.parametrize("opcode", ["BRX", "BRXU", "JMX"])
def test_loop_through_an_indirect_branch(opcode: str) -> None:
    sass = code(STATE_MACHINE.replace("BRX", opcode), indirect=("a", "b", "done"))
    assert loops(sass) == [(0, 22, True)]
    assert sass.blocks[0].successors == (1, 2, 3)
    assert loops(code(STATE_MACHINE, indirect=("a", "done"))) == [(0, 13, True)]


def test_indirect_branch_whose_targets_are_not_known_closes_no_loop() -> None:
    assert loops(code(STATE_MACHINE)) == []


def test_blocks_tile_the_code() -> None:
    sass = code("MOV x3\nloop:\nFADD x9\n@P0 BRA @loop\nSTG\n@!P1 EXIT\nMUFU x2\nEXIT\nend:\nBRA @end\nNOP x2")
    assert [(b.first, b.end, b.successors) for b in sass.blocks] == [
        (0, 3, (1,)),
        (3, 13, (1, 2)),
        (13, 15, (3,)),
        (15, 18, ()),
        (18, 19, (4,)),
        (19, 21, ()),
    ]


def test_branch_out_of_the_kernel_has_no_successor() -> None:
    for target in ("0x1000", "-0x10"):
        sass = Sass("k", (Instruction(0, "", "FADD", "R1, R2", 0), Instruction(16, "", "BRA", target, 0)))
        assert [b.successors for b in sass.blocks] == [()]
    assert Sass("k", ()).blocks == Sass("k", ()).loops == ()


@st.composite
def flow(draw: st.DrawFn) -> Sass:
    """Random control flow: blocks of some instructions, each ended by a jump, a branch or an exit."""
    count = draw(st.integers(1, 7))
    lines = []
    for i in range(count):
        target = draw(st.integers(0, count - 1))
        end = draw(st.sampled_from([f"BRA @l{target}", f"@P0 BRA @l{target}", "EXIT", "@P0 EXIT", "BRX R2", "NOP"]))
        lines.append(f"l{i}:\nFADD x{draw(st.integers(1, 9))}\n{end}")
    return code("\n".join(lines), indirect=tuple(f"l{i}" for i in draw(st.sets(st.integers(0, count - 1), max_size=3))))


def cycles_by_brute_force(sass: Sass) -> set[int]:
    """Blocks from which execution can come back to them."""
    again = set()
    for start in range(len(sass.blocks)):
        seen: set[int] = set()
        todo = list(sass.blocks[start].successors)
        while todo:
            block = todo.pop()
            if block not in seen:
                seen.add(block)
                todo += sass.blocks[block].successors
        if start in seen:
            again.add(start)
    return again


@given(flow())
def test_loops_are_cycles_and_blocks_are_the_code(sass: Sass) -> None:
    assert [i for b in sass.blocks for i in range(b.first, b.end)] == list(range(len(sass.instructions)))
    cycles = cycles_by_brute_force(sass)
    for loop in sass.loops:
        assert set(loop.blocks) <= cycles
        assert loop.header in loop.blocks
        assert len(loop.instructions) >= 8
        inside = [other for other in sass.loops if other is not loop and other.header in loop.blocks]
        assert loop.innermost == (not inside)
        # a natural loop can be entered at its header only
        for i, block in enumerate(sass.blocks):
            if i not in loop.blocks and i in reachable(sass):
                assert set(block.successors) & set(loop.blocks) <= {loop.header}


def reachable(sass: Sass) -> set[int]:
    seen: set[int] = set()
    todo = [0]
    while todo:
        block = todo.pop()
        if block not in seen:
            seen.add(block)
            todo += sass.blocks[block].successors
    return seen


# --- yield bits ----------------------------------------------------------------------------------


def yielding(bits: list[int]) -> Sass:
    loop = [Instruction(16 * i, "", "FADD", "R1, R2", bit << 4) for i, bit in enumerate(bits)]
    loop[-1] = loop[-1]._replace(predicate="@P0", opcode="BRA", operands="0x0")
    return Sass("k", (*loop, Instruction(16 * len(loop), "", "EXIT", "", 0)))


@pytest.mark.parametrize(
    "bits, expected",
    [
        ([1] * 20, True),
        ([1] * 19 + [0], True),  # sm_80 leaves one instruction out
        ([0] + [1] * 19, True),
        ([1] * 18 + [0] * 2, False),
        ([0] * 20, False),
        ([1] * 8, True),
        ([1] * 7 + [0], True),
        ([1] * 6 + [0] * 2, False),
        ([1] * 48 + [0] * 2, True),  # of fifty, one more
        ([1] * 47 + [0] * 3, False),
    ],
)
def test_loop_is_rescheduled_if_all_but_one_yield_bits_are_set(bits: list[int], expected: bool) -> None:
    sass = yielding(bits)
    (loop,) = sass.loops
    assert sass.is_rescheduled(loop) is expected


@pytest.mark.parametrize(
    "yielded, expected", [({"big", "loop"}, True), ({"big"}, True), ({"loop"}, False), (set(), False)]
)
def test_loop_is_rescheduled_if_most_of_it_is(yielded: set[str], expected: bool) -> None:
    body = "loop:\nFADD x8\n@P0 BRA @loop\nbig:\nFMUL x20\n@P1 BRA @loop\nEXIT"
    for before in ("", "MOV x40\n"):  # where the loop stands says nothing
        sass = code(before + body, yielded=frozenset(yielded))
        assert [found[1:] for found in loops(sass)] == [(30, True)]
        assert sass.is_rescheduled(sass.loops[0]) is expected


@pytest.mark.parametrize("more, expected", [(0, False), (1, True)])
def test_half_of_a_loop_is_not_most_of_it(more: int, expected: bool) -> None:
    body = f"loop:\nFADD x9\n@P0 BRA @loop\nbig:\nFMUL x{9 + more}\n@P1 BRA @loop\nEXIT"
    sass = code(body, yielded=frozenset({"big"}))
    assert loops(sass) == [(0, 20 + more, True)]
    assert sass.is_rescheduled(sass.loops[0]) is expected


# --- control fields ------------------------------------------------------------------------------


def test_control_field_is_bits_105_to_125() -> None:
    """Stall 4, yield 1, write barrier 3, read barrier 3, wait mask 6, reuse 4 bits, from the low end."""
    stall, yielded, wait = 0xB, 1, 0b101101
    control = stall | yielded << 4 | 0b010 << 5 | 0b001 << 8 | wait << 11 | 0b0110 << 17
    text = struct.pack("<QQ", 0xFFFF_FFFF_FFFF_FFFF, control << 41 | 0x3 << 62 | 0x1FF_FFFF_FFFF)
    output = json.dumps([{}, [{"function-name": "k", "sass-instructions": [{"opcode": "NOP"}]}]])
    (instruction,) = parse_nvdisasm(output, {"k": text}, {})["k"].instructions
    assert instruction.control == control
    assert (instruction.stall, instruction.yield_bit, instruction.wait_mask) == (stall, True, wait)
    assert not instruction._replace(control=control & ~(1 << 4)).yield_bit


# --- nvdisasm ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_golden_output_is_read_whole(name: str) -> None:
    for kernel, sass in parse(name).items():
        text = golden_cubin(name).text(kernel)
        assert len(sass.instructions) == len(text) // 16 > 0
        assert [i.offset for i in sass.instructions] == list(range(0, len(text), 16))
        assert any(i.base_opcode == "EXIT" for i in sass.instructions)
        for instruction, (_, high) in zip(sass.instructions, struct.iter_unpack("<QQ", text), strict=True):
            assert instruction.stall == high >> 41 & 15
            assert instruction.control >> 21 == 0


@pytest.mark.parametrize("name", NAMES)
def test_golden_output_is_what_nvdisasm_prints_today(name: str) -> None:
    try:
        nvdisasm = find_nvdisasm()
    except ToolError as error:
        pytest.skip(f"needs nvdisasm: {error}")
    now = parse(name, run_nvdisasm(nvdisasm, golden_cubin(name).data))
    assert {k: [i[:3] for i in s.instructions] for k, s in now.items()} == {
        k: [i[:3] for i in s.instructions] for k, s in parse(name).items()
    }


@pytest.mark.parametrize(
    "name, expected",
    [
        ("sm_80.exp.plain", [(20, 13, False)]),
        ("sm_80.exp.cutlass", [(20, 19, True)]),
        ("sm_90a.exp.plain", [(20, 14, False)]),
        ("sm_90a.exp.cutlass", [(20, 20, True)]),
        ("sm_120a.exp.plain", [(20, 18, False)]),
        ("sm_120a.exp.cutlass", [(20, 20, True)]),
        ("sm_100a.tcgen05.plain", [(14, 9, False)]),
        ("sm_100a.tcgen05.cutlass", [(15, 15, True)]),
        ("sm_120a.tensor_load.cluster", []),
    ],
)
def test_loops_of_golden_code(name: str, expected: list[tuple[int, int, bool]]) -> None:
    """Per loop: number of instructions, number with the yield bit, whether ptxas's other scheduler took it."""
    sass = golden(name)
    found = [
        (
            len(loop.instructions),
            sum(sass.instructions[i].yield_bit for i in loop.instructions),
            sass.is_rescheduled(loop),
        )
        for loop in sass.innermost_loops
    ]
    assert found == expected


def test_opcode_counts() -> None:
    sass = golden("sm_80.exp.plain")
    (loop,) = sass.innermost_loops
    assert sass.opcode_counts(loop.instructions)["MUFU"] == sass.opcode_counts(loop.instructions)["FFMA"] == 8
    assert sum(sass.opcode_counts().values()) == len(sass.instructions)
    assert sass.opcode_counts(()) == {}


@pytest.mark.parametrize(
    "a, b, same",
    [
        (("", "FADD", "R1, R2, R3"), ("", "FADD", "R9, R8, R7"), True),
        (("@P0", "BRA", "0x100"), ("@P3", "BRA", "0x200"), True),
        (("@P0", "BRA", "0x100"), ("@!P0", "BRA", "0x100"), False),
        (("", "FADD", "R1, R2, R3"), ("", "FADD.FTZ", "R1, R2, R3"), False),
        (("", "IADD3", "R1, R2, 0x10, RZ"), ("", "IADD3", "R1, R2, 0x20, RZ"), False),
        (("", "MOV", "R1, c[0x0][0x28]"), ("", "MOV", "R1, c[0x0][0x30]"), False),
        *[
            (("", opcode, "B0, 0x100"), ("", opcode, "B1, 0x200"), True)
            for opcode in ("BSSY", "CALL.REL.NOINC", "WARPSYNC.COLLECTIVE", "BRX", "JMP")
        ],
        (("", "MOV", "R1, UR4"), ("", "MOV", "R1, R4"), False),
        (("", "MOV", "R1, RZ"), ("", "MOV", "R1, R4"), True),
        (("", "LDG.E", "R1, desc[UR4][R2.64+0x10]"), ("", "LDG.E", "R3, desc[UR6][R8.64+0x10]"), True),
    ],
)
def test_shape_erases_registers_and_branch_targets(
    a: tuple[str, str, str], b: tuple[str, str, str], same: bool
) -> None:
    assert (Instruction(0, *a, 0).shape == Instruction(16, *b, 0x1F).shape) is same


FUNCTION = {"function-name": "k", "sass-instructions": [{"opcode": "NOP"}]}


@pytest.mark.parametrize(
    "output, message",
    [
        ("", "unknown form"),
        ("nvdisasm fatal: no", "unknown form"),
        ("{}", "unknown form"),
        ("[]", "unknown form"),
        ("null", "unknown form"),
        ("[{}, {}, {}]", "unknown form"),
        ("[{}, null]", "unknown form"),
        ("[{}, 7]", "unknown form"),
        (json.dumps([{}, ["k"]]), "unknown form"),
        (json.dumps([{}, [{"function-name": "k"}]]), "unknown form"),
        (json.dumps([{}, [{"sass-instructions": []}]]), "unknown form"),
        (json.dumps([{}, []]), "no instructions for 'k'; it has: none"),
        (json.dumps([{}, [{**FUNCTION, "function-name": "other"}]]), "no instructions for 'k'; it has: other"),
        (json.dumps([{}, [{**FUNCTION, "sass-instructions": []}]]), "no instructions for 'k'"),
        (json.dumps([{}, [{**FUNCTION, "sass-instructions": None}]]), "no instructions for 'k'"),
        (json.dumps([{}, [{**FUNCTION, "sass-instructions": [{"opcode": "NOP"}] * 2}]]), "printed 2 .* holds 1"),
        (b"\xff\xfe[", "unknown form"),
    ],
)
def test_output_that_does_not_fit_is_an_error(output: str | bytes, message: str) -> None:
    with pytest.raises(CubinError, match=message):
        parse_nvdisasm(output, {"k": bytes(16)}, {})


def test_targets_of_indirect_branches_are_those_given() -> None:
    listed = [{"opcode": "LDG"}] * 9 + [{"opcode": "BRX", "operands": "R4"}, {"opcode": "EXIT"}]
    output = json.dumps([{}, [{"function-name": "k", "sass-instructions": listed}]])
    sass = parse_nvdisasm(output, {"k": bytes(16 * 11)}, {"k": (0, 160)})["k"]
    assert loops(sass) == [(0, 10, True)]


def test_a_subroutine_that_is_listed_behind_its_kernel_belongs_to_it() -> None:
    functions = [
        {"function-name": "k", "start": 0, "sass-instructions": [{"opcode": "NOP"}]},
        {"function-name": "$sqrt", "start": 16, "sass-instructions": [{"opcode": "EXIT"}]},
        {"function-name": "other", "start": 0, "sass-instructions": [{"opcode": "RET"}]},
    ]
    code = parse_nvdisasm(json.dumps([{}, functions]), {"k": bytes(32), "other": bytes(16)}, {})
    assert [[one.opcode for one in sass.instructions] for sass in code.values()] == [["NOP", "EXIT"], ["RET"]]
    functions[1]["start"] = 32  # not directly behind it
    with pytest.raises(CubinError, match="printed 1 .* holds 2"):
        parse_nvdisasm(json.dumps([{}, functions]), {"k": bytes(32)}, {})


@pytest.mark.parametrize("operands", ["R0,desc[UR4][R4.64]", "R0desc[UR4][R4.64]", "R0desc,[UR4][R4.64]"])
def test_a_comma_that_nvdisasm_leaves_out(operands: str) -> None:
    (read,) = instructions_of([{"opcode": "LDG.E.EL", "operands": operands}], [bytes(16)])
    assert read.operands == "R0,desc[UR4][R4.64]"


@pytest.mark.parametrize("item", [{}, "NOP", None, {"operands": "R1"}])
def test_instruction_without_an_opcode_is_an_error(item: object) -> None:
    output = json.dumps([{}, [{"function-name": "k", "sass-instructions": [item]}]])
    with pytest.raises(CubinError):
        parse_nvdisasm(output, {"k": bytes(16)}, {})
