"""Compile a config with the CuTe DSL, for any target and without a GPU. cache.py keeps and loads the results."""

from __future__ import annotations

import re
import tempfile
import warnings
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from . import abi
from .build import KernelConfig, build, why_not

DSL_PACKAGES = tuple(
    f"nvidia-cutlass-dsl{part}" for part in ("", "-libs-base", "-libs-core", "-libs-cu12", "-libs-cu13")
)
ERROR_LENGTH = 500  # our error message quotes so many characters of the DSL's
# ptxas writes this line with its version into the note section of a cubin.
_PTXAS = re.compile(rb"Cuda compilation tools, release [\d.]+, V([\d.]+)")


@dataclass(frozen=True, slots=True)
class HostFunction:
    """The compiled host function of a config.

    function: the DSL's object. names: names of the function's parameters. arguments: the fake arguments with which it
    was compiled.
    """

    function: Any
    names: list[str]
    arguments: tuple[Any, ...]
    cubin: bytes

    @property
    def slots(self) -> tuple[abi.Slot, ...]:
        """The argument slots of the host function."""
        return abi.slots_of(self.names, self.arguments)

    @property
    def ptxas(self) -> str | None:
        return ptxas_version(self.cubin)


def compile_function(config: KernelConfig) -> HostFunction:
    """Compile a config for config.arch. Needs no GPU.

    Raises ValueError for a config that cannot be built, ImportError without the DSL, and RuntimeError if the DSL cannot
    compile it.
    """
    wrong = why_not(config)  # before the import of the DSL, which may be missing
    if wrong:
        raise ValueError(wrong)
    import_dsl()
    import cutlass.cute as cute

    host, arguments = build(config)
    with tempfile.TemporaryDirectory(prefix="sm120_attn-") as folder:
        options = f"--gpu-arch {config.arch} --keep-ptx --keep-cubin --dump-dir {folder}"
        try:
            function = cute.compile(host, *arguments, options=options)
        except Exception as error:  # the DSL's exceptions have no common base class; their messages have many lines
            said = " ".join(f"{type(error).__name__}: {error}".split())[:ERROR_LENGTH]
            raise RuntimeError(f"the CuTe DSL cannot compile {config.name} for {config.arch}: {said}") from error
    names = list(function.execution_args.signature.parameters)
    return HostFunction(function, names, arguments, bytes(function.__cubin__ or b""))


@dataclass(frozen=True, slots=True)
class AssembledKernel:
    """The compiler's output for a config. ptxas: version of the ptxas inside the DSL, such as "13.4.59"."""

    config: KernelConfig
    ptx: str
    cubin: bytes
    ptxas: str | None

    @property
    def name(self) -> str:
        """Name of the kernel's entry function."""
        return str(re.findall(r"\.entry\s+([\w$]+)", self.ptx)[0])


def compile_offline(config: KernelConfig) -> AssembledKernel:
    """Compile a config to PTX and cubin. Raises the errors of compile_function."""
    compiled = compile_function(config)
    return AssembledKernel(config, compiled.function.__ptx__.rstrip("\0"), compiled.cubin, compiled.ptxas)


def import_dsl() -> None:
    """Import the CuTe DSL. Raises ImportError, with the command to install it, if that fails."""
    try:
        import cutlass.cute  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "sm120_attn compiles its kernels with NVIDIA's CuTe DSL, which cannot be imported "
            f"({error}); install it with: pip install 'nvidia-cutlass-dsl[cu13]==4.8.1'"
        ) from error


@cache
def dsl_versions() -> dict[str, str]:
    """List versions of the installed packages of the CuTe DSL. ptxas is inside its libraries."""
    found = {package: _version(package) for package in DSL_PACKAGES}
    return {package: number for package, number in found.items() if number}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def ptxas_version(cubin: bytes) -> str | None:
    """Read the version of the ptxas that assembled a cubin, such as "13.4.59"; None if the cubin has no version."""
    found = _PTXAS.search(cubin)
    return found.group(1).decode() if found else None


def warn_of_old_ptxas(found: str | None) -> None:
    """Warn of a ptxas before 13. The DSL's default variant has 12.9: loops get a fifth longer and spill registers."""
    if found is not None and int(found.partition(".")[0]) < 13:
        warnings.warn(
            f"sm120_attn: kernels are assembled with ptxas {found}, which makes slower code; to get ptxas 13.4: pip "
            "uninstall nvidia-cutlass-dsl-libs-cu12, then pip install --force-reinstall --no-deps "
            "nvidia-cutlass-dsl-libs-cu13",
            RuntimeWarning,
            stacklevel=2,
        )
