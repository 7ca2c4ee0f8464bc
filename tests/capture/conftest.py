"""A fixture for tests of sessions in this process."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

import tritonhook


@pytest.fixture
def slots_are_given_back() -> Iterator[None]:
    """Check that after the test no session is left, Triton has its functions back, and stdout is as before."""
    from triton import knobs
    from triton.compiler import compiler
    from triton.runtime import jit

    functions = jit.get_cache_key, jit.compute_cache_key, compiler.get_cache_key, sys.stdout
    yield
    assert tritonhook.disable() is None, "the test left a session enabled"
    assert knobs.compilation.listener is None
    assert knobs.runtime.add_stages_inspection_hook is None
    assert functions == (jit.get_cache_key, jit.compute_cache_key, compiler.get_cache_key, sys.stdout)
