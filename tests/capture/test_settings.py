"""Settings: what they name in cache keys, and how they are made of what users and parents write."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tritonhook.capture import settings as module
from tritonhook.capture.chosen_ptxas import Assembling
from tritonhook.capture.dry_run.gpu import DryRun
from tritonhook.capture.settings import REWRITES, Settings, make_settings
from tritonhook.capture.settings import rewrite_by_name as by_name
from tritonhook.errors import CaptureError, PolicyError, UsageError
from tritonhook.ptx.module import Ptx
from tritonhook.ptx.throughput_pragma import entries_with_pragma
from tritonhook.rename import Rename, Rewrites

PREFIX = Rename(prefix="a_")
OPTIONS = Assembling(options=("-O1",))
PTX = Ptx(".version 8.7\n.target sm_90a\n.address_size 64\n.visible .entry add()\n{\nret;\n}\n")


class Marking:
    """A rewrite that puts a word in front of the module, and has something to say."""

    key = "marking"

    def __init__(self, word: str = "") -> None:
        self.word = word

    def apply(self, ptx: Ptx) -> Ptx:
        return Ptx(f"// {self.word}\n{ptx.text}") if self.word else ptx

    def remarks(self, ptx: Ptx) -> tuple[str, ...]:
        return ("said", "more")


def a_policy(key: str = "p", without: str = "p") -> Any:
    return SimpleNamespace(key=key, without_renames=SimpleNamespace(key=without))


# --- cache keys ----------------------------------------------------------------------------------


def test_the_key_names_what_changes_kernels_and_nothing_else() -> None:
    plain = Settings(Path("/out"))
    assert plain.key == replace(plain, only="x", launches="values", dry_run=DryRun(90)).key == ""
    renamed = replace(plain, rewrites=Rewrites((PREFIX,)))
    assert renamed.key == f"tritonhook::{PREFIX.key}"
    assert replace(renamed, only="x").key == f"tritonhook:x:{PREFIX.key}"
    assert replace(renamed, only="x", assembling=OPTIONS).key == f"tritonhook:x:{PREFIX.key}:{OPTIONS.key}"
    assert replace(plain, assembling=OPTIONS).key == f"tritonhook:::{OPTIONS.key}"
    assert replace(plain, policy=a_policy("")).key == ""
    assert replace(plain, policy=a_policy("p")).key == "tritonhook::p"
    assert replace(renamed, policy=a_policy("p"), only="x", assembling=OPTIONS).key == "tritonhook:x:p"


def test_renames_are_told_from_other_rewrites() -> None:
    other: Any = Marking()
    both = Settings(Path("/out"), Rewrites((PREFIX, other)))
    assert both.renames and both.without_renames == Settings(Path("/out"), Rewrites((other,)))
    assert not both.without_renames.renames
    renaming = replace(both, policy=a_policy("p", "q"))
    assert renaming.renames and renaming.without_renames.policy is renaming.policy.without_renames  # type: ignore[union-attr]
    assert not replace(both, policy=a_policy("p", "p")).renames


def test_only_is_looked_for_in_the_kernels_own_name() -> None:
    wants = Settings(Path("/out"), only="d_k").wants
    assert (wants("add_kernel"), wants("add"), Settings(Path("/out")).wants("add")) == (True, False, True)


# --- what users write ----------------------------------------------------------------------------


def test_settings_are_made_of_arguments(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRITONHOOK_OUT", raising=False)
    assert make_settings() == Settings(tmp_path / "tritonhook-captures")
    monkeypatch.setenv("TRITONHOOK_OUT", "other")
    assert make_settings().out == tmp_path / "other"
    other: Any = Marking()
    made = make_settings("here", "a_", True, "x", [other, "tma-cta"], "values", None, "-O1 -v", None, DryRun(90))
    steps = (Rename(prefix="a_", strip="cutlass"), other, REWRITES["tma-cta"])
    assembling = Assembling(options=("-O1", "-v"))
    assert made == Settings(tmp_path / "here", Rewrites(steps), "x", "values", assembling, None, DryRun(90))
    for given, kept in ((None, None), (False, None), (True, "shapes"), ("shapes", "shapes"), ("values", "values")):
        assert make_settings(launches=given).launches == kept
    for given, step in ((other, other), ("tma-cta", REWRITES["tma-cta"])):
        assert make_settings(rewrites=given).rewrites == Rewrites((step,))


@pytest.mark.parametrize(
    "other", [{"rename": "a_"}, {"strip": True}, {"rewrites": "tma-cta"}, {"ptxas": "13.5.37"}, {"options": "-O1"}]
)
def test_a_policy_goes_with_what_changes_no_kernel(tmp_path, monkeypatch, other) -> None:
    monkeypatch.setattr(module, "read_policy", lambda path: ("read", path))
    made = make_settings(tmp_path, policy="a.toml", only="x", launches=True, dry_run=DryRun(90))
    assert made.policy == ("read", Path("a.toml")) and made.launches == "shapes"
    with pytest.raises(UsageError):
        make_settings(tmp_path, policy="a.toml", **other)
    for policy in ("", 5, b"a.toml"):
        with pytest.raises(PolicyError, match=re.escape(f"policy={policy!r}")):
            make_settings(tmp_path, policy=policy)  # type: ignore[arg-type]


def test_what_no_ptxas_can_assemble_is_refused_before_anything_begins(tmp_path, monkeypatch) -> None:
    step: Any = Marking()
    step.why_not = lambda version: f"not with {version}"
    assert make_settings(tmp_path, rewrites=step).assembling is None  # which ptxas it will be is not known
    monkeypatch.setattr(Assembling, "of", lambda ptxas, options: Assembling(ptxas, "12.0", None))
    with pytest.raises(CaptureError, match=r"not with 12\.0"):
        make_settings(tmp_path, rewrites=step, ptxas="12.0")


# --- rewrites by name ----------------------------------------------------------------------------


def test_a_named_rewrite_gives_the_module_and_its_remarks(monkeypatch) -> None:
    monkeypatch.setattr(module, "REWRITES", REWRITES | {"mark": Marking("x"), "still": Marking()})
    assert by_name(PTX, "mark") == (Ptx(f"// x\n{PTX.text}"), ("said", "more"))
    for name, entries, why in (
        ("still", None, "still changes nothing: said; more"),
        ("tma-cta", None, "tma-cta changes nothing: "),
        ("mark", ("add",), "mark is for whole modules"),
    ):
        with pytest.raises(UsageError, match=f"--rewrite {why}"):
            by_name(PTX, name, *([entries] if entries else []))
    two = Ptx(f"{PTX.text}.visible .entry sub()\n{{\nret;\n}}\n")
    assert entries_with_pragma(by_name(two, "mma-throughput", ("add",))[0]) == ("add",)
    assert entries_with_pragma(by_name(two, "mma-throughput")[0]) == ("add", "sub")
