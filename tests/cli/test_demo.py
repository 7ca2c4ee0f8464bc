"""The demo: one kernel in sixty lines, which is what `make demo` runs."""

import json
from pathlib import Path

import pytest
from at_hand import ptxas_at_hand

from tritonhook.capture.store import CaptureFolder
from tritonhook.cli import main
from tritonhook.lab.published_table import PTXAS

pytest.importorskip("triton", reason="needs triton")


@pytest.fixture(scope="module", autouse=True)
def published_ptxas() -> None:
    ptxas_at_hand(PTXAS)


def test_one_kernel_takes_sixty_lines(tmp_path: Path, monkeypatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "80")
    words = ["demo", "--out", str(tmp_path / "out")]
    assert main([*words, "--save", str(tmp_path / "demo.json")]) == 0
    said, saved = capsys.readouterr().out, json.loads((tmp_path / "demo.json").read_text())
    assert len(said.splitlines()) <= 60
    (record,) = CaptureFolder.open(tmp_path / "out").records
    own = CaptureFolder.open(tmp_path / "out").ids[record]
    for part in (
        "layer_norm",
        "total += value",
        "registers",
        f"tritonhook diff {own} --rename",
        "tritonhook run --arch",
    ):
        assert part in said
    assert [kernel["kernel"] for kernel in saved["captures"]] == list(saved["comparisons"]) == ["layer_norm"]
    assert main(["show", str(tmp_path / "demo.json")]) == 0 and "layer_norm" in capsys.readouterr().out
