"""Kinds of results are found by their tags."""

from __future__ import annotations

import subprocess
import sys

from repository import GOLDEN


def test_a_document_loads_its_own_kind_and_no_other() -> None:
    code = f"""
import sys
from pathlib import Path
from msgspec.json import decode
from tritonhook.report.result import kinds, read_result
read_result(decode(Path({str(GOLDEN / "documents" / "verification.json")!r}).read_bytes()))
print([name for name in sys.modules if name.startswith("tritonhook.report.results.")], "tuning" in kinds())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['tritonhook.report.results.verification'] True"
