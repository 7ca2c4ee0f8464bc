"""Fixtures for tests of sessions in this process."""

from __future__ import annotations

import ast
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import tritonhook


@pytest.fixture
def slots_are_given_back() -> Iterator[None]:
    """Check that after the test no session is left, Triton has back what a launch uses, and stdout is as before."""
    from triton import knobs
    from triton.compiler import CompiledKernel
    from triton.runtime import jit

    def now() -> list[Any]:
        listener = vars(type(knobs.compilation))["listener"]
        return [jit.compute_cache_key, CompiledKernel.__init__, listener, sys.stdout]

    before = now()
    yield
    assert tritonhook.disable() is None, "the test left a session enabled"
    assert knobs.compilation.listener is None
    assert knobs.runtime.add_stages_inspection_hook is None
    assert now() == before


@pytest.fixture
def parsing_by_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let one thread parse at a time. CPython 3.11 counts the depth of ast.parse for all threads together, so that it
    sometimes fails with a SystemError (python/cpython#106905)."""
    parse, lock = ast.parse, threading.Lock()

    def parse_alone(*arguments: Any, **named: Any) -> Any:
        with lock:
            return parse(*arguments, **named)

    monkeypatch.setattr(ast, "parse", parse_alone)
