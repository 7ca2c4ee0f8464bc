"""Images by meaning: each change of what is loaded is seen, also beside others; what means the same is not."""

from __future__ import annotations

import re
from functools import lru_cache

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from repository import GOLDEN

from benchmarks.locking.images import BOUNDS, CODE, KINDS, changed, rigged
from tritonhook.cubin.image import Cubin
from tritonhook.cubin.loaded import loaded_of
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.toolchain import find_toolchain

from .conftest import ABUSE, LARGE

FEW = settings(ABUSE, max_examples=ABUSE.max_examples if LARGE else 10)
BASE = rigged((GOLDEN / "triton.sm_90.ptx").read_text()) or ""
_NEWER = "blocks are clusters"  # a newer PTX than Triton's ptxas reads
FITTING = sorted(name for name in KINDS if name != _NEWER and changed(BASE, KINDS[name]) is not None)


@lru_cache(maxsize=256)
def image(text: str) -> tuple[dict[str, str], bytes, tuple[str, ...]]:
    """What is loaded of the kernel: its parts, its code, its launch bounds."""
    cubin = find_toolchain().assemble_or_raise(Ptx(text), ()).cubin
    return (
        dict(loaded_of(cubin.data, "add")),
        cubin.text("add"),
        Cubin.from_bytes(cubin.data).resources["add"].launch_bounds,
    )


def differs(text: str) -> set[str]:
    (old, old_code, old_bounds), (new, code, bounds) = image(BASE), image(text)
    parts = {part for part in old.keys() | new.keys() if old.get(part) != new.get(part)}
    return parts | ({CODE} if code != old_code else set()) | ({BOUNDS} if bounds != old_bounds else set())


@pytest.mark.usefixtures("tools")
@pytest.mark.parametrize("kind", FITTING)
def test_each_kind_is_seen_in_a_real_kernel(kind: str) -> None:
    assert KINDS[kind].part in differs(changed(BASE, KINDS[kind]) or "")


@pytest.mark.usefixtures("tools")
@FEW
@given(st.lists(st.sampled_from(FITTING), min_size=2, max_size=4, unique=True))
def test_changes_do_not_hide_each_other(kinds: list[str]) -> None:
    assume(not set(kinds) >= {"blocks of a cluster", "blocks of a cluster at most"})  # ptxas takes one of them
    text = BASE
    for kind in kinds:
        text = changed(text, KINDS[kind]) or text
    assert KINDS[kinds[0]].part in differs(text) or KINDS[kinds[-1]].part in differs(text)


_NOISE = ("// a comment\n", "/* ; } */", "\n\n", "\t")


@pytest.mark.usefixtures("tools")
@FEW
@given(st.lists(st.tuples(st.integers(0, 30), st.sampled_from(_NOISE)), min_size=1, max_size=6))
def test_comments_and_blanks_are_no_change(noise: list[tuple[int, str]]) -> None:
    ends = [match.end() for match in re.finditer(r";", BASE)]
    text = BASE
    for place, words in sorted(noise, reverse=True):
        text = f"{text[: ends[place]]} {words} {text[ends[place] :]}"
    assert not differs(text)
