"""Summaries of captures: the kernels of a folder, and one kernel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from tritonhook._util.demangle import demangled, function_name
from tritonhook.capture.model import META_LEVER, META_REWRITES, front_end_name
from tritonhook.report.format import UNKNOWN, count, flat, number, short, size, trigger
from tritonhook.report.summaries.autotuning import configuration, ranks, tunings, varying_options
from tritonhook.report.summary import Summary, Table, Tone

Cell = Callable[[Mapping[str, Any]], str]  # a kernel's text in a column
_SOURCE = ("function", "function_at", "kernel_at")  # in the metadata of some front ends


# --- a folder ------------------------------------------------------------------------------------


def captures_summary(document: Mapping[str, Any]) -> Summary:
    """A row for each kernel, in the document's order."""
    kernels, crashes, damaged = (document[key] for key in ("kernels", "crashes", "damaged"))
    renamed = sum(k["rewritten_from"] is not None for k in kernels)
    facts = [f"{renamed:,} renamed"] if renamed else []
    if document.get("hidden"):
        facts.append(f"{count(document['hidden'], 'kernel')} left out by --filter")
    if crashes:
        facts.append(f"ptxas failed {count(len(crashes), 'time')}")
    if damaged:
        facts.append(f"{count(len(damaged), 'record')} cannot be read")
    if shared := _shared(kernels):
        facts.append("; ".join(f"{name}: {text}" for name, text in shared.items()))
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
    kernels, varying = document["kernels"], varying_options(document["kernels"])
    names = names_of(kernels)
    columns: dict[str, Cell] = {"id": lambda k: str(k["id"]), "kernel": lambda k: names[k["kernel"]]}
    if varying:
        columns["differs in"] = lambda k: ", ".join(f"{n}={v}" for n, v in varying.get(k["record"], {}).items())
    columns |= {heading: cell for heading, cell in _COMMON.items() if heading not in _shared(kernels)}
    figures = columns | _FIGURES
    all_columns = figures | _further_columns(document)
    rows = tuple(tuple(cell(k) for cell in all_columns.values()) for k in kernels)
    headings = list(all_columns)
    return Table(
        "Kernels (stack, spill stores/loads, shared: bytes)",
        tuple(headings),
        rows,
        len(columns),
        words=tuple(range(len(figures), len(headings))),
        one_line=True,
        extra=tuple(headings.index(h) for h in headings if h in _EXTRA),
    )


def names_of(kernels: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Each kernel's name as people wrote it: without parameters, unless two kernels then had one name."""
    brief = {name: function_name(name) for name in {str(k["kernel"]) for k in kernels}}
    counts = Counter(brief.values())
    return {name: text if counts[text] == 1 else demangled(name) for name, text in brief.items()}


def _further_columns(document: Mapping[str, Any]) -> dict[str, Cell]:
    """What only some folders need: autotuning, renames, triggers, ranks; and what is shown only if asked for."""
    kernels, tuned = document["kernels"], tunings(document)
    columns: dict[str, Cell] = {}
    if tuned:
        columns["autotuned"] = lambda k: tuned.get(k["record"], "")
    if any(k["rewritten_from"] for k in kernels):
        columns["renamed from"] = lambda k: function_name(str(k["rewritten_from"] or ""))
    if any(k["trigger"]["name"] or k["trigger"]["pragma"] for k in kernels):
        columns["trigger"] = lambda k: trigger(k["trigger"])
    if len({s["rank"] for k in kernels for s in k["seen"]}) > 1:
        columns["ranks"] = ranks
    return columns | {"configuration": lambda k: configuration(k["options"]), "record": lambda k: str(k["record"])}


def _shared(kernels: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The target, the ptxas, the front end and the stages, where they are the same for all kernels."""
    found = {name: {cell(k) for k in kernels} for name, cell in _COMMON.items()}
    return {name: next(iter(texts)) for name, texts in found.items() if len(texts) == 1}


def resources_of(kernel: Mapping[str, Any]) -> Mapping[str, Any]:
    """Registers, stack and sizes; empty where there is no cubin, or none was read."""
    return kernel.get("resources") or {}


def resource(kernel: Mapping[str, Any], name: str) -> str:
    """A kernel without a cubin has none; of a cubin that cannot be read they are not known."""
    found = resources_of(kernel)
    if "cubin" not in kernel["stages"]:
        return "-"
    if name == "spills":
        return spills(found)
    return shared_memory(found) if name == "shared" else number(found.get(name))


def spills(resources: Mapping[str, Any]) -> str:
    """Bytes of spill stores and loads: "0", "72/68", or "not known"."""
    stores, loads = resources.get("spill_stores"), resources.get("spill_loads")
    if stores is None or loads is None:
        return UNKNOWN
    return "0" if stores == loads == 0 else f"{number(stores)}/{number(loads)}"


def shared_memory(resources: Mapping[str, Any]) -> str:
    """Bytes of shared memory; "1,024+" where the launch may add some that is not known here."""
    static, dynamic = resources.get("shared"), resources.get("dynamic_shared")
    if static is None:
        return UNKNOWN
    return f"{number(static)}+" if dynamic is None else number(static + dynamic)


def front_end(kernel: Mapping[str, Any]) -> str:
    """The compiler's name: Triton, or what called ptxas."""
    return front_end_name(str(kernel["metadata"].get("front_end") or "Triton"))


def stages(kernel: Mapping[str, Any]) -> str:
    """What was kept of a kernel, from source to machine code."""
    found = [str(stage) for stage in kernel["stages"]]
    return "binary only" if found == ["cubin"] else " ".join(found)


_COMMON: dict[str, Cell] = {
    "target": lambda k: str(k["arch"]),
    "ptxas": lambda k: number(k["ptxas"]["version"]),
    "front end": front_end,
    "stages": stages,
}
RESOURCES = {"regs": "registers", "spills": "spills", "stack": "stack", "shared": "shared", "instrs": "instructions"}
_FIGURES: dict[str, Cell] = {heading: partial(resource, name=name) for heading, name in RESOURCES.items()} | {
    "code": lambda k: resource(k, "code_bytes"),
    "compiled": lambda k: number(sum(not s["cache_hit"] for s in k["seen"])),
    "from cache": lambda k: number(sum(bool(s["cache_hit"]) for s in k["seen"])),
}
_EXTRA = ("stages", "code", "compiled", "from cache", "configuration", "record")


# --- one capture ---------------------------------------------------------------------------------


def capture_summary(document: Mapping[str, Any]) -> Summary:
    """How one kernel was compiled."""
    facts = []
    if document["rewritten_from"]:
        facts.append(f"renamed from {document['rewritten_from']}")
    if rewrites := document["metadata"].get(META_REWRITES):
        facts.append(f"rewritten by {rewrites}")
    if lever := document["metadata"].get(META_LEVER):
        facts.append(f"changed by the policy's lever {lever}")
    if document["cache_hit"] is not None:
        facts.append("taken from Triton's disk cache" if document["cache_hit"] else "compiled here")
    if document["note"]:
        facts.append(str(document["note"]))
    facts += [f"warning: {warning}" for warning in document.get("warnings") or ()]
    kernel = str(document["kernel"])
    tables = [Table("Kernel", ("", ""), tuple(_kernel_rows(document)), 2)]
    if document["options"]:
        tables.append(options_table(document))
    notes = tuple(map(str, document.get("notes") or ()))
    return Summary("Capture", kernel, function_name(kernel), Tone.NEUTRAL, tuple(facts), tuple(tables), notes)


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
    rows += _resource_rows(resources)
    rows += [("stages", stages(document)), ("hash", str(document["hash"]))]
    if document.get("path"):
        rows.append(("files", str(document["path"])))
    return rows


def _resource_rows(resources: Mapping[str, Any]) -> list[tuple[str, str]]:
    if not resources:
        return []
    given = {name: resources.get(name) for name in ("spill_stores", "spill_loads", "local_stores", "local_loads")}
    rows = [("registers", number(resources["registers"])), ("stack", number(resources["stack"], "bytes"))]
    rows += [(f"spill {what}", number(given[f"spill_{what}"], "bytes")) for what in ("stores", "loads")]
    if given["spill_stores"] is None and given["local_stores"] is not None:
        stores, loads = number(given["local_stores"]), number(given["local_loads"])
        rows.append(("local memory", f"{stores} bytes stored, {loads} loaded: spills, or variables of the kernel"))
    rows.append(("shared memory", f"{shared_memory(resources)} bytes"))
    instructions, code = number(resources["instructions"]), size(resources["code_bytes"])
    return [*rows, ("instructions", f"{instructions} ({code})")]


def options_table(document: Mapping[str, Any]) -> Table:
    """What decides the code besides the source."""
    rows = [
        (name if "." in name else name.replace("_", " "), short(value, 400))
        for name, value in flat(document["options"])
    ]
    return Table("Options", ("", ""), tuple(rows), 2)
