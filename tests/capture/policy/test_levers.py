"""Levers: how they are written, what they are made of, and what each needs."""

from __future__ import annotations

from pathlib import Path

import pytest
from ptx_modules import module

from tritonhook.capture.policy.levers import lever, levers
from tritonhook.errors import ToolError, UsageError
from tritonhook.ptx.throughput_pragma import entries_with_pragma
from tritonhook.ptxas.tool import find_ptxas


def test_each_kind_is_made_of_rewrites_ptxas_and_options() -> None:
    ptx = module("add")
    assert lever("name").rewrites.apply(ptx).entries == ("cutlass_add",)
    assert lever("strip").rewrites.apply(module("cutlass_add")).entries == ("add",)
    assert entries_with_pragma(lever("pragma").rewrites.apply(ptx)) == ("add",)
    assert ".maxnreg 64 {" in lever("maxnreg=64").rewrites.apply(ptx).text
    version = find_ptxas().version  # one that is here: each Triton brings another
    assert lever(f"ptxas={version}").assembling(Path()).version == version
    options = {text: lever(text).assembling(Path()).options for text in ("O2", "regalloc=1", "regusage=10")}
    assert options == {
        "O2": ("-O2",),
        "regalloc=1": ("--regAllocOptLevel=1",),
        "regusage=10": ("--register-usage-level=10",),
    }
    assert lever("name").assembling(Path()) is None


def test_parts_are_joined_in_one_order() -> None:
    version = find_ptxas().version
    joined = lever(f"O2+ptxas={version} + name")
    assert joined.text == f"name+ptxas={version}+O2" and joined == lever(f"name+ptxas={version}+O2")
    assert joined.renames and joined.ptxas == version and joined.assembling(Path()).options == ("-O2",)


def test_a_list_has_each_lever_once() -> None:
    found = levers("name, pragma,O2+name,name,name+O2")
    assert [one.text for one in found] == ["name", "pragma", "name+O2"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is not a lever; choose from name, strip, pragma"),
        ("o2", "'o2' is not a lever"),
        ("O5", "not a lever"),
        ("ptxas=13.5", "not a lever"),
        ("ptxas=/bin/sh", "not a lever"),
        ("regusage=11", "not a lever"),
        ("maxnreg=8", "maxnreg=8: give a number from 16 to 255"),
        ("O1+O2", "ON occurs twice; leave one out"),
    ],
)
def test_what_is_no_lever(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message.replace("+", r"\+")):
        lever(text)


@pytest.mark.parametrize(
    ("text", "ptxas", "arch", "front_end", "reason"),
    [
        ("pragma", "12.8.93", "sm_90a", "Triton", "pragma needs ptxas 13.3 or newer; this ptxas is 12.8.93"),
        ("pragma", "13.3.73", "sm_90a", "Triton", None),
        ("pragma+ptxas=13.5.37", "12.8.93", "sm_90a", "Triton", None),
        ("ptxas=12.8.93+pragma", "13.5.37", "sm_90a", "Triton", "pragma needs ptxas 13.3"),
        ("controls=a.bin", "13.0.88", "sm_90a", "Triton", "controls=FILE needs ptxas 13.3 or newer"),
        ("tma-cta", "12.8.93", "sm_90a", "Triton", "tma-cta is not for sm_90a"),
        ("tma-cta", "12.8.93", "sm_120a", "Triton", None),
        ("name", "12.9.83", "sm_80", "cute", None),
        ("O2", "12.9.83", "sm_80", "cute", "ON is not possible for CuTe kernels"),
        ("name+ptxas=12.8.93", "12.9.83", "sm_80", "cute", "ptxas=VERSION is not possible for CuTe kernels"),
    ],
)
def test_what_a_lever_needs(text: str, ptxas: str, arch: str, front_end: str, reason: str | None) -> None:
    found = lever(text).why_not(ptxas, arch, front_end)
    assert (found is None) == (reason is None) and (found or "").startswith(reason or "")


def test_a_controls_file_is_known_by_its_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITONHOOK_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "fast.bin"
    keys = []
    for content in (b"a", b"b", b"a"):
        file.write_bytes(content)
        assembling = lever("controls=fast.bin").assembling(tmp_path)
        (option,) = assembling.options
        assert Path(option.partition("=")[2]).read_bytes() == content
        keys.append(assembling.key)
    assert keys[0] == keys[2] != keys[1]
    with pytest.raises(ToolError, match=r"none\.bin: cannot read the controls file: No such file"):
        lever("controls=none.bin").assembling(tmp_path)
