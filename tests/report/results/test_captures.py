"""Captures as a result: what is read of a folder, how often, and what the summaries say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from documents import golden, large_captures, summary_of
from stored_kernels import MODULE, keep_module

from tritonhook.capture.model import Capture
from tritonhook.capture.store import by_module
from tritonhook.report.results.captures import Captures


def test_a_module_that_cannot_be_read_gives_one_note(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    folder = keep_module(tmp_path / "out", tmp_path / "cache", image=MODULE[:500])
    found = Captures.of(folder)
    assert [kernel.resources for kernel in found.kernels] == [None] * 3
    (note,) = found.notes or ()
    assert all(record in note for record in folder.records) and "truncated" in note


def test_captures_without_files_are_modules_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    folder = keep_module(tmp_path / "out", tmp_path / "cache")
    captures = {record: c for record, c in folder.captures().items() if isinstance(c, Capture)}
    assert [len(module) for module in by_module(captures)] == [3]
    for record in folder.records[:2]:
        for path in (tmp_path / "out" / "kernels" / record).glob("*.cubin"):
            path.unlink()
    assert [len(module) for module in by_module(captures)] == [1, 1, 1]


# --- what the summaries say ---------------------------------------------------------------------


def rows(document: dict[str, Any]) -> list[dict[str, str]]:
    (table,) = summary_of(document).tables
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def test_every_kernel_is_listed_in_the_documents_order() -> None:
    found = rows(large_captures(200))
    assert [row["kernel"] for row in found] == [f"kernel_{i:03}" for i in range(200)]
    last = found[-1]
    assert [last[name] for name in ("id", "regs", "spills", "stack", "shared", "instrs", "code")] == [
        *("0000c7", "231", "0", "0", "0", "1,258", "20,128")
    ]


def test_what_is_not_known_is_never_shown_as_none() -> None:
    document = large_captures(4)
    spilled, array, no_cubin, damaged = document["kernels"]
    spilled["resources"] |= {"spill_stores": 66_460, "spill_loads": 1_024, "shared": 1_024, "dynamic_shared": 512}
    array["resources"] |= {"spill_stores": None, "spill_loads": None, "local_stores": 8, "dynamic_shared": None}
    no_cubin |= {"stages": ["ptx"], "resources": None}
    damaged["resources"] = None
    shown = [[row[name] for name in ("regs", "spills", "stack", "shared")] for row in rows(document)]
    assert shown == [
        ["32", "66,460/1,024", "0", "1,536"],
        ["33", "not known", "0", "0+"],
        ["-"] * 4,
        ["not known"] * 4,
    ]
    one = dict(summary_of(golden("capture") | {"resources": array["resources"]}).tables[0].rows)
    assert (one["spill stores"], one["spill loads"]) == ("not known", "not known")
    assert one["local memory"].startswith("8 bytes stored, 0 loaded: spills, or")
