"""How many inputs each fuzzer tries: few in the ordinary suite, which takes the same ones each time; FUZZ_EXAMPLES for
each test with `make fuzz`, which draws anew."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "0"))
LARGE = bool(_EXAMPLES)

ABUSE = settings(
    max_examples=_EXAMPLES or 30,
    derandomize=not _EXAMPLES,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
