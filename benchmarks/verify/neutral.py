"""Altered instructions that store the same as before: why each must. Pure.

`why(row)` gives the reason for a row of seeded.json, once it has been checked here; None where there is none.

- A LOP3 whose table differs only for inputs that cannot be: a source is RZ, so that its bit is always 0.
- dropout: Philox, whose result is compared with 0.5. All 5,000 elements are computed with both numbers.
- softmax: a division scales both sides by 2^24 if the sum is below 2^-126, and by 1/4 if it is above 2^126. The sum is
  1 to 1,024, since the largest number gives 1. One alteration keeps the sum out of a range that it is not in. The
  others scale by 2^24 where nothing asks for it: a power of two goes out of both sides without rounding, since no
  number is above 1,024.
"""

from __future__ import annotations

import re
from typing import Any

_WORD = 0xFFFF_FFFF
_KEYS = 0x9E3779B9, 0xBB67AE85  # Philox
_ROUND = 0xD2511F53, 0xCD9E8D57
_SEED, _ELEMENTS = 12345, 5000
_FIRST_PRODUCT = 288  # in the code of dropout: that of an element's number
_TABLE = re.compile(r"LOP3\.LUT (?:R\d+|RZ),(?P<sources>[^,]+,[^,]+,[^,]+),(?P<table>0x[0-9a-f]+)")
_LARGE = "FSETP.GT.AND P5,PT,|R20|,8.50705917302346158658e+37"
_TINY = "FSETP.GEU.AND P6,PT,|R20|,1.175494350822287508e-38"


def why(row: dict[str, Any]) -> str | None:
    """The reason that an alteration changes nothing, checked; None if none is known."""
    before, after = row["before"], row["after"]
    if _tables_agree(before, after):
        return "the table of LOP3 differs only where RZ would be 1"
    if row["kernel"] == "dropout" and row["kind"] == "immediate" and _keeps_the_same(row):
        return f"all {_ELEMENTS:,} elements are kept or dropped as before"
    if row["kernel"] == "softmax" and (before, after) == (f"{_LARGE},PT", f"{_LARGE},!PT"):
        return "the sum is at most 1,024"
    scaled = f"{_TINY},!PT", f"{_TINY.replace('GEU', 'EQU')},PT"
    if row["kernel"] == "softmax" and before == f"{_TINY},PT" and after in scaled:
        return "both sides of a division are scaled by 2^24"
    return None


def _tables_agree(before: str, after: str) -> bool:
    a, b = _TABLE.match(before), _TABLE.match(after)
    if a is None or b is None or a["sources"] != b["sources"]:
        return False
    zero = [source.strip() == "RZ" for source in a["sources"].split(",")]
    differing = int(a["table"], 16) ^ int(b["table"], 16)
    possible = [index for index in range(8) if not any(z and index >> 2 - n & 1 for n, z in enumerate(zero))]
    return not any(differing >> index & 1 for index in possible)


def _keeps_the_same(row: dict[str, Any]) -> bool:
    """Whether Philox with one altered number keeps the same elements."""
    old, new = (_numbers(row[side])[-1] for side in ("before", "after"))
    if row["offset"] == _FIRST_PRODUCT and old == _ROUND[0]:
        return all((at * old >> 32) == (at * new >> 32) for at in range(_ELEMENTS))
    if not row["before"].startswith("LOP3.LUT"):
        return False
    rounds = [number for number in range(10) if number * _KEYS[1] & _WORD == old]
    return bool(rounds) and all(
        _is_kept(_philox(at)) == _is_kept(_philox(at, rounds[0], old ^ new)) for at in range(_ELEMENTS)
    )


def _numbers(text: str) -> list[int]:
    """The immediates of an instruction, without the table of LOP3."""
    words = [word for word in text.split(" ", 1)[1].split(",") if re.fullmatch(r"-?0x[0-9a-f]+", word)]
    return [int(word, 16) & _WORD for word in words[: 1 if text.startswith("LOP3") else None]] or [0]


def _philox(at: int, altered: int = -1, bits: int = 0) -> int:
    """The first of four numbers: ten rounds on a counter. bits: flipped in the second key of one round."""
    c, keys = [at, 0, 0, 0], [_SEED, 0]
    for number in range(10):
        a, b = c[0] * _ROUND[0], c[2] * _ROUND[1]
        second = keys[1] ^ (bits if number == altered else 0)
        c = [b >> 32 ^ c[1] ^ keys[0], b & _WORD, a >> 32 ^ c[3] ^ second, a & _WORD]
        keys = [(key + step) & _WORD for key, step in zip(keys, _KEYS, strict=True)]
    return c[0]


def _is_kept(number: int) -> bool:
    signed = number - (number >> 31 << 32)
    return (signed if signed >= 0 else -signed - 1) * 4.6566127342e-10 > 0.5
