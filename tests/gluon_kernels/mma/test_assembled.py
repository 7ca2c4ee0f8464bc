"""The mma.sync attention, assembled by Triton."""

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
from at_hand import ptxas_at_hand

from gluon_kernels.device.other_scheduler import best_trigger
from gluon_kernels.mma.config import MmaConfig, default_config
from gluon_kernels.offline import compile_offline

COMPILED = [
    (80, MmaConfig()),
    pytest.param(90, default_config(90, "bf16", 128, None), marks=pytest.mark.nightly),
    pytest.param(90, default_config(90, "fp16", 64, "top-left"), marks=pytest.mark.nightly),
    (120, default_config(120, "fp8e4nv", 128, "bottom-right")),
]


@pytest.mark.parametrize(("arch", "config"), COMPILED, ids=lambda x: str(getattr(x, "dtype", x)))
def test_it_assembles(arch, config, triton_cache):
    from tritonhook.cubin.image import Cubin

    kernel = compile_offline(config, arch)
    ptx = kernel.asm["ptx"]
    assert re.search(rf"^\.target sm_{arch}a?\b", ptx, re.MULTILINE)
    assert re.search(r"mma\.sync\.aligned\.m16n8k(16|32)", ptx) and "cp.async.cg.shared.global" in ptx
    assert Cubin.from_bytes(kernel.asm["cubin"]).kernels == (config.name,)
    # The buffers of the config, and at most a little scratch beside them.
    assert config.shared_bytes <= kernel.metadata.shared <= config.shared_bytes + 1024


@pytest.mark.parametrize(
    "config",
    [
        default_config(90, "bf16", 64, "top-left", 1024),
        pytest.param(default_config(90, "bf16", 256, "top-left"), marks=pytest.mark.nightly),
        pytest.param(MmaConfig(), marks=pytest.mark.nightly),
    ],
    ids=lambda config: f"d{config.head_dim}",
)
def test_the_pragma_gives_the_machine_code_that_the_name_gives(config, triton_cache, monkeypatch):
    from tritonhook.cubin.image import Cubin
    from tritonhook.ptx.throughput_pragma import Trigger, trigger_of

    for variable in ("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH"):
        monkeypatch.setenv(variable, str(ptxas_at_hand().path))
    assert best_trigger(90) == "pragma"
    forms = [compile_offline(replace(config, trigger=trigger), 90) for trigger in (None, "name", "pragma")]
    triggers = [trigger_of(form.metadata.name, form.asm["ptx"], "13.5.37") for form in forms]
    assert triggers == [Trigger(False, False), Trigger(True, False), Trigger(False, True)]
    plain, name, pragma = (Cubin.from_bytes(form.asm["cubin"]).text(form.metadata.name) for form in forms)
    assert pragma == name != plain


@pytest.mark.parametrize(("version", "trigger"), [("12.9", "name"), ("13.2", "name"), ("13.3", "pragma")])
def test_the_ptxas_that_triton_takes_decides_on_name_or_pragma(version, trigger, monkeypatch):
    from gluon_kernels.device import other_scheduler

    tools = {90: SimpleNamespace(version=version), 100: SimpleNamespace(version="12.8")}
    monkeypatch.setattr(other_scheduler, "get_ptxas", tools.__getitem__)
    assert (best_trigger(90), best_trigger(100)) == (trigger, "name")


@pytest.mark.parametrize("arch", [80, pytest.param(90, marks=pytest.mark.nightly)])
def test_the_ptxas_is_the_one_that_triton_assembles_with(arch, triton_cache):
    """A kernel of the usual Triton, without another ptxas set: the trigger fits the PTX version that Triton writes."""
    ptx = compile_offline(MmaConfig(), arch).asm["ptx"]
    version = tuple(map(int, re.search(r"\.version (\d+)\.(\d+)", ptx).groups()))
    assert (best_trigger(arch) == "pragma") == (version >= (9, 3))
