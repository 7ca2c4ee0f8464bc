"""Every verb gives the shared memory of a launch (what the image has, what the launch adds), and a kernel's spills."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tritonhook
from tritonhook.cli import main
from tritonhook.cli._inputs import kernels_at


@pytest.fixture
def places(out: Path, triton_cache: Path) -> list[str]:
    """A matrix product with two and with four stages, captured."""
    kernels = pytest.importorskip("triton_kernels", reason="needs Triton")
    with tritonhook.session(out) as session:
        for stages in (2, 4):
            kernels.compile_gemm(num_stages=stages)
    return [str(out / "kernels" / record) for record in session.records]


def document(capsys: pytest.CaptureFixture, *words: str) -> dict[str, Any]:
    main([*words, "--json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def rows(diff: dict[str, Any]) -> dict[str, tuple[int | None, int | None]]:
    return {row["field"]: (row["a"], row["b"]) for row in diff["resources"] if "shared" in row["field"]}


def test_all_verbs_give_the_total_of_a_launch(places: list[str], out: Path, capsys: pytest.CaptureFixture) -> None:
    found = [document(capsys, "show", place)["resources"] for place in places]
    static, dynamic = ([one[name] for one in found] for name in ("shared", "dynamic_shared"))
    assert static == [1024, 1024] and 0 < dynamic[0] < dynamic[1]
    totals = [1024 + more for more in dynamic]
    assert rows(document(capsys, "diff", *places)) == {"shared": tuple(totals), "dynamic_shared": tuple(dynamic)}
    (own,) = {rows(document(capsys, "diff", "--rename", place)["diff"])["shared"] for place in places[:1]}
    assert own == (totals[0], totals[0])
    (folder,), _ = kernels_at(str(out))
    assert sorted(facts.figures["shared"] or 0 for _, facts in folder) == totals
    main(["diff", *places])
    said = capsys.readouterr().out
    assert f"{totals[0]:,}" in said and f"{totals[1]:,}" in said and "dynamic shared" in said


def test_what_a_launch_of_a_file_adds_is_not_known(places: list[str], capsys: pytest.CaptureFixture) -> None:
    (cubin,) = Path(places[1]).glob("*.cubin")
    a, b = rows(document(capsys, "diff", places[0], str(cubin)))["shared"]
    assert a is not None and a > 1024 and b is None
    assert rows(document(capsys, "diff", str(cubin), str(cubin))) == {"shared": (1024, 1024)}


def test_diff_and_show_know_the_same_spills(out: Path, triton_cache: Path, capsys: pytest.CaptureFixture) -> None:
    kernels = pytest.importorskip("triton_kernels", reason="needs Triton")
    with tritonhook.session(out) as session:
        for registers in (64, 255):
            kernels.compile_gemm(80, maxnreg=registers)
    places = [str(out / "kernels" / record) for record in session.records]
    shown = [document(capsys, "show", place)["resources"]["spill_stores"] for place in places]
    rows = {row["field"]: (row["a"], row["b"]) for row in document(capsys, "diff", *places)["resources"]}
    assert rows["spill_stores"] == tuple(shown) and shown[0] > shown[1] == 0
