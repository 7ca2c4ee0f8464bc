"""Which options of ptxas a lock may carry: those that decide the code, in each way of writing them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tritonhook.capture.policy.levers import lever
from tritonhook.ptxas.command_line import refused_option


@pytest.mark.parametrize(
    "words",
    [
        "-lineinfo -v --fmad=false",
        "-O3 -O 1 --opt-level=2 --opt-level 0",
        "-maxrregcount=32 --maxrregcount 64 -maxntid 128,1,1",
        "-m64 -arch sm_90a --gpu-name=sm_100a -Ofc=max",
        "-lineinfo -v --regAllocOptLevel=2 --gpu-name=sm_90a",  # Triton 3.7 and newer
        "-dlcm=ca --def-load-cache cg -e kernel$1,other",
        "-lineinfo -suppress-debug-info --suppress-debug-info --lineinfo",
    ],
)
def test_what_decides_the_code_is_taken(words: str) -> None:
    assert refused_option(words.split()) is None


@pytest.mark.parametrize("text", ["O1", "regalloc=1", "regusage=10"])
def test_the_options_of_levers_are_taken(text: str) -> None:
    assembling = lever(text).assembling(Path())
    assert assembling is not None and refused_option(assembling.options) is None


def test_kept_controls_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITONHOOK_CACHE", str(tmp_path))
    kept = f"--apply-controls={tmp_path}/controls/{'0a' * 32}"
    assert refused_option([kept]) is None and refused_option([kept[:-1]]) == kept[:-1]


@pytest.mark.parametrize(
    "words", ["-O", "-O=", "-v=1", "--fmad=../x", "-m6", "-O33", "-", "--", "", "-maxrregcount ../1"]
)
def test_what_has_no_value_or_another_one_is_not(words: str) -> None:
    assert refused_option(words.split(" ")) is not None
