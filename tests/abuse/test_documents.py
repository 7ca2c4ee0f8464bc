"""Damaged documents: `tritonhook show` shows them, or says in one line what is wrong. It never ends otherwise."""

from __future__ import annotations

import copy
import io
import json
import math
from pathlib import Path
from typing import Any

import pytest
from damage import damaged_json, no_hang, outcome, places
from documents import KINDS, diff_with_code, golden, page_of, summary_of
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tritonhook._util.text import to_json
from tritonhook.errors import UsageError
from tritonhook.report.render.terminal import render_terminal

from .conftest import ABUSE, LARGE


def whole(kind: str) -> dict[str, Any]:
    document = diff_with_code("sm_90a.exp.plain", "sm_90a.exp.cutlass") if kind == "diff with code" else golden(kind)
    if kind == "ab":
        document["blocks"] = document["blocks"][:2]  # the bootstrap takes its time
    return document


SEEDS = {kind: whole(kind) for kind in (*KINDS, "diff with code")}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("documents") / "d.json"


@pytest.mark.parametrize("kind", SEEDS)
def test_a_damaged_document_is_shown_or_refused(kind: str, file: Path) -> None:
    @settings(ABUSE)
    @given(damaged_json(SEEDS[kind]))
    def holds(data: bytes) -> None:
        file.write_bytes(data)
        outcome("show", str(file), "--markdown", "--html", str(file.with_suffix(".html")), "--force")

    holds()


ODD = [None, "text", [[]], 10**400]
ODD += [True, 0, -1, 1.5, "", [], {}, {"x": [[]]}, [{}], [None], math.nan, "\ud800"] if LARGE else []


def _with(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy with another value at a place."""
    if not path:
        return value
    changed = copy.copy(document)
    changed[path[0]] = _with(document[path[0]], path[1:], value)
    return changed


@pytest.mark.parametrize("kind", SEEDS)
def test_each_field_may_have_a_wrong_type(kind: str) -> None:
    """One place of each name, or with FUZZ_EXAMPLES every place, gets a value of every type."""
    named: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for path in places(SEEDS[kind]):
        named.setdefault(tuple("*" if isinstance(key, int) and not LARGE else key for key in path), path)
    refused = 0
    for path in filter(None, named.values()):
        for value in ODD:
            document = _with(SEEDS[kind], path, value)
            try:
                render_terminal(summary_of(document), io.StringIO())
                page_of(document)
            except UsageError:
                refused += 1
    assert refused > len(named)


# What was found in earlier versions: raw JSON that stands for one field.
FOUND = [
    ("captures", '"notes"', '[["a", ["b"]]]'),
    ("captures", '"notes"', '{"a": 1}'),
    ("captures", '"torn_lines"', "9" * 400),
    ("capture", '"options"', '{"fp_fusion": [[]]}'),
    ("capture", '"options"', '{"constants": {"N": Infinity}}'),
    ("capture", '"ptxas"', '{"path": null, "version": "12.x", "arguments": null}'),
    ("capture", '"kernel"', '"\\ud800"'),
    ("probe", '"cells"', "[[]]"),
    ("diff", '"sass"', "Infinity"),
    ("diff", '"resources"', '[{"field": "stack", "a": 1e999, "b": 0}]'),
    ("memory", '"timelines"', "[" * 100_000),
    ("memory_prediction", '"growth_bytes"', '{"low": 0, "high": ' + "9" * 4000 + "}"),
    ("table", '"rows"', '[{"condition": 5}]'),
    ("ab", '"band"', "NaN"),
    ("ab", '"blocks"', '[{"process": 0, "times_us": {"reference": [1e-320]}}]'),
]


@pytest.mark.parametrize("kind, field, raw", FOUND, ids=lambda value: str(value)[:24])
def test_what_was_found_is_refused_by_the_name_of_its_field(kind: str, field: str, raw: str, file: Path) -> None:
    document = SEEDS[kind] | {json.loads(field): "damaged here"}
    file.write_text(json.dumps(document).replace('"damaged here"', raw))
    code, shown = outcome("show", str(file), "--markdown")
    if kind == "capture" and "options" in field and "fp_fusion" in raw:
        assert code == 0 and "fp fusion" in shown.replace("\\", "").replace("_", " ")  # odd, but a value
    else:
        assert (code == 2 and str(file) in shown and "damaged" in shown) or "no JSON" in shown


MANY = {
    "lists": "[]," * 1_100_000,
    "objects": '{"a":{}},' * 800_000,
    "lists beside a long text": '"' + "\\\\[,{" * 1_000_000 + '",' + "[]," * 1_100_000,
}


@pytest.mark.parametrize("items", MANY.values(), ids=MANY)
def test_very_many_values_are_refused_before_they_are_read(items: str, file: Path) -> None:
    file.write_text(f'{{"kind": "table", "format": 1, "rows": [{items}0]}}')
    code, shown = outcome("show", str(file), "--markdown")
    assert code == 2 and "values, more than the 2,097,152 that are read" in shown


def test_a_long_text_with_commas_is_no_list(file: Path) -> None:
    file.write_text(json.dumps(SEEDS["table"] | {"x": ',[{"' * 1_000_000}))
    assert outcome("show", str(file), "--markdown")[0] == 0


def test_documents_are_read_up_to_a_size(file: Path) -> None:
    with file.open("wb") as sparse:
        sparse.write(b"{")
        sparse.truncate((1 << 25) + 1)
    for words in (["show", str(file)], ["ab", "--from", str(file)]):
        code, shown = outcome(*words)
        assert code == 2 and "33,554,433 bytes, more than the 33,554,432 that are read" in " ".join(shown.split())
    file.unlink()


@settings(ABUSE)
@given(st.binary(max_size=200))
@example(b"")
@example(b"\xff\xfe")
@example(b"[" * 100_000)
@example(b'{"kind": "diff"}')
@example(b'{"kind": [], "format": {}}')
@example(b'{"samples": [{"comparison": 5}]}')
@example(b'{"samples": [{"comparison": {}, "kernel": [[]]}, {"comparison": {}}]}')
@example(b"9" * 5000)
def test_any_bytes_are_refused(file: Path, data: bytes) -> None:
    file.write_bytes(data)
    assert outcome("show", str(file), "--markdown")[0] == 2


@pytest.mark.parametrize("kind", SEEDS)
def test_what_is_shown_is_the_same_after_it_is_saved(kind: str) -> None:
    @settings(ABUSE, max_examples=max(10, ABUSE.max_examples // 4))
    @given(st.lists(st.sampled_from(["\x00", "\x1b[2J", "\u202e", "核", "\U0001f600", '"', "\\", "\n"]), max_size=4))
    def holds(odd: list[str]) -> None:
        document = json.loads(json.dumps(SEEDS[kind]))
        for key, value in document.items():
            if isinstance(value, str) and key in ("path", "kernel", "target", "cause", "summary", "name"):
                document[key] = value + "".join(odd)
        with no_hang():
            again = json.loads(to_json(document))
            assert summary_of(again) == summary_of(document)

    holds()
