"""Summaries of captures: the kernels of a folder, and one kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tritonhook.report.format import count, flat, number, short, size, trigger
from tritonhook.report.summaries.autotuning import configuration, has_variants, ranks, tunings
from tritonhook.report.summary import Summary, Table, Tone

Cell = Callable[[Mapping[str, Any]], str]  # a kernel's text in a column
_RESOURCES = ("registers", "stack", "shared", "spill_stores", "spill_loads")
_SOURCE = ("function", "function_at", "kernel_at")  # in the metadata of some front ends


# --- a folder ------------------------------------------------------------------------------------


def captures_summary(document: Mapping[str, Any]) -> Summary:
    """A row for each kernel, the largest first. Raises KeyError, TypeError or ValueError if it is damaged."""
    kernels, crashes, damaged = (document[key] for key in ("kernels", "crashes", "damaged"))
    renamed = sum(k["rewritten_from"] is not None for k in kernels)
    facts = [f"{renamed:,} renamed"] if renamed else []
    if crashes:
        facts.append(f"ptxas crashed {count(len(crashes), 'time')}")
    if damaged:
        facts.append(f"{count(len(damaged), 'record')} cannot be read")
    facts += [f"{name}: {text}" for name, text in _shared(kernels).items()]
    notes = [*map(str, document.get("notes") or ())]
    notes += [f"{item['record']}: {item['error']}" for item in damaged]
    notes += [f"ptxas failed; see {path}" for path in crashes]
    if document["torn_lines"]:
        lines = count(document["torn_lines"], "index line")
        notes.append(f"{lines} cannot be read: cut short by a process that died, or damaged")
    processes = count(len(document["processes"]), "process", "processes")
    return Summary(
        "Captures",
        str(document["path"]),
        f"{count(len(kernels), 'kernel')} of {processes}",
        Tone.BAD if crashes else Tone.UNSURE if damaged or not kernels else Tone.NEUTRAL,
        tuple(facts),
        (_kernels(document),) if kernels else (),
        tuple(notes),
    )


def _kernels(document: Mapping[str, Any]) -> Table:
    kernels = sorted(document["kernels"], key=lambda k: -(resources_of(k).get("code_bytes") or 0))
    names: dict[str, Cell] = {
        "kernel": lambda k: str(k["kernel"]),
        "target": lambda k: str(k["arch"]),
        "ptxas": lambda k: number(k["ptxas"]["version"]),
    }
    figures: dict[str, Cell] = {
        "registers": lambda k: _resource(k, "registers"),
        "stack, bytes": lambda k: _resource(k, "stack"),
        "code, bytes": lambda k: _resource(k, "code_bytes"),
        "compiled": lambda k: number(sum(not s["cache_hit"] for s in k["seen"])),
        "from cache": lambda k: number(sum(bool(s["cache_hit"]) for s in k["seen"])),
    }
    columns = names | figures | _further_columns(document)
    rows = tuple(tuple(cell(k) for cell in columns.values()) for k in kernels)
    words = range(len(names) + len(figures), len(columns))
    return Table("Kernels", tuple(columns), rows, len(names), words=tuple(words))


def _further_columns(document: Mapping[str, Any]) -> dict[str, Cell]:
    """What only some folders need: front ends and stages that differ, configurations, autotuning, ranks, renames,
    triggers."""
    kernels, tuned = document["kernels"], tunings(document)
    columns = {name: cell for name, cell in _OFTEN_SHARED.items() if name not in _shared(kernels)}
    if any(k["rewritten_from"] for k in kernels):
        columns["renamed from"] = lambda k: str(k["rewritten_from"] or "")
    if any(k["trigger"]["name"] or k["trigger"]["pragma"] for k in kernels):
        columns["trigger"] = lambda k: trigger(k["trigger"])
    if has_variants(document):
        columns["configuration"] = lambda k: configuration(k["options"])
    if tuned:
        columns["autotuned"] = lambda k: tuned.get(k["record"], "")
    if len({s["rank"] for k in kernels for s in k["seen"]}) > 1:
        columns["ranks"] = ranks
    return columns


def _shared(kernels: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The front end and the stages, where they are the same for all kernels."""
    found = {name: {cell(k) for k in kernels} for name, cell in _OFTEN_SHARED.items()}
    return {name: next(iter(texts)) for name, texts in found.items() if len(texts) == 1}


def resources_of(kernel: Mapping[str, Any]) -> Mapping[str, Any]:
    """Registers, stack and sizes; empty where there is no cubin, or none was read."""
    return kernel.get("resources") or {}


def _resource(kernel: Mapping[str, Any], name: str) -> str:
    """A kernel without a cubin has none; of a cubin that cannot be read they are not known."""
    return number(resources_of(kernel).get(name)) if "cubin" in kernel["stages"] else "-"


def front_end(kernel: Mapping[str, Any]) -> str:
    """The compiler's name: Triton, or what called ptxas."""
    return str(kernel["metadata"].get("front_end") or "Triton")


def stages(kernel: Mapping[str, Any]) -> str:
    """What was kept of a kernel, from source to machine code."""
    found = [str(stage) for stage in kernel["stages"]]
    return "binary only" if found == ["cubin"] else " ".join(found)


_OFTEN_SHARED: dict[str, Cell] = {"front end": front_end, "stages": stages}


# --- one capture ---------------------------------------------------------------------------------


def capture_summary(document: Mapping[str, Any]) -> Summary:
    """How one kernel was compiled. Raises KeyError, TypeError or ValueError if the document is damaged."""
    facts = []
    if document["rewritten_from"]:
        facts.append(f"renamed from {document['rewritten_from']}")
    if document["cache_hit"] is not None:
        facts.append("taken from Triton's disk cache" if document["cache_hit"] else "compiled here")
    if document["note"]:
        facts.append(str(document["note"]))
    facts += [f"warning: {warning}" for warning in document.get("warnings") or ()]
    kernel = str(document["kernel"])
    tables = [Table("Kernel", ("", ""), tuple(_kernel_rows(document)), 2)]
    if document["options"]:
        tables.append(options_table(document))
    return Summary("Capture", kernel, kernel, Tone.NEUTRAL, tuple(facts), tuple(tables))


def _kernel_rows(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    ptxas, resources = document["ptxas"], resources_of(document)
    rows = [("front end", front_end(document)), ("target", str(document["arch"]))]
    rows += [(name.replace("_", " "), str(value)) for name in _SOURCE if (value := document["metadata"].get(name))]
    rows.append(("ptxas", number(ptxas["version"])))
    if ptxas["path"]:
        rows.append(("path of ptxas", str(ptxas["path"])))
    if ptxas["arguments"] is not None:
        rows.append(("ptxas options", " ".join(map(str, ptxas["arguments"]))))
    rows.append(("trigger", trigger(document["trigger"])))
    rows += [(key.replace("_", " "), number(resources[key])) for key in _RESOURCES if key in resources]
    if "code_bytes" in resources:
        rows.append(("code", size(resources["code_bytes"])))
    rows += [("stages", stages(document)), ("hash", str(document["hash"]))]
    if document.get("path"):
        rows.append(("files", str(document["path"])))
    return rows


def options_table(document: Mapping[str, Any]) -> Table:
    """What decides the code besides the source."""
    rows = [(name.replace("_", " "), short(value, 400)) for name, value in flat(document["options"])]
    return Table("Options", ("", ""), tuple(rows), 2)
