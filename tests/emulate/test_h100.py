"""PTX and machine code give the bits that an H100 stored; and a decoder that takes one row of a table for another, or
one half of an immediate for the other, is noticed."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

np = pytest.importorskip("numpy")

from h100 import kernels, other  # noqa: E402

from tritonhook.emulate import atomics, comparisons, words  # noqa: E402
from tritonhook.emulate.ptx import conversions as of_ptx  # noqa: E402
from tritonhook.emulate.ptx import floats as ptx_floats  # noqa: E402
from tritonhook.emulate.ptx import video  # noqa: E402
from tritonhook.emulate.sass import conversions, floats, integers, matrices  # noqa: E402
from tritonhook.emulate.sass.site import Site  # noqa: E402

_SHARED = (comparisons.WHOLE, comparisons.FLOATS, comparisons.JOINS, words.REDUCTIONS, atomics._WHOLE)
TABLES = {
    "sass": (
        *(integers._PLAIN, integers._PARTS, floats._ARITHMETIC, floats._PACKED, floats._HALVES, matrices._FORMATS),
        *(
            conversions._WHOLE,
            conversions._SIZES,
            conversions._INTEGERS,
            words.PERMUTATIONS,
            floats._FUNCTIONS,
            *_SHARED,
        ),
    ),
    "ptx": (
        *(ptx_floats._OPERATIONS, ptx_floats._PROPERTIES, of_ptx._TO_WHOLE, of_ptx._SMALL, video._OPERATIONS),
        *(video._SHIFTS, *_SHARED),
    ),
}


@pytest.mark.parametrize("form", ["ptx", "sass"])
@pytest.mark.parametrize("name", kernels())
def test_gives_the_h100s_bits(name, form):
    assert not other(kernels()[name], form)


def is_noticed(form, text):
    """Whether a kernel whose text has this pattern comes out otherwise, or not at all; None: no kernel has it."""
    found = None
    for one in kernels().values():
        code = one["ptx"] if form == "ptx" else "\n".join(" ".join(map(str, line[1:3])) for line in one["code"])
        if re.search(text, code, re.IGNORECASE | re.MULTILINE):
            found = False
            try:
                if other(one, form):
                    return True
            except Exception:  # what a mutation breaks
                return True
    return found


# Rows that no kernel of sm_90 has: ptxas writes other code for them; or that are two names of one thing.
ABSENT = {"", "f", "t", "e2m1", "e2m1x2", "e2m3x2", "e3m2x2", "ue8m0x2", "H0_H1", "H0_NH1", "H1_H0", "ecr"}
SPELLED = {"add": "add|sum"}  # of a table of both forms, in machine code


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("form", "number"), [(form, number) for form, all_ in TABLES.items() for number in range(len(all_))]
)
def test_two_rows_of_a_table_are_not_the_same_to_the_h100(form, number, monkeypatch):
    table = TABLES[form][number]
    rows = [row for row in table if row.lower() not in ABSENT and row not in ABSENT]
    begin = r"(?<!i)set\w*\S*\." if table is comparisons.FLOATS else r"(?<![a-z0-9_])"
    unseen = []
    for a, b in pairwise(rows):
        with monkeypatch.context() as patch:
            patch.setitem(table, a, table[b])
            if is_noticed(form, rf"{begin}({SPELLED.get(a, a)})(?![a-z0-9_])") is False:
                unseen.append((a, b))
    assert not unseen


def test_the_halves_of_an_immediate_are_not_the_same_to_the_h100(monkeypatch):
    """Immediates of doubles and of halves, and those of 64-bit integers for I2F."""
    made = Site.__init__

    def swapped(self, decoder, one, immediate):
        made(self, decoder, one, (immediate >> 16 | immediate << 16) & 0xFFFF_FFFF)

    monkeypatch.setattr(Site, "__init__", swapped)
    found = {base: is_noticed("sass", rf"^{base}[^;]*\b\d+\.\d") for base in ("F", "H", "D")}
    assert found == {"F": True, "H": True, "D": True}
