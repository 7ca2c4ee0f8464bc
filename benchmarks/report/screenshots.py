"""The pictures of README.md and docs/how-to/share-a-result.md: a bundled kernel and an example.

    python -m benchmarks screenshots [--out FOLDER] [--only NAME]

Needs a Chromium and chromedriver on PATH; no GPU. Look at every picture before you commit it.
"""

from __future__ import annotations

import argparse
import json
import runpy
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.common import REPOSITORY

RESULT = None


@dataclass(frozen=True)
class Picture:
    """script: run on the page first. at: the element to scroll to. Sizes in CSS pixels."""

    name: str
    document: Callable[[], dict[str, Any]]
    theme: str = "light"
    height: int = 860
    script: str = ""
    at: str = ""


def attention() -> dict[str, Any]:
    from tritonhook._util.imports import call_function
    from tritonhook.compare.names import compare_names
    from tritonhook.ptx.module import Ptx
    from tritonhook.ptxas.toolchain import DEFAULT_ARGUMENTS, find_toolchain
    from tritonhook.rename import PREFIX, Rename
    from tritonhook.report.results.names import Names

    toolchain = find_toolchain("12.8.93")
    kernel = call_function("gluon_kernels:compile_offline", options={"ptx_version": 87})
    comparison = compare_names(Ptx(kernel.asm["ptx"]), Rename(prefix=PREFIX), toolchain, DEFAULT_ARGUMENTS)
    comparison = comparison.with_launches(kernel.metadata.shared)
    return Names.of(comparison, toolchain.ptxas, DEFAULT_ARGUMENTS, full=True).document()


def own_code() -> dict[str, Any]:
    """Without the folders of the machine that made it."""
    text = json.dumps(attention())
    return json.loads(text.replace(json.dumps(str(REPOSITORY))[1:-1], ""))


def edit() -> dict[str, Any]:
    """The spilling matmul of examples/ with one warp, and with four."""
    import triton
    from triton.backends.compiler import GPUTarget

    import tritonhook
    from tritonhook.cli import main

    source = runpy.run_path(str(REPOSITORY / "examples" / "spilling_matmul.py"))["source"]
    with tempfile.TemporaryDirectory() as folder:
        with tritonhook.session(folder) as current:
            for warps in (1, 4):
                triton.compile(source(), target=GPUTarget("cuda", 90, 32), options={"num_warps": warps})
        saved = Path(folder, "diff.json")
        main(["diff", *(f"{folder}/kernels/{record}" for record in current.records), "--save", str(saved)])
        document: dict[str, Any] = json.loads(saved.read_text())
    return document


PICTURES = (
    Picture("report-edit", edit, height=1200),
    Picture("report-diff", own_code, height=1240),
    Picture(
        "report-code",
        own_code,
        "dark",
        height=880,
        script="const v = document.querySelector('#code-view');"
        "for (let i = 0; i < 40; i++) v.dispatchEvent(new KeyboardEvent('keydown', {key: 'n'}));",
        at="#code",
    ),
)


def shrink(path: Path) -> None:
    """To 256 colours, where Pillow is installed; charts and text need no more."""
    try:
        from PIL import Image
    except ImportError:
        return
    with Image.open(path) as image:
        small = image.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    small.save(path, optimize=True)


NEEDS = ("chromium",)
QUICK = ("--out", "{folder}", "--only", "report-diff")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, default=REPOSITORY / "docs" / "images")
    parser.add_argument("--only", default="")


def run(arguments: argparse.Namespace) -> None:
    arguments.out.mkdir(parents=True, exist_ok=True)
    from browser import chromium

    from tritonhook.cli import main

    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        for picture in PICTURES:
            if arguments.only not in picture.name:
                continue
            path = Path(folder) / "page.html"
            saved = path.with_suffix(".json")
            saved.write_text(json.dumps(picture.document()))
            main(["show", str(saved), "--html", str(path), "--force"])
            browser.open(path, picture.theme, 1280, picture.height)
            browser.js(picture.script)
            if picture.at:
                browser.js("document.querySelector(arguments[0]).scrollIntoView()", picture.at)
            browser.driver.execute_async_script("setTimeout(arguments[0], 400)")  # what flashes has faded
            target = arguments.out / f"{picture.name}.png"
            browser.screenshot(target)
            shrink(target)
            print(f"{target}: {target.stat().st_size / 1000:.0f} kB")
