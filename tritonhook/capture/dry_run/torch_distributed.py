"""NCCL in a dry run: processes communicate through gloo."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tritonhook.capture.dry_run.gpu import notes
from tritonhook.capture.patching import patched

_NOTE = "NCCL needs GPUs: gloo carried the program's collectives, and kernels of NCCL are not captured"


@contextmanager
def without_nccl() -> Iterator[None]:
    """Begin process groups with gloo, whichever backend the program names, and note it."""
    import torch.distributed

    if not torch.distributed.is_available():
        yield
        return
    from torch.distributed import distributed_c10d

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def begin(*given: Any, **named: Any) -> Any:
            named.pop("device_id", None)  # else the group starts on that GPU at once
            if original.__name__ == "init_process_group":
                given, named["backend"] = given[1:], _gloo((*given, named.get("backend"))[0])
            elif named.get("backend") is not None:
                named["backend"] = _gloo(named["backend"])
            return original(*given, **named)

        return begin

    names = ("init_process_group", "new_group")
    owners = (distributed_c10d, torch.distributed)
    with patched(*((owner, name, wrap) for owner in owners for name in names)):
        yield


def _gloo(backend: Any) -> str:
    """Choose the backend: gloo instead of NCCL, and also by default, because torch's default includes NCCL."""
    if "nccl" not in str(backend).lower():
        return str(backend or "gloo")
    notes.add(_NOTE)
    return "gloo"
