"""Source lines of PTX lines: calls of library functions are charged to their caller."""

from __future__ import annotations

import pytest

from tritonhook.ptx.locations import source_files, source_places

SITE = "/v/lib/python3.11/site-packages"
FILES = f'.file 1 "/u/k.py"\n.file 2 "{SITE}/triton/language/standard.py"\n.file 3 "/u/helper.py"\n'


@pytest.mark.parametrize(
    ("loc", "place"),
    [
        (".loc 1 9 0 // k.py:9:0", ("/u/k.py", 9)),
        (".loc 2 170 27 // standard.py:170:27 @[ k.py:10:15 ]", ("/u/k.py", 10)),
        (".loc 2 170 27 // standard.py:170:27 @[ standard.py:191:40 @[ k.py:4:18 @[ k.py:10:15 ] ] ]", ("/u/k.py", 4)),
        (".loc 2 170 27 // standard.py:170:27 @[ helper.py:7:1 @[ k.py:10:15 ] ]", ("/u/helper.py", 7)),
        (".loc 3 7 1 // helper.py:7:1 @[ k.py:10:15 ]", ("/u/helper.py", 7)),
        (".loc 2 170 27, function_name $L__info_string0, inlined_at 1 10 15", ("/u/k.py", 10)),
        (".loc 2 170 27", (f"{SITE}/triton/language/standard.py", 170)),
    ],
)
def test_a_library_call_is_charged_to_the_line_that_called_it(loc: str, place: tuple[str, int]) -> None:
    find = source_places(f"{FILES}{loc}\nadd.s32 %r1, %r2, %r3;\n")
    assert find(3) is None and find(5) == place


def test_inlined_at_names_a_call_that_was_inlined_itself() -> None:
    inner = (
        ".loc 2 191 40, function_name $a, inlined_at 1 10 15\n.loc 2 170 27, function_name $b, inlined_at 2 191 40\n"
    )
    assert source_places(f"{FILES}{inner}ret;\n")(6) == ("/u/k.py", 10)


def test_a_kernel_of_a_library_keeps_the_lines_of_its_own_package() -> None:
    files = FILES.replace("/u/", f"{SITE}/flash/")
    loc = ".loc 2 170 27 // standard.py:170:27 @[ helper.py:7:1 @[ k.py:10:15 ] ]"
    assert source_places(f"{files}{loc}\nret;\n")(5) == (f"{SITE}/flash/helper.py", 7)


def test_files_are_listed_once() -> None:
    assert source_files(f"{FILES}{FILES}") == ("/u/k.py", f"{SITE}/triton/language/standard.py", "/u/helper.py")
