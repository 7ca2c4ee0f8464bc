"""Write the tables about miscompilations by ptxas: known bugs, and findings of `tritonhook verify`."""

from __future__ import annotations

from collections.abc import Iterable

from results import markdown, result


def miscompilations(published: bool = True) -> str:
    """List known miscompilations with versions, targets, source and evidence; published=False: only this project's."""
    document = result("miscompiles")
    wrong: dict[str, dict[str, list[str]]] = {}
    for one in document["samples"]:
        if one["example"] == "wrong":
            wrong.setdefault(one["bug"], {}).setdefault(one["target"], []).append(one["ptxas"])
    rows = []
    for bug in document["bugs"]:
        if bug["sources"] and not published:
            continue
        targets = wrong[bug["bug"]]
        versions = sorted({version for several in targets.values() for version in several}, key=_version)
        row = (f"`{bug['bug']}`", f"{versions[0]} to {versions[-1]}", _listed_targets(targets))
        source = ", ".join(f"[{_cited(url)}]({url})" for url in bug["sources"]) or "this project"
        evidence = "executed" if bug["executed"] else "assembled"
        rows.append((*row, source, evidence) if published else row)
    header = ("bug", "wrong in ptxas", "targets", "published", "evidence")
    if published:
        return markdown(header, rows)
    rest = [f"`{bug['bug']}`" for bug in document["bugs"] if not bug["sources"] and not bug["executed"]]
    return markdown(header[:3], rows) + f"Each was *executed*{', except ' if rest else ''}{', '.join(rest)}.\n\n"


def miscompiled_programs() -> str:
    """Write the example of each bug."""
    bugs = result("miscompiles")["bugs"]
    examples = (f"`{bug['bug']}`:\n\n```text\n{bug['lines'].replace('; ', f';{chr(10)}')}\n```\n" for bug in bugs)
    return "\n" + "\n".join(examples) + "\n"


def miscompilation_remedies() -> str:
    """List the effect and the remedy of each bug."""
    bugs = result("miscompiles")["bugs"]
    return (
        "\n"
        + "\n".join(f"- `{bug['bug']}`: ptxas {bug['does']}. {bug['remedy'].capitalize()}." for bug in bugs)
        + "\n\n"
    )


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def _listed_targets(targets: Iterable[str]) -> str:
    every = {one["target"] for one in result("miscompiles")["samples"]}
    return "all" if set(targets) == every else ", ".join(targets)


def _cited(url: str) -> str:
    owner, _, rest = url.removeprefix("https://github.com/").partition("/")
    name, _, place = rest.partition("/")
    number = place.rpartition("/")[2]
    return (
        f"{name}#{number}" if number.isdigit() else f"{name}: {number.split('-')[0]}" if number else f"{owner}/{name}"
    )


def patterns() -> str:
    """State how many variants of the examples the patterns find, and how many correct ones they match."""
    forms = result("equivalent_forms")["summary"]
    return (
        f"\nOf {forms['forms']:,} variants of the examples (*emulated*) {forms['wrong']:,} are assembled wrongly: the "
        f"patterns find {forms['found']:,} of them, and match {forms['right_but_found']} correct ones.\n\n"
    )


def verified() -> str:
    """Write the verdicts of `verify` on real kernels, altered cubins and known bugs."""
    found = result("verify_h200")["summary"]
    verdicts = ", ".join(f"{number} {verdict}" for verdict, number in sorted(found["verdicts"].items()))
    same, reasons = found["seeded"]["SAME"], found["seeded_same_for_a_reason"]
    altered = f"{found['seeded']['DIFFERENT']} DIFFERENT, {same} SAME, {reasons} of them expected"
    rows = [
        ("kernels of programs", f"{found['kernels']} run, {found['skipped']} skipped: {verdicts}"),
        ("DIFFERENT or CRASH, not explained", f"{found['accusations_not_explained']} of {found['accusations']}"),
        ("time of a kernel, assembling included", f"median {found['seconds_per_kernel_median']:.2f} s"),
        ("known bugs of ptxas", f"{found['known_found']} of {found['known_tried']} found"),
        ("cubins with one altered instruction", altered),
        ("reproducers", f"at most {found['minimised_lines_most']} lines, {found['minimised_seconds_most']:.0f} s"),
    ]
    return markdown(("on an H200", "found"), rows)
