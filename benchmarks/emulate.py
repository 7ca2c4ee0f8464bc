"""What the emulator understands and finds, without a GPU: kernels of libraries in both forms, known miscompilations of
ptxas, and cubins with one altered instruction. All of it is *emulated*; verify_h200.json has what an H200 said
of the same.

    python -m benchmarks emulate [CAPTURES ...] [--parts PART ...] [--seeded FOLDER] [--kept FILE] [--seconds S]
        [--fuzzx FOLDER] [--add] [--out FILE]

kernels   Each kernel of a dry run's captures (`tritonhook run --arch`) is executed on the CPU from its PTX and from its
          machine code, on the same random buffers: "same" if all bits are equal, "rounding" if PTX allows what differs.
known     The PTX of each known miscompilation must give the result that PTX says, and each ptxas at hand is judged by
          its machine code: where an H200 ran the same build, by both.
altered   Altered cubins, which seeded.py makes in --seeded; each must come out as the H200 said.
forms     Equivalent forms of known miscompilations (equivalent_forms.py): the PTX of each must give the result that the
          first one gives. Those that a ptxas assembles wrongly are found where its code gives another.
verified  `tritonhook verify --cpu` of each kernel that was SAME on the H200 and that the captures have: with the same
          launch, or else the same name; by the H200's versions of ptxas, also -O0.
sanitized What `tritonhook emulate` finds in each kernel of the captures, and in the same without one of its barriers
          (barriers.py).
captured, launched  What the sanitizer finds in the programs of dry runs, with their libraries (launched.py).
found     What each ptxas makes of PTX that no pattern describes, published programs of --fuzzx among them (found.py).

--kept: rows of the captures are written there as they are made, and those that are there are not made again.
--seconds: nothing new of the captures is begun after so many. What other parts found is kept from the result.
--add: kernels of the result for other targets than those of the captures are kept, too.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

from bug_examples import EXAMPLES, Example, ptx_of

from benchmarks.common import RESULTS, coverage, environment
from benchmarks.emulating.barriers import looked_at
from benchmarks.emulating.found import newest_of, pairs, published
from benchmarks.emulating.kept import Kept, Row
from benchmarks.emulating.launched import looked_at as looked_at_programs
from benchmarks.emulating.launched import shards

NEEDS = ("numpy",)
GIVEN_CTAS = 2
LIMIT_S = 120.0
BAD = ("DIFFERENT", "CRASH", "HANG")
PARTS_OF_KERNELS = ("kernels", "known", "altered", "forms", "verified", "sanitized", "found")
PARTS_OF_PROGRAMS = ("captured", "launched")
PARTS = (*PARTS_OF_KERNELS, *PARTS_OF_PROGRAMS)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("captures", type=Path, nargs="*")
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--seeded", type=Path, help="where seeded.py writes altered cubins, or has written them")
    parser.add_argument("--ctas", type=int, default=GIVEN_CTAS, help="CTAs of each launch (default: 2)")
    parser.add_argument("--fuzzx", type=Path, help="ptx/known-miscompiles of a clone of SemiAnalysisAI/FuzzX")
    parser.add_argument("--kept", type=Path, help="rows that were made before, and where new ones are written")
    parser.add_argument("--seconds", type=float, default=1e6)
    parser.add_argument("--add", action="store_true", help="keep the kernels of the result for other targets")
    parser.add_argument("--arches", nargs="*", default=["sm_90a", "sm_100a", "sm_120a", "sm_80"])
    parser.add_argument("--groups", nargs="*", default=[], help="of dry_programs (default: all)")
    parser.add_argument("--work", type=Path, help="folder for captures of programs")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once of programs")


QUICK = ("{folder}", "--parts", "kernels", "known", "forms")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    parts = arguments.parts
    kept = json.loads(arguments.out.read_bytes()) if arguments.out.is_file() else {}
    samples: dict[str, Any] = {name: [] for name in PARTS} | kept.get("samples", {})
    rows = Kept(arguments.kept)
    end = time.monotonic() + arguments.seconds
    memory = kept.get("summary", {}).get("memory_gib")
    if "kernels" in parts:
        made = list(corpus(arguments.captures, arguments.ctas, rows, end))
        targets = {one["target"] for one in made}
        others = [one for one in samples["kernels"] if arguments.add and one["target"] not in targets]
        samples["kernels"] = others + made
        memory = max(memory or 0, round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20), 2))
    if "known" in parts:
        samples["known"] = list(known(quick=arguments.quick))
    if "altered" in parts and arguments.seeded:
        samples["altered"] = seeded(arguments.seeded)
    if "forms" in parts:
        samples["forms"] = list(forms(quick=arguments.quick))
    if "verified" in parts:
        samples["verified"] = list(verified(arguments.captures, arguments.ctas, rows, end))
    if "sanitized" in parts:
        samples["sanitized"] = list(sanitized(arguments.captures, arguments.ctas, rows, end))
    if "found" in parts:
        samples["found"] = list(pairs())
        if arguments.fuzzx:
            samples["found"] += published(arguments.fuzzx)
    for part in PARTS_OF_PROGRAMS:
        if part in parts and arguments.work:
            arguments.work.mkdir(parents=True, exist_ok=True)
            rest = arguments.work, arguments.jobs, end - time.monotonic(), arguments.ctas
            samples[part] = list(shards(part, arguments.arches, arguments.groups, *rest))
    return {
        "evidence": "emulated",
        "environment": environment("tritonhook", "numpy"),
        "summary": summary(samples) | {"memory_gib": memory},
        "opcodes": opcodes(),
        "samples": samples,
    }


def of_h200(part: str) -> list[dict[str, Any]]:
    """What an H200 stored: a part of the samples of verify_h200."""
    rows: list[dict[str, Any]] = json.loads((RESULTS / "verify_h200.json").read_bytes())["samples"][part]
    return rows


def opcodes() -> dict[str, list[str]]:
    """What the front ends know, by the beginning of the opcode."""
    from tritonhook.emulate.ptx.decode import OPCODES
    from tritonhook.emulate.sass.decode import OPCODES as SASS

    return {"ptx": sorted(OPCODES), "sass": sorted(SASS)}


# --- kernels in both forms -----------------------------------------------------------------------


def captured(folders: list[Path]) -> Iterator[tuple[Path, Any]]:
    """Each kernel with a launch, of one folder after the other in turn."""
    from tritonhook.capture.selection import Selected, selected
    from tritonhook.capture.store import CaptureFolder

    chosen = [
        [(folder, one) for one in selected(CaptureFolder.open(folder), dry=True) if isinstance(one, Selected)]
        for folder in folders
        if (folder / "index").is_dir()
    ]
    for several in zip_longest(*chosen):
        yield from (pair for pair in several if pair is not None and pair[1].launches)


def key_of(folder: Path, one: Any) -> str:
    return f"{folder.parent.name}/{folder.name}/{one.record}"


def corpus(folders: list[Path], ctas: int, kept: Kept, end: float) -> Iterator[Row]:
    """Each kernel of the captures."""
    for folder, one in captured(folders):
        record, launch = folder / "kernels" / one.record, one.launches[0].path
        make = partial(both_forms, record, one.capture.kernel, launch, ctas)
        if (row := kept.row("kernels", key_of(folder, one), make, time.monotonic() < end)) is not None:
            yield row


def both_forms(record: Path, entry: str, launched: Path, ctas: int) -> Row:
    """What the PTX and the machine code of one kernel store: the same, something else, or what is not understood."""
    from tritonhook.capture.launches.contents import NORMAL
    from tritonhook.capture.store import read_launch
    from tritonhook.ptx.module import Ptx
    from tritonhook.verify.cpu import CpuExecutor
    from tritonhook.verify.differential import case_of
    from tritonhook.verify.judgement import judge, latitude_of
    from tritonhook.verify.model import Build, FailureKind, Order, Verdict

    (ptx,), (cubin,) = record.glob("*.ptx"), record.glob("*.cubin")
    launch, text = read_launch(launched), Ptx(ptx.read_text())
    latitude = latitude_of(text)
    case = case_of(entry, launch, None, text, latitude)
    row: Row = {"kernel": entry, "target": text.target, "mma": "mma" in text.text}
    builds = Build("PTX", ptx, entry), Build("SASS", cubin, entry)
    found = CpuExecutor(ctas, LIMIT_S).run(Order(launch, builds, (NORMAL,), 1, None, case.keep))
    failed = {one.build: one.failure.text for one in found if one.failure is not None}
    judged = judge(found, launch, latitude, ("SASS",))
    if all(one.failure is not None and one.failure.kind is FailureKind.CRASH for one in found):
        row["verdict"] = "crash in both"
    elif failed:
        row["verdict"] = "not understood"
    else:
        names = {Verdict.SAME: "same", Verdict.SKIPPED: "same", Verdict.ROUNDING: "rounding"}
        row["verdict"] = names.get(judged.verdict, "different")
    row["reason"] = "; ".join(f"{build}: {text}" for build, text in failed.items())
    if judged.worst is not None and not failed:
        row["reason"] = judged.worst.text
    return row | {f"{one.build.lower()}_s": round((one.us or 0) / 1e6, 3) for one in found}


# --- known miscompilations -----------------------------------------------------------------------


def known(quick: bool = False) -> Iterator[dict[str, Any]]:
    """Each known miscompilation: what the emulator says of its PTX and of the code of each ptxas, and what the H200."""
    from tritonhook._util.versions import version_key
    from tritonhook.ptx.miscompiles import MISCOMPILATIONS
    from tritonhook.ptxas.tool import available_ptxas

    tools = {tool.version: tool for tool in available_ptxas()}
    executed = {one["id"]: one["builds"] for one in of_h200("known")}
    for bug in MISCOMPILATIONS[: 1 if quick else None]:
        row: dict[str, Any] = {"bug": bug.name, "ptx_is_right": emulated_ptx(bug), "builds": {}, "h200": {}}
        for version in sorted(tools, key=version_key):
            row["builds"][version] = emulated_code(bug, tools[version])
            if (said := executed.get(bug.name, {}).get(f"{version} -O3")) is not None:
                row["h200"][version] = "right" if said is True else "wrong"
        print(bug.name, row["ptx_is_right"], row["builds"], flush=True)
        yield row


TARGET, VERSION = "sm_90a", "8.0"


def emulated_ptx(bug: Any) -> bool | str:
    """Whether the PTX of an example gives the result that it should."""
    from tritonhook.emulate.run import run_ptx
    from tritonhook.ptx.module import Ptx

    example = EXAMPLES[bug.name]
    ptx = Ptx(ptx_of(example.lines, TARGET, "8.4"))
    return stored(example, lambda run, given: run_ptx(ptx, run, given)) == "right"


def emulated_code(bug: Any, tool: Any) -> str:
    """right, wrong, refused or not understood."""
    from tritonhook.errors import TritonHookError
    from tritonhook.ptx.module import Ptx
    from tritonhook.ptxas.toolchain import Assembled, assemble
    from tritonhook.verify.cpu import run_cubin

    example = EXAMPLES[bug.name]
    for version in (VERSION, "8.4"):
        try:
            made = assemble(tool, Ptx(ptx_of(example.lines, TARGET, version)), ["-O3"])
        except TritonHookError:
            continue
        if isinstance(made, Assembled):
            return stored(example, lambda run, given: run_cubin(made.cubin, "k", run, given))  # noqa: B023
    return "refused"


def stored(example: Example, execute: Any) -> str:
    from tritonhook.capture.launches.record import Buffer, Launch, Pointer
    from tritonhook.emulate.run import Run
    from tritonhook.errors import TritonHookError

    given = [bytes(len(example.expected)), example.given or bytes(16)]
    buffers = tuple(Buffer(len(one), "uint8") for one in given)
    launch = Launch("k", (1, 1, 1), (example.threads, 1, 1), (Pointer("out", 0), Pointer("in", 1)), buffers)
    try:
        found = execute(Run(launch, (0,), limit_s=LIMIT_S), given).contents[0]
    except TritonHookError as error:
        return f"not understood: {error}"
    return "right" if found == example.expected else "wrong"


# --- altered cubins ------------------------------------------------------------------------------


def seeded(folder: Path) -> list[dict[str, Any]]:
    """Altered cubins, with what the H200 said of each."""
    from benchmarks.verify import seeded as altering
    from tritonhook.verify.cpu import CpuExecutor

    if not (folder / "seeded.json").is_file():
        altering.make(folder)
    said = {(one["kernel"], one["offset"], one["bit"]): one["found"] for one in of_h200("seeded")}
    rows = altering.execute(folder, CpuExecutor(8, LIMIT_S))
    return [row | {"h200": said.get((row["kernel"], row["offset"], row["bit"]))} for row in rows]


# --- equivalent forms of known miscompilations -----------------------------------------------------


def forms(quick: bool = False) -> Iterator[dict[str, Any]]:
    """Each form of each bug: what its PTX gives, and what a ptxas with the bug and one without it make of it."""
    from benchmarks.verify.equivalent_forms import VERSIONS, judged
    from tritonhook.emulate.run import run_ptx
    from tritonhook.ptx.miscompiles import MISCOMPILATIONS
    from tritonhook.ptx.miscompiles.record import PtxasVerdict
    from tritonhook.ptx.module import Ptx
    from tritonhook.ptxas.tool import available_ptxas

    tools = {tool.version: tool for tool in available_ptxas() if tool.version in VERSIONS}
    for bug in MISCOMPILATIONS[: 1 if quick else None]:
        pair = [next((tools[v] for v in tools if bug.verdict(v, TARGET) is said), None) for said in PtxasVerdict]
        bad, good = (
            dict(zip(PtxasVerdict, pair, strict=True))[one] for one in (PtxasVerdict.WRONG, PtxasVerdict.RIGHT)
        )
        if bad is None or good is None:
            continue
        rows = judged(bug, [bad, good])
        for row in rows:
            text = Ptx(ptx_of(row.pop("lines"), TARGET, "8.4"))
            row["ptx"] = stored(EXAMPLES[bug.name], lambda run, given, text=text: run_ptx(text, run, given))
            row["code"], row["code_of_right"] = row.pop(bad.version), row.pop(good.version)
            yield row
        print(bug.name, len(rows), Counter((row["ptx"], row["code"]) for row in rows), flush=True)


# --- kernels that were SAME on the H200 ------------------------------------------------------------


def verified(folders: list[Path], ctas: int, kept: Kept, end: float) -> Iterator[Row]:
    """What `verify --cpu` says of each kernel that was SAME on the H200, and that the captures have."""
    from tritonhook.capture.store import read_launch

    at_hand: dict[tuple[str, str], tuple[Path, Path]] = {}
    for folder, one in captured(folders):
        for launched in one.launches:
            if launched.path.is_file():
                place = folder / "kernels" / one.record, launched.path
                at_hand.setdefault((one.capture.kernel, read_launch(launched.path).summary), place)
                at_hand.setdefault((one.capture.kernel, ""), place)
    for number, row in enumerate(row for row in of_h200("kernels") if row["verdict"] == "SAME"):
        name, same = row["kernel"], (row["kernel"], row["launch"]) in at_hand
        found = at_hand.get((name, row["launch"] if same else ""))
        if found is None:
            yield {"kernel": name, "group": row["group"], "same_launch": False, "verdict": "ABSENT", "builds": []}
            continue
        versions = ",".join(dict.fromkeys(build.split()[0] for build in row["builds"]))
        make = partial(verify_one, *found, name, row["group"], same, versions, ctas)
        if (made := kept.row("verified", f"{number} {name}", make, time.monotonic() < end)) is not None:
            yield made


def verify_one(record: Path, launch: Path, name: str, group: str, same_launch: bool, versions: str, ctas: int) -> Row:
    options = ("--inputs", "normal", "--ctas", str(ctas), "--limit", "60", "--against", versions, "--json")
    command = [sys.executable, "-m", "tritonhook", "verify", "--cpu", str(record), "--args", str(launch), *options]
    done = subprocess.run(command, capture_output=True, text=True)
    row: Row = {"kernel": name, "group": group, "same_launch": same_launch}
    if not done.stdout:
        return row | {"verdict": "SKIPPED", "reason": done.stderr.strip()[-300:], "builds": [], "seconds": 0}
    (one,) = json.loads(done.stdout)["kernels"]
    builds = [build["label"] for build in one["builds"]]
    return row | {"verdict": one["verdict"], "reason": one["reason"], "builds": builds, "seconds": one["seconds"]}


# --- faults of the kernels themselves --------------------------------------------------------------


def sanitized(folders: list[Path], ctas: int, kept: Kept, end: float) -> Iterator[Row]:
    """What is found in each kernel as it is, and without a barrier."""
    for folder, one in captured(folders):
        make = partial(sanitize_one, folder / "kernels" / one.record, one.capture.kernel, one.launches[0].path, ctas)
        if (row := kept.row("sanitized", key_of(folder, one), make, time.monotonic() < end)) is not None:
            yield row


def sanitize_one(record: Path, entry: str, launched: Path, ctas: int) -> Row:
    from tritonhook.capture.store import read_launch
    from tritonhook.ptx.module import Ptx
    from tritonhook.verify.differential import case_of
    from tritonhook.verify.judgement import latitude_of

    (path,) = record.glob("*.ptx")
    ptx = Ptx(path.read_text())
    return looked_at(case_of(entry, read_launch(launched), None, ptx, latitude_of(ptx)), ptx.text, ctas)


# --- the whole -----------------------------------------------------------------------------------


JUDGED = ("same", "rounding", "different")


def summary(samples: dict[str, Any]) -> dict[str, Any]:
    kernels, bugs, altered, written, again, looked, found = (samples[name] for name in PARTS_OF_KERNELS)
    programs = {one["name"]: one for one in reversed(found) if one["name"] != "rounded-pair"}  # the first of a name
    judged = [one for one in programs.values() if one["builds"] and not one["why"]]
    wrong = [one for one in written if one["is_wrong"]]
    cells = [(one["builds"][v], said) for one in bugs for v, said in one["h200"].items() if v in one["builds"]]
    seconds = [one[side] for one in kernels for side in ("ptx_s", "sass_s")]
    compared = [one for one in altered if one["h200"] is not None]
    verdicts = Counter(one["verdict"] for one in kernels)
    no_verdict = {verdict: count for verdict, count in verdicts.items() if verdict not in JUDGED}
    return coverage(len(kernels), no_verdict) | {
        "kernels": len(kernels),
        "with_mma": sum(one["mma"] for one in kernels),
        "targets": dict(sorted(Counter(one["target"] for one in kernels).items())),
        "verdicts": dict(verdicts),
        "understood_share": round(sum(one["verdict"] != "not understood" for one in kernels) / max(len(kernels), 1), 4),
        "seconds_median": round(statistics.median(seconds), 2) if seconds else None,
        "seconds_most": max(seconds, default=None),
        "known": len(bugs),
        "known_ptx_right": sum(one["ptx_is_right"] is True for one in bugs),
        "known_found": sum("wrong" in one["builds"].values() for one in bugs),
        "known_cells": dict(Counter(said.partition(":")[0] for one in bugs for said in one["builds"].values())),
        "known_cells_of_h200": len(cells),
        "known_cells_as_h200": sum(mine == said for mine, said in cells),
        "altered": dict(Counter(one["found"] for one in altered)),
        "altered_of_h200": len(compared),
        "altered_as_h200": sum(one["found"] == one["h200"] for one in compared),
        "forms": len(written),
        "forms_ptx_right": sum(one["ptx"] == "right" for one in written),
        "forms_wrong": len(wrong),
        "forms_wrong_found": sum(one["ptx"] == "right" and one["code"] == "wrong" for one in wrong),
        "verified": sum(bool(one["builds"]) for one in again),
        "verified_same_launch": sum(one["same_launch"] and bool(one["builds"]) for one in again),
        "verified_of": sum(row["verdict"] == "SAME" for row in of_h200("kernels")),
        "verified_absent": sum(one["verdict"] == "ABSENT" for one in again),
        "verified_verdicts": dict(Counter(one["verdict"] for one in again)),
        "false_different": sum(one["verdict"] in BAD for one in again),
        "sanitized": len(looked),
        "sanitized_with_findings": sum(bool(one["found"]) for one in looked),
        "without_a_barrier": sum(one["without_a_barrier"] is not None for one in looked),
        "without_a_barrier_found": sum(bool(one["without_a_barrier"]) for one in looked),
        **{part: looked_at_programs(samples[part]) for part in PARTS_OF_PROGRAMS if samples.get(part)},
        "published": len(programs),
        "published_judged": len(judged),
        "published_wrong_in_newest": sorted(one["name"] for one in judged if newest_of(one) == "wrong"),
        "without_a_barrier_why": dict(Counter(one["why"] for one in looked if one["why"])),
    }
