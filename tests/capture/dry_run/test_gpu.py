"""What `--arch` and `--gpu` name, and how it reaches other processes."""

from __future__ import annotations

import pytest

from tritonhook.capture.dry_run.gpu import ALL, GPUS, NONE, DryRun
from tritonhook.errors import UsageError
from tritonhook.memory.prediction import GPUS as SPECS


def test_a_named_gpu_brings_its_architecture_and_its_figures() -> None:
    dry = DryRun.of(None, "H200")
    assert (dry.arch, dry.gpu.name, dry.gpu.memory_bytes >> 30) == ("sm_90a", "NVIDIA H200", 141)
    small = DryRun.of("sm_90a", "H100 PCIe").gpu
    assert (small.multiprocessors, small.shared_bytes) == (114, GPUS[90].shared_bytes)


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_every_gpu_of_the_table_can_be_named(spec) -> None:
    dry = DryRun.of(None, spec.name)
    assert (dry.capability, dry.gpu.multiprocessors) == (spec.arch, spec.sms)


@pytest.mark.parametrize(
    ("arch", "gpu", "why"),
    [
        ("sm_80", "H100", "its architecture is sm_90, not sm_80"),
        (None, "H9000", "--gpu H9000: not known; known: RTX 5090"),
    ],
)
def test_what_does_not_fit_is_refused(arch, gpu, why) -> None:
    with pytest.raises(UsageError, match=why):
        DryRun.of(arch, gpu)


def test_other_processes_read_the_same(monkeypatch) -> None:
    dry = DryRun.of(None, "RTX 4090", ALL, NONE, 7.0)
    environment = dry.to_environment()
    assert DryRun.from_environment(environment) == dry
    assert environment["CUDA_VISIBLE_DEVICES"] == ""
    assert DryRun.from_environment({}) is None
