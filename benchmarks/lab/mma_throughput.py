"""Does `.pragma "mma_throughput"` give the code that "cutlass" in the name gives? Assembled, byte by byte.

    python -m benchmarks mma_throughput [--captures DIR ...] [--out FILE] [--jobs N]

Kernels: this repository's attentions in Gluon, in
their default configurations; and what the capture folders of --captures hold. Each is assembled by every ptxas at hand
from 13.3 on (`tritonhook ptxas add 13.3.73` fetches one) in five forms: as it is ("own"), with `.version` raised to
9.3 ("plain"), the same under the cutlass name, with the pragma, and with both. All names of a kernel are equally long.

Nothing is executed or timed. Summary: of `cells` (kernel, architecture, ptxas), `changed` have other code under the
name; `exceptions` are those where name, pragma and both have no code in common, byte for byte in `.text` and
`.nv.capmerc`; `unsteady` those where ptxas gives one of several codes for the same input, run by run: each form is
then assembled DRAWS times more, and `draws` of the sample has the codes that came; `changed_by_version`, where
the raised `.version` alone gives other code. Samples: the first 8 digits of the SHA-256 of `.text` and, where there
is one, of `.nv.capmerc`, for each form.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from benchmarks.common import coverage, environment

FORMS = ("own", "plain", "name", "pragma", "both")
SAME = ("name", "pragma", "both")  # the forms that shall have the same code
DRAWS = 12
OLDEST = "13.3"
CAPMERC = ".nv.capmerc.text.{kernel}"


@dataclass(frozen=True)
class Kernel:
    """One entry of a module. label: where it comes from."""

    label: str
    ptx: Any
    entry: str


NEEDS = ("ptxas 13.3+",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--captures", type=Path, nargs="*", default=[], help="capture folders: their kernels too")
    parser.add_argument("--jobs", type=int)


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    tools = new_tools()
    if not tools:
        raise SystemExit(f"no ptxas from {OLDEST} on is at hand; fetch one: tritonhook ptxas add 13.5.37")
    kernels = chain(of_attentions(), of_captures(arguments.captures))
    rows = assembled(list(islice(kernels, 3 if arguments.quick else None)), tools, arguments.jobs)
    return {
        "summary": summary(rows, tools),
        "environment": environment("tritonhook"),
        "forms": list(FORMS),
        "samples": rows,
    }


def new_tools() -> list[Any]:
    """The ptxas versions at hand that know the pragma, oldest first; one of each version."""
    from tritonhook._util.versions import version_key
    from tritonhook.ptxas.tool import available_ptxas

    known = {tool.version: tool for tool in available_ptxas() if version_key(tool.version) >= version_key(OLDEST)}
    return sorted(known.values(), key=lambda tool: version_key(tool.version))


def of_attentions() -> Iterator[Kernel]:
    """This repository's attentions: the default configuration of each dtype, head_dim and mask."""
    from benchmarks.gluon.attentions import compiled, subjects
    from tritonhook.ptx.module import Ptx

    for label, *subject in subjects():
        ptx = Ptx(compiled(*subject, ptx_version=87))
        yield Kernel(label, ptx, ptx.only_entry())


def of_captures(folders: list[Path]) -> Iterator[Kernel]:
    from tritonhook.capture.model import Stage
    from tritonhook.capture.store import CaptureFolder

    for path in folders:
        folder = CaptureFolder.open(path)
        for record in folder.records:
            capture = folder.capture(record)
            if Stage.PTX in capture.artifacts:
                yield Kernel(capture.kernel, capture.ptx, capture.kernel)


def forms(kernel: Kernel) -> dict[str, Any]:
    """The module in each form. The name without the trigger is as long as that with it."""
    from tritonhook._util.versions import version_key
    from tritonhook.ptx.throughput_pragma import PTX_VERSION, ThroughputPragma
    from tritonhook.rename import PREFIX, Rename, control_name, strip_word

    bare = strip_word(kernel.entry)
    named = Rename(prefix=PREFIX).new_name(bare)
    control = control_name(bare, named)
    own = kernel.ptx.rename_entries({kernel.entry: control})
    plain = own.with_directives(max(own.version, PTX_VERSION, key=version_key))
    name = plain.rename_entries({control: named})
    pragma = ThroughputPragma((control,)).apply(plain)
    both = ThroughputPragma((named,)).apply(name)
    return dict(zip(FORMS, (own, plain, name, pragma, both), strict=True))


def assembled(kernels: list[Kernel], tools: list[Any], workers: int | None) -> list[dict[str, Any]]:
    """A row for each kernel and ptxas."""
    rows = {
        (number, tool.version): {"kernel": kernel.label, "arch": kernel.ptx.target, "ptxas": tool.version}
        for number, kernel in enumerate(kernels)
        for tool in tools
    }
    modules = [forms(kernel) for kernel in kernels]
    wanted = {(number, tool, form, 0) for number in range(len(kernels)) for tool in tools for form in FORMS}
    for (number, tool, form, _), code in codes(modules, wanted, workers):
        rows[number, tool.version][form] = code
    torn = [place for place, row in rows.items() if len({row[form] for form in SAME}) > 1]
    again = {
        (number, tool, form, draw)
        for number, version in torn
        for tool in tools
        if tool.version == version
        for form in SAME
        for draw in range(1, DRAWS + 1)
    }
    for (number, tool, form, _), code in codes(modules, again, workers):
        row = rows[number, tool.version]
        row.setdefault("draws", {name: [row[name]] for name in SAME})
        if code not in row["draws"][form]:
            row["draws"][form] = sorted([*row["draws"][form], code])
    order = ("kernel", "arch", "ptxas", *FORMS, "draws")
    return [{name: row[name] for name in order if name in row} for _, row in sorted(rows.items())]


def codes(modules: list[dict[str, Any]], wanted: set[Any], workers: int | None) -> Iterator[tuple[Any, str]]:
    """The code of each (number of the module, ptxas, form, draw)."""
    from tritonhook.ptxas.pool import Job, sweep
    from tritonhook.ptxas.result_cache import ResultCache

    jobs: dict[Any, list[Any]] = {}
    for place in wanted:
        number, tool, form, draw = place
        ptx = modules[number][form]
        job = Job(ptx.text, tool, ("-arch", ptx.target), keep_cubin=True, draw=draw)
        jobs.setdefault(job, []).append(place)
    for job, outcome in sweep(jobs, workers, ResultCache()):
        for place in jobs[job]:
            yield place, digests(outcome)


def digests(outcome: Any) -> str:
    """The code's hashes, or what became of the run."""
    from tritonhook.cubin.image import Cubin

    if outcome.cubin is None:
        return f"{outcome.kind.value}: {outcome.message}"
    cubin = Cubin.from_bytes(outcome.cubin)
    kernel = cubin.only_kernel()
    capmerc = cubin.section(CAPMERC, kernel)
    pieces = [cubin.text(kernel), *([capmerc.data] if capmerc else [])]
    return " ".join(hashlib.sha256(data).hexdigest()[:8] for data in pieces)


def common(row: dict[str, Any]) -> set[str]:
    """The codes that came under the name, with the pragma, and with both."""
    seen = row.get("draws") or {form: [row[form]] for form in SAME}
    return set.intersection(*(set(seen[form]) for form in SAME))


def summary(rows: list[dict[str, Any]], tools: list[Any]) -> dict[str, Any]:
    failed = [row for row in rows if any(":" in row[form] for form in FORMS)]
    fine = [row for row in rows if row not in failed]
    return coverage(len(rows), {"not assembled": len(failed)}) | {
        "cells": len(fine),
        "changed": sum(row["name"] != row["plain"] for row in fine),
        "exceptions": [row for row in fine if not common(row)],
        "unsteady": sum("draws" in row for row in fine),
        "changed_by_version": sum(row["own"] != row["plain"] for row in fine),
        "not_assembled": len(failed),
        "ptxas_versions": [tool.version for tool in tools],
    }
