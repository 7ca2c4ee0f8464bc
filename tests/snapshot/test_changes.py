"""Changes: matched kernels, what got worse, who did it, and the rules of --fail-on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tritonhook.errors import UsageError
from tritonhook.snapshot import changes
from tritonhook.snapshot.changes import By, Change, ChangeStatus, Crossed, Values, blocks_of, compare
from tritonhook.snapshot.facts import COUNTERS, FIGURES, Identity, KernelFacts
from tritonhook.snapshot.rules import failures, rules

STAGES = {"ttir": "a", "ttgir": "b", "llir": "c", "ptx": "d"}


def facts(kernel: str = "k", code: str = "1", arch: str = "sm_90a", **figures: int | None) -> KernelFacts:
    known = dict.fromkeys(FIGURES, 0) | dict.fromkeys(COUNTERS) | {"registers": 64, "instructions": 100} | figures
    return KernelFacts(
        Identity(kernel, arch, "Triton"), kernel, STAGES, "d", "12.8.93", ("-v",), (code,), known, {}, 128
    )


@pytest.mark.parametrize(
    ("builds", "by"),
    [
        ((168, 204, 168, 204), By.PTX),
        ((168, 168, 204, 204), By.PTXAS),
        ((168, 204, 204, 204), By.EITHER),
        ((168, 168, 168, 204), By.TOGETHER),
        ((1296, 1780, 1296, 1304), By.BOTH),
        ((168, 168, 168, 168), None),
        ((168, None, 168, 204), None),
    ],
)
def test_four_builds_tell_ptx_and_ptxas_apart(builds: tuple[int, int, int, int], by: By | None) -> None:
    assert Values(*builds).by is by
    old, new_ptx, new_ptxas, new = (facts(code=str(n), registers=many) for n, many in enumerate(builds))
    both = replace(new, stages={**STAGES, "ttgir": "x", "llir": "x", "ptx": "x"}, ptxas="13.4.59")
    change = Change(old, both)
    assert change.has_two_steps and not Change(old, new).has_two_steps
    assert change.blame == "Triton's passes (ttgir) or ptxas 12.8.93 -> 13.4.59: not known which"
    if by is not None:
        step, tools = "Triton's passes (ttgir)", "ptxas 12.8.93 -> 13.4.59"
        said = {By.PTX: step, By.PTXAS: tools}.get(by, f"{step} and {tools}, {by.value}")
        assert replace(change, crossed=Crossed(new_ptx, new_ptxas)).blame == said


def test_of_code_with_equal_figures_the_hashes_tell() -> None:
    """A build that gives one of several old codes has the old code."""
    old = replace(facts(), codes=("1", "2"))
    new = replace(facts(code="3"), ptxas="13.4.59", stages={**STAGES, "ptx": "x"})
    change = Change(old, new, Crossed(facts(code="3"), facts(code="2")))
    assert (change.leading, change.values("code"), change.blame) == ("code", Values("1", "3", "1", "3"), "LLVM (ptx)")
    other = replace(change, crossed=Crossed(facts(code="9"), replace(facts(), codes=())))
    assert other.values("code") == Values("1", "9", None, "3")


def test_kernels_are_matched_by_identity_and_the_worst_comes_first() -> None:
    old = [facts("same"), facts("gone"), facts("longer"), facts("spills"), facts("better", spill_stores=9)]
    new = [
        facts("new"),
        facts("same"),
        facts("longer", "2", instructions=300),
        facts("spills", "2", spill_loads=4),
        facts("better", "2"),
    ]
    found = compare(old, new)
    assert [(change.identity.kernel, change.status) for change in found] == [
        ("spills", ChangeStatus.CHANGED),
        ("longer", ChangeStatus.CHANGED),
        ("better", ChangeStatus.CHANGED),
        ("gone", ChangeStatus.GONE),
        ("new", ChangeStatus.NEW),
        ("same", ChangeStatus.SAME),
    ]
    assert [change.worse for change in found[:3]] == [("spill_loads",), ("instructions",), ()]
    assert [change.is_different for change in found] == [True] * 5 + [False]


def numbered(number: int, code: str, ptx: str, **figures: int) -> KernelFacts:
    identity = Identity("k", "sm_90a", "Triton", number=number)
    return replace(facts(code=code, **figures), identity=identity, stages={"ptx": ptx})


@pytest.mark.parametrize(
    ("new", "found"),
    [
        # The second of two, alone: in its folder it is the first.
        ([numbered(1, "b", "2")], {1: "gone", 2: "same"}),
        # Its PTX changed as well, so that only its code tells which it is.
        ([numbered(1, "b", "9")], {1: "gone", 2: "same"}),
        # The first changed, and so comes last.
        ([numbered(1, "b", "2"), numbered(2, "c", "3")], {1: "changed", 2: "same"}),
        ([numbered(1, "c", "3"), numbered(2, "a", "1"), numbered(3, "b", "2")], {1: "same", 2: "same", 3: "new"}),
    ],
)
def test_kernels_that_have_all_in_common_are_told_apart_by_their_ptx_and_code(new: list, found: dict) -> None:
    old = [numbered(1, "a", "1"), numbered(2, "b", "2")]
    assert {change.identity.number: change.status.value for change in compare(old, new)} == found


def test_equal_ptx_counts_more_than_equal_code() -> None:
    """Another ptxas gave the second one the code of the first."""
    old = [numbered(1, "a", "1"), numbered(2, "b", "2")]
    new = [numbered(1, "a", "2"), numbered(2, "c", "1")]
    found = {change.identity.number: change.new.stages["ptx"] for change in compare(old, new) if change.new}
    assert found == {1: "1", 2: "2"}


def test_of_several_that_all_changed_the_nearest_figures_tell_which_is_which() -> None:
    old = [numbered(1, "a", "1", registers=64), numbered(2, "b", "2", registers=248)]
    new = [numbered(1, "c", "3", registers=255), numbered(2, "d", "4", registers=66)]
    assert {change.deltas["registers"] for change in compare(old, new)} == {(64, 66), (248, 255)}


def test_equal_stages_before_the_ptx_count_more_than_near_figures() -> None:
    """As after an upgrade of Triton that leaves its first stage as it was, and makes one kernel like the other one."""

    def two(first: KernelFacts, second: KernelFacts) -> list[KernelFacts]:
        return [replace(one, stages={"ttir": ttir, **one.stages}) for one, ttir in ((first, "A"), (second, "B"))]

    old = two(numbered(1, "a", "1", registers=64), numbered(2, "b", "2", registers=248))
    new = two(numbered(1, "c", "3", registers=255), numbered(2, "d", "4", registers=66))
    assert {change.deltas["registers"] for change in compare(old, new)} == {(64, 255), (248, 66)}


def test_code_that_is_not_known_is_neither_the_same_nor_another() -> None:
    for old, new in ((facts(), facts(code="")), (facts(code=""), facts()), (facts(code=""), facts(code=""))):
        sides = [replace(side, codes=() if side.codes == ("",) else side.codes) for side in (old, new)]
        change = Change(*sides)
        assert (change.status, change.code_changed, change.is_different) == (ChangeStatus.UNKNOWN, False, True)
        assert change.blame == ""


def test_another_architecture_is_another_kernel() -> None:
    assert {change.status for change in compare([facts()], [facts(arch="sm_100a")])} == {
        ChangeStatus.NEW,
        ChangeStatus.GONE,
    }


@pytest.mark.parametrize(
    ("registers", "threads", "arch", "blocks"),
    [
        (64, 128, "sm_90a", 8),
        (65, 128, "sm_90a", 7),  # 72 registers a thread: 7 warps for each quarter
        (41, 128, "sm_90a", 10),  # 48 registers a thread
        (255, 128, "sm_90a", 2),
        (168, 384, "sm_90a", 1),
        (16, 128, "sm_90a", 16),  # 64 warps
        (16, 128, "sm_120a", 12),  # 48 warps
        (16, 128, "sm_86", 12),
        (16, 128, "sm_80", 16),
    ],
)
def test_blocks_that_an_sm_has_registers_for(registers: int, threads: int, arch: str, blocks: int) -> None:
    """As NVIDIA's occupancy calculator says."""
    assert blocks_of(replace(facts(arch=arch, registers=registers), threads=threads)) == blocks


def test_more_registers_are_worse_where_fewer_blocks_fit() -> None:
    assert Change(facts(registers=60), facts(registers=64)).worse == ()
    assert Change(facts(registers=64), facts(registers=65)).worse == ("registers",)
    unknown = replace(facts(registers=65), threads=None)
    assert Change(replace(facts(), threads=None), unknown).worse == ("registers",)
    assert Change(facts(shared=1_040), facts(shared=1_056)).worse == ()
    assert Change(facts(shared=50_000), facts(shared=100_000)).worse == ("shared",)
    two = replace(facts(registers=64, shared=1_056), threads=256)
    assert Change(facts(registers=64, shared=1_040), two).worse == (), "half the blocks, as many warps"


@pytest.mark.parametrize(
    ("change", "by"),
    [
        ({"stages": {**STAGES, "ttir": "x", "ttgir": "x", "llir": "x", "ptx": "x"}}, "source"),
        ({"stages": {**STAGES, "ttgir": "x", "llir": "x", "ptx": "x"}}, "passes (ttgir)"),
        ({"stages": {**STAGES, "llir": "x", "ptx": "x"}}, "lowering to LLVM (llir)"),
        ({"stages": {**STAGES, "ptx": "x"}}, "LLVM (ptx)"),
        # What differs before a stage that is equal has changed nothing.
        ({"stages": {**STAGES, "ttir": "x", "llir": "x", "ptx": "x"}}, "lowering to LLVM (llir)"),
        ({"stages": {**STAGES, "ttir": "x"}, "ptxas": "13.5.37"}, "ptxas 12.8.93 -> 13.5.37"),
        ({"ptxas": "13.5.37"}, "ptxas 12.8.93 -> 13.5.37"),
        ({"options": ("-O1",)}, "ptxas options -O1 added, -v removed"),
        ({}, "ptxas, which made another code from the same input"),
        ({"rewrites": "tma-cta", "stages": {**STAGES, "ptx": "x"}}, "tritonhook's rewrite none -> tma-cta"),
        ({"rewrites": "tma-cta", "stages": {**STAGES, "llir": "x", "ptx": "x"}}, "lowering to LLVM (llir)"),
        ({"entry": "cutlass_k"}, "its name k -> cutlass_k"),
        ({"entry": "cutlass_k", "ptxas": "13.5.37"}, "ptxas 12.8.93 -> 13.5.37 and its name k -> cutlass_k"),
        ({"stages": {}}, "not known"),
    ],
)
def test_who_did_it(change: dict, by: str) -> None:
    assert by in Change(facts(), replace(facts(code="2"), **change)).blame


def test_nobody_did_it_where_the_code_is_the_same() -> None:
    stages = {**STAGES, "ttir": "x", "ttgir": "x"}
    assert Change(facts(), replace(facts(), stages=stages)).blame == ""


@pytest.mark.parametrize("figure", ["registers", "stack", "shared"])
def test_the_same_code_with_other_resources_is_a_change(figure: str) -> None:
    change = Change(facts(), facts(**{figure: 96}))
    assert (change.status, change.is_different, change.code_changed) == (ChangeStatus.CHANGED, True, False)
    assert change.blame == "ptxas, which made equal code with other resources from the same input"
    asked = Change(facts(), replace(facts(shared=96), dynamic_shared=96))
    assert "the launch" in asked.blame


def test_one_of_several_codes_is_no_change() -> None:
    locked = replace(facts(), codes=("1", "2"))
    assert Change(locked, facts(code="2")).status is ChangeStatus.SAME
    assert Change(locked, facts(code="3")).status is ChangeStatus.CHANGED


def test_what_is_not_known_is_neither_equal_nor_worse() -> None:
    change = Change(facts(spill_stores=None), facts(spill_stores=8))
    assert (change.deltas, change.worse) == ({}, ())


def test_a_kernel_that_ptxas_makes_no_code_of_comes_first() -> None:
    failed = replace(facts("b"), codes=(), figures={}, failure="ptxas 13.5.37: crashed")
    found = compare([facts("a"), facts("b")], [facts("a", "2", spill_stores=800), failed])
    assert [change.identity.kernel for change in found] == ["b", "a"]
    assert (found[0].status, found[0].blame, found[0].is_different) == (
        ChangeStatus.FAILED,
        "ptxas 13.5.37: crashed",
        True,
    )


@pytest.mark.parametrize(
    ("rule", "new", "fails"),
    [
        ("spills", facts(code="2", spill_loads=4), True),
        ("spills", facts(code="2", stack=4), False),
        ("stack", facts(code="2", stack=4), True),
        ("registers", facts(code="2", registers=65), True),
        ("registers+10%", facts(code="2", registers=70), False),
        ("registers+10%", facts(code="2", registers=71), True),
        ("instructions+5%", facts(code="2", instructions=105), False),
        ("instructions+5%,code", facts(code="2", instructions=105), True),
        ("code", facts(), False),
        ("new", facts("other"), True),
        ("gone", facts("other"), True),
        ("spills,stack", facts(code="2"), False),
    ],
)
def test_what_fails(rule: str, new: KernelFacts, fails: bool) -> None:
    assert bool(failures(compare([facts()], [new]), rules(rule))) is fails


@pytest.mark.parametrize("rule", ["spills", "stack", "registers+10%", "code"])
def test_what_is_not_known_any_more_fails(rule: str) -> None:
    failed = replace(facts(), codes=(), figures={}, failure="ptxas 13.5.37: crashed")
    unknown = replace(facts(), codes=())
    for new in (failed, unknown):
        assert failures(compare([facts()], [new]), rules(rule))
        assert not failures(compare([facts()], [new]), rules("new,gone"))
    (figure,) = [name for name in ("stack", "registers", "spill_loads") if name.startswith(rule[:5])] or [
        "instructions"
    ]
    never_known = replace(facts(), figures={})
    assert failures(compare([never_known], [failed]), rules(rule))
    no_figure = replace(facts(), figures={**facts().figures, figure: None})
    assert bool(failures(compare([facts()], [no_figure]), rules(rule))) is (rule != "code")
    assert not failures(compare([no_figure], [facts()]), rules(rule))


def test_a_failure_says_which_rule() -> None:
    (broken,) = failures(compare([facts()], [facts(code="2", registers=80)]), rules("registers+10%,code")).values()
    assert broken == ("registers+10%", "code")


@pytest.mark.parametrize("text", ["", "speed", "registers+x%", "registers-10%", "code+5%", "new+1%"])
def test_a_rule_that_is_none_is_named(text: str) -> None:
    with pytest.raises(UsageError, match="must be one of spills, stack, registers"):
        rules(text)


def test_other_parameters_of_the_same_code_are_a_change_that_says_so() -> None:
    old = replace(facts(), loaded={"parameters": "1" * 16, "data": "2" * 16})
    new = replace(old, loaded={"parameters": "3" * 16, "data": "2" * 16, "relocations": "4" * 16})
    (change,) = compare([old], [new])
    assert change.loaded_changed == ("parameters", "relocations")
    assert (change.status, change.code_changed) == (ChangeStatus.CHANGED, False)
    assert "equal code with other parameters and relocations" in change.blame
    assert failures([change], rules("code")) and not failures([change], rules("spills,stack,registers"))
    (both,) = compare([old], [replace(new, codes=("2",))])
    assert both.loaded_changed == ("parameters",) and "another code" in both.blame
    (unknown,) = compare([replace(old, loaded={})], [old])
    assert (unknown.status, unknown.loaded_changed) == (ChangeStatus.SAME, ())


def many(names: int) -> list[KernelFacts]:
    """Kernels of one name, of which each has PTX, code and figures of its own."""
    return [
        replace(
            facts(code=f"{n:016x}", registers=n % 256),
            identity=replace(facts().identity, number=n + 1),
            stages={"ptx": f"{n:016x}"},
        )
        for n in range(names)
    ]


def test_many_kernels_of_one_name_are_matched_by_ptx_then_code_then_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    old = many(3_000)
    by_ptx = [replace(one, codes=("f" * 16,)) for one in reversed(old[:1_000])]
    by_code = [replace(one, stages={"ptx": "e" * 16}) for one in reversed(old[1_000:2_000])]
    neither = [replace(one, codes=("d" * 16,), stages={"ptx": "d" * 16}) for one in reversed(old[2_000:])]
    counted: list[int] = []
    monkeypatch.setattr(changes, "_distance", lambda a, b, real=changes._distance: counted.append(1) or real(a, b))
    found = changes.renumbered(old, [*by_ptx, *by_code, *neither])
    assert [one.identity.number for one in found[:2_000]] == [*range(1_000, 0, -1), *range(2_000, 1_000, -1)]
    assert sorted(one.identity.number for one in found) == list(range(1, 3_001))
    assert all(one.figures["registers"] == old[one.identity.number - 1].figures["registers"] for one in found[2_000:])
    assert len(counted) <= 3_000


@pytest.mark.parametrize("rule", ["new", "gone"])
def test_an_edited_configuration_is_a_new_one_and_the_old_one_is_gone(rule: str) -> None:
    old, new = (
        replace(facts(), identity=Identity("k", "sm_90a", "Triton", (spec,))) for spec in ("num_warps=4", "num_warps=8")
    )
    assert failures(compare([old], [new]), rules(rule)) and not failures(compare([old], [old]), rules(rule))
    (change,) = compare([old], [new])
    assert change.is_different and not change.code_changed
    assert not failures([change], rules("code,spills"))


def test_an_edit_of_the_configuration_is_one_change() -> None:
    old, new, other = (
        replace(facts(code=spec), identity=Identity("k", "sm_90a", "Triton", (spec, "BLOCK=64")))
        for spec in ("num_warps=4", "num_warps=8", "num_warps=2")
    )
    (change,) = compare([old], [new])
    assert (change.status, change.blame) == (ChangeStatus.CHANGED, "num_warps=4 -> num_warps=8")
    assert {change.status for change in compare([old], [new, other])} == {
        ChangeStatus.NEW,
        ChangeStatus.GONE,
    }
    wide = [
        replace(it, identity=replace(it.identity, specialisation=it.identity.specialisation[:1])) for it in (old, new)
    ]
    both = compare([old, wide[0]], [new, wide[1]])  # each with the one that is nearest
    assert [change.blame for change in both] == ["num_warps=4 -> num_warps=8"] * 2
    (same, changed) = sorted(compare([old, other], [new, other]), key=lambda change: change.blame)
    assert (same.status, changed.blame) == (ChangeStatus.SAME, "num_warps=4 -> num_warps=8")
