"""`tritonhook bisect` with real ptxas versions, those at hand, and a package index that is made up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import EXP, TARGET, failing

from tests.cli.test_lock import locked  # noqa: F401  (a fixture)
from tests.snapshot.conftest import captured_before, compile_now, compiled  # noqa: F401  (fixtures)
from tritonhook.cli import bisect, main
from tritonhook.errors import ToolError
from tritonhook.ptxas.tool import available_ptxas

ENDS = ("--good", "12.8.93", "--bad", "12.9.86")


@pytest.fixture(autouse=True)
def both(here: Path, tools: object) -> None:
    if not {"12.8.93", "12.9.86"} <= {tool.version for tool in available_ptxas()}:
        pytest.skip("needs ptxas 12.8.93 and 12.9.86, which come with Triton")


def document(capsys: pytest.CaptureFixture) -> dict:
    return json.loads(capsys.readouterr().out)


def test_the_kernels_of_a_lock(locked: Path, capsys: pytest.CaptureFixture) -> None:  # noqa: F811
    capsys.readouterr()
    code = main(["bisect", "tritonhook.lock", *ENDS, "--at-hand", "--json"])
    found = document(capsys)
    changed = [kernel for kernel in found["kernels"] if kernel["first"]]
    assert code == int(bool(changed))
    assert [kernel["kernel"] for kernel in found["kernels"]] == ["add_kernel", "gemm_kernel"]
    for kernel in changed:
        assert (kernel["before"], kernel["first"], kernel["problem"]) == ("12.8.93", "12.9.86", None)
        assert kernel["tried"][0]["values"] != kernel["tried"][1]["values"]
    locked_codes = [line for line in locked.read_text().splitlines() if line.startswith("codes")]
    assert [f'codes = ["{k["tried"][0]["values"][0]}"]' for k in found["kernels"]] == locked_codes


def test_other_options_are_taken_and_every_version_is_shown(locked: Path, capsys: pytest.CaptureFixture) -> None:  # noqa: F811
    words = ["--on", "instructions", "--options", "-O1 -v", "--all", "--entry", "gemm_kernel"]
    main(["bisect", "tritonhook.lock", *ENDS, "--at-hand", *words, "--json"])
    (kernel,) = document(capsys)["kernels"]
    assert {made["options"] == ["-O1", "-v"] for tried in kernel["tried"] for made in tried["made"]} == {True}
    assert all(int(tried["values"][0]) > 100 for tried in kernel["tried"])


def test_equal_ends_are_0(here: Path, capsys: pytest.CaptureFixture) -> None:
    (here / "a.ptx").write_text(EXP.ptx("work", **TARGET).text)
    assert main(["bisect", "a.ptx", *ENDS, "--at-hand", "--on", "spills"]) == 0
    assert "ptxas 12.8.93 and 12.9.86 give the same spills" in capsys.readouterr().out


def test_an_end_that_does_not_take_the_target_is_trouble(here: Path, capsys: pytest.CaptureFixture) -> None:
    (here / "a.ptx").write_text(EXP.ptx("work", target="sm_103a", version="8.8").text)
    assert main(["bisect", "a.ptx", *ENDS, "--at-hand"]) == 2
    said = " ".join(capsys.readouterr().out.split())
    assert "Not known: the good version cannot be compared: ptxas 12.8.93: " in said
    assert "; give a newer one as --good" in said


def test_what_is_not_at_hand_is_fetched(
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    """A made-up 12.9.1 between both, which has the code of 12.9.86, and a 12.9.2 without a file for this machine."""
    (here / "a.ptx").write_text(EXP.ptx("work", **TARGET).text)
    tools = {tool.version: tool for tool in available_ptxas()}
    fetched: list[str] = []

    def add(version: str) -> object:
        fetched.append(version)
        if version == "12.9.2":
            raise ToolError("nvidia-cuda-nvcc-cu12==12.9.2: pip could not fetch it")
        return tools["12.9.86"]

    monkeypatch.setattr(bisect, "available_ptxas", lambda: [tools["12.8.93"], tools["12.9.86"]])
    monkeypatch.setattr(bisect, "released_versions", lambda: ["12.9.86", "12.9.2", "12.9.1", "12.8.93", "11.7.99"])
    monkeypatch.setattr(bisect, "add_ptxas", add)
    code = main(["bisect", "a.ptx", *ENDS, "--json"])
    found = document(capsys)
    assert found["versions"] == ["12.8.93", "12.9.1", "12.9.2", "12.9.86"]
    (kernel,) = found["kernels"]
    if code:  # both ends differ: then the search goes on
        assert (kernel["before"], kernel["first"], fetched) == ("12.8.93", "12.9.1", ["12.9.2", "12.9.1"])
        assert found["notes"] == ["fetched ptxas 12.9.1"]
    fetched.clear()
    main(["bisect", "a.ptx", *ENDS, "--all", "--json"])
    (kernel,) = document(capsys)["kernels"]
    assert fetched == ["12.9.1", "12.9.2"]
    assert kernel["tried"][2]["reason"] == "nvidia-cuda-nvcc-cu12==12.9.2: pip could not fetch it"
    assert kernel["tried"][2]["changed"] is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["a.ptx", "--good", "12.8.92", "--bad", "12.9.86"],
            "--good 12.8.92: no such version is installed; the nearest are 12.8.93",
        ),
        (["a.ptx", "--good", "12.9.86", "--bad", "12.8.93"], "give the older version as --good"),
        (["a.ptx", "--good", "12.9.86", "--bad", "12.9.86"], "give the older version as --good"),
        (
            ["a.ptx", "--good", "12.8.93", "--bad", "newest"],
            "'newest' is no version of ptxas; give a full version such as",
        ),
        (["a.ptx", *ENDS, "--entry", "none"], "a.ptx: no kernel none in it"),
        (["gone.lock", *ENDS], "gone.lock: cannot read"),
        (["a.cubin", *ENDS], "a.cubin: a cubin, which no ptxas can assemble"),
    ],
)
def test_what_cannot_be_searched_is_said(
    here: Path,
    capsys: pytest.CaptureFixture,
    words: list[str],
    said: str,
) -> None:
    from repository import GOLDEN

    (here / "a.ptx").write_text(EXP.ptx("work", **TARGET).text)
    (here / "a.cubin").write_bytes((GOLDEN / "sm_90a.exp.plain.cubin").read_bytes())
    assert said in failing(capsys, "bisect", *words, "--at-hand")
