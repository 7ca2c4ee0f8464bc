"""The file of a policy: what it looks like, how it is merged, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tritonhook.capture.policy.levers import lever
from tritonhook.capture.policy.model import (
    Entry,
    Pin,
    Policy,
    from_json,
    policy_text,
    read_blocks,
    read_policy,
    stem,
    to_json,
    updated,
    updated_pins,
    write_policy,
)
from tritonhook.errors import PolicyError
from tritonhook.ptxas.tool import find_ptxas

ENTRY = Entry(
    kernel="attention",
    arch="sm_90a",
    front_end="Triton",
    ptx="1a" * 32,
    ptxas="12.8.93",
    lever=lever("name"),
    code="3c" * 8,
    gain_percent=5.254,
    interval_percent=(4.5, 6.018),
    gpu="NVIDIA H200",
    date="2026-11-22",
)
PIN = """
[[pin]]
function = "add_kernel"
arch = "sm_90a"
key = ["n=1000"]
config = "BLOCK: 64"
"""
BLOCK = """
[[kernel]]
name = "attention"
arch = "sm_90a"
front_end = "Triton"
lever = "name"
gain_percent = 5.25
interval_percent = [4.5, 6.02]
gpu = "NVIDIA H200"
date = "2026-11-22"
ptxas = "12.8.93"
ptx = "1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a"
code = "3c3c3c3c3c3c3c3c"
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "tritonhook.toml"
    path.write_text(text)
    return path


def test_a_block_for_each_kernel_sorted_whatever_order_they_came_in(tmp_path: Path) -> None:
    others = [replace(ENTRY, kernel="zebra"), replace(ENTRY, arch="sm_80"), replace(ENTRY, ptx="0b" * 32)]
    path = tmp_path / "tritonhook.toml"
    write_policy(path, [ENTRY, *others])
    assert path.read_text() == policy_text([*others, ENTRY])
    assert path.read_text().count(BLOCK) == 1 and path.read_text().startswith("# Levers that make kernels faster")
    found = [(entry.kernel, entry.arch, entry.ptx[:2]) for entry in read_blocks(path).entries]
    assert found == [
        ("attention", "sm_80", "1a"),
        ("attention", "sm_90a", "0b"),
        ("attention", "sm_90a", "1a"),
        ("zebra", "sm_90a", "1a"),
    ]


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    given = replace(ENTRY, gain_percent=5.25, interval_percent=(4.5, 6.02), front_end="cute", kernel='odd "name"\x7f')
    write_policy(tmp_path / "p.toml", [given])
    assert read_blocks(tmp_path / "p.toml").entries == (given,)
    write_policy(tmp_path / "p.toml", [])
    assert read_blocks(tmp_path / "p.toml").entries == ()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("format = 1", "format = 3", "its format is 3, this version reads 2; update tritonhook"),
        ("format = 1", "", "format is missing"),
        ("format = 1", "format = 1\nlevers = 3", "unknown field levers"),
        ("date =", "day =", "unknown field day"),
        ('lever = "name"', 'lever = "names"', "attention sm_90a: 'names' is not a lever; choose from name,"),
        ('lever = "name"', 'lever = "pragma"', "attention sm_90a: pragma needs ptxas 13.3 or newer"),
        ('lever = "name"', 'lever = "tma-cta"', "tma-cta is not for sm_90a"),
        ('lever = "name"', 'lever = "ptxas=/bin/sh"', "is not a lever"),
        ('lever = "name"', 'lever = "ptxas=13.5.37+controls=a"', "lever controls=FILE need each other"),
        ("Triton", "triton", "one of Triton, cute"),
        ('ptxas = "12.8.93"', 'ptxas = "new"', "kernel[0].ptxas: expected a version such as 12.8.93"),
        ('ptx = "1a', 'ptx = "', "kernel[0].ptx: expected a hash of 64 hex digits"),
        ("4.5, 6.02", "4.5", "interval_percent"),
        ("sm_90a", "gfx942", "kernel[0].arch: expected an architecture such as sm_90a"),
        (BLOCK, BLOCK + BLOCK, "two entries for attention sm_90a: name of 2026-11-22 and name of 2026-11-22"),
        (BLOCK, PIN + PIN, "add_kernel sm_90a is pinned twice"),
        (BLOCK, PIN.replace("config", "warps"), "unknown field warps"),
        (BLOCK, "[[", "not a valid policy"),
    ],
)
def test_what_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = written(tmp_path, policy_text([ENTRY]).replace(old, new))
    with pytest.raises(PolicyError) as caught:
        read_blocks(path)
    assert message in str(caught.value) and str(caught.value).startswith(str(path)), str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(
        PolicyError, match="none.toml: cannot read the policy: No such file .*`tritonhook tune` makes one"
    ):
        read_blocks(tmp_path / "none.toml")


def test_entries_of_one_missing_ptxas_have_one_note(tmp_path: Path) -> None:
    missing = [replace(ENTRY, kernel=kernel, lever=lever("ptxas=11.0.1")) for kernel in ("a", "b")]
    policy = read_policy(written(tmp_path, policy_text([ENTRY, *missing])))
    assert policy.entries == (replace(ENTRY, gain_percent=5.25, interval_percent=(4.5, 6.02)),)
    assert policy.notes == (
        "2 kernels (a, ...) of tritonhook.toml not applied: ptxas 11.0.1 is not here; get it with "
        "`tritonhook ptxas add 11.0.1`",
    )


def test_child_processes_get_what_can_be_applied(tmp_path: Path) -> None:
    version = find_ptxas().version
    policy = read_policy(written(tmp_path, policy_text([replace(ENTRY, lever=lever(f"name+O1+ptxas={version}"))])))
    again = from_json(to_json(policy))
    assert (again.entries, again.key) == (policy.entries, policy.key)
    assert again.entries[0].assembling.version == version


def test_the_key_names_what_is_done_and_nothing_else() -> None:
    key = Policy((ENTRY,)).key
    same = [replace(ENTRY, gain_percent=1.0), replace(ENTRY, gpu="other"), replace(ENTRY, date="2027-01-01")]
    others = [
        replace(ENTRY, kernel="b"),
        replace(ENTRY, ptx="00" * 32),
        replace(ENTRY, ptxas="12.9.86"),
        replace(ENTRY, code="00" * 8),
        replace(ENTRY, lever=lever("strip")),
        replace(ENTRY, lever=lever("O1"), assembling=lever("O1").assembling(Path())),
    ]
    assert {Policy((entry,)).key for entry in same} == {key}
    assert len({key, *(Policy((entry,)).key for entry in others)}) == 1 + len(others)
    assert Policy(()).key == ""


def test_a_number_behind_a_name_does_not_tell_kernels_apart() -> None:
    assert stem("triton_poi_fused_add_3") == stem("triton_poi_fused_add_17") != stem("triton_poi_fused_mul_3")
    numbered = Policy((replace(ENTRY, kernel="fused_3"), replace(ENTRY, kernel="fused_4", code="00" * 8)))
    assert numbered.of_kernel("fused_99").key == numbered.of_kernel("fused_3").key != Policy(()).key
    assert numbered.of_kernel("fused").entries == numbered.entries and numbered.of_kernel("other").entries == ()


def test_another_tuning_replaces_what_it_judged_and_keeps_the_rest() -> None:
    kept, lost, won = (replace(ENTRY, kernel=name) for name in ("kept", "lost", "won"))
    better = replace(won, lever=lever("O1"))
    text = ENTRY.lever.text
    after = updated([won, lost, kept], [better], {won.identity: {text, "O1"}, lost.identity: {text}})
    assert after == [kept, better]


def test_an_entry_stays_where_its_lever_was_not_tried() -> None:
    other = replace(ENTRY, kernel="other")
    assert updated([ENTRY, other], [], {ENTRY.identity: {"O3"}, other.identity: {ENTRY.lever.text}}) == [ENTRY]


def test_a_judged_kernel_loses_its_entry_whatever_its_number() -> None:
    won, other = (replace(ENTRY, kernel=name) for name in ("triton_red_2", "triton_red_x_2"))
    (kept,) = updated([won, other], [], {("triton_red_7", *won.identity[1:]): {ENTRY.lever.text}})
    assert kept is other


def test_a_pin_goes_with_its_entry_and_gives_way_to_a_winner() -> None:
    gone, kept = replace(ENTRY, ptx="a"), replace(ENTRY, ptx="b")
    by_itself, of_gone, of_kept = (
        Pin(name, "sm_90a", ("n=1",), "BLOCK: 64", ptx) for name, ptx in (("f", None), ("g", "a"), ("h", "b"))
    )
    won = replace(by_itself, config="BLOCK: 128")
    pins = (of_kept, of_gone, by_itself)
    assert updated_pins(pins, (), (gone, kept), (kept,)) == [by_itself, of_kept]
    assert updated_pins(pins, (won,), (gone, kept), (gone, kept)) == [won, of_gone, of_kept]
