"""Finding the shortest part of a name that has the effect, for triggers of every kind."""

import re
from collections.abc import Callable

import pytest

from tritonhook.lab.minimise import NamePart, minimise


def find(name: str, rule: Callable[[str], object]) -> NamePart | None:
    def changes(names: list[str]) -> list[bool]:
        assert all(re.fullmatch(r"[A-Za-z_$][\w$]*", n) for n in names), names
        assert len(set(names)) == len(names)
        return [bool(rule(n)) for n in names]

    return minimise(name, changes)


@pytest.mark.parametrize(
    ("name", "rule", "sentence"),
    [
        (
            "my_cutlass_attention_kernel",
            lambda n: "cutlass" in n,
            "minimal trigger: `cutlass`, case-sensitive, anywhere in the name",
        ),
        (
            "flash_attention",
            lambda n: n.startswith("flash"),
            "minimal trigger: `flash`, case-sensitive, only at its start or as the whole name",
        ),
        (
            "attention_flash",
            lambda n: n.endswith("flash"),
            "minimal trigger: `flash`, case-sensitive, only at its end or as the whole name",
        ),
        (
            "xx_CutLass_k",
            lambda n: "cutlass" in n.lower(),
            "minimal trigger: `CutLass`, in any case, anywhere in the name",
        ),
        (
            "my_cut3ass_x",
            lambda n: re.search("cut.ass", n),
            "minimal trigger: `cut?ass`, case-sensitive, anywhere in the name",
        ),
        (
            "my_Gemm",
            lambda n: re.search("[gG]emm", n),
            "minimal trigger: `Gemm`, case-sensitive in 'e', 'm', 'm' only, anywhere in the name",
        ),
        (
            "abcdefgh_k",
            lambda n: n[3:6] == "def",
            "minimal trigger: `def`, case-sensitive, only 3 letters after the name's start, where it was found",
        ),
        ("vwxyz_gemm", lambda n: "gemm" in n, "minimal trigger: `gemm`, case-sensitive, anywhere in the name"),
    ],
)
def test_trigger(name: str, rule: Callable[[str], object], sentence: str) -> None:
    trigger = find(name, rule)
    assert trigger.sentence == sentence
    assert trigger.tried < 70
    assert name[trigger.start :].startswith(trigger.word)


def test_of_two_triggers_the_shorter_is_found() -> None:
    for name in ("cutlass_and_flash", "flash_and_cutlass"):
        assert find(name, lambda n: "cutlass" in n or "flash" in n).word == "flash"


def test_a_name_that_changes_nothing_has_no_trigger() -> None:
    assert find("anything", lambda n: False) is None


def test_a_name_that_is_all_trigger() -> None:
    trigger = find("cutlass", lambda n: n == "cutlass")
    assert (trigger.word, trigger.position) == ("cutlass", "only as the whole name")


def test_two_parts_that_are_needed_together() -> None:
    # Given a rule that needs two words, whatever stands between them
    trigger = find("a_cut_xx_lass_b", lambda n: re.search("cut....lass", n))
    assert trigger.pattern == "cut????lass"


def test_a_single_letter() -> None:
    assert find("abqc", lambda n: "b" in n).word == "b"
