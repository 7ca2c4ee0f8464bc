"""On a GPU: a CuTe kernel under a policy is launched under the name that the lever gives it, and computes the same.
Executed where there are a GPU and the CuTe DSL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tritonhook.capture.policy.model import write_policy

torch = pytest.importorskip("torch", reason="needs torch")
pytest.importorskip("cutlass.base_dsl", reason="needs the CuTe DSL")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="requires an NVIDIA GPU"),
]


def launched(**wish: Any) -> tuple[set[str], Any, list[Any]]:
    """The kernels that the GPU ran, by the driver's names, what they computed, and the captures."""
    import cute_kernels as kernels
    import cutlass
    import cutlass.cute as cute
    from cutlass.cute.runtime import from_dlpack

    import tritonhook

    cutlass.cutlass_dsl.CuTeDSL._get_dsl().jit_cache.clear()
    a = torch.linspace(0.1, 0.2, 129, device="cuda")
    b = torch.linspace(0.2, 0.3, 128, device="cuda")
    with tritonhook.session(**wish) as session:
        loop = cute.compile(kernels.loop, from_dlpack(a), from_dlpack(b), cutlass.Int32(3))
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            loop(from_dlpack(a), from_dlpack(b), cutlass.Int32(3))
            torch.cuda.synchronize()
    names = {event.key for event in profile.key_averages() if "loop_kernel" in event.key}
    return names, b.cpu(), list(session.captures)


def test_a_policy_strips_the_name_of_the_kernel_that_it_names(tmp_path: Path) -> None:
    from policies import entry_like

    plain_names, plain, (own,) = launched(out=tmp_path / "plain")
    _, _, (stripped,) = launched(out=tmp_path / "stripped", strip=True)
    write_policy(tmp_path / "tritonhook.toml", [entry_like(own, "strip", stripped)])
    names, result, (kernel,) = launched(out=tmp_path / "policy", policy=tmp_path / "tritonhook.toml")
    assert all("cutlass" in name for name in plain_names) and plain_names
    assert names == {name.replace("cutlass_", "") for name in plain_names} == {kernel.kernel}
    assert torch.equal(result, plain)
    again, result, _ = launched(out=tmp_path / "again")
    assert again == plain_names and torch.equal(result, plain)


def test_a_recorded_launch_stores_the_same_again(tmp_path: Path) -> None:
    import cute_kernels as kernels
    import cutlass.cute as cute
    from cutlass.cute.runtime import from_dlpack

    import tritonhook
    from tritonhook.capture.store import CaptureFolder
    from tritonhook.timing.replay import Buffers, LoadedKernel

    a, b = torch.rand(256, device="cuda"), torch.rand(128, device="cuda")
    with tritonhook.session(tmp_path / "out", launches="values"):
        add = cute.compile(kernels.add, from_dlpack(a[128:]), from_dlpack(b))
        add(from_dlpack(a[128:]), from_dlpack(b))
    torch.cuda.synchronize()
    folder = CaptureFolder.open(tmp_path / "out")
    (record,) = folder.records
    (one,) = folder.launches(record)
    assert [buffer.size for buffer in one.launch.buffers] == [1024, 512]
    memory = Buffers(one.launch, one.path.parent)
    kernel = LoadedKernel(folder.capture(record).cubin, str(one.launch.kernel), memory)
    kernel.launch()
    torch.cuda.synchronize()
    assert torch.equal(memory.views()[1], b) and torch.equal(memory.views()[0], a)
