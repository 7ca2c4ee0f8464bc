"""What the tests of launches share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.sm120_attn.support.fake_kernel import FakeKernel


@pytest.fixture
def kernel() -> Iterator[FakeKernel]:
    """A stand-in for every kernel, which keeps what it is given."""
    from tests.sm120_attn.support.fake_kernel import fake_kernels

    with fake_kernels() as made:
        yield made
