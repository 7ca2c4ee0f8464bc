"""Exit codes of the verbs that gate: 0 nothing changed, 1 something did, 2 it cannot be told."""

from __future__ import annotations

from pathlib import Path

import policies
import pytest

from tests.snapshot.conftest import Compile, captured_before, compile_now, compiled  # noqa: F401  (fixtures)
from tritonhook.capture.store import CaptureFolder
from tritonhook.cli import main


@pytest.fixture
def place(tmp_path: Path, compiled: Compile, monkeypatch: pytest.MonkeyPatch) -> Path:  # noqa: F811
    """A lock and a policy of the kernels in "old"; other code in "new"; kernels of neither in "none"."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRITONHOOK_CACHE", str(tmp_path / "results"))
    compiled("old")
    compiled("new", ptx_options="-O1")
    (tmp_path / "none" / "index").mkdir(parents=True)
    assert main(["lock", "old", "-o", "k.lock"]) == 0
    captures = [it for it in CaptureFolder.open("old").captures().values() if it.kernel == "gemm_kernel"]  # type: ignore[union-attr]
    policies.policy(Path("k.toml"), captures, "O1")
    text = Path("k.toml").read_text()
    ptx = text.partition('ptx = "')[2][:64]
    Path("stale.toml").write_text(text.replace(ptx, "0" * 64))
    Path("damaged").write_text("[")
    return tmp_path


CODES = {
    "lock old -o new.lock": 0,
    "lock old -o k.lock": 2,
    "lock none -o new.lock": 2,
    "check k.lock": 0,
    "check k.lock old": 0,
    "check k.lock new": 1,
    "check k.lock none": 2,
    "check k.lock new --fail-on spills": 0,
    "check k.lock new --fail-on code": 1,
    "check k.lock --options -O1": 1,
    "check absent.lock": 2,
    "check damaged": 2,
    "diff old old": 0,
    "diff old new": 1,
    "diff old absent": 2,
    "tune --check -o k.toml": 0,
    "tune --check -o k.toml old": 0,
    "tune --check -o stale.toml old": 1,
    "tune --check -o absent.toml": 2,
    "tune --check -o damaged": 2,
}


def test_the_verbs_that_gate(place: Path) -> None:
    assert {line: main(line.split()) for line in CODES} == CODES
