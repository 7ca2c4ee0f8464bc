"""The driver of dry runs and what it replaces in Triton, in this process."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from repository import GOLDEN

pytest.importorskip("triton", minversion="3.6")


from tritonhook.capture.dry_run import driver as dry_driver
from tritonhook.capture.dry_run.driver import DryDriver, without_cublas
from tritonhook.capture.dry_run.gpu import DryRun, Notes
from tritonhook.cubin.image import Cubin

MODULE = (GOLDEN / "sm_90a.module.cubin").read_bytes()


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> Notes:
    """The remarks of this process, of which there are none yet."""
    found = Notes()
    monkeypatch.setattr(dry_driver, "notes", found)
    return found


def test_a_kernel_is_loaded_with_what_its_cubin_says() -> None:
    driver = DryDriver(DryRun(90))
    cubin = Cubin.from_bytes(MODULE)
    for name in cubin.kernels:
        registers, stack = cubin.resources[name].registers, cubin.resources[name].stack
        assert registers is not None and stack is not None
        loaded = driver.load_binary(name, MODULE, 0, 0)
        assert loaded == (1, name, registers, stack // 4, dry_driver._most_threads(cubin.resources[name]))
    with pytest.raises(RuntimeError, match="'nothing'.*" + cubin.kernels[0]):
        driver.load_binary("nothing", MODULE, 0, 0)


@pytest.mark.parametrize(
    ("registers", "threads"),
    [
        (None, 1024),
        (16, 1024),
        (64, 1024),
        (65, 896),
        (8, 1024),
        (96, 672),
        (72, 896),
        (73, 800),
        (128, 512),
        (255, 256),
    ],
)
def test_a_block_has_the_threads_whose_registers_there_are(registers: int | None, threads: int) -> None:
    assert dry_driver._most_threads(SimpleNamespace(registers=registers)) == threads  # type: ignore[arg-type]


def test_what_cublas_does_not_do_is_noted(notes) -> None:
    from triton._C.libtriton import nvidia

    own = nvidia.cublas.CublasLt
    with without_cublas():
        assert list(notes) == []
        assert nvidia.cublas.CublasLt("workspace").scaled(1, a=2) is None
    assert "cuBLAS" in "".join(notes) and nvidia.cublas.CublasLt is own
