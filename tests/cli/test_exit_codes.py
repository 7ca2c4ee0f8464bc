"""Exit codes of the verbs that gate: 0 nothing changed, 1 something did, 2 it cannot be told."""

from __future__ import annotations

from pathlib import Path

import policies
import pytest

from tests.capture.dry_run.test_programs import LAUNCH, PRELUDE
from tests.snapshot.conftest import Compile, captured_before, compile_now, compiled  # noqa: F401  (fixtures)
from tritonhook.capture.store import CaptureFolder
from tritonhook.cli import main
from tritonhook.snapshot.facts import Budgets
from tritonhook.snapshot.lockfile import kept_ptx, read_lock, read_whole_lock, write_lock


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


def test_a_lock_of_a_script_of_which_a_dry_run_fails(place: Path, capsys: pytest.CaptureFixture) -> None:
    Path("s.py").write_text(PRELUDE + LAUNCH + "raise SystemExit(7)\n")
    assert main(["lock", "s.py", "--arch", "sm_90a", "-o", "s.lock"]) == 7
    assert "s.py ended with status 7" in capsys.readouterr().err and not Path("s.lock").exists()


def test_a_lock_that_is_replaced_keeps_its_budgets(place: Path) -> None:
    lock, budgets = Path("k.lock"), Budgets.of(200, ["k"])
    write_lock(lock, [(kernel, kept_ptx(lock, kernel)) for kernel in read_lock(lock)], budgets=budgets)
    assert main(["lock", "old", "-o", "k.lock", "--force"]) == 0
    assert read_whole_lock(lock).budgets == budgets
