"""Every value that people touch has a repr of at most 200 characters; results have a view in notebooks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import pytest
import triton_kernels
from documents import HOSTILE, golden
from repository import GOLDEN

import tritonhook
from tests.cubin.test_resources import module
from tritonhook._util.schema import as_schema
from tritonhook.memory.watcher import Watch
from tritonhook.ptxas.toolchain import Toolchain
from tritonhook.report.results.ab import TimedComparison
from tritonhook.report.results.capabilities import Capabilities
from tritonhook.report.results.memory import Memory


@pytest.fixture(scope="module")
def values(tools: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Values of each kind, of real size."""
    out = tmp_path_factory.mktemp("values") / "captures"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(out.parent / "cache"))
        with tritonhook.session(out) as session:
            triton_kernels.compile_kernel()
    ptx = session.captures[0].ptx
    comparison = tritonhook.compare_names(ptx, tritonhook.Rename(prefix="cutlass_"), tools)
    assert comparison.diff is not None
    watch = Watch(5.0, None, None, object())
    return {
        "session": session,
        "capture": session.captures[0],
        "folder": tritonhook.CaptureFolder.open(out),
        "toolchain": tools,
        "ptx": ptx,
        "comparison": comparison,
        "diff": comparison.diff,
        "cubin": comparison.diff.a,
        "sass": comparison.diff.a_sass,
        "assembled": tools.assemble(ptx),
        "crash": tools.assemble(ptx, ("-v", "--no-such-option")),
        "timed": as_schema(golden("ab"), TimedComparison),
        "timeline": as_schema(golden("memory"), Memory).values()[0],
        "matrix": as_schema(golden("capabilities"), Capabilities).matrix,
        "watch": watch,
        "module": tritonhook.Cubin.from_bytes((GOLDEN / "sm_90a.module.cubin").read_bytes()),
        "hostile": tritonhook.Capture(HOSTILE, HOSTILE, HOSTILE, {}, note=HOSTILE),
    }


def reached(value: Any, depth: int = 3) -> Iterator[Any]:
    """The value, and the values in its fields."""
    yield value
    if depth and is_dataclass(value):
        for field in fields(value):
            if field.repr:
                inner = getattr(value, field.name)
                items = list(inner)[:3] if isinstance(inner, (tuple, list)) else [inner]
                for item in items:
                    if is_dataclass(item):
                        yield from reached(item, depth - 1)


def test_reprs_are_short_and_name_the_type(values: dict[str, Any]) -> None:
    seen = set()
    for value in values.values():
        for one in reached(value):
            shown = repr(one)
            seen.add(type(one).__name__)
            assert len(shown) <= 200 and "\n" not in shown, (type(one), len(shown))
            assert shown.startswith(type(one).__name__ + "(") and " object at 0x" not in shown
    assert len(seen) > 25


@pytest.mark.parametrize(
    "name",
    ["session", "capture", "folder", "comparison", "diff", "cubin", "timed", "timeline", "module"],
)
def test_what_people_touch_has_a_view_in_notebooks(name: str, values: dict[str, Any]) -> None:
    text = values[name]._repr_markdown_()
    assert text is not None and text.startswith("### ") and "|---" in text


def test_a_module_of_many_kernels_has_a_short_repr(tools: Toolchain) -> None:
    texts = [module(8).text.replace(" k(", f" kernel_{n}(") for n in range(40)]
    whole = texts[0] + "".join(text[text.index(".visible") :] for text in texts[1:])
    cubin = tools.assemble_or_raise(tritonhook.Ptx(whole)).cubin
    assert len(cubin.kernels) == 40 and len(repr(cubin)) <= 200 and "<40 items>" in repr(cubin)
