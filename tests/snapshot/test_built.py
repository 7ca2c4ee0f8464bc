"""Kernels of built libraries, and budgets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.cubin.test_fatbin import FIRST, SECOND, entry
from tests.cubin.test_shipped import library
from tritonhook.cubin.image import Cubin
from tritonhook.cubin.summary import summarise_image
from tritonhook.errors import UsageError
from tritonhook.snapshot.changes import Change, compare
from tritonhook.snapshot.facts import Budgets, KernelFacts, built_kernels
from tritonhook.snapshot.lockfile import read_whole_lock, write_lock
from tritonhook.snapshot.rules import Rule, failures, rules


@pytest.fixture
def built(tmp_path: Path) -> Path:
    path = tmp_path / "libk.so"
    path.write_bytes(library(entry(FIRST), entry(SECOND)))
    return path


def test_the_figures_are_those_of_the_image(built: Path) -> None:
    found = {facts.entry: facts for facts in built_kernels([str(built)])[0]}
    for data in (FIRST, SECOND):
        cubin, summary = Cubin.from_bytes(data), summarise_image(data, {})
        for kernel in cubin.kernels:
            facts, resources = found[kernel], cubin.resources[kernel]
            assert facts.figures["registers"] == resources.registers
            assert facts.figures["code_bytes"] == summary.kernel(kernel).code_bytes
            assert facts.figures["local_bytes"] == sum(resources.local_traffic or ())
            assert facts.identity.arch.startswith(f"sm_{cubin.arch}")
            assert facts.identity.specialisation[-1] == "in=libk.so"


def test_a_kernel_counts_once_and_other_code_under_its_name_is_numbered(tmp_path: Path) -> None:
    """As a template has in two files of one library; the image that is still to be linked does not count."""
    other, unlinked = bytearray(FIRST), bytearray(FIRST)
    section = Cubin.from_bytes(FIRST).section(".text.{kernel}", Cubin.from_bytes(FIRST).kernels[0])
    assert section is not None
    other[section.file_range[0]] ^= 1
    unlinked[section.file_range[0]] ^= 2
    unlinked[16] = 1
    path = tmp_path / "libk.so"
    path.write_bytes(library(entry(bytes(unlinked)), entry(FIRST), entry(FIRST + bytes(8)), entry(bytes(other))))
    found, notes = built_kernels([str(path)])
    assert [facts.identity.number for facts in found] == [1, 2]
    assert notes[0].startswith("several kernels have the same name")
    path.write_bytes(library(entry(bytes(unlinked))))
    assert len(built_kernels([str(path)])[0]) == 1


def test_damage_is_named_and_the_rest_is_read(tmp_path: Path) -> None:
    path = tmp_path / "libk.so"
    path.write_bytes(library(entry(FIRST[:200]), entry(SECOND)))
    found, notes = built_kernels([str(path)])
    assert {facts.entry for facts in found} == set(Cubin.from_bytes(SECOND).kernels)
    assert "libk.so: cubin 1: " in notes[0]
    path.write_bytes(library(entry(FIRST[:200])))
    with pytest.raises(UsageError, match="contains no machine code for GPUs: libk.so: cubin 1"):
        built_kernels([str(path)])


def test_a_lock_keeps_kernels_and_budgets(built: Path, tmp_path: Path) -> None:
    lock, kernels = tmp_path / "tritonhook.lock", built_kernels([str(built)])[0]
    budgets = Budgets.of({"k*": 99}, ["x"])
    write_lock(lock, [(facts, None) for facts in kernels], budgets=budgets)
    found = read_whole_lock(lock)
    assert found.budgets == budgets and not (tmp_path / "tritonhook.lock.d").exists()
    assert all(not change.is_different for change in compare(found.kernels, kernels))


def changed(kernel: KernelFacts, **figures: int | None) -> Change:
    return Change(kernel, replace(kernel, figures={**kernel.figures, **figures}))


def broken(change: Change, text: str, **settings: object) -> bool:
    return bool(failures([change], [replace(rule, **settings) for rule in rules(text)]))


def test_rules_budgets_and_the_ratchet(built: Path) -> None:
    kernel = built_kernels([str(built)])[0][0]
    kernel = replace(kernel, figures={**kernel.figures, "registers": 50, "local_bytes": 0})
    assert broken(changed(kernel, registers=51), "registers")
    assert not broken(changed(kernel, registers=51), "registers", budgets=Budgets.of(51, None))
    assert broken(changed(kernel, registers=52), "registers", budgets=Budgets.of(51, None))
    assert broken(Change(None, kernel), "registers", budgets=Budgets.of({"no*": 10, "*": 49}, None))
    unread = replace(kernel, figures={**kernel.figures, "registers": None})
    assert broken(changed(unread), "registers", budgets=Budgets.of(51, None)), (
        "what is not known may be over its budget"
    )
    assert not broken(changed(unread), "registers", budgets=Budgets.of({"no*": 10}, None))
    assert not broken(changed(kernel, registers=49), "registers")
    assert broken(changed(kernel, registers=49), "registers", both_ways=True)
    unknown = {"spill_stores": None, "spill_loads": None}
    hidden = replace(kernel, figures={**kernel.figures, **unknown, "local_bytes": 8})
    assert broken(changed(hidden, local_bytes=16), "spills") and not broken(changed(hidden), "spills")
    assert broken(changed(hidden), "spills", budgets=Budgets.of(None, []))
    assert not broken(changed(hidden), "spills", budgets=Budgets.of(None, [f"{kernel.entry[:2]}*"]))
    assert Rule("registers", budgets=Budgets.of(49, None)).told(changed(kernel)) == "registers (over its budget)"
