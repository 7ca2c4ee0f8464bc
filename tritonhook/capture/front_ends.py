"""Make sessions: for all installed front ends, or the session of `tritonhook run`."""

from __future__ import annotations

import atexit
import importlib.util

from tritonhook.capture.cute import state as cute
from tritonhook.capture.run_config import RunConfig
from tritonhook.capture.session import MakeKernels, Session
from tritonhook.capture.settings import Settings
from tritonhook.capture.triton.metadata import check_triton, ptxas_versions
from tritonhook.errors import CaptureError


def new_session(settings: Settings, make_kernels: MakeKernels | None = None) -> Session:
    """Make a session for all installed front ends, without starting it. Raises CaptureError if none is installed."""
    present = front_ends()
    if "triton" in present and not cute.is_installed() and (reason := _why_no_ptxas(settings)):
        raise CaptureError(reason)
    session = Session(settings, present, make_kernels)
    if "triton" not in session.front_ends and importlib.util.find_spec("triton") is not None:
        try:
            check_triton()
        except CaptureError as error:
            session.contain("only CuTe kernels are captured", error)
    return session


def _why_no_ptxas(settings: Settings) -> str | None:
    """Return why no ptxas of Triton can assemble the rewritten PTX, else None. Also None if the session has its own
    ptxas, which make_settings has checked."""
    if settings.assembling is not None and settings.assembling.version is not None:
        return None
    if settings.rewrites.why_not("0") is None:  # no rewrite needs a minimum version of ptxas
        return None
    reasons = [settings.rewrites.why_not(version) for version in ptxas_versions()]
    return reasons[-1] if reasons and None not in reasons else None


def front_ends() -> tuple[str, ...]:
    """List the installed front ends: Triton, CuTe DSL. Raises CaptureError if none is installed."""
    try:
        check_triton()
    except CaptureError:
        if not cute.is_installed():
            raise
        return (cute.FRONT_END,)
    return ("triton", cute.FRONT_END)


def begin_run(config: RunConfig, front_end: str = "triton") -> Session:
    """Begin the session of `tritonhook run`, which lasts until the process ends. Sessions that the program itself
    begins are nested in it.

    The session prints no summary: `tritonhook run` reports on the folder when all processes have ended.
    """
    if front_end == "triton":
        check_triton()
    session = Session(Settings.from_run_config(config), (front_end,))
    session.reaches_children = True
    session.install()
    atexit.register(session.uninstall)
    return session
