"""Short ids of kernels: the first hex digits of a hash of the record's name. A kernel keeps its id when more kernels
are captured."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from itertools import pairwise

DIGITS = 6  # minimum length of a printed id
FEWEST = 4  # minimum digits to look up a kernel
_DIGITS = re.compile(r"[0-9a-f]{1,64}")


def is_id(text: str) -> bool:
    """Check whether a text can be an id or the beginning of one."""
    return len(text) >= FEWEST and _DIGITS.fullmatch(text) is not None


def is_short_of_id(text: str) -> bool:
    """Check whether a text looks like an id, but has fewer digits than a lookup needs."""
    return len(text) < FEWEST and _DIGITS.fullmatch(text) is not None


def digest_of(record: str) -> str:
    return hashlib.sha256(record.encode()).hexdigest()


def short_ids(records: Sequence[str]) -> dict[str, str]:
    """Return the id of each record: the shortest unique beginning of its digest, with at least DIGITS digits."""
    digests = {record: digest_of(record) for record in records}
    ordered = sorted(digests.values())
    alike = [0, *(_alike(a, b) for a, b in pairwise(ordered)), 0]
    needed = {digest: max(alike[i], alike[i + 1]) + 1 for i, digest in enumerate(ordered)}
    return {record: digest[: max(DIGITS, needed[digest])] for record, digest in digests.items()}


def _alike(a: str, b: str) -> int:
    """Count the digits that two digests share at their beginning."""
    return next(i for i in range(len(a)) if a[i] != b[i])
