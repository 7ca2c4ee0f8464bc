"""Titles of kernels, and selectors."""

from __future__ import annotations

import pytest

from tritonhook.capture.selection import KernelSelector, fits, settings_of, titles

OPTIONS = {"num_warps": 4, "num_stages": 3, "maxnreg": None, "constants": {"BM": 64, "ACT": "relu"}}


def test_a_title_has_the_settings_that_differ() -> None:
    small, large = {"BM": "64", "BN": "32"}, {"BM": "128", "BN": "32"}
    kernels = {1: ("k", "sm_90a", small), 2: ("k", "sm_90a", large), 3: ("k", "sm_80", small), 4: ("j", "sm_90a", {})}
    assert titles(kernels) == {1: "k[BM=64]", 2: "k[BM=128]", 3: "k", 4: "j"}


@pytest.mark.parametrize(
    ("text", "is_meant"),
    [
        ("matmul", True),
        ("matmul[]", True),
        ("matmul[BM=64]", True),
        ("matmul[BM=64, num_warps=4]", True),
        ("matmul[BM=128]", False),
        ("matmul[BK=64]", False),
        ("mat", False),
        ("matmul[BM]", False),
    ],
)
def test_a_selector_means_kernels_of_its_name_and_settings(text: str, is_meant: bool) -> None:
    assert fits(text, "matmul", OPTIONS) is is_meant
    assert fits(None, "matmul", OPTIONS)


def test_what_is_no_selector() -> None:
    assert KernelSelector.of("a/b") is None and KernelSelector.of("k[BM=1") is None
    assert settings_of(OPTIONS) == {"BM": "64", "ACT": "relu", "num_warps": "4", "num_stages": "3"}
