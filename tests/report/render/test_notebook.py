"""What results show of themselves in a notebook."""

from __future__ import annotations

import subprocess
import sys

import pytest
from documents import golden

import tritonhook
from tests.compare.test_diff import compare
from tritonhook._util.schema import as_schema
from tritonhook.report.results.ab import TimedComparison
from tritonhook.report.results.memory import Memory


def test_results_show_themselves_in_notebooks() -> None:
    diff = compare("sm_90a.exp.plain", "sm_90a.exp.cutlass")
    (timeline,) = as_schema(golden("memory"), Memory).values()
    for value, words in (
        (diff, "only scheduling differs"),
        (as_schema(golden("ab"), TimedComparison), "Slower by"),
        (timeline, "that no allocator shows"),
    ):
        text = value._repr_markdown_()
        assert text is not None and words in text and "|---" in text


def test_captures_show_themselves_in_notebooks(triton_cache, out) -> None:
    kernels = pytest.importorskip("triton_kernels", reason="needs triton")
    with tritonhook.session(out) as session:
        kernels.compile_kernel()
    for value in (session, session.captures[0], tritonhook.CaptureFolder.open(out)):
        assert "add\\_kernel" in value._repr_markdown_()


def test_a_notebook_needs_neither_jinja2_nor_reports_before_it_asks() -> None:
    code = (
        "import sys, tritonhook.compare.diff, tritonhook.memory.timeline\n"
        "assert not [m for m in sys.modules if m.startswith('tritonhook.report')]\n"
        "sys.modules['jinja2'] = None\n"
        "import tritonhook.report.render.notebook\n"
        "print('jinja2' in sys.modules and sys.modules['jinja2'] is None)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"
