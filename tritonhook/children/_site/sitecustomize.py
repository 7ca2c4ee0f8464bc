"""Start tritonhook in processes under `tritonhook run`: Python runs this file because it is first in PYTHONPATH, or
because a .pth file runs it. See bootstrap.py.

The package is loaded from its own folder, and sys.path is not changed, so that the child process imports the same
modules as without tritonhook.
"""

import importlib.util
import sys
from pathlib import Path


def _begin() -> None:
    package = Path(__file__).resolve().parents[2]
    if importlib.util.find_spec("tritonhook") is None:
        spec = importlib.util.spec_from_file_location("tritonhook", package / "__init__.py")
        if spec is None or spec.loader is None:
            return
        module = importlib.util.module_from_spec(spec)
        sys.modules["tritonhook"] = module
        spec.loader.exec_module(module)
    from tritonhook.children import bootstrap

    bootstrap.begin(then_users=__name__ == "sitecustomize")


_begin()
