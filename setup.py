"""What the wheel holds: tritonhook alone, and what it is made of, a CycloneDX document in .dist-info/sboms (PEP 770).

`gluon_kernels` and `sm120_attn` stay in the source: `pip install -e .` in a clone has them. All else is in
pyproject.toml.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

_NAME = re.compile(r"[A-Za-z0-9._-]+")


def bill_of_materials(name: str, version: str, requirements: list[str]) -> dict[str, Any]:
    """List the package and its requirements at run time. The wheel itself has no code of others. The list has no time
    and no random number: the same source gives the same wheel."""
    needed = {found[0].lower(): text for text in requirements if (found := _NAME.match(text))}
    licence = [{"license": {"id": "Apache-2.0"}}]
    own = {"type": "library", "bom-ref": name, "name": name, "version": version, "licenses": licence}
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": own | {"purl": f"pkg:pypi/{name}@{version}"}},
        "components": [_needed(needed_name, text) for needed_name, text in needed.items()],
        "dependencies": [{"ref": name, "dependsOn": list(needed)}],
    }


def _needed(name: str, text: str) -> dict[str, Any]:
    """Describe a requirement. Only its version range is known: pip chooses the version."""
    properties = [{"name": "python:requirement", "value": text}]
    return {"type": "library", "bom-ref": name, "name": name, "purl": f"pkg:pypi/{name}", "properties": properties}


class WheelWithBill(bdist_wheel):
    def egg2dist(self, egginfo_path: str, distinfo_path: str) -> None:
        super().egg2dist(egginfo_path, distinfo_path)
        about = self.distribution
        bill = bill_of_materials(about.get_name(), about.get_version(), list(about.install_requires))
        folder = Path(distinfo_path) / "sboms"
        folder.mkdir(exist_ok=True)
        (folder / f"{about.get_name()}.cdx.json").write_text(json.dumps(bill, indent=1) + "\n")


class BuildTritonhook(build_py):
    """Leaves out the packages of attention kernels: a fifth of the code, and no part of tritonhook imports them."""

    def finalize_options(self) -> None:
        super().finalize_options()
        if not self.editable_mode:
            self.packages = [name for name in self.packages if name.partition(".")[0] == "tritonhook"]


setup(cmdclass={"bdist_wheel": WheelWithBill, "build_py": BuildTritonhook})
