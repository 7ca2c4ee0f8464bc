"""The capability matrix: how cells are judged, a survey with Triton's ptxas, the committed results."""

import json
import os
import re
from pathlib import Path

import pytest
from at_hand import ptxas_at_hand
from repository import ROOT

from tritonhook._util.schema import as_schema
from tritonhook.cli import main
from tritonhook.lab.capabilities import (
    Cell,
    InstructionProbe,
    Matrix,
    Status,
    judge_code,
    judge_failure,
    survey,
)
from tritonhook.lab.kernels.instructions import PROBES
from tritonhook.ptxas.limits import Limits
from tritonhook.ptxas.pool import ResultCache, sweep
from tritonhook.ptxas.result_cache import Outcome, OutcomeKind
from tritonhook.ptxas.tool import find_nvdisasm
from tritonhook.report.render.markdown import render_markdown
from tritonhook.report.results.capabilities import Capabilities

REPOSITORY = ROOT
PTXAS = "12.9.86"  # of Triton 3.6: knows sm_121a, and reads PTX 8.8
OLDER = "12.8.93"  # of Triton 3.6 too: PTX 8.7, and neither sm_103a nor sm_121a
BY_KEY = {probe.key: probe for probe in PROBES}
SYSCALL_2D = "__cuda_syscall_cp_async_bulk_tensor_2d_tile_unicast"


def look(versions: list[str], archs: list[str], keys: list[str], folder: Path) -> tuple[Matrix, list[bool]]:
    """A survey of a few probes, and for each job whether its outcome came from the cache."""
    cached: list[bool] = []

    def go(jobs):
        return sweep(jobs, cache=ResultCache(folder), on_outcome=lambda job, outcome, known: cached.append(known))

    probes = [BY_KEY[key] for key in keys]
    notes = ResultCache(folder)
    return survey([ptxas_at_hand(v) for v in versions], archs, probes, go, find_nvdisasm(), notes=notes), cached


# --- judging ---------------------------------------------------------------------------------------


def probe(expected: str = "QMMA.16832") -> InstructionProbe:
    return InstructionProbe("mma.sync", "e4m3", "8.4", "", expected)


AROUND = ["LDC", "S2R", "LDG.E.128", "STG.E", "EXIT", "BRA", "NOP"]


@pytest.mark.parametrize(
    ("opcodes", "externs", "cell"),
    [
        (["QMMA.16832.F32"], [], Cell(Status.INLINE, "QMMA.16832.F32")),
        (["QMMA.16832.F32", "QMMA.16832.F32"], [], Cell(Status.INLINE, "QMMA.16832.F32 x2")),
        (["F2FP.X", "F2FP.X", "HMMA.16816.F32"], [], Cell(Status.EMULATED, "HMMA.16816.F32, F2FP.X x2")),
        (["QMMA.16832.F32", "CALL.REL"], [], Cell(Status.INLINE, "QMMA.16832.F32", "the code also calls other code")),
        (["CALL.REL"], [], Cell(Status.EMULATED, "CALL.REL")),
        (["CALL.ABS"], ["__cuda_syscall_x"], Cell(Status.SYSCALL, "", "__cuda_syscall_x")),
        (["QMMA.16832", "CALL.ABS"], ["__cuda_syscall_x"], Cell(Status.SYSCALL, "QMMA.16832", "__cuda_syscall_x")),
        (["QMMA.16832", "CALL.ABS"], ["vprintf"], Cell(Status.EMULATED, "QMMA.16832", "calls vprintf")),
        ([], [], Cell(Status.EMULATED, "", "dropped: ptxas removed the instruction")),
        (["QMMA.16816.F32"], [], Cell(Status.EMULATED, "QMMA.16816.F32")),  # not the shape expected
    ],
)
def test_a_cell_says_what_the_code_holds(opcodes: list[str], externs: list[str], cell: Cell) -> None:
    assert judge_code(probe(), AROUND + opcodes, externs) == cell


def outcome(kind: OutcomeKind, message: str = "", signal: str | None = None) -> Outcome:
    return Outcome(kind, message, 255, signal, 0.0, 0.0, Limits())


def test_a_refusal_keeps_the_words_and_forgets_the_place() -> None:
    said = "line 20: Feature 'mma' requires .target sm_90 or higher than 'sm_80'"
    cell = judge_failure(outcome(OutcomeKind.REJECTED, said), "sm_80")
    assert cell == Cell(Status.REJECTED, reason="Feature 'mma' requires .target sm_90 or higher than '{arch}'")


# --- with ptxas ------------------------------------------------------------------------------------


def test_what_12_9_makes_of_the_gate_instructions(tmp_path: Path) -> None:
    expected = {
        ("sm_120a", "TMA: load 2d, shared::cluster"): (Status.SYSCALL, "UTMALDG.2D", SYSCALL_2D),
        ("sm_121a", "TMA: load 2d, shared::cluster"): (Status.SYSCALL, "UTMALDG.2D", SYSCALL_2D),
        ("sm_90a", "TMA: load 2d, shared::cluster"): (Status.INLINE, "UTMALDG.2D", ""),
        ("sm_120a", "TMA: load 2d, shared::cta"): (Status.INLINE, "UTMALDG.2D", ""),
        ("sm_90a", "mma.sync: e4m3"): (
            Status.EMULATED,
            "HMMA.16816.F32 x2, F2FP.F16.E4M3.UNPACK_B x12, FADD x4",
            "",
        ),
        ("sm_120a", "mma.sync: e4m3"): (Status.INLINE, "QMMA.16832.F32.E4M3.E4M3", ""),
        ("sm_120", "warp and sync: setmaxnreg"): (
            Status.REJECTED,
            "",
            "Instruction 'setmaxnreg.inc' not supported on .target '{arch}'",
        ),
        ("sm_120a", "warp and sync: setmaxnreg"): (Status.INLINE, "USETMAXREG.TRY_ALLOC.CTAPOOL", ""),
        # With the syscall, ptxas ignores setmaxnreg: the code has no USETMAXREG.
        ("sm_120a", "warp and sync: setmaxnreg beside a TMA load, shared::cluster"): (Status.SYSCALL, "", SYSCALL_2D),
        ("sm_90a", "matrix: ldmatrix m16n16.x2.trans.b8"): (
            Status.REJECTED,
            "",
            "Feature '.m16n16' not supported on .target '{arch}'",
        ),
        ("sm_120a", "matrix: ldmatrix m16n16.x2.trans.b8"): (Status.INLINE, "LDSM.8.MT1616.2", ""),
        ("sm_120a", "arithmetic: fma.rn.f32x2"): (Status.EMULATED, "FFMA x2", ""),
    }
    archs, keys = zip(*expected, strict=True)
    matrix, _ = look([PTXAS], sorted(set(archs)), sorted(set(keys)), tmp_path)
    found = {place: matrix.cells[(PTXAS, *place)] for place in expected}
    assert {place: (c.status, c.opcode, c.reason) for place, c in found.items()} == expected


def test_too_old_to_read_it_is_told_apart_from_refused(tmp_path: Path) -> None:
    key = "memory: ld.global.v8.f32 (256 bits)"
    matrix, _ = look([OLDER, PTXAS], ["sm_90a", "sm_100a", "sm_121a"], [key], tmp_path)
    assert [a.version for a in matrix.assemblers] == [OLDER, PTXAS]
    assert matrix.cell(OLDER, "sm_100a", key) == Cell(
        Status.UNKNOWN_VERSION, reason="needs PTX 8.8; this ptxas reads up to 8.7"
    )
    assert matrix.cell(PTXAS, "sm_90a", key).status is Status.REJECTED
    assert matrix.cell(PTXAS, "sm_100a", key).status is Status.INLINE
    assert matrix.cell(OLDER, "sm_121a", key) is None  # it does not know the target
    assert "needs PTX 8.8" in render_markdown(Capabilities.of(matrix).summary())


def test_a_second_survey_runs_neither_ptxas_nor_nvdisasm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [probe.key for probe in PROBES if probe.group == "cvt"]
    first, fresh = look([PTXAS], ["sm_89"], keys, tmp_path)
    monkeypatch.setattr("tritonhook.lab.capabilities.list_words", lambda *words: pytest.fail("it ran"))
    second, known = look([PTXAS], ["sm_89"], keys, tmp_path)
    assert len(fresh) > len(keys)
    assert not any(fresh)
    assert all(known)
    assert first == second


# --- the committed results -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def committed() -> Matrix:
    results = json.loads((REPOSITORY / "benchmarks" / "results" / "caps.json").read_text())
    return as_schema(results["samples"], Capabilities).matrix


def test_the_ptxas_at_hand_gives_the_committed_cells_of_every_probe(committed: Matrix) -> None:
    newest, archs = ptxas_at_hand(), ("sm_90a", "sm_103a", "sm_120a") if "NIGHTLY" in os.environ else ("sm_103a",)
    if newest.version not in {assembler.version for assembler in committed.assemblers}:
        pytest.skip(f"there are no results of ptxas {newest.version}")
    matrix = survey([newest], archs, PROBES, sweep, find_nvdisasm())
    wanted = {place: committed.cells.get(place) for place in matrix.cells}
    assert matrix.cells == wanted and len(wanted) == len(archs) * len(PROBES)


def test_the_results_are_of_these_probes_and_of_many_versions(committed: Matrix) -> None:
    assert committed.probes == tuple(probe.key for probe in PROBES), "run `python -m benchmarks caps`"
    assert len(committed.assemblers) >= 8
    assert {"sm_80", "sm_90a", "sm_100f", "sm_103a", "sm_120a", "sm_121a"} <= set(committed.newest.archs)


# --- the command -----------------------------------------------------------------------------------


def test_many_targets_become_a_table_and_json_has_it_all(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("TRITONHOOK_CACHE", str(tmp_path))
    ptxas_at_hand(PTXAS)
    words = ["lab", "caps", "--ptxas", PTXAS, "--arch", "sm_80,sm_90a,sm_120a", "--only", "^TMA: load 2d, shared::c"]
    assert main(words) == 0
    assert re.search(r"shared::cluster +- +inline +syscall +UTMALDG.2D", capsys.readouterr().out)
    assert main([*words, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["evidence"].startswith("assembled, never executed")
    assert (
        as_schema(document, Capabilities).matrix.cells[PTXAS, "sm_120a", "TMA: load 2d, shared::cta"].opcode
        == "UTMALDG.2D"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--arch", "sm_777"], "sm_777: not a target of ptxas"),
        (["--only", "("], "not a regular expression"),
        (["--only", "zzz"], "no probe matches; the groups are: mma.sync, matrix"),
        (["--ptxas", "1.2.3"], "ptxas 1.2.3: not found"),
    ],
)
def test_what_cannot_be_asked_is_said_in_one_sentence(words, said, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("TRITONHOOK_CACHE", str(tmp_path))
    ptxas_at_hand(PTXAS)
    assert main(["lab", "caps", *words]) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert "Traceback" not in captured.err
