"""Launches that ask for anything: `emulate` executes them, or says in one line what is not possible."""

from __future__ import annotations

import json
import resource
from pathlib import Path
from typing import Any

import pytest
from damage import damaged_json, no_hang
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("numpy")

from tritonhook.cli import main

from .conftest import ABUSE

PTX = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 x)
{
.reg .b32 %r<3>; .reg .b64 %rd<3>; .shared .align 16 .b8 room[64];
ld.param.u64 %rd1, [x]; mov.u32 %r1, %tid.x; st.shared.b32 [room], 1; bar.sync 0; st.global.b32 [%rd1], %r1;
ret;
}
"""
LAUNCH = {
    "kernel": "k",
    "grid": [2, 1, 1],
    "block": [32, 1, 1],
    "cluster": [1, 1, 1],
    "shared": 0,
    "cooperative": False,
    "parameters": [{"name": "x", "dtype": "int32", "shape": [64], "stride": [1], "buffer": 0}],
    "buffers": [{"size": 256, "dtype": "int32"}],
}
EXTENTS = st.lists(
    st.sampled_from([1, 2, 3, 64, 65, 1024, 65535, 65536, 2**31 - 1, 2**31, 2**40]), min_size=1, max_size=3
)
SIZES = st.sampled_from([0, 1, 256, 2**20, 2**31, 2**40, 2**52])


def emulated(folder: Path, text: bytes) -> None:
    """It ends soon with 0, 1 or 2, and takes no 2 GiB."""
    (folder / "k.ptx").write_text(PTX)
    (folder / "l.json").write_bytes(text)
    with no_hang():
        assert main(["emulate", str(folder / "k.ptx"), "--args", str(folder / "l.json"), "--limit", "1", "--json"]) < 3
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 2 << 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("launches")


@settings(ABUSE)
@given(damaged_json(LAUNCH))
def test_a_damaged_launch_is_executed_or_refused(folder: Path, capsys: Any, data: bytes) -> None:
    emulated(folder, data)
    assert "internal error" not in capsys.readouterr().err


@settings(ABUSE)
@given(EXTENTS, EXTENTS, st.one_of(st.just([1]), EXTENTS), SIZES, SIZES, st.booleans())
def test_any_extent_is_executed_or_refused(
    folder: Path, capsys: Any, grid: Any, block: Any, cluster: Any, shared: Any, size: Any, cooperative: Any
) -> None:
    asked = {"grid": grid, "block": block, "cluster": cluster, "shared": shared, "cooperative": cooperative}
    emulated(folder, json.dumps(LAUNCH | asked | {"buffers": [{"size": size, "dtype": "int32"}]}).encode())
    assert "internal error" not in capsys.readouterr().err
