"""What a gate must not pass: new kernels that spill, configurations and scripts that nobody compiled."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.snapshot.test_changes import facts
from tritonhook.cli import check as verb
from tritonhook.cli import parser
from tritonhook.cli._parser import from_namespace
from tritonhook.snapshot.changes import Change, compare, failures, rules
from tritonhook.snapshot.facts import Budgets


@pytest.mark.parametrize(
    ("figures", "broken"),
    [
        ({"spill_stores": 2976, "spill_loads": 2972, "stack": 8}, ("spills", "stack")),
        ({"spill_stores": None, "spill_loads": None, "local_bytes": 4}, ("spills", "local_bytes")),
        ({"spill_stores": None, "spill_loads": None, "stack": None}, ("stack",)),
        ({"registers": 255, "shared": 1024}, ()),
    ],
)
def test_a_new_kernel_is_held_to_zero(figures: dict[str, int | None], broken: tuple[str, ...], capsys) -> None:
    changes = compare([facts("a")], [facts("a"), facts("b", code="2", **figures)])
    wanted = rules("spills,stack,local_bytes,registers")
    results = from_namespace(verb.Options, parser("check").parse_args(["check"])).results
    assert verb.give_changes(results, wanted, "old", "new", changes) == int(bool(broken))
    told = failures(changes, wanted).values()
    assert [tuple(rule.partition(" ")[0] for rule in each) for each in told] == ([broken] if broken else [])
    printed = capsys.readouterr().out
    for value in figures.values():
        assert value is None or f"{value:,}" in printed


@pytest.mark.parametrize(("allowed", "fails"), [(["b*"], False), (["c"], True), ([], True)])
def test_a_budget_lets_a_new_kernel_spill(allowed: list[str], fails: bool) -> None:
    spilled = facts("b", spill_stores=8, spill_loads=8, stack=8)
    for rule in rules("spills,stack"):
        held = replace(rule, budgets=Budgets.of(None, allowed))
        assert bool(failures([Change(None, spilled)], [held])) is fails
    full = replace(*rules("registers"), budgets=Budgets.of(168, None))
    assert failures([Change(None, facts(registers=169))], [full])
