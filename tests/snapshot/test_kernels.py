"""Captured kernels in Python: figures, lookup, rows, differences."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

import tritonhook
from tests.snapshot.conftest import Compile
from tritonhook.errors import UsageError
from tritonhook.snapshot.kernels import Kernels


@pytest.fixture
def kernels(compiled: Compile) -> Kernels:
    compiled("captures")
    return tritonhook.load(compiled("captures", block=256))


def test_a_kernel_is_found_by_id_name_and_configuration(kernels: Kernels) -> None:
    add = kernels["add_kernel[BLOCK=256]"]
    assert kernels[add.id] is kernels[add.id[:4]] is add and add in list(kernels)
    assert (add.name, add.arch, add.configuration["BLOCK"]) == ("add_kernel", "sm_90a", "256")
    assert (
        add.registers and add.instructions and add.spills == 0 and add.occupancy and add.ptx in add.artifacts.values()
    )
    titles = ["add_kernel[BLOCK=128]", "add_kernel[BLOCK=256]"]
    for wanted, number, known in (("add_kernel", "2", titles), ("none", "no", [*titles, "gemm_kernel"])):
        with pytest.raises(KeyError, match=f"{wanted}: {number} kernels; known are:") as caught:
            kernels[wanted]
        listed = [line.split() for line in caught.value.args[0].splitlines()[1:]]
        assert sorted(listed) == sorted(
            [one.id, kernels.titles[one.id]] for one in kernels if kernels.titles[one.id] in known
        )
    assert "add_kernel[BLOCK=128]" in repr(kernels) and len(kernels[:2]) == 2


def test_rows_have_the_figures_and_the_configuration(kernels: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {row["title"]: row for row in kernels.rows()}
    assert rows["add_kernel[BLOCK=256]"][".BLOCK"] == "256"
    assert {row["registers"] for row in rows.values()} == {one.registers for one in kernels}
    assert any(row["compile_time"] for row in rows.values())
    monkeypatch.setattr("tritonhook.snapshot.kernels.find_spec", lambda name: None)
    with pytest.raises(UsageError, match="pandas or polars"):
        kernels.to_dataframe()
    monkeypatch.undo()
    if importlib.util.find_spec("pandas"):
        assert list(kernels.to_dataframe()["title"]) == list(rows)


def test_two_kernels_and_two_folders_are_compared(kernels: Kernels, compiled: Compile) -> None:
    a, b = kernels["add_kernel[BLOCK=128]"], kernels["add_kernel[BLOCK=256]"]
    assert tritonhook.diff(a, a).identical_code and not tritonhook.diff(a, b).identical_code
    other = tritonhook.load(compiled("other", ptx_options="-O0"))
    assert [change.status.value for change in tritonhook.diff(kernels, other)][:1] == ["changed"]
    with pytest.raises(UsageError, match="two captured kernels"):
        tritonhook.diff(a, kernels)  # type: ignore[call-overload]


def test_a_session_gives_its_kernels(tmp_path: Path, triton_cache: Path) -> None:
    support = pytest.importorskip("triton_kernels", reason="needs Triton")
    with tritonhook.session(tmp_path) as session:
        support.compile_kernel()
    (kernel,) = kernels = session.kernels
    assert kernel.compile_time and "add\\_kernel" in (kernels._repr_markdown_() or "")
    assert kernel.name == "add_kernel" and session.records == (f"{next((tmp_path / 'kernels').iterdir()).name}",)
