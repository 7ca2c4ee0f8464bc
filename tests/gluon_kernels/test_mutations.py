"""The mutations of the kernels' sources still apply: each gives another module with another launcher."""

import pytest

from tests.gluon_kernels.mutations import EDITS, mutated


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: f"{edit.kernel}-{edit.name}".replace(" ", "-"))
def test_a_mutation_applies(edit):
    pytest.importorskip("triton", reason="needs triton")
    with mutated(edit) as wrong:
        assert callable(wrong.attention)
        assert not wrong.__name__.startswith("gluon_kernels.")
