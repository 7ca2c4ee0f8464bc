"""A child process in tests of hangs: it says when it hangs, and is waited for until then, on a machine however slow."""

from __future__ import annotations

import json
from typing import Any

from tritonhook._util.line_child import LineChild

HANGS = {"hangs": True}  # what the child says before it hangs
SAY_SO = f"print({json.dumps(HANGS)!r}, flush=True)"


class PatientChild(LineChild):
    """A child for which a time limit is over once it hangs, and not before."""

    def answer(self, limit_s: float | None = None) -> dict[str, Any] | None:
        answer = super().answer(limit_s and max(limit_s, 120.0))
        if answer != HANGS:
            return answer
        assert limit_s is not None, "nobody would end it"
        return super().answer(0)
