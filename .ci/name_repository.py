"""Let what is built name the repository that releases it: `python .ci/name_repository.py v0.1.0`.

Adds `[project.urls]` to pyproject.toml, and makes the links of README.md absolute: a package index has no files beside
it. The address is that of GITHUB_SERVER_URL and GITHUB_REPOSITORY; the source has none, so that a fork names itself.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def urls(repository: str, tag: str) -> str:
    """The table of pyproject.toml."""
    named = {"Source": "", "Issues": "/issues", "Changelog": f"/blob/{tag}/CHANGELOG.md"}
    return "\n[project.urls]\n" + "".join(f'{name} = "{repository}{path}"\n' for name, path in named.items())


def absolute(text: str, repository: str, tag: str) -> str:
    """Markdown whose links and pictures lead into the repository."""
    text = re.sub(r"(!\[[^\]]*\])\((?!\w+:)", rf"\1({repository}/raw/{tag}/", text)
    return re.sub(r"\]\((?!\w+:|#)", f"]({repository}/blob/{tag}/", text)


def main() -> None:
    repository, tag = f"{os.environ['GITHUB_SERVER_URL']}/{os.environ['GITHUB_REPOSITORY']}", sys.argv[1]
    with (ROOT / "pyproject.toml").open("a") as project:
        project.write(urls(repository, tag))
    readme = ROOT / "README.md"
    readme.write_text(absolute(readme.read_text(), repository, tag))


if __name__ == "__main__":
    main()
