"""What `tritonhook ab` is given: MODULE:FUNCTION, a script, a capture with recorded launches, or cubins with a record;
each becomes the Plan of a timed comparison, or None where only code is to be compared."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from tritonhook.capture.launches.recorder import VALUES
from tritonhook.capture.store import CaptureFolder, RecordedLaunch, read_launch, read_launches
from tritonhook.cli._sides import Side, check_entry, chosen_arguments, chosen_ptxas, load_side
from tritonhook.cli.rename import wanted_rename
from tritonhook.cli.run import run_to_end, script_command
from tritonhook.device.cuda_driver import Driver
from tritonhook.errors import CaptureError, DeviceError, UsageError
from tritonhook.ptxas.discovery import find_ptxas
from tritonhook.ptxas.toolchain import find_toolchain
from tritonhook.rename import PREFIX, Rename
from tritonhook.timing.coordinator import rough_times, search_path
from tritonhook.timing.images import Change, Code, Sides, sides_of_cubins, sides_of_ptx
from tritonhook.timing.plan import BASELINE_RTOL, Plan

_LISTED = 5  # of a script's other launches
_STDERR = 2  # where a script prints: standard output is for the result


@dataclass(frozen=True, slots=True)
class Prepared:
    """A plan, and what the user should know about how it came to be."""

    plan: Plan
    notes: tuple[str, ...] = ()


def is_function(target: str) -> bool:
    return ":" in target and not Path(target).exists()


def is_script(target: str) -> bool:
    return target.endswith(".py")


def is_timed(arguments: argparse.Namespace) -> bool:
    """Whether the target can be launched; else only its code can be compared."""
    targets = arguments.target
    if arguments.saved:
        return True
    if not targets or arguments.code:
        return False
    first = targets[0]
    return is_function(first) or is_script(first) or len(targets) > 1 or bool(arguments.args) or _has_launches(first)


def _has_launches(target: str) -> bool:
    place = Path(target)
    return any(place.glob("launches/*.json")) or any(place.glob("kernels/*/launches/*.json"))


def prepare(arguments: argparse.Namespace, folder: Path) -> Prepared:
    """The plan. folder: for files that must last as long as the comparison."""
    targets: list[str] = arguments.target
    if arguments.rest is not None and not is_script(targets[0]):
        raise UsageError(f"-- {' '.join(arguments.rest)}: only a script has arguments of its own")
    if is_function(targets[0]):
        _refuse(arguments, targets[1:], ("--options", "--entry", "--args", "--launch"), f"{targets[0]} launches itself")
        return Prepared(_plan(arguments, targets[0], folder))
    never = ("--candidate", "--only", "--tune")
    _refuse(arguments, () if is_script(targets[0]) else targets[2:], never, "the target is launched as recorded")
    if is_script(targets[0]):
        _refuse(arguments, (), ("--args",), "a script's launches are recorded by running it")
        words = [*targets, *(arguments.rest or ())]
        return _recorded(arguments, " ".join(words), _run_script(words, folder / "captures"), folder)
    if len(targets) == 2:
        return _two(arguments, folder)
    if not arguments.args and not (Path(targets[0]) / "capture.json").exists() and Path(targets[0]).is_dir():
        return _recorded(arguments, targets[0], Path(targets[0]), folder)
    return _one(arguments, targets[0], _launch_of(arguments, targets[:1]), folder)


def _refuse(arguments: argparse.Namespace, rest: Sequence[str], options: Sequence[str], why: str) -> None:
    """Raises UsageError for what would be ignored."""
    if rest:
        raise UsageError(
            f"{' '.join(rest)}: not understood; give one target, two cubins, or a script with its arguments"
        )
    given = [option for option in options if getattr(arguments, option.strip("-").replace("-", "_"))]
    if given:
        raise UsageError(f"{', '.join(given)}: of no use here, as {why}")


def _plan(
    arguments: argparse.Namespace, label: str, folder: Path, sides: Sides | None = None, launch: Path | None = None
) -> Plan:
    """What all plans share. sides, launch: of a target that is launched as recorded; its changes are made already."""
    ours = sides is None
    return Plan(
        label,
        folder,
        _rename(arguments) if ours else None,
        arguments.candidate,
        tuple(arguments.baseline),
        _ptxas(arguments.ptxas),
        _ptxas(arguments.candidate_ptxas),
        arguments.only,
        not arguments.hot,
        arguments.rtol,
        not arguments.unchecked,
        path=search_path(),
        candidate_options=arguments.candidate_options if ours else None,
        fixes=tuple(arguments.fix) if ours else (),
        tune_each=arguments.tune == "each",
        baseline_rtol=BASELINE_RTOL if arguments.baseline_rtol is None else arguments.baseline_rtol,
        images=() if sides is None else sides.write(folder / "images"),
        launch=launch,
    )


def _rename(arguments: argparse.Namespace) -> Rename | None:
    """The rename asked for; the prefix, if no change at all was asked for."""
    wanted = wanted_rename(arguments)
    others = (arguments.candidate, arguments.candidate_ptxas, arguments.candidate_options, *arguments.fix)
    return Rename(prefix=PREFIX) if wanted is None and not any(others) else wanted


def _ptxas(wanted: str | None) -> str | None:
    return None if wanted is None else str(find_ptxas(wanted).path.absolute())


# --- launches as recorded ------------------------------------------------------------------------


def _one(arguments: argparse.Namespace, target: str, launch: Path, folder: Path) -> Prepared:
    """One PTX or capture, changed as the options say."""
    side = load_side(target, arguments.entry)
    check_entry(arguments.entry, [side])
    if side.ptx is None:
        raise UsageError(f"{target}: no PTX to make a candidate of; give a second cubin, or a capture that has PTX")
    rename = _rename(arguments)
    if rename is not None:
        rename.other_name(side.entry)
    toolchain = find_toolchain(chosen_ptxas(arguments.ptxas, [side]))
    options = chosen_arguments(arguments.options, [side])
    change = Change(
        rename,
        tuple(arguments.fix),
        None if arguments.candidate_ptxas is None else find_toolchain(arguments.candidate_ptxas),
        tuple((arguments.candidate_options or "").split()),
    )
    sides = sides_of_ptx(side.ptx, side.entry, change, toolchain, options)
    notes = [f"assembled by ptxas {toolchain.ptxas.version} with {' '.join(options) or 'no options'}"]
    if side.cubin is not None and side.cubin.text(side.entry) != _code(sides):
        notes.append("the code assembled here is not that of the captured cubin")
    return Prepared(_plan(arguments, target, folder, sides, launch), tuple(notes))


def _code(sides: Sides) -> bytes:
    from tritonhook.cubin.image import Cubin

    return Cubin.from_bytes(sides.reference.image).text(sides.reference.entry)


def _two(arguments: argparse.Namespace, folder: Path) -> Prepared:
    """Two cubins, or what one can be made of, as they are."""
    if wanted_rename(arguments) or arguments.fix or arguments.candidate_ptxas or arguments.candidate_options:
        raise UsageError("two targets are compared as they are; give a change (a rename, --fix, ...) for one target")
    launch = _launch_of(arguments, arguments.target)
    loaded = [load_side(target, arguments.entry) for target in arguments.target]
    check_entry(arguments.entry, loaded)
    sides = sides_of_cubins(*(_assembled(side, arguments) for side in loaded))
    return Prepared(_plan(arguments, " against ".join(reversed(arguments.target)), folder, sides, launch))


def _assembled(side: Side, arguments: argparse.Namespace) -> Code:
    if side.cubin is not None:
        return Code(side.cubin.data, side.entry)
    assert side.ptx is not None
    toolchain = find_toolchain(chosen_ptxas(arguments.ptxas, [side]))
    options = chosen_arguments(arguments.options, [side])
    return Code(toolchain.assemble_or_raise(side.ptx, options).cubin.data, side.entry)


def _launch_of(arguments: argparse.Namespace, targets: Sequence[str]) -> Path:
    """The record to launch by: --args, else what the capture has, the launch that was made most often."""
    given = arguments.args
    if given is not None and Path(given).is_file():
        read_launch(Path(given))
        return Path(given)
    if given is not None and not Path(given).exists():
        raise UsageError(f"--args {given}: no such file or folder")
    for place in (given,) if given is not None else targets:
        if found := _most_often(Path(place), arguments.launch):
            return found
    code_only = f"; `tritonhook diff {' '.join(targets)}` compares their code without" if len(targets) == 2 else ""
    raise UsageError(
        f"{given or targets[0]}: no recorded launch; record one with `tritonhook run --launches`, or give --args FILE"
        f"{code_only}"
    )


def _most_often(place: Path, key: str | None) -> Path | None:
    found = list(read_launches(place))
    with suppress(CaptureError):
        counted = CaptureFolder.open(place.absolute().parent.parent).launches(place.absolute().name)
        found = list(counted) or found
    return _file(_chosen(found, key))


def _chosen(found: Sequence[RecordedLaunch], key: str | None) -> RecordedLaunch | None:
    if key is None:
        return found[0] if found else None
    fitting = [one for one in found if one.key.startswith(key)]
    if len(fitting) != 1:
        listed = "\n  ".join(f"{one.key}  {one.launch.summary}" for one in found)
        raise UsageError(f"--launch {key}: {len(fitting)} launches of that name; there is:\n  {listed or '(none)'}")
    return fitting[0]


def _file(one: RecordedLaunch | None) -> Path | None:
    return None if one is None else one.folder / f"{one.key}.json"


# --- scripts and capture folders -----------------------------------------------------------------


def _check_gpu(script: str) -> None:
    """Raises DeviceError if what a script launches could not be timed. Loads no torch: the script will do that."""
    why = f"{script} was not run: a timed comparison needs torch and a GPU"
    if find_spec("torch") is None:
        raise DeviceError(f"{why}; torch is not installed")
    try:
        driver = Driver()
        driver.init()
        count = driver.device_count()
    except DeviceError as error:
        raise DeviceError(f"{why}; {error}") from None
    if not count:
        raise DeviceError(f"{why}; CUDA_VISIBLE_DEVICES leaves no GPU")


def _run_script(words: Sequence[str], out: Path) -> Path:
    """Run a script once, recording; its captures. Raises UsageError if it fails, DeviceError if nothing could be timed
    afterwards: that is not found out by running it."""
    from tritonhook.children import startup
    from tritonhook.ptx_capture import make_settings

    command = script_command(list(words), False)
    _check_gpu(words[0])
    settings = make_settings(out, launches=VALUES)
    print(f"running {words[0]} once, to record its launches ...", file=sys.stderr, flush=True)
    code = run_to_end(command, startup.environment(settings, os.environ), stdout=_STDERR)
    if code:
        raise UsageError(f"{words[0]} ended with status {code}: nothing was timed")
    if not (out / "index").is_dir():
        raise UsageError(f"{words[0]}: no kernel was seen: Triton was not used")
    return out


def _recorded(arguments: argparse.Namespace, label: str, captures: Path, folder: Path) -> Prepared:
    """The launch of a capture folder that takes most of the GPU's time in all, or that the options name."""
    seen = CaptureFolder.open(captures)
    wanted = [
        one
        for record in seen.records
        for one in seen.launches(record)
        if arguments.entry in (None, seen.capture(record).kernel) and one.key.startswith(arguments.launch or "")
    ]
    if not wanted:
        what = f" of {arguments.entry}" if arguments.entry else ""
        why = "".join(f"; {note}" for note in seen.notes)
        foreign = sorted({seen.capture(record).front_end for record in seen.records} - {"Triton"})
        if foreign:
            why += f"; launches of {', '.join(foreign)} kernels are not recorded: time them as MODULE:FUNCTION"
        elif seen.records:
            why += "; its kernels were compiled and not launched: is there a GPU?"
        raise UsageError(f"{label}: no launch{what} was recorded{why}")
    chosen = wanted[0]
    notes: list[str] = []
    if len(wanted) > 1:
        chosen, notes = _most_time(label, captures, wanted, seen)
    path = captures / "kernels" / chosen.record
    prepared = _one(arguments, str(path), _file(chosen) or path, folder)
    named = replace(prepared.plan, target=f"{label}: {seen.capture(chosen.record).kernel}")
    return Prepared(named, (*notes, f"launched as recorded: {chosen.launch.summary}", *prepared.notes))


def _most_time(
    label: str, captures: Path, wanted: Sequence[RecordedLaunch], seen: CaptureFolder
) -> tuple[RecordedLaunch, list[str]]:
    """Measure every launch roughly, and say what share of the time the chosen one has."""
    by_key = {(one.record, one.key): one for one in wanted}
    measured = [entry for entry in rough_times(captures) if (entry["record"], entry["launch"]) in by_key]
    usable = [entry for entry in measured if entry["us"] is not None]
    if not usable:
        raise UsageError(
            f"{label}: none of its launches can be launched again: {measured[0]['why'] if measured else ''}"
        )
    total = sum(entry["us"] * entry["count"] for entry in usable)
    lines = []
    for entry in usable[: _LISTED + 1]:
        share, name = entry["us"] * entry["count"] / total, seen.capture(entry["record"]).kernel
        lines.append(f"{name} {share:.0%} ({entry['count']} x {entry['us']:.1f} us, --launch {entry['launch']})")
    more = f", and {len(usable) - len(lines)} more" if len(usable) > len(lines) else ""
    failed = [f"{len(measured) - len(usable)} launches could not be repeated"] if len(usable) < len(measured) else []
    best = by_key[usable[0]["record"], usable[0]["launch"]]
    return best, [f"of the recorded launches' time: {'; '.join(lines)}{more}", *failed]
