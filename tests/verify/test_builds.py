"""Which builds a kernel gets, how they are labelled, and which of them have code of their own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from ptx_modules import HEADER, kernel
from shell_ptxas import shell_ptxas

from tritonhook.cubin.image import Cubin
from tritonhook.errors import UsageError
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.tool import Tool
from tritonhook.ptxas.toolchain import Assembled
from tritonhook.verify import differential
from tritonhook.verify.differential import Recipe, build_all, recipes
from tritonhook.verify.judgement import Latitude
from tritonhook.verify.model import Build

OLD, OWN, NEW = (Tool(Path(version), version, "fake") for version in ("12.4.131", "12.8.93", "13.5.37"))
TABLE = ".const .align 4 .u32 table[4] = {1, 2, 3, 4};\n"
LOOK_UP = "ld.param.u64 %rd1, [k_param_0]; .reg .b32 %r; ld.const.u32 %r, [table+12]; st.global.u32 [%rd1], %r; ret;"


def usual(*options: str, contraction: bool) -> tuple[Recipe, ...]:
    return recipes(OWN, options, Latitude(contraction=contraction), [OLD, OWN, NEW])


def test_all_builds_but_the_last_forbid_contraction_where_ptx_leaves_it_open() -> None:
    *strict, as_used = usual("-v", "--fmad=true", contraction=True)
    assert [one.label for one in strict] == ["12.8.93 -O3", "12.8.93 -O0", "12.4.131 -O3", "13.5.37 -O3"]
    for one in (further for first in strict for further in (first, *first.others)):
        assert "--fmad=false" in one.options and "--fmad=true" not in one.options and not one.as_used
    assert (as_used.label, as_used.options, as_used.as_used) == ("12.8.93 -O3, as used", ("-v", "--fmad=true"), True)


def test_options_stay_as_they_are_where_nothing_can_be_contracted() -> None:
    found = usual("-v", "-O1", contraction=False)
    assert [one.label for one in found] == ["12.8.93 -O1", "12.8.93 -O0", "12.4.131 -O1", "13.5.37 -O1"]
    assert [one.options for one in found] == [("-v", "-O1"), ("-v", "-O0"), ("-v", "-O1"), ("-v", "-O1")]
    assert [[other.label for other in one.others] for one in found] == [[], [], [], []]
    assert [other.label for other in usual(contraction=False)[1].others] == ["12.8.93 -O1"], "-O0 may fail"


@pytest.mark.parametrize(
    "level", [("--opt-level", "3"), ("-O", "3"), ("-opt-level", "3"), ("--opt-level=3",), ("-O3",)]
)
def test_the_level_goes_with_its_number(level: tuple[str, ...]) -> None:
    """Captures keep the words of the call of ptxas: the number alone would be the name of a file."""
    found = usual("-v", *level, "-g", contraction=True)
    (low,) = (one for one in found if one.label == "12.8.93 -O0")
    assert low.options == ("-v", "-g", "--fmad=false", "-O0")
    assert low.others == (Recipe(OWN, ("-v", "-g", "--fmad=false", "-O1")),)


def test_each_version_may_be_wanted() -> None:
    found = recipes(OWN, ("-v",), Latitude(contraction=True), [NEW, OLD, replace(OLD, version="12.9.86")], each=True)
    assert [one.label[:7] for one in found] == ["12.8.93", "12.8.93", "12.4.13", "12.9.86", "13.5.37", "12.8.93"]
    assert all(not one.others for one in found[2:])


def test_other_versions_stand_in_from_both_ends() -> None:
    """Each version once; where the oldest or the newest makes no cubin, the next one is tried."""
    tools = [Tool(Path(name), name, "fake") for name in ("12.9.86", "9.2.1", "13.5.37", "12.4.131", "12.8.93")]
    newer, oldest, newest, older, own = tools
    found = recipes(own, ("-O0",), Latitude(), [*tools, older])
    assert found == (
        Recipe(own, ("-O0",)),
        Recipe(own, ("-O1",)),
        Recipe(oldest, ("-O0",), others=(Recipe(older, ("-O0",)),)),
        Recipe(newest, ("-O0",), others=(Recipe(newer, ("-O0",)),)),
    )


def test_a_reference_that_cannot_be_made_is_told_and_others_are_left_out(tools, tmp_path: Path) -> None:
    """A later build is lowered to the PTX that its ptxas reads, and its stand-in is tried where it fails."""
    ptx, own = Ptx(HEADER + kernel("k")), tools.ptxas
    refuses = shell_ptxas(tmp_path, own, 'case "$*" in *-O0*) echo "ptxas fatal : no" >&2; exit 255;; esac')
    bad = Recipe(refuses, ("-O0",), others=(Recipe(replace(refuses, version="12.4.131"), ("-O0", "-v")),))
    with ThreadPoolExecutor(1) as pool:
        built = build_all(ptx, "k", [Recipe(own, ("-O3",)), bad], tmp_path / "a" / "b", pool)
        with pytest.raises(UsageError, match=r"^k: the reference cannot be assembled: .*no"):
            build_all(ptx, "k", [bad], tmp_path, pool)
    path = tmp_path / "a" / "b" / "0.cubin"
    assert built.builds == (Build("12.8.93 -O3", path, "k", "12.8.93", ("-O3",)),)
    assert path.read_bytes() == tools.assemble_or_raise(ptx, ("-O3",)).cubin.data
    assert [one.label for one in built.failed] == ["12.8.93 -O0", "12.4.131 -O0"]


def test_other_constants_are_other_code(tools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given builds with the same instructions, of which one has another table; then it is a build of its own."""
    ptx = Ptx(HEADER + TABLE + kernel("k", LOOK_UP))
    made = tools.assemble_or_raise(ptx, ())
    (table,) = (one for one in made.cubin.sections_of("k") if one.role == ".nv.constant3")
    assert table.data[12:] == b"\4\0\0\0" and made.cubin.data.count(table.data) == 1
    altered = Cubin.from_bytes(made.cubin.data.replace(table.data, table.data[:12] + b"\5\0\0\0"))
    assert altered.text("k") == made.cubin.text("k")
    answers = {"-O3": made, "-O2": made, "-O1": replace(made, cubin=altered)}
    assert isinstance(made, Assembled)
    monkeypatch.setattr(differential, "assemble", lambda tool, ptx, options, limit: answers[options[0]])
    with ThreadPoolExecutor(1) as pool:
        built = build_all(ptx, "k", [Recipe(OWN, (level,)) for level in answers], tmp_path, pool)
    assert [(one.label, one.ptxas, one.options) for one in built.builds] == [
        ("12.8.93 -O3", "12.8.93", ("-O3",)),
        ("12.8.93 -O1", "12.8.93", ("-O1",)),
    ]
    assert built.same_code == (("12.8.93 -O3", "12.8.93 -O2"),)
