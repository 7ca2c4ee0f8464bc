"""Do `tritonhook lock`, `check` and `diff` find every change, blame the right one, and raise no alarm without a change?

    TRITON_TUTORIALS=FOLDER python -m benchmarks lock [--other-triton SITE] [--only timed] [--work DIR] [--out FILE]

FOLDER: python/tutorials of Triton's repository, at the commit that locking/kernels.py names. SITE: another Triton
(`pip install --target SITE triton==3.9.0`). Kernels: Triton's tutorials for sm_80, sm_90a and sm_120a, our
attentions and examples, and kernels for sm_100a, for which ptxas draws.

seeded   changes of code bytes, PTX, ptxas, options, Triton's source, its passes, LLVM and its version; each is looked
         for with `diff` and with `check`, among kernels that did not change
images   40 kinds of change to what is loaded besides the code (locking/images.py), in the same kernels with data of
         their own, by either ptxas; half of them with the old PTX. They count as seeded changes
unchanged  rounds of `check` without and with fresh captures, of kernels that did not change; also under another
         TMPDIR, locale and hash seed, where the lock must be the same text
timed    500 kernels: `check --ptxas 13.5.37` without a cache, and `diff` of two folders; on two processors. They are
         86 under several names, so that they have PTX but no code of their own: `diff` disassembles equal code once
story    the figures before and after Triton 3.6 -> SITE's, and ptxas 12.8.93 -> 13.5.37 over the same PTX
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.common import REPOSITORY, environment
from benchmarks.locking.images import VERSIONS
from benchmarks.locking.seeds import SEEDS, assembled
from tritonhook.capture.model import Capture, Stage
from tritonhook.capture.store import CaptureFolder, CaptureWriter
from tritonhook.cubin.image import Cubin
from tritonhook.ptxas.toolchain import may_draw

SEED = 25
ROUNDS, UNCHANGED_ROUNDS, SHARE_UNCHANGED = 3, 6, 0.15
IMAGE_ROUNDS = 2  # for either ptxas
ELSEWHERE = {"LC_ALL": "tr_TR.UTF-8", "LANG": "C", "PYTHONHASHSEED": "7"}
TIMED_KERNELS, TIMED_PTXAS = 500, "13.5.37"
STORY_PTXAS = ("12.8.93", "13.5.37")
FIGURES = (
    *("seeded", "seeded_kernels", "seeded_found_ratio", "blame_right_ratio", "unchanged_checks"),
    *("unchanged_checks_may_draw", "false_alarms", "recheck_500_s", "diff_500_s"),
)
STORY_FIGURES = ("spill_stores", "spill_loads", "stack", "registers", "shared", "instructions", "loop_instructions")
STORY = ("kernel", "arch", "constants", "status", "by", *STORY_FIGURES, "blocks", "worse")
# Compiles with one thing changed: what the child is told, and what `changed by` must begin with.
EDITS = {
    "01-vector-add": {"output = x + y": "output = x - y"},
    "02-fused-softmax": {"numerator = tl.exp(row_minus_max)": "numerator = tl.exp2(row_minus_max)"},
    "03-matrix-multiplication": {"c = accumulator.to(tl.float16)": "c = (accumulator * 2).to(tl.float16)"},
    "04-low-memory-dropout": {"x / (1 - p)": "x / (2 - p)"},
    "05-layer-norm": {"1 / tl.sqrt(var + eps)": "2 / tl.sqrt(var + eps)"},
    "07-extern-functions": {"libdevice.asin(x)": "libdevice.acos(x)"},
    "08-grouped-gemm": {"accumulator += tl.dot(a, b)": "accumulator += tl.dot(a, b) * 2"},
}
COMPILES: dict[str, tuple[dict[str, Any], str]] = {
    "Triton's source": ({"edits": EDITS}, "the source"),
    "a pass of Triton (pipelining)": ({"broken_pass": "passes.ttgpuir.add_pipeline"}, "Triton's passes"),
    "a pass of Triton (coalescing)": ({"broken_pass": "passes.ttgpuir.add_coalesce"}, "Triton's passes"),
    "LLVM without its optimiser": ({"broken_pass": "llvm.optimize_module"}, "Triton's lowering to LLVM"),
    "LLVM without fused multiply-add": ({"options": {"enable_fp_fusion": False}}, "LLVM (ptx)"),
}
_Key = tuple[str, str, tuple[str, ...]]


# --- running the verbs and the compiles ----------------------------------------------------------


def compile_kernels(out: Path, site: str | None = None, **told: Any) -> None:
    """Capture kernels in a child process, with a cache of its own. site: where another Triton is."""
    if (out / "done").exists():
        return
    paths = [site, str(REPOSITORY)] if site else [str(REPOSITORY)]
    code = "from benchmarks.locking.kernels import main; main()"
    given = {"tutorials": os.environ["TRITON_TUTORIALS"], "out": str(out), **told}
    with tempfile.TemporaryDirectory() as cache:
        child = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code, json.dumps(given)],
            env=os.environ | {"PYTHONPATH": ":".join(paths), "TRITON_CACHE_DIR": cache},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    for line in json.loads(child.stdout.splitlines()[-1]):
        print(f"  not compiled: {line}")
    (out / "done").touch()


def verb(*words: str | Path, extra: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Run a verb that gives a document. extra: of the environment. Raises SystemExit where it fails."""
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder) / "result.json"
        command = [sys.executable, "-m", "tritonhook", *map(str, words), "--save", str(saved)]
        done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, env=os.environ | (extra or {}))
        if done.returncode not in (0, 1):
            raise SystemExit(f"{' '.join(command)}: exit {done.returncode}: {done.stderr[-2000:]}")
        document: dict[str, Any] = json.loads(saved.read_text())
    return document


def lock(captures: Path, path: Path, extra: Mapping[str, str] | None = None) -> Path:
    command = [sys.executable, "-m", "tritonhook", "lock", str(captures), "-o", str(path), "--force"]
    subprocess.run(command, check=True, cwd=REPOSITORY, capture_output=True, env=os.environ | (extra or {}))
    return path


def rows_of(document: Mapping[str, Any]) -> dict[_Key, dict[str, Any]]:
    return {(row["kernel"], row["arch"], tuple(row["specialisation"])): row for row in document["kernels"]}


def read_folder(folder: Path) -> dict[_Key, Capture]:
    """The kernels of a folder as diff and check identify them."""
    from tritonhook.snapshot.facts import identity_of

    captures = CaptureFolder.open(folder)
    found = [captures.capture(record) for record in captures.records]
    return {(i.kernel, i.arch, i.specialisation): one for one in found for i in [identity_of(one)]}


def write_folder(out: Path, captures: Iterable[Capture]) -> Path:
    """Captures as a folder."""
    writer = CaptureWriter(out)
    with tempfile.TemporaryDirectory() as scratch:
        for number, capture in enumerate(captures):
            files = {}
            for stage, content in capture.artifacts.items():
                path = Path(scratch) / f"{number}.{stage.value}"
                path.write_bytes(content if isinstance(content, bytes) else content.encode())
                files[stage] = str(path)
            writer.add_files(capture, files)
    writer.close()
    return out


# --- seeded changes ------------------------------------------------------------------------------


def seeded(work: Path, site: str | None) -> tuple[list[list[Any]], int, int]:
    """A row for each change: kind, kernel, architecture, found, blamed right, what was blamed. And of how many kernels
    beside them that did not change how many raised an alarm."""
    base = read_folder(work / "base")
    rows, unchanged, alarms = [], 0, 0
    rng = random.Random(SEED)
    counts: Counter[str] = Counter(dict.fromkeys(SEEDS, 0))
    locked = lock(work / "base", work / "base.lock")
    for turn in range(ROUNDS):
        made: dict[_Key, tuple[str, Capture]] = {}
        for key, capture in base.items():
            if rng.random() >= SHARE_UNCHANGED and (found := _one_seed(capture, rng, counts)):
                made[key] = found
        folder = write_folder(work / f"seeded-{turn}", (made[key][1] if key in made else base[key] for key in base))
        truth = {key: (kind, SEEDS[kind][1]) for key, (kind, _) in made.items()}
        new, quiet, false = _judged(truth, work / "base", locked, folder)
        rows, unchanged, alarms = rows + new, unchanged + quiet, alarms + false
        print(
            f"  round {turn + 1}: {len(rows)} changes, {_found(rows)} found, {_blamed(rows)} blamed right", flush=True
        )
    for number, (kind, (told, blame)) in enumerate(COMPILES.items()):
        folder = work / f"compiled-{number}"
        compile_kernels(folder, archs=[90], own=False, **told)
        rows += _compiled(kind, blame, base, work / "base", locked, folder)
        print(f"  {kind}: {len(rows)} changes, {_found(rows)} found, {_blamed(rows)} blamed right", flush=True)
    if site:
        rows += _compiled("another Triton", None, base, work / "base", locked, work / "other")
    return rows, unchanged, alarms


def seeded_images(work: Path) -> tuple[list[list[Any]], int, int]:
    """As `seeded`, for what is loaded besides the code."""
    from benchmarks.locking import images

    rows, unchanged, alarms = [], 0, 0
    captures = [capture for key, capture in read_folder(work / "base").items() if not may_draw(key[1])]
    for version in images.VERSIONS:
        old = work / f"rigged-{version}"
        if not old.is_dir():
            write_folder(old, images.rig(captures, version))
        locked, rigs = lock(old, work / f"rigged-{version}.lock"), read_folder(old)
        for turn in range(IMAGE_ROUNDS):
            chosen = [key for number, key in enumerate(rigs) if number % 8 != turn]
            made = {
                key: seed
                for number, key in enumerate(chosen)
                if (seed := images.seeded_image(rigs[key], turn * len(chosen) + number)) is not None
            }
            folder = write_folder(
                work / f"images-{version}-{turn}", (made[key].new if key in made else rigs[key] for key in rigs)
            )
            truth = {key: (seed.kind, seed.blame) for key, seed in made.items()}
            new, quiet, false = _judged(truth, old, locked, folder)
            rows, unchanged, alarms = rows + new, unchanged + quiet, alarms + false
            print(f"  images, {version}: {len(rows)} changes, {_found(rows)} found, {_blamed(rows)} right", flush=True)
    return rows, unchanged, alarms


def _one_seed(capture: Capture, rng: random.Random, counts: Counter[str]) -> tuple[str, Capture] | None:
    """Change a kernel in the way that was used least so far and that fits."""
    order = sorted(SEEDS, key=lambda kind: (counts[kind], rng.random()))
    for kind in order[:6]:
        changed = SEEDS[kind][0](capture, rng)
        if changed is not None:
            counts[kind] += 1
            return kind, changed
    return None


def _judged(
    truth: Mapping[_Key, tuple[str, str]], old: Path, locked: Path, new: Path
) -> tuple[list[list[Any]], int, int]:
    documents = [rows_of(verb("diff", old, new)), rows_of(verb("check", locked, new))]
    rows = []
    for key, (kind, blame) in truth.items():
        seen = [document[key] for document in documents]
        found = all(row["status"] != "same" for row in seen)
        right = found and all(row["by"].startswith(tuple(blame.split("|"))) for row in seen)
        rows.append([kind, key[0], key[1], found, right, "" if right else seen[0]["by"]])
    others = [document[key] for document in documents for key in document if key not in truth]
    return rows, len(others), sum(row["status"] != "same" for row in others)


def _compiled(
    kind: str, blame: str | None, base: Mapping[_Key, Capture], old: Path, locked: Path, folder: Path
) -> list[list[Any]]:
    """Judge a whole compile in which one thing changed. The kernels whose bytes of code differ are the changed ones."""
    from tritonhook.snapshot.facts import normalised

    now = read_folder(folder)
    truth = {}
    for key in base.keys() & now.keys():
        a, b = base[key], now[key]
        if _program(a) == _program(b) or may_draw(key[1]):
            continue
        own = blame
        if own is None:  # another Triton: is it its ptxas, or what it gives ptxas?
            same = normalised(Stage.PTX, str(a.text(Stage.PTX))) == normalised(Stage.PTX, str(b.text(Stage.PTX)))
            own = "ptxas " if same or _by_its_ptxas(a, b) else "Triton|LLVM|the source"
        truth[key] = own
    return _judged({key: (kind, own) for key, own in sorted(truth.items())}, old, locked, folder)[0]


def _by_its_ptxas(a: Capture, b: Capture) -> bool:
    """Whether the old PTX, assembled as the new one was, gives the new code."""
    options = b.assembler.options
    if b.assembler.version is None or options is None:
        return False
    made = assembled(a, str(a.text(Stage.PTX)), b.assembler.version, options)
    return made is not None and _program(made) == _program(b)


def _program(capture: Capture) -> bytes:
    return Cubin.from_bytes(capture.cubin, capture.kernel).text(capture.kernel)


def _found(rows: Sequence[Sequence[Any]]) -> int:
    return sum(bool(row[3]) for row in rows)


def _blamed(rows: Sequence[Sequence[Any]]) -> int:
    return sum(bool(row[4]) for row in rows)


# --- no change -----------------------------------------------------------------------------------


def unchanged(work: Path) -> list[dict[str, Any]]:
    """Rounds over kernels that did not change: the lock alone, and captures assembled or compiled anew."""
    locked, base = work / "base.lock", read_folder(work / "base")
    rounds = []
    for turn in range(UNCHANGED_ROUNDS):
        rounds.append(_quiet("kept PTX", verb("check", locked, "--no-cache")))
        drawn = [_drawn(one) if may_draw(key[1]) else one for key, one in base.items()]
        rounds.append(_quiet("fresh draws", verb("check", locked, write_folder(work / f"drawn-{turn}", drawn))))
        print(f"  unchanged, round {turn + 1}: {sum(len(r['alarms']) for r in rounds)} alarms", flush=True)
    compile_kernels(work / "again")
    rounds.append(_quiet("compiled again", verb("check", locked, work / "again")))
    folders = [work / "base", *(work / f"rigged-{version}" for version in VERSIONS)]
    return rounds + [_elsewhere(work, folder) for folder in folders]


def _elsewhere(work: Path, folder: Path) -> dict[str, Any]:
    """Lock and check under another TMPDIR, locale and hash seed than the lock beside it was made under."""
    here, there = work / "here" / "k.lock", work / "there" / "k.lock"
    extra = ELSEWHERE | {"TMPDIR": str(work / "a folder for what is temporary, in another place")}
    for path in (here, there, Path(extra["TMPDIR"]) / "_"):
        path.parent.mkdir(exist_ok=True)
    texts = [lock(folder, here).read_bytes(), lock(folder, there, extra).read_bytes()]
    found = _quiet("elsewhere", verb("check", here, "--no-cache", extra=extra))
    return found | {"alarms": [*found["alarms"], *(["another text of the lock"] if texts[0] != texts[1] else [])]}


def _drawn(capture: Capture) -> Capture:
    """The kernel assembled once more, with ptxas's memory at addresses by chance."""
    from tritonhook.ptx.module import Ptx
    from tritonhook.ptxas.tool import find_ptxas
    from tritonhook.ptxas.toolchain import Assembled, assemble

    options = capture.assembler.options or ()
    made = assemble(
        find_ptxas(capture.assembler.version), Ptx(str(capture.text(Stage.PTX))), options, fixed_layout=False
    )
    if not isinstance(made, Assembled):
        raise SystemExit(f"{capture.kernel}: {made}")
    return replace(capture, artifacts={**capture.artifacts, Stage.CUBIN: made.cubin.data})


def _quiet(how: str, document: Mapping[str, Any]) -> dict[str, Any]:
    rows = rows_of(document)
    return {
        "how": how,
        "kernels": len(rows),
        "may_draw": sum(may_draw(key[1]) for key in rows),
        "codes": sum(len((row["old"] or {}).get("codes", ())) for row in rows.values()),
        "alarms": [f"{key[0]} {key[1]}: {row['status']}" for key, row in rows.items() if row["status"] != "same"],
    }


# --- timed ---------------------------------------------------------------------------------------


def timed(work: Path) -> dict[str, Any]:
    """Seconds of 500 kernels on two processors: `check` under another ptxas, and `diff` of two folders."""
    many = {side: work / f"many-{side}" for side in ("base", "other") if (work / side).is_dir()}
    for side, folder in many.items():
        if not folder.is_dir():
            write_folder(folder, _copies(read_folder(work / side).values(), TIMED_KERNELS))
    locked = work / "many.lock"
    if not locked.exists():
        lock(many["base"], locked)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    found = {"recheck_500": _timed("check", locked, "--ptxas", TIMED_PTXAS, "--no-cache")}
    if "other" in many:
        found["diff_500"] = _timed("diff", many["base"], many["other"])
    return found


def _copies(captures: Iterable[Capture], count: int) -> list[Capture]:
    """Kernels under several names of their own length, so that each has PTX of its own."""
    every = list(captures)
    found = []
    for number in range(count):
        capture, turn = every[number % len(every)], number // len(every)
        name = f"{capture.kernel[:-2]}{turn:02d}"
        artifacts = {
            stage: content.replace(capture.kernel.encode(), name.encode())
            if isinstance(content, bytes)
            else content.replace(capture.kernel, name)
            for stage, content in capture.artifacts.items()
        }
        found.append(replace(capture, kernel=name, hash=f"{turn:02d}{capture.hash[2:]}", artifacts=artifacts))
    return found


def _timed(*words: str | Path) -> dict[str, Any]:
    """Wall and processor seconds of a verb, the start of Python included."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    document = verb(*words)
    wall_s = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    counts = Counter(row["status"] for row in document["kernels"])
    load = os.getloadavg()[0]
    print(f"  {words[0]}: {wall_s:.1f} s, {cpu_s:.1f} s of processors, load {load:.1f}, {dict(counts)}", flush=True)
    return {"wall_s": wall_s, "cpu_s": cpu_s, "load": load, "kernels": len(document["kernels"]), "counts": dict(counts)}


# --- the story -----------------------------------------------------------------------------------


def story(work: Path, site: str | None) -> dict[str, list[list[Any]]]:
    """Rows of tutorials that changed: kernel, architecture, constants, who, then each figure before and after."""
    options = {"ptx_version": 87}  # the newest that both ptxas read
    compile_kernels(work / "story", own=False, options=options)
    tutorials = read_folder(work / "story")
    first = work / "story-first"
    if not first.is_dir():
        made = [
            assembled(one, str(one.text(Stage.PTX)), STORY_PTXAS[0], one.assembler.options or ())
            for one in tutorials.values()
        ]
        write_folder(first, [one for one in made if one is not None])
    locked = lock(first, work / "story.lock")
    found = {"ptxas": story_rows(verb("check", locked, "--ptxas", STORY_PTXAS[1]), tutorials.keys())}
    if site:
        found["triton"] = story_rows(verb("diff", work / "base", work / "other"), tutorials.keys())
    return found


def story_rows(document: Mapping[str, Any], among: Collection[_Key] | None = None) -> list[list[Any]]:
    """What `diff` or `check` said about the kernels of a folder, in the columns of STORY."""
    return [
        [
            row["kernel"],
            row["arch"],
            " ".join(part for part in row["specialisation"] if _is_constant(part)),
            row["status"],
            row["by"],
            *[[row[side] and row[side][name] for side in ("old", "new")] for name in STORY_FIGURES],
            row["blocks"],
            row["worse"],
        ]
        for key, row in rows_of(document).items()
        if among is None or key in among
    ]


def _is_constant(part: str) -> bool:
    return (
        not part.startswith(("(", "num_ctas", "num_stages", "stride_"))
        and re.search(r"=(?!False|None)", part) is not None
    )


# --- all of it -----------------------------------------------------------------------------------


NEEDS = ("TRITON_TUTORIALS",)
SEEDED = ("change", "kernel", "arch", "found", "blamed right", "blamed instead")
PARTS = ("seeded", "images", "unchanged", "timed", "story")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--other-triton", metavar="SITE", help="a folder with another Triton")
    parser.add_argument("--only", choices=PARTS, help="keep the other results")
    parser.add_argument("--work", type=Path, help="keep captures there, for the next run")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    from benchmarks.locking.kernels import check_tutorials

    check_tutorials(Path(os.environ["TRITON_TUTORIALS"]))
    with tempfile.TemporaryDirectory() as temporary:
        work = (arguments.work or Path(temporary)).resolve()
        return measure(arguments, work)


def measure(arguments: argparse.Namespace, work: Path) -> dict[str, Any]:
    site = arguments.other_triton
    samples = json.loads(arguments.out.read_text())["samples"] if arguments.out.exists() else {}
    compile_kernels(work / "base")
    if site:
        compile_kernels(work / "other", site)
    parts = [arguments.only] if arguments.only else list(PARTS)
    for part, work_on in (("seeded", lambda: seeded(work, site)), ("images", lambda: seeded_images(work))):
        if part in parts:
            rows, quiet, alarms = work_on()
            samples[part] = rows
            samples[f"beside_{part}"] = {"kernels": quiet, "alarms": alarms}
    if "unchanged" in parts:
        lock(work / "base", work / "base.lock")
        samples["unchanged"] = unchanged(work)
    if "timed" in parts:
        samples["timed"] = timed(work)
    if "story" in parts:
        samples["story"] = story(work, site)
    return {
        "what": "changes of machine code that lock, check and diff find, whom they blame, and how long it takes",
        "summary": summary(samples),
        "environment": environment("triton", "tritonhook"),
        "columns": {"seeded": SEEDED, "images": SEEDED, "story": list(STORY)},
        "samples": samples,
    }


def summary(samples: Mapping[str, Any]) -> dict[str, Any]:
    rows = [*samples.get("seeded", []), *samples.get("images", [])]
    rounds, times = samples.get("unchanged", []), samples.get("timed", {})
    beside = [samples.get(f"beside_{part}", {"kernels": 0, "alarms": 0}) for part in ("seeded", "images")]
    found: dict[str, Any] = dict.fromkeys(FIGURES)  # None: not measured
    if rows:
        found |= {
            "seeded": len(rows),
            "seeded_kernels": len({(row[1], row[2]) for row in rows}),
            "seeded_found_ratio": _found(rows) / len(rows),
            "blame_right_ratio": _blamed(rows) / len(rows),
        }
    if rounds:
        found |= {
            "unchanged_checks": sum(one["kernels"] for one in (*beside, *rounds)),
            "unchanged_checks_may_draw": sum(one["may_draw"] for one in rounds),
            "false_alarms": sum(one["alarms"] for one in beside) + sum(len(one["alarms"]) for one in rounds),
        }
    for name, one in times.items():
        found |= {f"{name}_s": one["wall_s"], f"{name}_cpu_s": one["cpu_s"]}
    return found
