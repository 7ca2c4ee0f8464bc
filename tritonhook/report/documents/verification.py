"""The document of a verification: each kernel's verdict, its builds, and what they stored differently."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tritonhook.verify.differential import Verified
from tritonhook.verify.judgement import Finding
from tritonhook.verify.model import Build, Verdict

FORMAT = 1


def verification_document(target: str, device: str | None, found: Sequence[Verified]) -> dict[str, Any]:
    """Verified kernels as JSON values."""
    counts = {verdict.value: sum(one.verdict is verdict for one in found) for verdict in Verdict}
    return {
        "format": FORMAT,
        "kind": "verification",
        "target": target,
        "device": device,
        "counts": counts,
        "kernels": [kernel_document(one) for one in found],
    }


def kernel_document(one: Verified) -> dict[str, Any]:
    worst = one.judgement.worst
    return {
        "kernel": one.kernel,
        "launch": one.launch,
        "verdict": one.verdict.value,
        "reason": worst.text if worst is not None else "",
        "input": worst.input if worst is not None else "",
        "builds": [_build(build) for build in one.builds],
        "same_code": [list(pair) for pair in one.same_code],
        "not_built": [asdict(failed) for failed in one.failed],
        "inputs": list(dict.fromkeys(ran.input for ran in one.ran)),
        "findings": [_finding(finding) for finding in one.judgement.findings],
        "groups": [list(group) for group in one.groups],
        "region": None if one.region is None else asdict(one.region),
        "notes": list(one.notes),
        "seconds": round(one.seconds, 3),
    }


def _build(build: Build) -> dict[str, Any]:
    return {"label": build.label, "ptxas": build.ptxas, "options": list(build.options)}


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "verdict": finding.verdict.value,
        "text": finding.text,
        "input": finding.input,
        "build": finding.build,
        "difference": None if finding.difference is None else asdict(finding.difference),
    }
