"""torch.distributed in a dry run: processes communicate through gloo instead of NCCL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tritonhook.capture.dry_run.gpu import notes
from tritonhook.capture.patching import patched

_NOTE = "NCCL needs GPUs: the program's collectives used gloo, and kernels of NCCL are not captured"


@contextmanager
def without_nccl() -> Iterator[None]:
    """Make process groups with gloo instead of NCCL, and add a note."""
    import torch.distributed

    if not torch.distributed.is_available():
        yield
        return
    from torch.distributed import distributed_c10d

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def begin(*given: Any, **named: Any) -> Any:
            named.pop("device_id", None)  # otherwise the group is initialised on that GPU at once
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
    """Return the backend to use: gloo if the program names NCCL or no backend, because torch's default includes
    NCCL."""
    if "nccl" not in str(backend).lower():
        return str(backend or "gloo")
    notes.add(_NOTE)
    return "gloo"
