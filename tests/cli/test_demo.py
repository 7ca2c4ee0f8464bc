"""The demo: one kernel in sixty lines, which is what `make demo` runs; with --full the main job on an attention."""

import contextlib
import io
import json
from pathlib import Path

import pytest
from at_hand import ptxas_at_hand

from tritonhook.capture.store import CaptureFolder
from tritonhook.cli import main
from tritonhook.errors import UsageError
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
    assert "table" not in saved
    assert main(["show", str(tmp_path / "demo.json")]) == 0 and "layer_norm" in capsys.readouterr().out


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def text(place: Path, published_ptxas: None) -> str:
    """What people see. The document is saved beside it."""
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.setenv("TRITON_CACHE_DIR", str(place / "cache"))
        assert main(["demo", "--full", "--out", str(place / "out"), "--save", str(place / "demo.json")]) == 0
    return printed.getvalue()


@pytest.fixture(scope="module")
def document(place: Path, text: str) -> dict:
    return json.loads((place / "demo.json").read_text())


def test_both_variants_are_captured_with_their_ptxas(document: dict) -> None:
    assert [c["kernel"] for c in document["captures"]] == ["attention_fwd"] * 2
    assert len({c["hash"] for c in document["captures"]}) == 2
    for capture in document["captures"]:
        assert {"ttgir", "llir", "ptx", "cubin"} <= set(capture["stages"])
        assert "--gpu-name=sm_100a" in capture["ptxas"]["arguments"]


def test_the_scalar_row_sum_shows_the_published_effect(document: dict) -> None:
    result = document["comparisons"]["scalar row sum"]
    assert result["original"]["kernel"] == "attention_fwd"
    assert result["control_is_neutral"] is True
    diff = result["diff"]
    assert diff["verdict"] == "different code"
    assert diff["scheduler"]["other_scheduler"] == {"a": False, "b": True}
    assert diff["scheduler"]["capmerc_records"]["a"] == 0
    # The softmax loops are the largest: taken under the cutlass name, and only there.
    largest = max(diff["sass"]["loops"], key=lambda pair: pair["a"]["instructions"])
    assert (largest["a"]["rescheduled"], largest["b"]["rescheduled"]) == (False, True)
    assert largest["a"]["opcodes"]["MUFU"] == largest["b"]["opcodes"]["MUFU"] > 32


def test_with_the_packed_one_ptxas_leaves_the_softmax_loop_alone(document: dict) -> None:
    diff = document["comparisons"]["packed row sum"]["diff"]
    largest = max(diff["sass"]["loops"], key=lambda pair: pair["a"]["instructions"])
    assert (largest["a"]["rescheduled"], largest["b"]["rescheduled"]) == (False, False)


def test_the_table_stands_beside_the_published_one(document: dict) -> None:
    rows = {row["condition"]: row for row in document["table"]["rows"]}
    scalar, packed = (rows[f"attention fp8 D64, {kind} row sum"] for kind in ("scalar", "packed"))
    assert scalar["published"] == {"size": 1.15, "capmerc": 3.2}
    assert scalar["size_ratio"] == pytest.approx(1.12, abs=0.03)
    assert scalar["capmerc_ratio"] == pytest.approx(3.26, abs=0.3)
    assert packed["capmerc_ratio"] == pytest.approx(1.62, abs=0.3)
    assert len(rows) == 8


def test_the_first_result_comes_before_the_work_for_the_next(
    tmp_path: Path, monkeypatch, capsys: pytest.CaptureFixture
) -> None:
    """A heading stands before the work that it announces, and each result is shown as soon as it is there."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    printed: list[str] = []

    def stop(*words: object) -> None:
        printed.append(capsys.readouterr().out)
        raise UsageError("stopped")

    monkeypatch.setattr("tritonhook.cli.demo.compare_names", stop)
    assert main(["demo", "--full", "--out", str(tmp_path / "out")]) == 2
    parts = ["1. Capture", "2. Rename", "cutlass_attention_fwd(", "3. Assemble and diff"]
    places = [printed[0].find(part) for part in parts]
    assert -1 not in places and places == sorted(places)


def test_people_see_all_five_parts(text: str) -> None:
    for part in ("1. Capture", "2. Rename", "3. Assemble and diff", "4. Assemble and diff", "5. The published table"):
        assert part in text
    assert ".visible .entry attention_fwd(  ->  .visible .entry cutlass_attention_fwd(" in text
    assert "Assembled, not executed or timed" in text
    assert "2 kernels seen, 0 from cache" in text


def test_a_warm_cache_is_as_good(place: Path, document: dict, monkeypatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(place / "cache"))
    assert main(["demo", "--full", "--out", str(place / "again"), "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert [seen.cache_hit for seen in CaptureFolder.open(place / "again").sightings] == [True, True]
    assert [one["hash"] for one in again["captures"]] == [one["hash"] for one in document["captures"]]
