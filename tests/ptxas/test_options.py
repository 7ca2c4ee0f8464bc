"""Which options of ptxas a lock may carry: those that decide the code, in each way of writing them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tritonhook.ptxas.options import refused_option


@pytest.mark.parametrize(
    "words",
    [
        "-lineinfo -v --fmad=false",
        "-O3 -O 1 --opt-level=2 --opt-level 0",
        "-maxrregcount=32 --maxrregcount 64 -maxntid 128,1,1",
        "-m64 -arch sm_90a --gpu-name=sm_100a -Ofc=max",
        "-dlcm=ca --def-load-cache cg -e kernel$1,other",
        "-lineinfo -suppress-debug-info --suppress-debug-info --lineinfo",
    ],
)
def test_what_decides_the_code_is_taken(words: str) -> None:
    assert refused_option(words.split()) is None


def test_kept_controls_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITONHOOK_CACHE", str(tmp_path))
    kept = f"--apply-controls={tmp_path}/controls/{'0a' * 32}"
    assert refused_option([kept]) is None and refused_option([kept[:-1]]) == kept[:-1]


@pytest.mark.parametrize(
    "words", ["-O", "-O=", "-v=1", "--fmad=../x", "-m6", "-O33", "-", "--", "", "-maxrregcount ../1"]
)
def test_what_has_no_value_or_another_one_is_not(words: str) -> None:
    assert refused_option(words.split(" ")) is not None
