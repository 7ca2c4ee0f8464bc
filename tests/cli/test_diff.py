"""`tritonhook diff`, and `tritonhook ab` where it compares only code."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from at_hand import ptxas_at_hand
from command_line import failing
from repository import GOLDEN
from shell_ptxas import shell_ptxas
from stored_kernels import keep_module, made

from tritonhook._util.variables import RUN_ID
from tritonhook.capture.store import CaptureFolder, CaptureWriter
from tritonhook.cli import diff as verb
from tritonhook.cli import main, parser
from tritonhook.cli._parser import from_namespace
from tritonhook.errors import UsageError
from tritonhook.lab.published_table import condition
from tritonhook.ptxas.tool import available_ptxas, find_ptxas
from tritonhook.ptxas.toolchain import Assembled, assemble


def test_diff_of_names_that_change_code(plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    named = tmp_path / "named.ptx"
    main(["rename", str(plain), "--prefix", "cutlass_", "-o", str(named)])
    capsys.readouterr()
    assert main(["diff", str(plain), str(named), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["format"] == 1
    assert document["verdict"] in ("only scheduling differs", "different code")
    assert document["a"]["kernel"] == "cutlasz_work"  # the control, as long as b's name
    assert document["b"]["kernel"] == "cutlass_work"
    version = find_ptxas().version
    assert (document["a"]["ptxas"], document["b"]["ptxas"]) == (version, version)
    assert document["scheduler"]["other_scheduler"] == {"a": False, "b": True}
    roles = [section["role"] for section in document["sections"]]
    assert ".text.{kernel}" in roles
    assert all(isinstance(s["a_bytes"], int) and isinstance(s["b_bytes"], int) for s in document["sections"])
    assert {r["field"] for r in document["resources"]} >= {"registers", "stack", "shared", "barriers", "spill_stores"}
    assert document["sass"]["instructions"]["a"] > 20
    assert len(document["sass"]["loops"]) == 1


def test_titles_have_the_users_names_and_the_control_is_explained(
    plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    named, page = tmp_path / "named.ptx", tmp_path / "d.html"
    main(["rename", str(plain), "--prefix", "cutlass_", "-o", str(named)])
    capsys.readouterr()
    assert main(["diff", str(plain), str(named), "--html", str(page)]) == 1
    shown = capsys.readouterr().out
    assert shown.splitlines()[1] == "Diff: work → cutlass_work"
    assert "side a (work) is assembled under the control name cutlasz_work, as long as the other name" in shown
    assert "assembled under the control name cutlasz_work" in re.sub("<[^>]*>", "", page.read_text())
    assert main(["diff", "--rename", str(plain), "--json"]) == 1
    sides = json.loads(capsys.readouterr().out)["diff"]
    assert [sides[side]["name"] for side in "ab"] == ["work", "cutlass_work"]


def test_two_kernels_are_compared_without_a_control(plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """A control name is for one kernel under two names: other kernels keep theirs, whatever their lengths."""
    other = tmp_path / "other.ptx"
    other.write_text(condition("fma").ptx("another_kernel", target="sm_90a", version="8.0").text)
    for a, b, names in ((plain, other, ["work", "another_kernel"]), (other, plain, ["another_kernel", "work"])):
        assert main(["diff", str(a), str(b), "--json"]) == 1
        document = json.loads(capsys.readouterr().out)
        assert [document[side]["kernel"] for side in "ab"] == [document[side]["name"] for side in "ab"] == names
        assert "cutlas" not in str(document["notes"])


def test_a_kernel_before_and_after_a_rewrite(plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    words = ["diff", str(plain), "--rewrite", "mma-throughput"]
    ptxas_at_hand()
    assert main([*words, "--ptxas", "13.5.37", "--json"]) == 1
    by_pragma = json.loads(capsys.readouterr().out)
    named = tmp_path / "named.ptx"
    main(["rename", str(plain), "--prefix", "cutlass_", "-o", str(named)])
    capsys.readouterr()
    assert main(["diff", str(plain), str(named), "--ptxas", "13.5.37", "--json"]) == 1
    by_name = json.loads(capsys.readouterr().out)
    assert by_pragma["b"]["kernel"] == by_pragma["a"]["kernel"] == "work"
    assert by_pragma["sass"] == by_name["sass"]
    triggers = [found[side]["trigger"] for found in (by_pragma, by_name) for side in "ab"]
    assert [(t["name"], t["pragma"]) for t in triggers] == [(0, 0), (0, 1), (0, 0), (1, 0)]


def test_a_rewrite_that_this_ptxas_cannot_take(plain: Path, tools, capsys: pytest.CaptureFixture) -> None:
    words = ("diff", str(plain), "--rewrite", "mma-throughput", "--ptxas", "12.8.93")
    assert "needs ptxas 13.3 or newer, and this is 12.8.93; use a newer one" in failing(capsys, *words)
    assert "give two kernels, or one and --rename or --rewrite NAME" in failing(capsys, "diff", str(plain))
    assert "changes nothing" in failing(capsys, "diff", str(plain), "--rewrite", "tma-cta")


def test_diff_says_the_verdict_first(plain: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["diff", str(plain), str(plain)]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "Same code"


def test_no_control_compares_the_names_as_they_are(plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    other = tmp_path / "other.ptx"
    main(["rename", str(plain), "--to", "work=a_much_longer_name", "-o", str(other)])
    capsys.readouterr()
    assert main(["diff", str(plain), str(other), "--no-control", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["a"]["kernel"] == "work"
    assert any("differ in length" in note for note in document["notes"])


def test_diff_refuses_what_it_cannot_tell(
    plain: Path, two_entries: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    other = tmp_path / "sm80.ptx"
    other.write_text(condition("fma").ptx("work", target="sm_80", version="8.0").text)
    assert "for one architecture" in failing(capsys, "diff", str(plain), str(other))
    assert "2 entries (first, second); name one with --entry" in failing(capsys, "diff", str(two_entries), str(plain))
    assert "ptxas 1.2.3: not found" in failing(capsys, "diff", str(plain), str(plain), "--ptxas", "1.2.3")
    unknown = tmp_path / "unknown.ptx"
    unknown.write_text(plain.read_text().replace("sm_90a", "sm_999"))
    assert "sm_999" in failing(capsys, "diff", "--rename", str(unknown))
    error = failing(capsys, "diff", str(plain), str(plain), "--options=--no-such-option")
    assert "no-such-option" in error
    assert "repeat with:" in error


@pytest.mark.parametrize(
    "asked", [["--entry", "first"], ["--entry", "cutlass_first"], ["--entry", "first:cutlass_first"]]
)
def test_diff_of_an_entry_that_one_side_renamed(
    two_entries: Path, tmp_path: Path, capsys: pytest.CaptureFixture, asked: list[str]
) -> None:
    other = tmp_path / "renamed.ptx"
    assert main(["rename", str(two_entries), "--entry", "first", "--prefix", "cutlass_", "-o", str(other)]) == 0
    capsys.readouterr()
    assert main(["diff", str(two_entries), str(other), *asked, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert [document[side]["name"] for side in "ab"] == ["first", "cutlass_first"]
    assert [document[side]["kernel"] for side in "ab"] == ["cutlasz_first", "cutlass_first"]  # one is a control


def test_diff_of_two_entries_of_one_module(two_entries: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["diff", str(two_entries), str(two_entries), "--entry", "first:second", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert [document[side]["kernel"] for side in "ab"] == ["first", "second"]  # two kernels: no control name


def test_all_kernels_of_two_modules_are_compared(
    two_entries: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    def compare(b: Path) -> tuple[int, dict[str, Any]]:
        code = main(["diff", str(two_entries), str(b), "--json"])
        return code, json.loads(capsys.readouterr().out)

    renamed = tmp_path / "renamed.ptx"
    assert main(["rename", str(two_entries), "--entry", "second", "--prefix", "cutlass_", "-o", str(renamed)]) == 0
    code, document = compare(renamed)
    assert (code, document["same_code"], document["only_a"], document["only_b"]) == (0, True, [], [])
    assert {k["a"]: (k["b"], k["verdict"]) for k in document["kernels"]} == {
        "first": ("first", "same code"),
        "second": ("cutlass_second", "same code"),
    }
    changed = tmp_path / "changed.ptx"
    changed.write_text(two_entries.read_text().replace("ex2.approx", "lg2.approx"))
    code, document = compare(changed)
    assert code == 1
    assert {k["a"]: k["verdict"] for k in document["kernels"]} == {"first": "different code", "second": "same code"}
    other = tmp_path / "other.ptx"
    main(["rename", str(two_entries), "--to", "first=other", "--to", "second=y", "-o", str(other)])
    capsys.readouterr()
    assert "have no kernel in common; compare two of them with --entry A:B" in failing(
        capsys, "diff", str(two_entries), str(other)
    )
    assert main(["diff", str(two_entries), str(other), "--entry", "first:other", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["b"]["kernel"] == "other"
    assert f"{other}: no entry 'first'" in failing(
        capsys, "diff", str(two_entries), str(other), "--entry", "first:first"
    )


def test_ab_defaults_to_the_cutlass_prefix(plain: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["diff", "--rename", str(plain), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    names = [document[side]["kernel"] for side in ("original", "renamed", "control")]
    assert names == ["work", "cutlass_work", "cutlasz_work"]
    assert document["control_is_neutral"] is True
    assert document["diff"]["scheduler"]["other_scheduler"] == {"a": False, "b": True}


def test_ab_of_a_name_that_does_nothing(plain: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["diff", str(plain), "--prefix", "harmless_"]) == 0
    assert "the name changes nothing in the code" in capsys.readouterr().out


def test_ab_needs_something_to_rename(plain: Path, capsys: pytest.CaptureFixture) -> None:
    assert "does not change 'work'" in failing(capsys, "diff", str(plain), "--strip")


@pytest.mark.parametrize(("crashing", "code"), [("cutlass_work", 1), ("cutlasz_work", 2)])
def test_ab_of_a_crash(
    crashing: str, code: int, plain: Path, tmp_path: Path, monkeypatch, capsys: pytest.CaptureFixture
) -> None:
    # Under the new name it is a finding; under the control there is nothing to hold the name against.
    fake = shell_ptxas(tmp_path, find_ptxas(), f'[ "$name" = {crashing} ] && kill -SEGV $$')
    assert main(["diff", "--rename", str(plain), "--ptxas", str(fake.path)]) == code
    shown = capsys.readouterr().out
    assert f"{crashing}: " in shown and "repeat the crash with: " in shown


@pytest.mark.parametrize("words", [["--options", "-O1"], ["--options=-O1"], ["--options", "-O1 -v"]])
def test_options_may_look_like_options(words: list[str], plain: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["diff", str(plain), str(plain), *words, "--json"]) == 0
    assert any(": -O1" in note for note in json.loads(capsys.readouterr().out)["notes"])


def test_an_entry_that_no_side_has_is_an_error(plain: Path, capsys: pytest.CaptureFixture) -> None:
    assert "--entry typo: no such kernel; the kernels are: work" in failing(
        capsys, "diff", str(plain), str(plain), "--entry", "typo"
    )
    assert "--entry typo: no such kernel" in failing(capsys, "diff", "--rename", str(plain), "--entry", "typo")


def test_a_binary_side_is_called_neither_ptx_nor_cubin(tmp_path, capsys):
    (tmp_path / "k.bin").write_bytes(b".version 8.7\0\1\2")
    error = failing(capsys, "diff", str(tmp_path / "k.bin"), str(tmp_path / "k.bin"))
    assert "k.bin: a binary file, but not an ELF image; give PTX, a cubin, or a capture folder" in error


def test_a_lock_is_not_read_as_ptx(plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "tritonhook.lock").write_text("format = 1\n")
    for sides in ((plain, tmp_path / "tritonhook.lock"), (tmp_path / "tritonhook.lock", plain)):
        assert "tritonhook.lock CAPTURES` compares captures with it" in failing(capsys, "diff", *map(str, sides))


def test_ptx_beside_a_cubin_is_assembled_by_the_ptxas_that_made_the_cubin(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    # sm_100 images say which ptxas made them; a newer one may be at hand.
    text = condition("fma").ptx("work")
    versions = sorted({tool.version for tool in available_ptxas()}, key=lambda v: [int(x) for x in v.split(".")])
    made = assemble(find_ptxas(versions[0]), text, ("-v",))
    if not isinstance(made, Assembled):
        pytest.skip(f"ptxas {versions[0]} does not read this PTX: {made.summary}")
    (tmp_path / "k.ptx").write_text(text.text)
    (tmp_path / "k.cubin").write_bytes(made.cubin.data)
    assert main(["diff", str(tmp_path / "k.ptx"), str(tmp_path / "k.cubin"), "--options=-v", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["a"]["ptxas"], document["b"]["ptxas"]) == (versions[0], versions[0])
    other = versions[-1]
    main(["diff", str(tmp_path / "k.ptx"), str(tmp_path / "k.cubin"), "--ptxas", other, "--json"])
    notes = json.loads(capsys.readouterr().out)["notes"]
    assert any(f"a was made by ptxas {other}, b by ptxas {versions[0]}" in note for note in notes) == (
        other != versions[0]
    )


# --- the parts ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "give two kernels or folders, or --previous"),
        (("K",), "give two kernels, or one and --rename or --rewrite NAME"),
        (("K", "K", "--rewrite", "tma-cta"), "give two kernels, or one and"),
        (("K", "K", "--fail-on", "code"), "--fail-on: only for two capture folders"),
        (("K", "K", "--top", "3"), "--top: only for two capture folders"),
        (("K", "K", "--rename"), "one kernel is compared with itself"),
        (("K", "--rename", "--no-control"), "--no-control: one kernel is compared with itself"),
        (("K", "K", "--previous"), "--previous: give one capture folder or kernel, or none"),
        (("K", "--previous", "--rewrite", "tma-cta"), "--previous: give one capture folder or kernel, or none"),
        (("TWO", "TWO", "--code"), "--code, --ptx, --ttgir, --ttir: only for one kernel on each side"),
        (("TWO", "TWO", "--ttir"), "--code, --ptx, --ttgir, --ttir: only for one kernel on each side"),
        (("K", "K", "--ttgir"), "K: no ttgir; compare two captured kernels"),
        (("K", "K", "--ttir"), "K: no ttir; compare two captured kernels"),
        (("C", "--rewrite", "tma-cta"), "C: a cubin has no PTX to rewrite"),
        (("C", "--rename"), "C: no PTX to assemble under two names"),
        (("D", "D2", "--code"), "--code: not for two capture folders"),
        (("D", "absent", "--ptxas", "1"), "--ptxas: not for two capture folders"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(
    words: tuple[str, ...], said: str, plain: Path, two_entries: Path, capsys, monkeypatch
):
    monkeypatch.chdir(plain.parent)
    for name in ("D", "D2"):
        (plain.parent / name / "index").mkdir(parents=True)
    named = {"K": plain, "TWO": two_entries, "C": GOLDEN / "sm_90a.exp.plain.cubin"}
    named |= {name: plain.parent / name for name in ("D", "D2")}
    shown = failing(capsys, "diff", *(str(named.get(word, word)) for word in words))
    file = said.partition(":")[0]
    assert (said.replace(file, str(named[file]), 1) if file in named else said) in shown


def test_code_and_ptx_are_printed_line_by_line(plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    other = tmp_path / "other.ptx"
    other.write_text(plain.read_text().replace("ex2.approx.ftz.f32 %f0", "lg2.approx.ftz.f32 %f0"))
    for option, old, new in (("--code", "MUFU.EX2", "MUFU.LG2"), ("--ptx", "ex2.approx", "lg2.approx")):
        assert main(["diff", str(plain), str(other), option]) == 1
        lines = capsys.readouterr().out.splitlines()
        assert any(line.startswith("-") and old in line for line in lines)
        assert any(line.startswith("+") and new in line for line in lines)
        assert main(["diff", str(plain), str(plain), option]) == 0
        assert capsys.readouterr().out == "no line differs\n"


def test_previous_is_the_run_before_or_its_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a kernel that was edited, the nearest that is gone; where several are as near, all are named."""
    out = tmp_path / "captures"

    def run(number: int, *settings: tuple[int, int], out: Path = out, kernel: str = "kernel") -> list[str]:
        monkeypatch.setenv(RUN_ID, f"{'a' * 16}-{number}")
        writer = CaptureWriter(out)
        records = []
        for block, warps in settings:
            capture, files = made(tmp_path, kernel, hash=f"{block:08x}{warps:08x}{0:048x}")
            options = {"num_warps": warps, "constants": {"BLOCK": block}}
            records.append(writer.add_files(replace(capture, options=options), files))
        writer.close()
        return [str(out / "kernels" / record) for record in records]

    def sides(*words: str) -> tuple[str, str | None]:
        namespace = parser("diff").parse_args(["diff", "--previous", *words])
        options = verb._with_previous(from_namespace(verb.Options, namespace))
        return options.a, options.b

    near, _ = run(1, (64, 4), (16, 8))
    (new,) = run(2, (128, 4))
    assert sides(str(out)) == (f"{out}@1", f"{out}@2")
    monkeypatch.setenv("TRITONHOOK_OUT", str(out))
    assert sides() == (f"{out}@1", f"{out}@2")
    assert sides(new) == (near, new)
    other = tmp_path / "other"
    run(1, (64, 4), (16, 4), out=other)
    (new,) = run(2, (128, 4), out=other)
    with pytest.raises(UsageError, match=f"^{new}: several kernels of the previous run fit equally well") as error:
        sides(new)
    lines = [line.split()[:2] for line in str(error.value).splitlines()[1:]]
    assert [setting for _, setting in lines] == ["BLOCK=64", "BLOCK=16"]
    assert {short for short, _ in lines} < set(CaptureFolder.open(other).ids.values())
    run(1, (64, 4), out=tmp_path / "grown")
    (new,) = run(2, (128, 4), out=tmp_path / "grown", kernel="another")
    with pytest.raises(UsageError, match=f"^{new}: the previous run did not compile it"):
        sides(new)
    monkeypatch.delenv(RUN_ID)
    keep_module(tmp_path / "by hand", tmp_path)
    place = next((tmp_path / "by hand" / "kernels").iterdir())
    with pytest.raises(UsageError, match=f"^{place}: `tritonhook run` did not capture it"):
        sides(str(place))
