"""The text of every kernel and probe in the lab: assembled results are compared over years, so a text changes only on
purpose. A digest that differs is printed by the failure; look at the difference in the text before you take it."""

from __future__ import annotations

import hashlib
import importlib.util
from itertools import product
from typing import Any

FAMILIES = {
    "mma_f16": "573e828de576",
    "mma_bf16": "e8af877fb476",
    "mma_tf32": "2850ec6264ab",
    "mma_s8": "d0adcc993f91",
    "mma_e4m3": "8d2b4cdd6d11",
    "mma_mxf8": "57f513622c34",
    "ldmatrix": "20ceec696734",
    "wgmma_bf16": "d8d2f6d0308e",
    "wgmma_e4m3": "422e84f4b5e2",
    "tcgen05_f16": "8de19280c426",
    "tcgen05_f8f6f4": "bc6fe9e54c48",
    "tcgen05_mxf8": "0a97eafadb60",
    "cp_async": "635c2ebe1097",
    "tma": "a11ee4384a1c",
    "fma": "27de4834dc9f",
    "integer": "395be3697e22",
}
PROBES = {
    "mma.sync": "758c306cfa6f",
    "matrix": "fde6fe14a70e",
    "wgmma": "665ac61ac7a0",
    "tcgen05": "9b061e2f3f55",
    "copy": "2a7118cd6c4d",
    "TMA": "0e588061b0b5",
    "cluster": "48549af6889b",
    "warp and sync": "eee3776ab443",
    "arithmetic": "ab10e85c2de1",
    "cvt": "d74ca79373c2",
    "memory": "caa07b826eec",
}
CONDITIONS = {
    "none": "2ef5309627a4",
    "single": "11e4f561dee9",
    "brx": "676cda0f3b2c",
    "loop": "64743f007e94",
    "fma": "7a1d44e3090a",
    "bare": "19d0ed0676b1",
}


def made_anew(name: str) -> Any:
    """A module, run again in an object of its own: its tables are made while it runs."""
    spec = importlib.import_module(name).__spec__
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def digest(*parts: object) -> str:
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:12]


def test_the_kernels_of_the_families() -> None:
    """In all shapes and for all of their architectures."""
    module = made_anew("tritonhook.lab.kernels.families")
    texts = {
        item.name: [item.ptx(shape, arch).text for shape, arch in product(module.SHAPES, item.archs)]
        for item in module.FAMILIES
    }
    assert {name: digest(*parts) for name, parts in texts.items()} == FAMILIES


def test_the_probes_of_the_capability_matrix() -> None:
    """All of their fields, by group."""
    groups: dict[str, list[object]] = {}
    for probe in made_anew("tritonhook.lab.kernels.instructions").PROBES:
        groups.setdefault(probe.group, []).append(probe)
    assert {group: digest(*probes) for group, probes in groups.items()} == PROBES


def test_the_conditions_of_the_published_table() -> None:
    """Their fields and their kernels."""
    conditions = made_anew("tritonhook.lab.published_table").CONDITIONS
    assert {item.key: digest(item, item.ptx().text) for item in conditions} == CONDITIONS
