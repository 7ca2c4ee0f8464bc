"""Show versions, tools, and the owner of each of Triton's hooks in a fresh process.

For the hooks inside a running program call `tritonhook.status()` there.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tritonhook import __version__
from tritonhook._util.versions import version_key
from tritonhook.capture.project import Project, read_project
from tritonhook.children.environment import pth_state, site_folder
from tritonhook.cli._parser import Group, part
from tritonhook.cli._results import Results, give
from tritonhook.errors import ToolError
from tritonhook.ptxas.tool import available_ptxas, find_nvdisasm
from tritonhook.ptxas.toolchain import fixed_layout_prefix

_VARIABLES = ("PTX_DUMP_DIR", "TRITON_CACHE_DIR", "TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH")


@dataclass(frozen=True, kw_only=True)
class Options(Group):
    results: Results = part(Results)


def run(options: Options) -> int:
    from tritonhook.report.results.tools import StatusResult

    project = read_project(Path.cwd())
    status = StatusResult(
        tritonhook=__version__,
        triton=_installed("triton"),
        cute_dsl=_installed("nvidia-cutlass-dsl"),
        hooks=_hooks(),
        ptxas=tuple(_ptxas()),
        nvdisasm=_nvdisasm(),
        ptxas_fixed_layout=bool(fixed_layout_prefix()),
        startup=pth_state(site_folder()),
        environment=_environment(project),
        project={} if project.path is None else {"path": str(project.path), **project.values},
    )
    give(options.results, status)
    return 0


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _ptxas() -> list[str]:
    """List each version of ptxas with the packages or settings that provide it."""
    sources: dict[str, list[str]] = {}
    for tool in available_ptxas():
        sources.setdefault(tool.version, []).append(tool.source)
    return [f"{version} ({', '.join(sources[version])})" for version in sorted(sources, key=version_key)]


def _hooks() -> dict[str, str]:
    if _installed("triton") is None:
        return {}
    from tritonhook.ptx_capture import status

    return status()


def _nvdisasm() -> str:
    try:
        tool = find_nvdisasm()
    except ToolError as error:
        return str(error).splitlines()[0]
    return f"{tool.version} ({tool.source})"


def _environment(project: Project) -> dict[str, str]:
    """List the variables that the user has set; those that come from the project's settings are left out."""
    names = (name for name in sorted(os.environ) if name.startswith("TRITONHOOK_") or name in _VARIABLES)
    return {name: os.environ[name] for name in names if project.variables.get(name) != os.environ[name]}
