"""The family kernels under the newest ptxas at hand: each assembles, and has its instruction in the right loop."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby, product

import pytest

from tritonhook.cubin.sass import Sass
from tritonhook.errors import ToolError
from tritonhook.lab.kernels.families import ARCHS, FAMILIES, LOOP_SHAPES, SHAPES, TARGETS, Family, family
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.toolchain import Assembled, Toolchain, find_toolchain

CASES = [(f, shape, arch) for f in FAMILIES for shape, arch in product(SHAPES, ARCHS) if f.supports(arch)]


@pytest.fixture(scope="module")
def newest() -> Toolchain:
    try:
        return find_toolchain()
    except ToolError as error:
        pytest.skip(f"needs ptxas and nvdisasm: {str(error).splitlines()[0]}")


def entry(item: Family, shape: str, arch: str) -> str:
    return f"{item.name}_{shape}_{arch}"


def module(cases: list) -> Ptx:
    """The kernels of one architecture and PTX version in one module: a run of ptxas for each would take minutes."""
    first, *others = (item.ptx(shape, arch, entry(item, shape, arch)).text for item, shape, arch in cases)
    return Ptx(first + "".join(text[text.index(".visible") :] for text in others))


def codes_of(toolchain: Toolchain, cases: list) -> dict[str, Sass | str]:
    """The code of each kernel, or the reason why there is none."""
    built = toolchain.assemble(module(cases), ("-v",))
    if isinstance(built, Assembled):
        return toolchain.disassemble(built.cubin)
    return dict.fromkeys((entry(*case) for case in cases), built.stderr)


@pytest.fixture(scope="module")
def codes(newest: Toolchain) -> dict[str, Sass | str]:
    """Every kernel, assembled once."""

    def group(case) -> tuple[str, str]:
        item, _, arch = case
        return arch, item.lowest_version(arch)

    modules = [list(cases) for _, cases in groupby(sorted(CASES, key=group), group)]
    with ThreadPoolExecutor(max_workers=2) as pool:
        parts = pool.map(lambda cases: codes_of(newest, cases), modules)
        return {name: code for part in parts for name, code in part.items()}


def usable(code: Sass | str) -> Sass:
    if isinstance(code, str) and ("Unsupported .version" in code or "is not defined for option 'gpu-name'" in code):
        pytest.skip(f"this ptxas is too old: {code.splitlines()[0]}")
    assert isinstance(code, Sass), code
    return code


def of_family(codes: dict, item: Family, shapes: tuple[str, ...] = SHAPES) -> Iterator[tuple[str, str, Sass]]:
    """The kernels of a family: shape, architecture and code."""
    for other, shape, arch in CASES:
        if other is item and shape in shapes:
            yield shape, arch, usable(codes[entry(item, shape, arch)])


@pytest.mark.parametrize("item", FAMILIES, ids=lambda f: f.name)
def test_the_instruction_is_where_the_shape_says(codes: dict, item: Family) -> None:
    for shape, arch, code in of_family(codes, item):
        inside = {i for loop in code.loops for i in loop.instructions}
        where = inside if shape in LOOP_SHAPES else range(len(code.instructions))
        assert code.opcode_counts(where)[item.opcode_on(arch)], (shape, arch)
        assert bool(code.loops) == (shape in LOOP_SHAPES), (shape, arch)


@pytest.mark.parametrize("item", FAMILIES, ids=lambda f: f.name)
def test_nested_has_a_loop_in_a_loop_with_the_instruction_in_the_inner(codes: dict, item: Family) -> None:
    for _, arch, code in of_family(codes, item, ("nested",)):
        opcode = item.opcode_on(arch)
        inner = next(loop for loop in code.innermost_loops if code.opcode_counts(loop.instructions)[opcode])
        assert any(set(inner.instructions) < set(loop.instructions) for loop in code.loops), arch


@pytest.mark.parametrize("item", FAMILIES, ids=lambda f: f.name)
def test_softmax_has_its_exponentials_and_conversions_in_the_loop(codes: dict, item: Family) -> None:
    for _, arch, code in of_family(codes, item, ("softmax",)):
        in_loops = [code.instructions[i].opcode for loop in code.loops for i in loop.instructions]
        assert sum(opcode.startswith("MUFU.EX2") for opcode in in_loops) >= 17, arch
        assert any(opcode.startswith(("FMNMX", "FMNMX3")) for opcode in in_loops), arch
        assert any(opcode.startswith("F2FP") for opcode in in_loops), arch


def test_loads_take_the_block_and_a_tree_all_of_its_results() -> None:
    text = family("fma").ptx("softmax", "sm_80").text
    loads = re.findall(r"ld\.global\.v4\.f32 \{%f(\d+),[^}]*%f(\d+)\}, \[%rd1\+(\d+)\]", text)
    assert loads == [(str(16 + i), str(19 + i), str(4 * i)) for i in range(0, 16, 4)], "bytes"
    for operation, first in (("max", 0), ("add", 64)):
        held = {number: {number} for number in range(first, first + 16)}
        for result, *sources in re.findall(rf"{operation}\.f32 %f(\d+), %f(\d+), %f(\d+);", text):
            held[int(result)] = held.get(int(sources[0]), set()) | held.get(int(sources[1]), set())
        assert held[96] == set(range(first, first + 16))


def test_wgmmas_are_fenced_and_waited_for_before_their_descriptors_move() -> None:
    text = family("wgmma_bf16").ptx("loop", "sm_90a").text
    order = re.findall(
        r"wgmma\.(fence|mma_async|commit_group|wait_group\.sync\.aligned 0)|add\.s64 (%rd1\d), \2, 0x20;", text
    )
    steps = ["fence", "mma_async", "mma_async", "commit_group", "wait_group.sync.aligned 0", "%rd10", "%rd11", "%rd12"]
    assert [step or register for step, register in order] == steps


def test_every_kernel_has_its_own_text_its_name_and_its_block_size() -> None:
    texts = {item.ptx(shape, arch).text for item, shape, arch in CASES}
    assert len(texts) == len(CASES)
    assert all(".reqntid 128\n" in text for text in texts)
    named = FAMILIES[0].ptx("loop", "sm_80", name="cutlass_x")
    assert named.entries == ("cutlass_x",)
    assert named.text == FAMILIES[0].ptx("loop", "sm_80").rename_entries({"kernel_x": "cutlass_x"}).text


@pytest.mark.parametrize("item", FAMILIES, ids=lambda f: f.name)
def test_straight_does_not_even_spin(item: Family) -> None:
    labels = {shape: re.findall(r"^(\w+):$", item.ptx(shape, item.archs[0]).text, re.MULTILINE) for shape in SHAPES}
    assert labels["straight"] == ["DONE"]
    assert set(labels["softmax"]) - {"SPIN"} == {"LOOP", "DONE"}


def test_the_lowest_version_has_both_architecture_and_instruction(newest: Toolchain) -> None:
    assert family("mma_f16").ptx("loop", "sm_90a").version == TARGETS["sm_90a"] == "8.0"
    assert family("mma_e4m3").ptx("loop", "sm_89").version == "8.4"  # the architecture alone needs 7.8
    assert family("mma_e4m3").ptx("loop", "sm_89", version="8.7").version == "8.7"
    one_less = newest.assemble(family("mma_e4m3").ptx("loop", "sm_89", version="8.3"), ())
    assert "requires PTX ISA .version 8.4" in one_less.stderr


def test_what_a_family_does_not_have_is_refused_with_what_it_has() -> None:
    with pytest.raises(ValueError, match="wgmma_bf16 is not on sm_80; it is on: sm_90a"):
        family("wgmma_bf16").ptx("loop", "sm_80")
    with pytest.raises(ValueError, match="no shape 'round'; there are: straight, loop"):
        family("fma").ptx("round", "sm_80")
    with pytest.raises(KeyError, match="mma_f16, mma_bf16"):
        family("nonsense")
