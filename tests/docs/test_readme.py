"""README: its make targets exist, CI runs its test command, its times are measured."""

import json
import re

import pytest
from documents import in_terminal
from repository import ROOT

from tritonhook.report.result import read_result

TEXT = (ROOT / "README.md").read_text()


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"(?:`|\$ )make ([a-z-]+)", TEXT))
    assert {"demo", "test"} <= targets
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_what_a_compile_and_a_launch_cost_is_what_was_measured() -> None:
    told = json.loads((ROOT / "benchmarks" / "results" / "overhead.json").read_text())["summary"]
    assert f"{told['compile_miss_added_ratio']:.1%} of a compile" in TEXT
    assert f"{told['launch_recorded_added_us']:.0f} us where launches are recorded" in TEXT


@pytest.mark.parametrize("page", ["README.md", "docs/tutorials/3-time.md"])
def test_the_times_shown_are_those_of_the_committed_samples(page: str) -> None:
    path = ROOT / "benchmarks" / "results" / "example_layer_norm.json"
    if not path.exists():
        pytest.skip("benchmarks/timing/example_layer_norm.py has not been run yet: it needs a GPU")
    shown = in_terminal(read_result(json.loads(path.read_text())["samples"]).summary()).splitlines()
    block = (ROOT / page).read_text().partition("tritonhook ab layer_norm:launch")[2].partition("```")[0]
    lines = [line for line in block.splitlines()[1:] if line and line != "..."]
    assert lines and [line for line in lines if line.split() not in [found.split() for found in shown]] == []
