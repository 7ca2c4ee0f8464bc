"""How often the files of a capture folder are read: each once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tritonhook._util.files import read_regular
from tritonhook.cli import main


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each file was read, by its name and that of its capture folder."""
    counts: Counter[str] = Counter()

    def counting(path: Path, most: int) -> bytes:
        counts[f"{path.parents[1 if path.suffix == '.jsonl' else 2].name}/{path.name}"] += 1
        return read_regular(path, most)

    for module in ("reader", "schema"):
        monkeypatch.setattr(f"tritonhook.capture.store.{module}.read_regular", counting)
    return counts


def test_a_diff_of_folders_reads_each_file_once(
    compiled: Callable[..., Path], reads: Counter[str], capsys: pytest.CaptureFixture
) -> None:
    folders = [str(compiled(name)) for name in ("old", "new")]
    reads.clear()
    assert main(["diff", *folders]) == 0
    assert {Path(name).suffix for name in reads} >= {".jsonl", ".json", ".ttir", ".ttgir", ".llir", ".ptx", ".cubin"}
    kernels = {name: count for name, count in reads.items() if not name.endswith("capture.json")}
    assert set(kernels.values()) == {1}, kernels
    assert {name: reads[name] for name in reads if name not in kernels} == {
        "old/capture.json": 2,  # of two kernels
        "new/capture.json": 2,
    }


def test_a_lock_reads_ptx_once_more_to_keep_it(
    compiled: Callable[..., Path], reads: Counter[str], capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    folder = str(compiled("old"))
    reads.clear()
    assert main(["lock", folder, "-o", str(tmp_path / "tritonhook.lock")]) == 0
    assert {name: count for name, count in reads.items() if count > 1} == {
        "old/capture.json": 2,
        "old/add_kernel.ptx": 2,
        "old/gemm_kernel.ptx": 2,
    }
