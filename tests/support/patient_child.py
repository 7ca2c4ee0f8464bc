"""Children in tests of hangs: they say when they hang, and are waited for until then, on a machine however slow."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from tritonhook.device.child import Child

if TYPE_CHECKING:  # children take this module, and pytest is half of their start
    import pytest

_HANGS = "hangs"
SAY_SO = f"print({_HANGS!r}, flush=True)"


def say_that_it_hangs(answers: TextIO) -> None:
    print(_HANGS, file=answers, flush=True)


def be_patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on a time limit is over once a child hangs, and not before."""
    read = Child._line

    def line(child: Child, limit_s: float | None) -> bytes | None:
        found = read(child, limit_s and max(limit_s, 120.0))
        if found != _HANGS.encode():
            return found
        assert limit_s is not None, "nobody would end it"
        return read(child, 0)

    monkeypatch.setattr(Child, "_line", line)
