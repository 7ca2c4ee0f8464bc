"""Comparing modules kernel by kernel: which kernels are one, what differs, and how much is read for that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from repository import GOLDEN
from work import is_linear

from tritonhook.compare.diff import CodeVerdict, diff
from tritonhook.compare.modules import diff_modules, pair_kernels
from tritonhook.cubin.image import Cubin
from tritonhook.cubin.sass import Sass
from tritonhook.errors import CubinError, ToolError
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.tool import Tool
from tritonhook.ptxas.toolchain import Toolchain

MODULE = Cubin.from_bytes((GOLDEN / "sm_90a.module.cubin").read_bytes())
_ENTRY = """.visible .entry {name}(.param .u64 p)
{{
.reg .b64 %rd<2>;
.shared .b32 own_{number};
ld.param.u64 %rd1, [p];
st.global.u32 [%rd1], {number};
ret;
}}
"""


def assembled_kernels(tools: Toolchain, names: Sequence[str], first: int = 0) -> bytes:
    """The cubin of kernels with these names. Each stores a number of its own, from `first` on."""
    entries = "".join(_ENTRY.format(name=name, number=number) for number, name in enumerate(names, first))
    text = f".version 8.7\n.target sm_90a\n.address_size 64\n{entries}"
    return tools.assemble_or_raise(Ptx(text), ()).cubin.data


class Listed(Toolchain):
    """A toolchain that writes down which kernels it disassembles."""

    wanted: ClassVar[list[list[str]]] = []

    def disassemble(self, cubin: Cubin, kernels: Any = None) -> dict[str, Sass]:
        self.wanted.append(list(kernels))
        return super().disassemble(cubin, kernels)


@pytest.fixture
def listed(tools: Toolchain, monkeypatch: pytest.MonkeyPatch) -> Listed:
    monkeypatch.setattr(Listed, "wanted", [])
    return Listed(tools.ptxas, tools.nvdisasm)


@pytest.mark.parametrize(
    "a, b, pairs",
    [
        ("x y", "y x", {"x": "x", "y": "y"}),
        ("x y", "cutlass_y x", {"x": "x", "y": "cutlass_y"}),
        ("my_cutlass_x y", "y my_x", {"my_cutlass_x": "my_x", "y": "y"}),
        ("x y z", "x y w", {"x": "x", "y": "y", "z": "w"}),  # one is left on each side
        ("x y z v", "x y w u", {"x": "x", "y": "y"}),
        ("x cutlass_x", "x", {"x": "x"}),
        ("x cutlass_x", "x cutlass_x", {"x": "x", "cutlass_x": "cutlass_x"}),
        ("x y", "cutlass_x x_cutlass y", {"y": "y"}),  # two kernels could be x
        ("", "x", {}),
    ],
)
def test_kernels_are_paired_by_name_and_by_rename(a: str, b: str, pairs: dict[str, str]) -> None:
    assert pair_kernels(a.split(), b.split()) == pairs
    assert pair_kernels(b.split(), a.split()) == {y: x for x, y in pairs.items()}


@given(
    st.lists(st.sampled_from(["x", "cutlass_x", "x_cutlass", "y", "z"]), unique=True), st.permutations(["x", "y", "v"])
)
def test_a_kernel_is_in_one_pair_at_most(a: list[str], b: list[str]) -> None:
    pairs = pair_kernels(a, b)
    assert len(set(pairs.values())) == len(pairs)
    assert set(pairs) <= set(a) and set(pairs.values()) <= set(b)


def test_equal_modules_are_not_disassembled(listed: Listed) -> None:
    result = diff_modules(MODULE, MODULE, listed)
    assert result.identical_code and result.changed == () and listed.wanted == []
    assert [(k.a, k.b, k.verdict) for k in result.kernels] == [(n, n, CodeVerdict.SAME_CODE) for n in MODULE.kernels]
    assert [k.a_resources for k in result.kernels] == [MODULE.resources[name] for name in MODULE.kernels]


def test_only_kernels_that_differ_are_disassembled(listed: Listed, tools: Toolchain) -> None:
    start, _ = next(s for s in MODULE.sections if s.name == ".text.foo").file_range
    data = bytearray(MODULE.data)
    data[start + 14] ^= 0x10  # a bit of the first instruction's wait mask
    other = Cubin.from_bytes(bytes(data))
    result = diff_modules(MODULE, other, listed)
    assert listed.wanted == [["foo"], ["foo"]]
    (changed,) = result.changed
    single = diff(MODULE, other, tools.disassemble(MODULE)["foo"], tools.disassemble(other)["foo"])
    assert (changed.a, changed.verdict, changed.summary) == ("foo", CodeVerdict.SCHEDULING, single.summary)
    assert not result.identical_code


def test_what_all_kernels_share_counts_for_each(listed: Listed) -> None:
    sections = tuple(replace(s, data=b"other") if s.name == ".nv.constant4" else s for s in MODULE.sections)
    result = diff_modules(MODULE, replace(MODULE, sections=sections), listed)
    assert {k.verdict for k in result.kernels} == {CodeVerdict.DIFFERENT_CODE}


def test_modules_for_two_architectures_are_not_compared(listed: Listed) -> None:
    with pytest.raises(CubinError, match="for one architecture"):
        diff_modules(MODULE, replace(MODULE, arch=80), listed)


def test_kernels_of_one_side_are_named(listed: Listed) -> None:
    sides = [assembled_kernels(listed, names.split()) for names in ("x y z v", "x y w")]
    result = diff_modules(*map(Cubin.from_bytes, sides), toolchain=listed)
    assert (sorted(k.a for k in result.kernels), sorted(result.only_a), result.only_b) == (
        ["x", "y"],
        ["v", "z"],
        ("w",),
    )
    assert not result.identical_code and result.changed == ()


def test_work_grows_as_the_number_of_kernels(listed: Listed) -> None:
    def compare(count: int) -> Callable[[], object]:
        names = [f"kernel_{number}" for number in range(count)]
        a, b = (Cubin.from_bytes(assembled_kernels(listed, [p + n for n in names])) for p in ("", "cutlass_"))
        return lambda: diff_modules(a, b, listed)

    assert is_linear(compare)


def test_a_failing_nvdisasm_is_an_error_not_equal_code(tools: Toolchain) -> None:
    a, b = (Cubin.from_bytes(assembled_kernels(tools, ["x", "y"], first)) for first in (0, 5))
    with pytest.raises(ToolError, match="could not read the cubin"):
        diff_modules(a, b, Toolchain(tools.ptxas, Tool(Path("/bin/false"), "1.2.3", "test")))
