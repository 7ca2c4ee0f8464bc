"""What `--arch` and `--gpu` name, and how it reaches other processes."""

from __future__ import annotations

import pytest

from tritonhook.capture.dry_run.gpu import ALL, FIRST, GPUS, NONE, REAL, DryRun, Gpu
from tritonhook.errors import UsageError
from tritonhook.memory.prediction import GPUS as SPECS


def test_a_named_gpu_brings_its_architecture_and_its_figures() -> None:
    dry = DryRun.of(None, "H200")
    assert (dry.arch, dry.gpu.name, dry.gpu.memory_bytes >> 30) == ("sm_90a", "NVIDIA H200", 141)
    usual = GPUS[90]
    small = Gpu("NVIDIA H100 PCIe", 114, usual.shared_bytes, 80 << 30, 2048, usual.l2_bytes)
    assert DryRun.of("sm_90a", "H100 PCIe") == DryRun(90, FIRST, REAL, small, 180.0)
    names = [DryRun.of(None, name).gpu.name for name in ("RTX 5090", "RTX PRO 6000")]
    assert names == ["NVIDIA GeForce RTX 5090", "NVIDIA RTX PRO 6000 Blackwell"]


@pytest.mark.parametrize("capability", GPUS)
def test_an_architecture_is_named_with_or_without_its_a(capability) -> None:
    dry = DryRun.of(f"sm_{capability}", None, ALL, NONE, 7.0)
    assert dry == DryRun(capability, ALL, NONE, None, 7.0) and dry.gpu == GPUS[capability]
    assert dry.arch == f"sm_{capability}" + ("a" if capability >= 90 else "")
    assert DryRun.of(dry.arch) == DryRun(capability)


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_every_gpu_of_the_table_can_be_named(spec) -> None:
    dry = DryRun.of(None, spec.name)
    assert (dry.capability, dry.gpu.multiprocessors) == (spec.arch, spec.sms)


@pytest.mark.parametrize(
    ("arch", "gpu", "why"),
    [
        ("sm_80", "H100", "its architecture is sm_90, not sm_80"),
        (None, "H9000", "--gpu H9000: unknown; choose from RTX 5090"),
        *(
            (arch, None, f"--arch {arch}: not supported .* sm_89, sm_90a, ")
            for arch in ("sm_80a", "sm_91", "sm_9", "90")
        ),
    ],
)
def test_what_does_not_fit_is_refused(arch, gpu, why) -> None:
    with pytest.raises(UsageError, match=why):
        DryRun.of(arch, gpu)


def test_other_processes_read_the_same(monkeypatch) -> None:
    dry = DryRun.of(None, "RTX 4090", ALL, NONE, 7.0)
    environment = dry.to_environment()
    assert DryRun.from_environment(environment) == dry
    assert DryRun.from_environment(DryRun(80).to_environment()) == DryRun(80)
    assert (environment["CUDA_VISIBLE_DEVICES"], environment["CUTE_DSL_ARCH"]) == ("", "sm_89")
    assert DryRun.from_environment({}) is None
