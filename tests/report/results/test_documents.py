"""The JSON documents keep their promise: what an earlier version wrote (tests/golden/documents/) is still read, and no
field has gone or changed its type while the number in `format` stayed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import EXP, TARGET
from documents import GOLDEN, KINDS, golden, page_of, summary_of
from fake_ptxas import make_ptxas

from tritonhook.cli import main
from tritonhook.errors import UsageError
from tritonhook.report.result import kinds, read_result

# Objects whose keys are names, and differ from document to document.
_FREE = ("opcodes", "options", "metadata", "ptxas", "outcomes", "codes_seen", "variants", "cells", "sections_changed")


def shape(value: Any, path: str = "") -> dict[str, set[str]]:
    """The JSON types at each path. Members of a list share a path; a key of `_FREE` is written as *."""
    name = {type(None): "null", dict: "object", list: "list", bool: "flag", str: "text"}.get(type(value), "number")
    found = {path: {name}}
    items: list[tuple[str, Any]] = []
    if isinstance(value, dict):
        free = path.rpartition(".")[2] in _FREE
        items = [(f"{path}.{'*' if free else key}", item) for key, item in value.items()]
    elif isinstance(value, list):
        items = [(f"{path}[]", item) for item in value]
    for key, item in items:
        for inner, types in shape(item, key).items():
            found.setdefault(inner, set()).update(types)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_golden_document_has_its_summary_and_its_page(kind: str) -> None:
    document = golden(kind)
    page, summary = page_of(document), summary_of(document)
    assert summary.verdict and page.summary.verdict == summary.verdict
    assert page.summary.tables[: len(summary.tables)] == summary.tables


def test_every_kind_has_a_golden_document_or_a_result() -> None:
    found = {golden(kind)["kind"] for kind in KINDS}
    of_tools = {"installed", "ptxas list", "ptxas tool", "rename", "status"}
    with_their_verbs = {"demo", "emulation", "counters", "same bits", *of_tools}
    assert set(kinds()) - found == with_their_verbs


def test_a_newer_format_is_refused_and_other_documents_are_told() -> None:
    with pytest.raises(UsageError, match="its format is 9, this version reads up to 1"):
        read_result(golden("diff") | {"format": 9})
    with pytest.raises(UsageError, match="not a result that tritonhook can show: it has no `kind`"):
        read_result({k: v for k, v in golden("diff").items() if k != "kind"})
    with pytest.raises(UsageError, match="kind 'poem'"):
        read_result({"format": 1, "kind": "poem"})


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_document_is_an_error_in_a_sentence(kind: str) -> None:
    # Given a document of known kind from which a field has gone, or is of another type
    known = golden(kind)
    if kind == "ab":
        known["blocks"] = known["blocks"][:2]  # the bootstrap of each page takes its time
    for field in known:
        for damaged in (None, 7, "text", [1], {"x": 1}):
            document = known | {field: damaged}
            try:
                page_of(document)
            except UsageError as error:
                assert "\n" not in str(error)
    with pytest.raises(UsageError, match="damaged, or of another version: .* is missing"):
        read_result({"format": 1, "kind": known["kind"]})


def undocumented(document: Any) -> list[str]:
    """The fields of a document that its schema, and so the JSON reference, does not have."""
    known = shape(json.loads(json.dumps(read_result(document).document())))
    return [path for path in shape(json.loads(json.dumps(document))) if path not in known]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_read_is_what_was_written(kind: str) -> None:
    document = golden(kind)
    if kind == "names":  # the first versions left some fields out
        document["diff"]["kind"] = "diff"
    if kind == "ab":
        document["blocks"] = [block | {"order": []} for block in document["blocks"]]
    assert json.loads(json.dumps(read_result(document).document())) == document


def test_what_the_other_verbs_write_fits_its_schema(
    capsys: pytest.CaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kinds without a golden document."""
    monkeypatch.chdir(tmp_path)
    Path("work.ptx").write_text(EXP.ptx("work", **TARGET).text)
    folder = make_ptxas(tmp_path / "bin")
    tma = str(GOLDEN / "sm_120a.tensor_load.cluster.cubin")
    commands = [
        ["status"],
        ["ptxas", "list"],
        ["ptxas", "status", str(folder)],
        ["ptxas", "install", "--yes", "--system", str(folder)],
        ["ptxas", "uninstall", str(folder)],
        ["rename", "work.ptx", "--prefix", "x_"],
        ["rename", "work.ptx", "--prefix", "x_", "--rewrite", "mma-throughput", "-o", "new.ptx"],
        ["mem", "predict", tma, "--gpu", "RTX 5090", "--fail-over", "1GiB"],
        ["show", tma],
        ["diff", tma, tma],
    ]
    for words in commands:
        assert main([*words, "--json"]) in (0, 1), words
        document = json.loads(capsys.readouterr().out)
        assert undocumented(document) == [], words
