"""Finding names that change a kernel: cells, control names, draws, retargeting, and the command."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from at_hand import ptxas_at_hand
from mma_loop import mma_loop
from shell_ptxas import shell_ptxas

from tritonhook.cli import main
from tritonhook.lab.name_probe import (
    NameCell,
    NameVerdict,
    ProbedKernel,
    Run,
    Setup,
    pragma_setups,
    probe,
    setups,
)
from tritonhook.lab.name_templates import DEFAULT_NAMES, PRAGMA
from tritonhook.lab.published_table import condition
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.pool import sweep
from tritonhook.ptxas.result_cache import OutcomeKind
from tritonhook.ptxas.tool import Tool
from tritonhook.ptxas.toolchain import Toolchain
from tritonhook.rename import TRIGGER
from tritonhook.report.result import read_result

PTX = condition("fma").ptx("work", target="sm_90a", version="8.0")
MakeTool = Callable[..., Tool]


@pytest.fixture
def go() -> Run:
    return sweep


@pytest.fixture(scope="module")
def new_ptxas() -> Tool:
    return ptxas_at_hand()


@pytest.fixture
def fake(tmp_path: Path, tools: Toolchain) -> MakeTool:
    return lambda body: shell_ptxas(tmp_path, tools.ptxas, body)


def setup_of(tool: Tool, ptx: Ptx = PTX, **options: object) -> Setup:
    (found,) = setups([ProbedKernel("k", ptx.entries[0], ptx, ("-v",))], [tool], **options)
    return found


def judge(setup: Setup, names: list[str], go: Run, nvdisasm: Tool | None = None) -> dict[str, NameCell]:
    return {cell.template: cell for cell in probe([setup], names, go, nvdisasm)}


# --- names ---------------------------------------------------------------------------------------


# --- cells ---------------------------------------------------------------------------------------


def test_the_trigger_changes_and_nothing_else_does(tools: Toolchain, go: Run) -> None:
    found = judge(
        setup_of(tools.ptxas), ["cutlass_*", "*_cutlass", "Cutlass_*", "cutlas_*", "gemm_*"], go, tools.nvdisasm
    )
    verdicts = [cell.verdict for cell in found.values()]
    assert {name for name, cell in found.items() if cell.verdict is NameVerdict.CHANGED} == {"cutlass_*", "*_cutlass"}
    assert verdicts.count(NameVerdict.SAME) == 3
    changed = found["cutlass_*"]
    assert (changed.name, len(changed.control)) == ("cutlass_work", len("cutlass_work"))
    assert "code" in changed.differences and changed.draws == 8


def test_the_records_are_proof_at_once(tools: Toolchain, go: Run) -> None:
    # Given an architecture whose images have such records
    cell = judge(setup_of(tools.ptxas, archs=("sm_100a",)), ["cutlass_*"], go)["cutlass_*"]
    assert (cell.verdict, cell.draws, cell.other_scheduler) == (NameVerdict.CHANGED, 0, (True, False))
    assert ".nv.capmerc.text.{kernel}" in cell.section_changes


def test_loops_tell_where_there_are_no_records(tools: Toolchain, go: Run) -> None:
    ptx = mma_loop("work")
    cell = judge(setup_of(tools.ptxas, ptx), ["cutlass_*"], go, tools.nvdisasm)["cutlass_*"]
    assert (cell.verdict, cell.other_scheduler) == (NameVerdict.CHANGED, (True, False))


def test_a_crash_is_a_cell(fake: MakeTool, go: Run) -> None:
    tool = fake('case "$name" in gemm*) kill -SEGV $$;; esac')
    cell = judge(setup_of(tool), ["gemm_*"], go)["gemm_*"]
    assert (cell.verdict, cell.differences, cell.named.signal) == (NameVerdict.CHANGED, ("crash",), "SIGSEGV")


def test_draws_of_one_code_are_unsteady(fake: MakeTool, go: Run, tmp_path: Path) -> None:
    # Given a ptxas that gives every name two codes in turn, and begins with the other one for gemm
    tool = fake(
        f'count={tmp_path}/count-$name; n=$(cat "$count" 2>/dev/null || echo 0); echo $((n + 1)) > "$count"\n'
        'case "$name" in gemm*) n=$((n + 1));; esac\n'
        'if [ $((n % 2)) = 1 ]; then exec "$real" -O1 "$@"; fi'
    )
    cell = judge(setup_of(tool), ["gemm_*"], go)["gemm_*"]
    assert "code" in cell.differences
    assert (cell.verdict, cell.confirmed) == (NameVerdict.UNSTEADY, False)


def test_two_controls_that_differ_blame_no_name(fake: MakeTool, go: Run) -> None:
    # Given a ptxas that makes different code for each name
    tool = fake('case "$name" in gemm*) o=1;; v*) o=2;; z*) o=0;; esac; exec "$real" -O$o "$@"')
    assert judge(setup_of(tool), ["gemm_*"], go)["gemm_*"].verdict is NameVerdict.UNSTEADY


def test_an_effect_among_several_draws_is_found(fake: MakeTool, go: Run, tmp_path: Path) -> None:
    # Given two codes for ordinary names and a third one for gemm
    tool = fake(
        'case "$name" in gemm*) exec "$real" -O0 "$@";; esac\n'
        f'count={tmp_path}/count-$name; n=$(cat "$count" 2>/dev/null || echo 0); echo $((n + 1)) > "$count"\n'
        'if [ $((n % 2)) = 1 ]; then exec "$real" -O1 "$@"; fi'
    )
    cell = judge(setup_of(tool), ["gemm_*"], go)["gemm_*"]
    assert (cell.verdict, cell.draws) == (NameVerdict.CHANGED, 24)


def test_what_ptxas_rejects_has_no_answer_and_is_not_asked_again(fake: MakeTool, go: Run, tmp_path: Path) -> None:
    tool = fake(f"echo run >> {tmp_path}/log")
    for archs, kind in ((("sm_190a",), OutcomeKind.UNSUPPORTED), (("sm_90a",), OutcomeKind.REJECTED)):
        setup = setup_of(tool, condition("loop").ptx("work"), archs=archs)
        found = judge(setup, list(DEFAULT_NAMES), go)
        assert {cell.verdict for cell in found.values()} == {NameVerdict.NO_ANSWER}
        assert {cell.named.kind for cell in found.values()} == {kind}
    assert len((tmp_path / "log").read_text().split()) == 2


def test_the_pragma_gives_the_code_of_the_name(new_ptxas: Tool, go: Run) -> None:
    setup = setup_of(new_ptxas, archs=("sm_100a",))
    by_name = judge(setup, ["cutlass_*"], go)["cutlass_*"]
    (with_pragma,) = pragma_setups([setup])
    by_pragma = judge(with_pragma, [PRAGMA], go)[PRAGMA]
    assert (by_pragma.verdict, by_pragma.other_scheduler) == (NameVerdict.CHANGED, (True, False))
    assert by_pragma.named.image and by_name.named.image
    assert by_pragma.named.image.kernels[0].code_sha256 == by_name.named.image.kernels[0].code_sha256
    assert TRIGGER not in by_pragma.name, "the pragma alone makes the difference"


def test_one_of_several_kernels(tools: Toolchain, go: Run) -> None:
    # Given a module with a second kernel, which keeps its name
    other = condition("none").ptx("other", target="sm_90a", version="8.0").text
    module = Ptx(PTX.text + other[other.index(".visible .entry") :])
    (setup,) = setups([ProbedKernel("k", "work", module, ("-v",))], [tools.ptxas])
    found = judge(setup, ["cutlass_*", "gemm_*"], go)
    assert [found[name].verdict for name in ("cutlass_*", "gemm_*")] == [NameVerdict.CHANGED, NameVerdict.SAME]


# --- other architectures -------------------------------------------------------------------------


def test_a_newer_module_is_lowered(tools: Toolchain, go: Run) -> None:
    newer = PTX.with_directives("9.0", "sm_90a")
    setup = setup_of(tools.ptxas, newer, newest={"12.8.93": "8.7"})
    assert judge(setup, ["cutlass_*"], go)["cutlass_*"].verdict is NameVerdict.CHANGED


# --- the minimal trigger -------------------------------------------------------------------------


# --- the command ---------------------------------------------------------------------------------


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tools: Toolchain) -> Path:
    monkeypatch.setenv("TRITONHOOK_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "work.ptx"
    path.write_text(PTX.text)
    return path


def test_command_says_what_it_found(kernel: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(
        ["lab", "probe", str(kernel), "--ptxas", "12.8.93", "--names", "cutlass_*,gemm_*", "--arch", "sm_90a,sm_120a"]
    )
    text = capsys.readouterr().out
    assert code == 1
    assert "The name changes 2 cells of 4" in text
    assert "without any effect: gemm_*" in text


def test_the_pragma_stands_beside_the_names(kernel: Path, new_ptxas: Tool, capsys: pytest.CaptureFixture[str]) -> None:
    ptxas = f"12.8.93,{new_ptxas.path}"
    words = ["lab", "probe", str(kernel), "--ptxas", ptxas, "--names", "cutlass_*,.pragma,gemm_*", "--json"]
    assert main(words) == 1
    document = json.loads(capsys.readouterr().out)
    cells = [(cell["ptxas"], cell["template"], cell["verdict"]) for cell in document["cells"]]
    assert cells == [
        *(("12.8.93", "cutlass_*", "changed"), ("12.8.93", "gemm_*", "same")),
        *(("13.5.37", "cutlass_*", "changed"), ("13.5.37", ".pragma", "changed"), ("13.5.37", "gemm_*", "same")),
    ]
    assert document["notes"] == [".pragma: not tried with ptxas 12.8.93; 13.3 is the first version that supports it"]
    found = read_result(document).summary()
    assert found.verdict == "the name or the pragma changes 3 cells of 5"
    assert "the pragma has the same effect as the names in 1 of 1 setting" in found.facts
    assert document["notes"][0] in found.notes


@pytest.fixture
def rejected(kernel: Path) -> Path:
    """A kernel that every ptxas reads and no ptxas takes."""
    kernel.write_text(kernel.read_text().replace("ret;", "frobnicate;"))
    return kernel


def test_nothing_to_compare_is_trouble(rejected: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "probe", str(rejected), "--ptxas", "12.8.93"]) == 2
    assert ": rejected: line " in capsys.readouterr().out


def test_a_target_that_no_ptxas_has_is_an_error(kernel: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "probe", str(kernel), "--ptxas", "12.8.93", "--arch", "sm_190a"]) == 2
    assert "sm_190a: not a target of ptxas 12.8.93; give one of sm_50" in capsys.readouterr().err


@pytest.mark.parametrize("arch", ["sm_100a", "sm_90a"])
def test_a_second_run_assembles_and_disassembles_nothing(
    arch: str, kernel: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given one architecture whose images tell the scheduler, and one where nvdisasm is asked."""
    words = ["lab", "probe", str(kernel), "--ptxas", "12.8.93", "--names", "cutlass_*,gemm_*", "--arch", arch, "--json"]
    assert main(words) == 1
    first = capsys.readouterr().out
    ran: list[str] = []

    def noted(name: str) -> None:
        original = getattr(sys.modules[name.rpartition(".")[0]], name.rpartition(".")[2])
        monkeypatch.setattr(name, lambda *given: ran.append(name) or original(*given))

    noted("tritonhook.ptxas.pool.start_limited")
    noted("tritonhook.lab.name_probe._diff")
    assert main(words) == 1
    assert json.loads(capsys.readouterr().out) == json.loads(first) and ran == []
    monkeypatch.setattr("tritonhook.lab.name_probe.DETECTOR_FORMAT", 99)
    assert main(words) == 1
    assert bool(ran) == (arch == "sm_90a"), "what an older detector said is asked again"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "nothing to probe"),
        (["/nowhere.ptx"], "/nowhere.ptx: cannot read"),
        (["{kernel}", "--names", "7*"], "makes no valid PTX name"),
        (["{kernel}", "--ptxas", "1.2.3"], "ptxas 1.2.3: not found"),
        (["{kernel}", "--names", ".pragma", "--ptxas", "12.8.93"], "needs ptxas 13.3 or newer"),
    ],
)
def test_what_does_not_fit_is_said(
    words: list[str], reason: str, capsys: pytest.CaptureFixture[str], kernel: Path
) -> None:
    assert main(["lab", "probe", *(word.format(kernel=kernel) for word in words)]) == 2
    assert reason in capsys.readouterr().err
