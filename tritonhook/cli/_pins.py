"""The winners of a run's autotunings, as pins of a policy."""

from __future__ import annotations

from datetime import date
from pathlib import Path

from tritonhook.capture.model import Capture
from tritonhook.capture.policy.file import read_entries, read_pins, write_policy
from tritonhook.capture.policy.pins import Pin
from tritonhook.capture.store import CaptureFolder
from tritonhook.device.cuda_driver import gpu_name
from tritonhook.report.format import count


def pins_of(folder: CaptureFolder, gpu: str) -> list[Pin]:
    """A pin for each autotuned function and key. gpu: the name of the GPU that measured; "" where not known."""
    pins = []
    for tuned in folder.configurations:
        winner = folder.try_capture(tuned.chosen)
        if isinstance(winner, Capture) and tuned.chosen in tuned.by_record:
            config = tuned.by_record[tuned.chosen]
            where = gpu, date.today().isoformat(), tuned.source
            pins.append(Pin(tuned.function, winner.arch, tuned.key, config, None, *where))
    return pins


def keep_pins(path: Path, folder: CaptureFolder) -> str:
    """Write the winners to a policy beside what it has; a pin of the same function, target, key and GPU is replaced.
    Returns a note. Raises PolicyError."""
    won = pins_of(folder, gpu_name())
    entries, pins = (read_entries(path), read_pins(path)) if path.exists() else ((), ())
    if not won:
        return f"{path} stays as it is: no autotuner measured; a winner from a cache of autotuning is not seen"
    kept = {pin.identity: pin for pin in (*pins, *won)}
    changed = sum(pinned.identity in {pin.identity for pin in pins} and pinned not in pins for pinned in won)
    write_policy(path, entries, [kept[identity] for identity in sorted(kept)])
    again = f", of which {changed:,} had another one" if changed else ""
    return f"wrote {path}: {count(len(won), 'winner')} of autotuning pinned{again}"
