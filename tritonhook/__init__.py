"""See, compare and time the machine code of Triton, CuTe and CUDA kernels, with or without a GPU.

    import tritonhook
    tritonhook.enable()                       # capture every kernel Triton compiles or takes from cache
    tritonhook.enable(rename="cutlass_")      # and also put a prefix before their names

Importing this package loads neither triton nor torch nor any tool: each name is loaded at its first use.

PYTEST_DONT_REWRITE: keeps pytest from warning that it cannot rewrite this module's asserts. Under `tritonhook run` the
module is imported before pytest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tritonhook._display import Notebook as _Notebook

if TYPE_CHECKING:
    from tritonhook import memwatch as memwatch
    from tritonhook.capture.model import Capture as Capture
    from tritonhook.capture.model import Stage as Stage
    from tritonhook.capture.session import Session as Session
    from tritonhook.capture.store import CaptureFolder as CaptureFolder
    from tritonhook.compare.diff import CodeVerdict
    from tritonhook.compare.diff import CubinDiff as CubinDiff
    from tritonhook.compare.names import NameComparison as NameComparison
    from tritonhook.compare.names import compare_names as compare_names
    from tritonhook.compare.names import diff_cubins as diff_cubins
    from tritonhook.cubin.image import Cubin as Cubin
    from tritonhook.errors import TritonHookError as TritonHookError
    from tritonhook.ptx.cta_loads import ClusterToCta as ClusterToCta
    from tritonhook.ptx.module import Ptx as Ptx
    from tritonhook.ptx_capture import disable as disable
    from tritonhook.ptx_capture import enable as enable
    from tritonhook.ptx_capture import session as session
    from tritonhook.ptx_capture import status as status
    from tritonhook.ptxas.toolchain import Toolchain as Toolchain
    from tritonhook.ptxas.toolchain import find_toolchain as find_toolchain
    from tritonhook.rename import Rename as Rename
    from tritonhook.rename import Rewrite as Rewrite
    from tritonhook.snapshot.kernels import diff as diff
    from tritonhook.snapshot.kernels import load as load

    Verdict = CodeVerdict

__version__ = "0.1.0"

_HOME = {
    # capturing and rewriting in a Triton program
    "enable": "ptx_capture",
    "disable": "ptx_capture",
    "session": "ptx_capture",
    "status": "ptx_capture",
    "Session": "capture.session",
    "Rename": "rename",
    "Rewrite": "rename",
    "ClusterToCta": "ptx.cta_loads",
    # reading captures
    "CaptureFolder": "capture.store",
    "Capture": "capture.model",
    "Stage": "capture.model",
    "load": "snapshot.kernels",
    "diff": "snapshot.kernels",
    # comparing
    "Ptx": "ptx.module",
    "Cubin": "cubin.image",
    "CubinDiff": "compare.diff",
    "Verdict": "compare.diff:CodeVerdict",
    "NameComparison": "compare.names",
    "compare_names": "compare.names",
    "diff_cubins": "compare.names",
    "Toolchain": "ptxas.toolchain",
    "find_toolchain": "ptxas.toolchain",
    "TritonHookError": "errors",
}
__all__ = [*_HOME, "__version__"]


def _view(value: Any) -> str | None:
    """Convert a value to Markdown for a notebook. The report package is loaded at the first call."""
    from tritonhook.report.render.notebook import view

    return view(value)


_Notebook.view = staticmethod(_view)


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "memwatch":  # so that `tritonhook.memwatch.watch()` needs only `import tritonhook`
        return import_module("tritonhook.memwatch")
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'tritonhook' has no attribute {name!r}")
    module, _, own_name = home.partition(":")
    value = getattr(import_module(f"tritonhook.{module}"), own_name or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
