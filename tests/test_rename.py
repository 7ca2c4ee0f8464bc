"""How a rename chooses names; and its key is different for each different rename."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tritonhook.errors import PtxError, TritonHookError, UsageError
from tritonhook.ptx.module import Ptx
from tritonhook.ptx.tokens import IDENTIFIER
from tritonhook.rename import (
    TRIGGER,
    Control,
    Rename,
    Rewrite,
    Rewrites,
    control_name,
    make_rename,
    strip_word,
)

HEADER = ".version 8.7\n.target sm_90a\n.address_size 64\n"
IDENTIFIERS = st.from_regex(r"[A-Za-z][A-Za-z0-9_$]{0,8}", fullmatch=True)
# Names made of the trigger, its control and their pieces.
TRICKY = st.lists(
    st.sampled_from(["cutlass", "cutlasz", "cut", "lass", "_", "a", "s", "y", "x", "_Z", "7", "$", "K"]),
    min_size=1,
    max_size=5,
).map("".join)
NAMES = st.one_of(TRICKY, IDENTIFIERS).filter(lambda name: IDENTIFIER.fullmatch(name) is not None)


def module(*names: str) -> Ptx:
    entries = (
        f".visible .entry {n}(.param .u64 {n}_param_0)\n{{\nld.param.u64 %rd1, [{n}_param_0];\n}}" for n in names
    )
    return Ptx(HEADER + "\n".join(entries) + "\n")


# --- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rename, old, new",
    [
        (Rename(prefix="cutlass_"), "add", "cutlass_add"),
        (Rename(prefix="cutlass_"), "cutlass_add", "cutlass_add"),  # has the prefix already
        (Rename(prefix="cutlass_"), "my_cutlass_add", "cutlass_my_cutlass_add"),
        (Rename(strip="cutlass"), "cutlass_add", "add"),
        (Rename(strip="cutlass"), "add", "add"),
        (Rename(prefix="k_", strip="cutlass"), "cutlass_add", "k_add"),
        (Rename(prefix="k_", strip="cutlass"), "add", "k_add"),
        (Rename(mapping=(("add", "sum"),)), "add", "sum"),
        (Rename(mapping=(("add", "sum"),)), "add_one", "add_one"),
        (Rename(prefix="k_", mapping=(("add", "sum"),)), "add", "sum"),  # only the mapping applies
        (Rename(prefix="k_", mapping=(("add", "sum"),)), "mul", "k_mul"),
        (Rename(prefix="k_", mapping=(("add", "add"),)), "add", "add"),
        (Rename(strip="cutlass", mapping=(("cutlass_a", "cutlass_b"),)), "cutlass_a", "cutlass_b"),
    ],
)
def test_new_name(rename: Rename, old: str, new: str) -> None:
    assert rename.new_name(old) == new


@pytest.mark.parametrize(
    "old, new",
    [
        ("cutlass_add", "add"),
        ("my_cutlass_add", "my_add"),
        ("add_cutlass", "add"),
        ("cutlassadd", "add"),
        ("a_cutlass_b_cutlass_c", "a_b_c"),
        ("cutlass__add", "_add"),
        ("addcutlass", "add"),
        ("CUTLASS_add", "CUTLASS_add"),  # ptxas looks for lower case
        ("add", "add"),
        # the rest would be no identifier
        ("cutlass", "cutlasz"),
        ("cutlass_", "cutlasz_"),
        ("_cutlass", "_cutlasz"),
        ("cutlass_1", "cutlasz_1"),
        ("cutlass1d", "cutlasz1d"),
        # a mangled name counts its letters
        ("_ZN7cutlass6KernelEv", "_ZN7cutlasz6KernelEv"),
        ("_ZN7cutlass4gemm7cutlassEv", "_ZN7cutlasz4gemm7cutlaszEv"),
        # without the word, its two halves would form it again
        ("cutlcutlassass", "cutlcutlaszass"),
    ],
)
def test_strip_word(old: str, new: str) -> None:
    assert strip_word(old) == new


@given(NAMES)
def test_stripped_name_is_an_identifier_without_the_word(name: str) -> None:
    stripped = strip_word(name)
    assert TRIGGER not in stripped
    assert IDENTIFIER.fullmatch(stripped)
    assert strip_word(stripped) == stripped
    if TRIGGER not in name:
        assert stripped == name
    if name.startswith("_Z"):
        assert len(stripped) == len(name)


# --- applying ------------------------------------------------------------------------------------


def test_every_entry_is_renamed_with_its_parameters() -> None:
    after = Rename(prefix="cutlass_").apply(module("a", "b", "cutlass_c"))
    assert after.entries == ("cutlass_a", "cutlass_b", "cutlass_c")
    assert after.text == module("cutlass_a", "cutlass_b", "cutlass_c").text


def test_one_entry_is_renamed() -> None:
    assert Rename(prefix="k_", entry="b").apply(module("a", "b")).text == module("a", "k_b").text


def test_one_entry_among_rewrites_leaves_other_modules_alone() -> None:
    rewrites = Rewrites((Rename(prefix="k_", entry="b"),))
    other = module("a")
    assert rewrites.apply(other) is other
    assert rewrites.apply(module("b")).entries == ("k_b",)
    # the entry is named as it is after the step before
    later = Rewrites((Rename(prefix="k_"), Rename(prefix="l_", entry="k_b")))
    assert later.apply(module("b")).entries == ("l_k_b",)


def test_mapping_swaps_names() -> None:
    assert Rename(mapping=(("a", "b"), ("b", "a"))).apply(module("a", "b")).text == module("b", "a").text


def test_nothing_to_rename_leaves_the_module() -> None:
    ptx = module("add")
    assert Rename(strip="cutlass").apply(ptx) is ptx
    assert Rename(mapping=(("other", "name"),)).apply(ptx) is ptx


@pytest.mark.parametrize(
    "rename, names",
    [
        (Rename(strip="cutlass"), ("add", "cutlass_add")),
        (Rename(prefix="k_"), ("add", "k_add")),
        (Rename(mapping=(("a", "c"), ("b", "c"))), ("a", "b")),
        (Rename(prefix="k_", entry="missing"), ("add",)),
    ],
)
def test_names_that_would_collide_are_an_error(rename: Rename, names: tuple[str, ...]) -> None:
    with pytest.raises(PtxError):
        rename.apply(module(*names))


def test_rewrites_go_one_after_the_other() -> None:
    rewrites = Rewrites((Rename(strip="cutlass"), Rename(prefix="k_"), Rename(mapping=(("k_add", "sum"),))))
    assert rewrites.apply(module("cutlass_add")).entries == ("sum",)
    assert isinstance(rewrites, Rewrite) and isinstance(Rename(prefix="a"), Rewrite)
    ptx = module("add")
    assert Rewrites().apply(ptx) is ptx


# --- keys ----------------------------------------------------------------------------------------

RENAMES = (
    Rename(prefix="a"),
    Rename(prefix="b"),
    Rename(strip="a"),
    Rename(prefix="b", strip="a"),
    Rename(prefix="a", entry="k"),
    Rename(prefix="a", entry="l"),
    Rename(mapping=(("a", "b"),)),
    Rename(mapping=(("b", "a"),)),
    Rename(mapping=(("a", "b"), ("b", "a"))),
    Rename(mapping=(("a", "b"), ("c", "d"))),
    Rename(prefix="a", mapping=(("a", "b"),)),
    Rename(prefix="a", mapping=(("a", "a"),)),  # prevents the prefix for `a`
    Rename(mapping=(("a", "b"),), entry="a"),
    Rename(strip='a","prefix":"b'),
)


@pytest.mark.parametrize("one, other", list(itertools.combinations(RENAMES, 2)))
def test_different_renames_have_different_keys(one: Rename, other: Rename) -> None:
    assert one.key != other.key


PAIRS = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("cde")), max_size=3).map(tuple)


@given(PAIRS, PAIRS, st.sampled_from(["", "p_", "q_"]), st.sampled_from(["", "p_", "q_"]))
def test_equal_keys_mean_equal_names(
    one: tuple[tuple[str, str], ...], other: tuple[tuple[str, str], ...], prefix: str, other_prefix: str
) -> None:
    assume((one or prefix) and (other or other_prefix))
    a, b = Rename(prefix=prefix, mapping=one), Rename(prefix=other_prefix, mapping=other)
    same = all(a.new_name(name) == b.new_name(name) for name in "abz")
    assert (a.key == b.key) == same


def test_key_of_several_rewrites_tells_their_order() -> None:
    a, b = Rename(prefix="a"), Rename(prefix="b")
    assert Rewrites((a, b)).key != Rewrites((b, a)).key != Rewrites((a,)).key


# --- what the user gives -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make, error, message",
    [
        (lambda: make_rename("cutlass_", True), UsageError, "cannot strip 'cutlass' and add the prefix 'cutlass_'"),
        (lambda: make_rename(Rename(prefix="a"), True), UsageError, "inside the Rename"),
        (lambda: make_rename({}), UsageError, "needs a prefix"),
        (lambda: Rename(), UsageError, "needs a prefix"),
        (lambda: Rename(entry="a"), UsageError, "needs a prefix"),
        (lambda: Rename(prefix="1_"), PtxError, "'1_' cannot start"),
        (lambda: Rename(prefix="a-"), PtxError, "'a-' cannot start"),
        (lambda: Rename(prefix="%a"), PtxError, "'%a' cannot start"),
        (lambda: Rename(mapping=(("a", "1"),)), PtxError, "'1' cannot"),
        (lambda: Rename(mapping=(("a", ""),)), PtxError, "'' cannot"),
        (lambda: Rename(mapping=(("a", "_"),)), PtxError, "'_' cannot"),
        (lambda: Rename(prefix=5), UsageError, "prefix=5: give it as text"),
        (lambda: Rename(strip=b"x"), UsageError, "strip=b'x': give it as text"),
        (lambda: Rename(prefix="a", entry=5), UsageError, "entry=5: give it as text"),
        (lambda: Rename(mapping={"a": 5}), UsageError, "mapping={'a': 5}: give old and new names as text"),
        (lambda: Rename(mapping=5), UsageError, "mapping=5: give old and new names"),
        (lambda: Rename(mapping="ab"), UsageError, "mapping='ab': give old and new names"),
        (lambda: Rename(mapping=(("a", "b", "c"),)), UsageError, "give old and new names"),
        (lambda: make_rename(5), UsageError, "rename=5: give a prefix such as 'cutlass_', old and new names, or a R"),
        (lambda: make_rename(["a"]), UsageError, r"rename=\['a'\]: give a prefix"),
        (lambda: make_rename(Rename), UsageError, "give a prefix"),
        (lambda: make_rename({"a": 5}), UsageError, "mapping={'a': 5}|mapping=.*'a', 5"),
        (lambda: make_rename(None, 5), UsageError, "strip=5: give it as text"),
        (lambda: make_rename("a", ["b"]), UsageError, r"strip=\['b'\]: give it as text"),
    ],
)
def test_arguments_that_do_not_go_together(make: object, error: type[TritonHookError], message: str) -> None:
    with pytest.raises(error, match=message):
        make()  # type: ignore[operator]


# --- the control ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "old, new, control",
    [
        ("add", "cutlass_add", "cutlasz_add"),
        ("cutlass_add", "add", "cutlasz_add"),
        ("cutlasz_add", "cutlass_add", "cutlasz_ady"),  # the first choice is the name of a side
        ("cutlasz_y", "cutlass_y", "cutlasz_x"),
        ("add", "sum", "suy"),
        ("suy", "sum", "sux"),
        ("cutlass_a", "cutlass_b", "cutlasz_b"),
    ],
)
def test_control_name(old: str, new: str, control: str) -> None:
    assert control_name(old, new) == control


@given(NAMES, NAMES)
def test_control_is_a_third_name_without_the_trigger(old: str, new: str) -> None:
    assume(old != new)
    control = control_name(old, new)
    assert control not in (old, new)
    assert TRIGGER not in control
    assert IDENTIFIER.fullmatch(control)
    assert len(control) == len(old if TRIGGER in old and TRIGGER not in new else new)


# --- messages, controls, several steps -------------------------------------------------------------


@pytest.mark.parametrize(
    "rename, name, remedy",
    [
        (Rename(strip="cutlass"), "add", "it does not contain 'cutlass'; omit --strip, or choose another word"),
        (Rename(prefix="cutlass_"), "cutlass_add", ": choose another prefix, or --strip"),
        (Rename(prefix="k_", strip="cutlass"), "k_add", ": choose another prefix, or --strip"),
    ],
)
def test_a_name_that_stays_is_an_error_with_its_remedy(rename: Rename, name: str, remedy: str) -> None:
    with pytest.raises(UsageError, match=re.escape(f"the rename does not change {name!r}")) as raised:
        rename.other_name(name)
    assert str(raised.value).endswith(remedy)


def test_control_of_a_rename() -> None:
    names = Control(Rename(strip="cutlass")).new_names(["cutlass_add", "add"])
    assert names == {"cutlass_add": "cutlasz_add", "add": "add"}
