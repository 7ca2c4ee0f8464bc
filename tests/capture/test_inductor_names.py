"""The name that Inductor's static launcher gets: read from a cubin with the standard library only."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from repository import GOLDEN

from tritonhook.capture.inductor import _entry, _entry_instead
from tritonhook.cubin.image import Cubin


class Kernel:
    def __init__(self, name: str, cubin_path: Path | None) -> None:
        self.name, self.cubin_path = name, None if cubin_path is None else str(cubin_path)


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.cubin")), ids=lambda path: path.name)
def test_the_sections_name_the_kernels_that_elf_says(path: Path) -> None:
    kernels = Cubin.from_bytes(path.read_bytes()).kernels
    for kernel in kernels:
        assert _entry(path, kernel) == kernel
    assert _entry(path, "nosuch") == (kernels[0] if len(kernels) == 1 else None)


def test_the_launcher_is_told_another_name_only_if_its_own_is_not_there(tmp_path: Path) -> None:
    image = GOLDEN / "sm_90a.exp.renamed.cubin"
    (kernel,) = Cubin.from_bytes(image.read_bytes()).kernels
    copy = tmp_path / "own.cubin"
    copy.write_bytes(image.read_bytes())
    assert _entry_instead(Kernel(kernel, copy)) is None
    assert _entry_instead(Kernel("own", copy)) == kernel
    assert _entry_instead(Kernel("own", tmp_path / "nosuch.cubin")) is None
    assert _entry_instead(Kernel("own", None)) is None
    copy.write_bytes(b"no image")
    assert _entry_instead(Kernel("own", copy)) is None


def test_triton_says_which_of_several(tmp_path: Path) -> None:
    image = GOLDEN / "sm_90a.module.cubin"
    kernels = Cubin.from_bytes(image.read_bytes()).kernels
    assert len(kernels) > 1
    copy = tmp_path / "own.cubin"
    copy.write_bytes(image.read_bytes())
    assert _entry(copy, "own") is None
    (tmp_path / "own.json").write_text(json.dumps({"name": kernels[1]}))
    assert _entry(copy, "own") == kernels[1]
    (tmp_path / "own.json").write_text(json.dumps({"name": "elsewhere"}))
    assert _entry(copy, "own") is None
