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


def test_what_all_kernels_share_is_a_fact_and_no_column() -> None:
    document = large_captures(2)
    shared = "target: sm_90a; ptxas: 12.8.93; front end: Triton; stages: ttir ttgir llir ptx cubin"
    assert summary_of(document).facts == (shared,)
    assert not {"target", "ptxas", "front end", "stages"} & set(rows(document)[0])
    document["kernels"][0]["metadata"] = {"front_end": "nvcc"}
    document["kernels"][0]["stages"] = ["cubin"]
    first = rows(document)[0]
    assert (first["front end"], first["stages"]) == ("nvcc", "binary only")


def test_renames_tunings_and_ranks_have_columns_where_there_are_some() -> None:
    document = large_captures(3)
    assert not {"renamed from", "autotuned", "ranks"} & set(rows(document)[0])
    for number, kernel in enumerate(document["kernels"]):
        kernel |= {"kernel": "same", "options": {"num_warps": 4 << number, "constants": {"BLOCK": 128, "N": None}}}
        kernel["seen"] = [
            {"process": "p", "rank": rank, "cache_hit": rank == "10", "time_ns": 0, "run": None}
            for rank in ("10", "2", "-")
        ]
    document["kernels"][0]["rewritten_from"] = "own_name"
    records = [kernel["record"] for kernel in document["kernels"]]
    document["tunings"] = [
        {"winner": record, "among": records[:2], "by": "triton.autotune", "process": "p"} for record in records[:2]
    ]
    first, middle, last = rows(document)
    assert first["renamed from"] == "own_name" and last["renamed from"] == ""
    assert middle["kernel"].endswith("[num_warps=8]") and middle["configuration"] == "8 warps, BLOCK=128"
    assert [row["autotuned"] for row in (first, middle, last)] == ["won 1 of 2", "won 1 of 2", ""]
    assert (first["ranks"], first["compiled"], first["from cache"]) == ("- 2 10", "2", "1")


def test_only_what_tells_two_kernels_of_one_name_apart_is_shown() -> None:
    document = large_captures(4)
    settings = [{"BLOCK_M": 64, "BLOCK_N": 32}, {"BLOCK_M": 128, "BLOCK_N": 32}, {"BLOCK_M": 64}, {"BLOCK_N": 32}]
    for kernel, constants in zip(document["kernels"], settings, strict=True):
        kernel |= {"kernel": "gemm", "options": {"num_warps": 4, "constants": constants}}
    document["kernels"][3]["kernel"] = "other"
    assert [row["kernel"] for row in rows(document)] == [
        "gemm[BLOCK_M=64,BLOCK_N=32]",
        "gemm[BLOCK_M=128,BLOCK_N=32]",
        "gemm[BLOCK_M=64]",
        "other",
    ]


def test_names_are_those_that_people_wrote() -> None:
    document = large_captures(3)
    mangled = ("_Z7row_sumIfEvPKT_PS0_y", "_Z5saxpyifPKfPf", "_Z5saxpyidPKdPd")
    for kernel, name in zip(document["kernels"], mangled, strict=True):
        kernel["kernel"] = name
    names = [row["kernel"] for row in rows(document)]
    assert names == [
        "row_sum<float>",
        "saxpy(int, float, float const*, float*)",
        "saxpy(int, double, double const*, double*)",
    ]


def test_triggers_have_a_column_where_a_kernel_has_one() -> None:
    document = large_captures(3)
    assert "trigger" not in rows(document)[0]
    by_name, by_pragma, binary = ((True, False), (False, True), (False, None))
    for kernel, (name, pragma) in zip(document["kernels"], (by_name, by_pragma, binary), strict=True):
        kernel["trigger"] = {"name": name, "pragma": pragma}
    assert [row["trigger"] for row in rows(document)] == ["name", "pragma", "not known"]
