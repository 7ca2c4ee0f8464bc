"""A pair of fp8 numbers in both halves of a register: which ptxas assemble it wrongly? Assembled, nothing is executed.

    python benchmarks/lab/ptxas_fp8_pairs.py [--add VERSION,...] [--out FILE]

`cvt.rn.satfinite.e4m3x2.f32 h, x, y; mov.b32 r, {h, h};` is a kernel's only work, for each ptxas at hand, target, type
and way to write it. It is *wrong* if a conversion merges its result with a register that no conversion has written.
--add downloads further ptxas first, as `tritonhook ptxas add` does. The evidence is the machine code in each sample.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from itertools import product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for common.py
from common import RESULTS, environment, write_json

TARGETS = ("sm_89", "sm_90a", "sm_100a", "sm_120a")
TYPES = ("e4m3x2", "e5m2x2")
CONVERSION = "cvt.rn.satfinite.{type}.f32"
WAYS = {
    "a constant twice": "{cvt} h, 0f3F800000, 0f3F800000; mov.b32 r, {{h, h}};",
    "two constants": "{cvt} h, 0f3F800000, 0f40000000; mov.b32 r, {{h, h}};",
    "two numbers": "{cvt} h, x, y; mov.b32 r, {{h, h}};",
    "two equal conversions": "{cvt} h, x, y; {cvt} g, x, y; mov.b32 r, {{h, g}};",
    "other halves": "{cvt} h, x, y; {cvt} g, y, x; mov.b32 r, {{h, g}};",
}
MODULE = """.version {version}
.target {target}
.address_size 64
.visible .entry pairs(.param .u64 out)
{{
.reg .b64 p; .reg .b32 r; .reg .b16 h, g; .reg .f32 x, y;
ld.param.u64 p, [out]; cvta.to.global.u64 p, p; mov.u32 r, %tid.x; mad.wide.u32 p, r, 8, p;
ld.global.f32 x, [p]; ld.global.f32 y, [p+4];
{body}
st.global.b32 [p], r;
ret;
}}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--add", default="", help="versions of ptxas to download, with commas")
    parser.add_argument("--out", type=Path, default=RESULTS / "ptxas_fp8_pairs.json")
    arguments = parser.parse_args()
    from tritonhook._util.versions import version_key
    from tritonhook.ptxas.discovery import available_ptxas
    from tritonhook.ptxas.install import add_ptxas

    for version in filter(None, arguments.add.split(",")):
        add_ptxas(version)
    tools = {tool.version: tool for tool in available_ptxas()}
    samples = []
    for version in sorted(tools, key=version_key):
        found = [
            sample
            for target, type_, way in product(TARGETS, TYPES, WAYS)
            if (sample := assembled(tools[version], target, type_, way))
        ]
        samples += found
        wrong = sorted({sample["way"] for sample in found if sample["wrong"]})
        print(f"ptxas {version}: {sum(s['wrong'] for s in found)} of {len(found)} wrong {wrong}", flush=True)
    document = {
        "format": 1,
        "evidence": "assembled",
        "environment": environment("tritonhook"),
        "samples": samples,
        "summary": summary(samples),
    }
    write_json(arguments.out, document)
    print(document["summary"], f"wrote {arguments.out}")


def assembled(ptxas: Any, target: str, type_: str, way: str) -> dict[str, Any] | None:
    """None where this ptxas does not assemble for that target."""
    from tritonhook.ptx.module import Ptx
    from tritonhook.ptxas.assembler import Assembled, assemble
    from tritonhook.ptxas.disassembler import run_nvdisasm
    from tritonhook.ptxas.discovery import find_nvdisasm

    body = WAYS[way].format(cvt=CONVERSION.format(type=type_))
    for version in ("8.7", "8.6", "8.4", "7.8"):  # newer targets ask for newer ones, older ptxas read older ones
        ptx = Ptx.from_bytes(MODULE.format(version=version, target=target, body=body).encode())
        made = assemble(ptxas, ptx, [f"--gpu-name={target}"])
        if isinstance(made, Assembled):
            _, functions = json.loads(run_nvdisasm(find_nvdisasm(), made.cubin.data))
            (code,) = ([text(i) for i in function["sass-instructions"]] for function in functions)
            shown = [line for line in code if line.startswith(("F2FP", "PRMT"))]
            return {
                "ptxas": ptxas.version,
                "target": target,
                "type": type_,
                "way": way,
                "wrong": keeps_garbage(code),
                "code": shown,
            }
    return None


def text(instruction: dict[str, Any]) -> str:
    return f"{instruction['opcode']} {instruction.get('operands', '')}".strip()


def keeps_garbage(code: list[str]) -> bool:
    """Whether the last conversion keeps half of a register that no conversion has written (PRMT ends that)."""
    converted = {"RZ"}
    wrong = False
    for line in code:
        if match := re.match(r"F2FP\S*MERGE_C (R\d+),.*\b(RZ|R\d+)(?:\.H\d)?$", line):
            wrong = match[2] not in converted
            converted.add(match[1])
        elif line.startswith("PRMT"):
            wrong = False  # takes the halves that were converted
    return wrong


def summary(samples: list[dict[str, Any]]) -> dict[str, Any]:
    versions = list(dict.fromkeys(sample["ptxas"] for sample in samples))
    wrong = list(dict.fromkeys(sample["ptxas"] for sample in samples if sample["wrong"]))
    ways = sorted({sample["way"] for sample in samples if sample["wrong"]})
    return {"samples": len(samples), "ptxas": versions, "wrong_ptxas": wrong, "wrong_ways": ways}


if __name__ == "__main__":
    main()
