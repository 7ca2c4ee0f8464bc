"""Stand-ins for the functions that a verb calls: each call is kept, with what it was given, and answered."""

from __future__ import annotations

from contextlib import nullcontext
from types import FunctionType, SimpleNamespace
from typing import Any

import pytest

from tritonhook.cli import parser
from tritonhook.cli._parser import from_namespace
from tritonhook.errors import UsageError


class Calls(list[tuple[Any, ...]]):
    """The calls so far: (name, *arguments), with the keywords in a dictionary at the end if there are any."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self._monkeypatch = monkeypatch

    def answer(self, place: Any, **answers: Any) -> None:
        """Replace the names in a module, or in the one of this dotted name. A function is called for the answer."""
        for name, answer in answers.items():
            if isinstance(place, str):
                self._monkeypatch.setattr(f"{place}.{name}", self.standing_for(name, answer))
            else:
                self._monkeypatch.setattr(place, name, self.standing_for(name, answer))

    def put(self, place: Any, **values: Any) -> None:
        """Replace the names in a module by these values."""
        for name, value in values.items():
            self._monkeypatch.setattr(place, name, value)

    def answer_made(self, kind: str, answer: Any) -> None:
        """Replace `of` of the result of this dotted name: what a verb is about to show."""
        self._monkeypatch.setattr(kind, SimpleNamespace(of=self.standing_for(kind.rpartition(".")[2], answer)))

    def standing_for(self, name: str, answer: Any) -> Any:
        def stand_in(*given: Any, **named: Any) -> Any:
            self.append((name, *given, *([named] if named else [])))
            return answer(*given, **named) if isinstance(answer, FunctionType) else answer

        return stand_in


def options(*words: str) -> Any:
    """What the verb's `run` gets for these words."""
    namespace = parser(words[0]).parse_args(list(words))
    return from_namespace(namespace.chosen.options, namespace)


def refused(call: Any, *given: Any, kind: type[Exception] = UsageError) -> str:
    """The message of the error that a call must raise."""
    with pytest.raises(kind) as raised:
        call(*given)
    return str(raised.value)


def temporary(calls: Calls, module: Any) -> None:
    """The module's temporary folders are named after their prefix, and never made."""
    calls.put(module, tempfile=SimpleNamespace(TemporaryDirectory=lambda prefix: nullcontext(f"/tmp/{prefix}")))
