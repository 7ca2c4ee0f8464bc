"""Write the tables about the emulator from the committed result of benchmarks/emulate.py."""

from __future__ import annotations

from itertools import groupby

from results import markdown, result


def figures() -> str:
    """What was understood and found."""
    found = result("emulate")["summary"]
    understood = found["kernels"] - found["verdicts"].get("not understood", 0)
    rows = [
        (
            f"kernels of libraries ({found['with_mma']} with mma or wgmma)",
            f"{found['kernels']:,}",
        ),
        ("understood in both forms", f"{understood:,}"),
        ("machine code stores what the PTX stores, bit by bit", f"{found['verdicts'].get('same', 0):,}"),
        ("seconds for two CTAs, from PTX or from machine code: median", f"{found['seconds_median']:.1f}"),
        ("known miscompilations found", f"{found['known_found']} of {found['known']}"),
        ("builds of these that an H200 ran as well", f"{found['known_cells_of_h200']:,}"),
        ("of those, emulated with the H200's verdict", f"{found['known_cells_as_h200']:,}"),
    ]
    if found["altered_of_h200"]:
        rows += [
            ("cubins with one altered instruction that an H200 ran as well", f"{found['altered_of_h200']:,}"),
            ("of those, emulated with the H200's verdict", f"{found['altered_as_h200']:,}"),
        ]
    rows += [
        (
            "wrongly assembled forms of these miscompilations found",
            f"{found['forms_wrong_found']:,} of {found['forms_wrong']:,}",
        ),
        ("kernels that were SAME on an H200, all builds verified, -O0 among them", f"{found['verified']:,}"),
        ("of those, called wrong", f"{found['false_different']:,}"),
    ]
    return markdown(("emulated", ""), rows)


def opcodes(form: str) -> str:
    """The opcodes that are understood, by their first part. form: "ptx" or "sass"."""
    names = result("emulate")["opcodes"][form]
    rows = [
        (f"`{first}`", ", ".join(f"`{name}`" for name in several if name != first))
        for first, several in groupby(names, lambda name: name.partition(".")[0])
    ]
    if form == "sass":
        return "\n" + ", ".join(first for first, _ in rows) + "\n\n"
    return markdown(("opcode", "forms that are listed apart"), rows)
