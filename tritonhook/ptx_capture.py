"""Capture and rewrite the kernels that this program compiles: `enable` and `disable`, or `session` for a `with` block.

    import tritonhook
    with tritonhook.session("captures", rename="cutlass_") as session:
        run_my_model()
    print(session.summary)

`capture/session.py` implements the session.
"""

from __future__ import annotations

import atexit
import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from tritonhook._util.text import say
from tritonhook.capture.cute import state as cute
from tritonhook.capture.dry_run.process import dry_program
from tritonhook.capture.front_ends import front_ends, new_session
from tritonhook.capture.session import Session, changing, finish_async_compiles
from tritonhook.capture.settings import make_settings
from tritonhook.capture.triton.holders import holders
from tritonhook.rename import Rename, Rewrite

if TYPE_CHECKING:
    from tritonhook.capture.model import Capture
    from tritonhook.capture.store import CaptureFolder
    from tritonhook.snapshot.kernels import Kernels

_enabled: Session | None = None


def enable(
    out: str | os.PathLike[str] | None = None,
    *,
    rename: str | Mapping[str, str] | Rename | None = None,
    strip: bool | str = False,
    only: str | None = None,
    rewrites: Rewrite | str | Sequence[Rewrite | str] = (),
    launches: bool | str = False,
    ptxas: str | os.PathLike[str] | None = None,
    options: str | Sequence[str] | None = None,
    policy: str | os.PathLike[str] | None = None,
) -> Session:
    """Capture each kernel that Triton compiles or loads from its cache, until `disable` or the end of the process.

    out: folder for captures (default: $TRITONHOOK_OUT, else ./tritonhook-captures).
    rename: a prefix such as "cutlass_", a mapping of old to new names, or a Rename. Default: names stay.
    strip: True removes "cutlass" from names; a string removes that string.
    only: a regular expression; kernels whose original name it does not match are neither captured nor renamed.
    rewrites: one rewrite or a sequence of them, applied after the rename. "tma-cta" stands for ClusterToCta,
    "mma-throughput" for ThroughputPragma (which needs ptxas 13.3 or newer).
    launches: True records launches and the contents of integer buffers, so that `tritonhook ab` can repeat the
    launches; "values" also records the contents of all other buffers. Recording takes about 0.1 ms per launch, and
    copies buffers from the GPU.
    ptxas: a version such as "13.5.37" (`tritonhook ptxas add 13.5.37` fetches it) or a path. This ptxas assembles the
    kernels instead of Triton's own; the CuTe DSL keeps its own. If it fails, Triton's own assembles the kernel, and a
    note reports that.
    options: further options for ptxas, such as "-O1".
    policy: a file that `tritonhook tune` wrote, such as "tritonhook.toml". Each kernel listed there gets the change
    that made it fastest; all other kernels stay. It cannot be combined with rename, strip, rewrites, ptxas or options.

    At exit a summary is printed on standard error, unless TRITONHOOK_QUIET is set. A second call replaces the settings.
    With the same folder the new session continues the old one; with another folder the summary of the old session
    is printed at once.

    Under `tritonhook run` the run's own session stays active, and both sessions capture. If both rename, the run
    renames first: with --prefix a_ and rename="b_", `add` becomes `b_a_add`. `disable` ends only the session of
    `enable`.

    Raises TritonHookError if neither Triton 3.6 or newer nor the CuTe DSL is installed, if the folder cannot be
    written, or if the arguments do not fit together; then nothing has changed.
    """
    global _enabled
    settings = make_settings(out, rename, strip, only, rewrites, launches, ptxas, options, policy)
    session = new_session(settings, _kernels)
    finish_async_compiles()
    with changing:
        earlier, _enabled = _enabled, None
        if earlier is not None:
            _replace(earlier, session)
        else:
            atexit.register(_at_exit)
        session.install()
        _enabled = session
    return session


def _replace(old: Session, new: Session) -> None:
    old.uninstall()
    if old.out == new.out:
        new.carry_over(old)
    else:
        _print_summary(old)


def disable() -> Session | None:
    """End the session of `enable` and restore the previous hooks. Returns the session, which has the results; None if
    nothing was enabled."""
    global _enabled
    finish_async_compiles()
    with changing:
        session, _enabled = _enabled, None
        if session is not None:
            session.uninstall()
            atexit.unregister(_at_exit)
    return session


@contextlib.contextmanager
def session(
    out: str | os.PathLike[str] | None = None,
    *,
    rename: str | Mapping[str, str] | Rename | None = None,
    strip: bool | str = False,
    only: str | None = None,
    rewrites: Rewrite | str | Sequence[Rewrite | str] = (),
    launches: bool | str = False,
    ptxas: str | os.PathLike[str] | None = None,
    options: str | Sequence[str] | None = None,
    policy: str | os.PathLike[str] | None = None,
    arch: str | None = None,
) -> Iterator[Session]:
    """Capture during a `with` block, with the arguments of `enable`. Sessions can be nested; the innermost session
    rewrites last.

    arch: an architecture such as "sm_90a": compile for it and launch nothing, as `tritonhook run --arch` does. No GPU
    is needed."""
    with contextlib.ExitStack() as stack:
        dry = None if arch is None else stack.enter_context(dry_program(arch))
        settings = make_settings(out, rename, strip, only, rewrites, launches, ptxas, options, policy, dry)
        current = new_session(settings, _kernels)
        current.install()
        stack.callback(current.uninstall)
        yield current


def _kernels(folder: CaptureFolder, captures: dict[str, Capture]) -> Kernels:
    """Make the value of `session.kernels`. The snapshot package is loaded at the first call."""
    from tritonhook.snapshot.kernels import Kernels

    return Kernels(folder, captures)


def _at_exit() -> None:
    session = disable()
    if session is not None:
        _print_summary(session)


def _print_summary(session: Session) -> None:
    if not os.environ.get("TRITONHOOK_QUIET"):
        say(session.summary)


def status() -> dict[str, str]:
    """Map each of Triton's hooks in this process to the tool that has set it; "free" if no tool has. If several tools
    share a hook, tritonhook is named first. The CuTe DSL's patched methods follow; the result contains only these if
    Triton is missing or too old.

    Raises CaptureError if neither Triton nor the CuTe DSL is installed.
    """
    return (holders() if "triton" in front_ends() else {}) | cute.holders()
