"""Print what CHANGELOG.md says of a version, for its release: `python .ci/release_notes.py v0.1.0`.

Exit code 1 where the tag is not of the version in tritonhook/__init__.py, or the changelog has no text for it.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def notes(tag: str, version: str, changelog: str, base: str = "") -> str:
    """The section of the version. base: goes before links to files, as a release has no folder. Raises ValueError."""
    if tag != f"v{version}":
        raise ValueError(f"the tag is {tag}, and tritonhook.__version__ is {version}: tag v{version}, or change it")
    found = re.search(rf"^## \[{re.escape(version)}\][^\n]*\n(.*?)(?=^## \[|^\[[^\]]+\]: |\Z)", changelog, re.M | re.S)
    if found is None or not found[1].strip():
        raise ValueError(f"CHANGELOG.md has no text below a heading [{version}]: rename [Unreleased]")
    return re.sub(r"\]\((?!\w+:|#)", f"]({base}", found[1].strip()) + "\n"


def main() -> int:
    version = re.search(r'^__version__ = "(.+)"$', (ROOT / "tritonhook" / "__init__.py").read_text(), re.M)
    assert version is not None
    tag, server, repository = sys.argv[1], os.environ.get("GITHUB_SERVER_URL"), os.environ.get("GITHUB_REPOSITORY")
    base = f"{server}/{repository}/blob/{tag}/" if server and repository else ""
    try:
        print(notes(tag, version[1], (ROOT / "CHANGELOG.md").read_text(), base), end="")
    except ValueError as error:
        print(f"release_notes: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
