"""Find imports by name, which import-linter does not see: `import_module("tritonhook.report")` below `report`.

    python .ci/named_imports.py PACKAGE      exit 1 where a module of the package names another one

A name that is computed may only lead to the module's own package: `f"{__name__}.part"`. The modules in COMPUTED do
that, or import what a user names.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

COMPUTED = {
    "tritonhook/__init__.py",  # the names of its public interface
    "tritonhook/_util/imports.py",  # a package's own modules; MODULE:FUNCTION of a user
    "tritonhook/cli/_parser.py",  # the verbs of a package
    "tritonhook/report/pages/__init__.py",
    "tritonhook/report/result.py",  # the kinds of results
    "tritonhook/snapshot/kernels.py",  # pandas or polars
}


def faults(path: Path, package: str) -> Iterator[str]:
    """Yield a line for each import by name that the contract ought to see."""
    if path.as_posix() in COMPUTED:
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called not in ("import_module", "__import__"):
            continue
        name = node.args[0] if node.args else None
        if not isinstance(name, ast.Constant):
            yield f"{path}:{node.lineno}: a computed name; write an import, or add the module to COMPUTED"
        elif str(name.value).split(".")[0] == package:
            yield f"{path}:{node.lineno}: write `import {name.value}`, which the import contract sees"


if __name__ == "__main__":
    package = sys.argv[1]
    found = [line for path in sorted(Path(package).rglob("*.py")) for line in faults(path, package)]
    print("\n".join(found) or "no module is imported by name")
    sys.exit(bool(found))
