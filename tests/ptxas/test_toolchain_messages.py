"""What ptxas prints, in the words of a message."""

from __future__ import annotations

import pytest

from tritonhook.ptxas.toolchain import first_error


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (
            "ptxas kernel.ptx, line 38; error   : Not a name of any known instruction: 'mvo'\nptxas fatal   : aborted",
            "line 38: Not a name of any known instruction: 'mvo'",
        ),
        ("ptxas fatal   : Value 'sm_1' is not defined", "Value 'sm_1' is not defined"),
        (
            "ptxas-blackwell /tmp/x/kernel.ptx, line 2; fatal   : Unsupported .version 9.9",
            "line 2: Unsupported .version 9.9",
        ),
        ("info: a\n\n  cannot execute\n", "cannot execute"),
        ("", ""),
    ],
)
def test_the_first_error_is_told_without_paths(log: str, said: str) -> None:
    assert first_error(log) == said
