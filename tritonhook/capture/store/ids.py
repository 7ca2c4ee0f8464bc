"""Short ids of kernels: the beginning of a hash of the record's name, so that a kernel keeps its id as others come."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from itertools import pairwise

DIGITS = 6  # at least, of an id that is shown
FEWEST = 4  # digits that name a kernel
_DIGITS = re.compile(r"[0-9a-f]{1,64}")


def is_id(text: str) -> bool:
    """Whether a text can be the beginning of an id."""
    return len(text) >= FEWEST and _DIGITS.fullmatch(text) is not None


def is_short_of_id(text: str) -> bool:
    """Whether a text looks like the beginning of an id, with too few digits to look it up."""
    return len(text) < FEWEST and _DIGITS.fullmatch(text) is not None


def digest_of(record: str) -> str:
    return hashlib.sha256(record.encode()).hexdigest()


def short_ids(records: Sequence[str]) -> dict[str, str]:
    """The id of each record: at least DIGITS digits, and so many that no other record's begins so."""
    digests = {record: digest_of(record) for record in records}
    ordered = sorted(digests.values())
    alike = [0, *(_alike(a, b) for a, b in pairwise(ordered)), 0]
    needed = {digest: max(alike[i], alike[i + 1]) + 1 for i, digest in enumerate(ordered)}
    return {record: digest[: max(DIGITS, needed[digest])] for record, digest in digests.items()}


def _alike(a: str, b: str) -> int:
    """How many digits two digests have in common at their beginning."""
    return next(i for i in range(len(a)) if a[i] != b[i])
