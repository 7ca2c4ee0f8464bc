"""Kernels of the CuTe DSL in a lock, and compared before and after."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("cutlass", reason="needs the CuTe DSL")

import cute_kernels as kernels

import tritonhook
from tritonhook.cli import main
from tritonhook.snapshot.lockfile import read_lock


@pytest.fixture
def folders(tmp_path: Path, dsl_cache: Path) -> list[str]:
    """Two compiles of an addition, and two of an addition and another kernel, behind it and in front of it."""
    from cute_sessions import forget_in_memory

    compiles = {"old": kernels.add, "again": kernels.add, "more": kernels.both, "swapped": kernels.swapped}
    for name, function in compiles.items():
        forget_in_memory()
        with tritonhook.session(tmp_path / name):
            kernels.compiled(function)
    return [str(tmp_path / name) for name in compiles]


def test_a_lock_of_cute_kernels(folders: list[str], tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    lock = str(tmp_path / "tritonhook.lock")
    assert main(["lock", folders[0], "-o", lock]) == 0
    (locked,) = read_lock(Path(lock))
    assert locked.identity.front_end == "cute"
    assert {name: locked.figures[name] for name in ("stack", "spill_stores")} == {"stack": 0, "spill_stores": 0}
    assert locked.codes and locked.ptx_sha256
    assert main(["check", lock, folders[1]]) == 0
    capsys.readouterr()
    assert main(["check", lock, folders[2]]) == 1
    said = capsys.readouterr().out
    assert "double_kernel" in said and "1 new" in said
    assert main(["diff", folders[0], folders[1]]) == 0


def test_a_kernel_in_front_gives_no_other_kernel_a_new_name(folders: list[str]) -> None:
    """The DSL numbers the kernels of a function, in the order of their launches."""
    assert main(["diff", folders[2], folders[3]]) == 0
