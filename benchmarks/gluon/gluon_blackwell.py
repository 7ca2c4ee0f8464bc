"""The Blackwell attention kernel under every ptxas at hand: registers, spills, sizes, and what the name does.

    TRITONHOOK_CACHE=FOLDER python -m benchmarks gluon_blackwell [--jobs 2] [--out FILE]

The default config for a 16-bit and an 8-bit type, each head_dim, and two problems (lengths that fill their tiles;
causal with tails), with either row sum, and the kernel of the published table; for sm_100a and sm_103a; under a plain
name, a control as long as the third, and a cutlass_ name. Assembled only: no Blackwell GPU was at hand, and nothing
here says how fast it is.

Add ptxas versions with `tritonhook ptxas add`. The PTX is that of the Triton that runs this, in PTX ISA 8.7 for sm_100a
and 8.8, the first with that target, for sm_103a.

A cell is [plain, control, cutlass, verdict]; each side has the `columns`, or is "same" where its code is the plain
one's. Spills in loops: local loads and stores inside the loops over key blocks of softmax and correction.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from benchmarks.common import environment

ARCHITECTURES = {100: 87, 103: 88}  # compute capability: PTX ISA version
NAMES = ("attention_fwd", "cutlasz_attention_fwd", "cutlass_attention_fwd")
DTYPES = ("bf16", "fp8e4nv")
PROBLEMS = {"full": (False, 4096, 4096), "causal, tails": (True, 1000, 1001)}
COLUMNS = ("registers", "spill_store_bytes", "spill_load_bytes", "spills_in_loops", "text_bytes", "file_bytes",
           "capmerc_bytes")  # fmt: skip


def configs(arch: int) -> Iterator[tuple[str, Any]]:
    """(title, config) of each kernel."""
    from gluon_kernels.blackwell.config import AttentionConfig, default_config

    for packed in (False, True):
        row_sum = "packed" if packed else "scalar"
        yield f"subject, {row_sum}", AttentionConfig(packed_row_sum=packed)
        for dtype in DTYPES:
            for head_dim in (64, 128):
                for title, (causal, seqlen_q, seqlen_k) in PROBLEMS.items():
                    lengths = {"seqlen_q": seqlen_q, "seqlen_k": seqlen_k}
                    config = default_config(arch, dtype, head_dim, causal=causal, **lengths)
                    yield f"{dtype} D{head_dim} {title}, {row_sum}", replace(config, packed_row_sum=packed)


def cell(toolchain: Any, ptx: Any) -> list[Any] | None:
    """One kernel under the three names with one ptxas; None if that one does not take the PTX."""
    from tritonhook.compare.names import RenamedBuild
    from tritonhook.ptxas.toolchain import Crash

    texts = [ptx if name == NAMES[0] else ptx.rename_entries({NAMES[0]: name}) for name in NAMES]
    builds = [RenamedBuild(name, text, toolchain.assemble(text)) for name, text in zip(NAMES, texts, strict=True)]
    if any(isinstance(build.result, Crash) and build.result.signal is None for build in builds):
        return None
    plain = builds[0]
    if plain.code is None:
        return ["crash", None, None, plain.result.summary]
    sides: list[Any] = []
    rescheduled: list[bool] = []
    for build in builds:
        if build.code is None:
            sides.append("crash")
        elif sides and build.code == plain.code:
            sides.append("same")
        else:
            sass = toolchain.disassemble(build.cubin)[build.kernel]
            sides.append(facts(build, sass))
            softmax = [x for x in sass.innermost_loops if sass.opcode_counts(x.instructions)["MUFU"] > 32]
            rescheduled = [sass.is_rescheduled(loop) for loop in softmax]
    return [*sides, verdict(*sides[1:], rescheduled=rescheduled)]


def facts(build: Any, sass: Any) -> list[int]:
    """The `COLUMNS` of one side."""
    cubin = build.cubin
    resources = cubin.resources[build.kernel]
    counts = [sass.opcode_counts(loop.instructions) for loop in sass.innermost_loops]
    # exp2 of a row of scores, or O from tensor memory and back.
    hot = [c for c in counts if c["MUFU"] > 32 or (c["LDTM"] and c["STTM"])]
    sections = [cubin.section(role, build.kernel) for role in (".text.{kernel}", ".nv.capmerc.text.{kernel}")]
    text, capmerc = (section.size for section in sections)
    return [
        *(resources.registers, resources.spill_stores, resources.spill_loads),
        *(sum(c["LDL"] + c["STL"] for c in hot), text, len(cubin.data), capmerc),
    ]


def verdict(control: Any, cutlass: Any, rescheduled: list[bool]) -> str:
    """rescheduled: the softmax loops of the side with the cutlass name."""
    if cutlass == "crash":
        return "crash under the cutlass name"
    if cutlass == "same":
        return "same code"
    if control != "same":
        return "control differs too"
    if all(rescheduled):
        return "softmax loops rescheduled"
    return "some softmax loops rescheduled" if any(rescheduled) else "other code, softmax loops not rescheduled"


SMALL: dict[str, Any] = {"ARCHITECTURES": {100: 87}, "PROBLEMS": {}}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=int, default=2)


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    from gluon_kernels import compile_offline
    from tritonhook._util.versions import version_key
    from tritonhook.ptx.module import Ptx
    from tritonhook.ptxas.tool import available_ptxas, find_nvdisasm
    from tritonhook.ptxas.toolchain import Toolchain

    tools = {tool.version: tool for tool in available_ptxas()}
    versions = sorted(tools, key=version_key)[-1 if arguments.quick else 0 :]
    nvdisasm = find_nvdisasm()
    modules: dict[tuple[str, str], Ptx] = {}
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TRITON_CACHE_DIR"] = cache
        for arch, isa in ARCHITECTURES.items():
            for title, config in configs(arch):
                kernel = compile_offline(config, arch=arch, options={"ptx_version": isa})
                modules[f"sm_{arch}a", title] = Ptx(kernel.asm["ptx"])
    work = [(key, version) for key in modules for version in versions]

    def run(job: tuple[tuple[str, str], str]) -> list[Any] | None:
        (arch, title), version = job
        result = cell(Toolchain(tools[version], nvdisasm), modules[arch, title])
        print(f"{arch} {title}, ptxas {version}: {result and result[-1]}", flush=True)
        return result

    with ThreadPoolExecutor(max_workers=arguments.jobs) as pool:
        results = dict(zip(work, pool.map(run, work), strict=True))
    samples: dict[str, dict[str, dict[str, Any]]] = {}
    for ((arch, title), version), result in results.items():
        if result is not None:
            samples.setdefault(arch, {}).setdefault(title, {})[version] = result
    return {
        "environment": environment("triton", "tritonhook"),
        "names": list(NAMES),
        "columns": list(COLUMNS),
        "ptxas": versions,
        "summary": summary(samples),
        "samples": samples,
    }


def summary(samples: dict[str, dict[str, dict[str, Any]]]) -> dict[str, Any]:
    cells = [c for titles in samples.values() for versions in titles.values() for c in versions.values()]
    default = [
        c[0] for titles in samples.values() for title, versions in titles.items() for c in versions.values()
        if title.endswith("packed") and not title.startswith("subject") and c[0] != "crash"
    ]  # fmt: skip
    spilled = [c[COLUMNS.index("spills_in_loops")] for c in default]
    return {
        "cells": len(cells),
        "verdicts": dict(sorted(Counter(c[-1] for c in cells).items())),
        "default_config_cells": len(default),
        "default_config_without_spills_in_loops": spilled.count(0),
        "default_config_most_spills_in_loops": max(spilled, default=None),
    }
