"""How soon a report is seen, and how large its file is: first contentful paint in a headless Chromium, from disk.

    python -m benchmarks first_paint [--out FILE] [--rounds 9]

Large inputs: a diff of 30,000 instructions a side, 200 captures, a timeline of 10,000 samples, the trigger's matrix of
3,288 cells; and the bundled attention kernel under two names. Every page is opened in turn, round by round. Needs a
Chromium and chromedriver on PATH; no GPU.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.common import RESULTS, environment

RESULT = "reports"


NEEDS = ("chromium",)
QUICK = ("--rounds", "1", "--only", "attention")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="", help="inputs with this in their name")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    return measure(arguments.rounds, arguments.only)


def documents() -> dict[str, Callable[[], dict[str, Any]]]:
    from documents import large_captures, large_diff, large_memory

    trigger = RESULTS / "name_trigger.json"
    return {
        "diff, the attention kernel under two names": attention,
        "diff, 30,000 instructions a side": large_diff,
        "200 captures": large_captures,
        "timeline of 10,000 samples, 600 events": large_memory,
        "sweep of 3,288 cells": lambda: json.loads(trigger.read_text()),
    }


def attention() -> dict[str, Any]:
    from tritonhook._util.entry_points import call_function
    from tritonhook.compare.names import compare_names
    from tritonhook.ptx.module import Ptx
    from tritonhook.ptxas.assembler import DEFAULT_ARGUMENTS
    from tritonhook.ptxas.toolchain import find_toolchain
    from tritonhook.rename import PREFIX, Rename
    from tritonhook.report.results.names import Names

    toolchain = find_toolchain("12.8.93")
    kernel = call_function("gluon_kernels:compile_offline", options={"ptx_version": 87})
    comparison = compare_names(Ptx(kernel.asm["ptx"]), Rename(prefix=PREFIX), toolchain, DEFAULT_ARGUMENTS)
    comparison = comparison.with_launches(kernel.metadata.shared)
    return Names.of(comparison, toolchain.ptxas, DEFAULT_ARGUMENTS, full=True).document()


def measure(rounds: int, only: str) -> dict[str, Any]:
    from browser import chromium

    from tritonhook.report.pages import page_of
    from tritonhook.report.render.html import render_html
    from tritonhook.report.result import read_result

    samples: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        pages = {}
        for number, (name, make) in enumerate((name, make) for name, make in documents().items() if only in name):
            document = make()
            start = time.perf_counter()
            html = render_html(page_of(read_result(document)))
            made_s = time.perf_counter() - start
            pages[name] = Path(folder) / f"{number}.html"
            pages[name].write_text(html)
            samples[name] = {
                "file_bytes": pages[name].stat().st_size,
                "made_s": made_s,
                "first_paint_ms": [],
                "ready_ms": [],
            }
        for _ in range(rounds):
            for name, path in pages.items():
                browser.open(path)
                samples[name]["first_paint_ms"].append(browser.first_paint_ms())
                samples[name]["ready_ms"].append(
                    browser.js("return performance.timing.domComplete - performance.timing.navigationStart")
                )
        version = browser.driver.capabilities["browserVersion"]
    return {
        "environment": environment("tritonhook", "jinja2", "selenium") | {"chromium": version},
        "samples": samples,
        "summary": {
            name: {
                "first_paint_ms": statistics.median(s["first_paint_ms"]),
                "slowest_first_paint_ms": max(s["first_paint_ms"]),
                "ready_ms": statistics.median(s["ready_ms"]),
                "file_bytes": s["file_bytes"],
                "made_s": s["made_s"],
            }
            for name, s in samples.items()
        },
    }
