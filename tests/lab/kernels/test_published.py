"""The conditions of the published table, with ptxas 12.8.93 as published. Assembled, never run."""

import pytest
from at_hand import toolchain_at_hand

from tritonhook.compare.diff import CodeVerdict
from tritonhook.compare.names import compare_names
from tritonhook.lab.published_table import CONDITIONS, PREFIX, PTXAS, condition, measure
from tritonhook.ptxas.toolchain import Toolchain
from tritonhook.rename import Rename


@pytest.fixture(scope="module")
def toolchain() -> Toolchain:
    return toolchain_at_hand(PTXAS)


@pytest.fixture(scope="module")
def rows(toolchain: Toolchain) -> dict:
    return {row.title: row for row in measure(toolchain)}


def test_only_loops_change_and_a_control_name_never_does(rows: dict) -> None:
    changed = {title for title, row in rows.items() if row.code_changed}
    assert changed == {condition("loop").title, condition("fma").title}
    assert all(row.comparison.control_is_neutral for row in rows.values())


@pytest.mark.parametrize("item", [c for c in CONDITIONS if c.published], ids=lambda c: c.key)
def test_published_ratios_are_reached(rows: dict, item) -> None:
    row, (_, capmerc) = rows[item.title], item.published
    assert row.capmerc_ratio == pytest.approx(capmerc, abs=0.005)
    assert row.size_ratio == pytest.approx(item.published[0], abs=0.025)


def test_the_published_1_02_is_the_length_of_the_name(rows: dict) -> None:
    row = rows[condition("brx").title]
    assert row.size_ratio == pytest.approx(1.019, abs=0.001)
    assert row.fair_size_ratio == 1.0


def test_without_the_warp_predicate_ptxas_dies_under_the_cutlass_name_only(rows: dict) -> None:
    row = rows[condition("bare").title]
    assert row.failure == "ptxas 12.8.93 died with SIGSEGV under the cutlass name only"
    assert row.comparison.original.cubin is not None
    assert row.comparison.control.cubin is not None
    assert row.comparison.diff is None
    assert row.code_changed is None  # not known is not "same"


@pytest.mark.parametrize("key", ["loop", pytest.param("fma", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", ["CUTLASS_x", "Cutlass_x", "cutlas_xx", "cut_lass_"])
def test_other_spellings_do_nothing(toolchain: Toolchain, key: str, name: str) -> None:
    comparison = compare_names(condition(key).ptx(), Rename(mapping=(("kernel_x", name),)), toolchain, ("-v",))
    assert comparison.diff.verdict is CodeVerdict.SAME_CODE


def test_stripping_is_the_way_back(toolchain: Toolchain) -> None:
    named = condition("loop").ptx(f"{PREFIX}kernel_x")
    comparison = compare_names(named, Rename(strip="cutlass"), toolchain, ("-v",))
    assert comparison.renamed.kernel == "kernel_x"
    assert comparison.control.kernel == "cutlasz_kernel_x"
    assert comparison.control_is_neutral
    assert comparison.diff.other_scheduler == (True, False)
