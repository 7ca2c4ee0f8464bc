"""The Blackwell attention, emulated: its PTX against float64 within the limits of `check`, its machine code against its
PTX, and both under the sanitizer.

No sm_100 card has run this kernel for us, so that this is what there is: see docs/explanation/emulation.md.
"""

from dataclasses import replace

import pytest

pytest.importorskip("triton", reason="requires triton")
np = pytest.importorskip("numpy")

from gluon_kernels import compile_offline  # noqa: E402
from gluon_kernels.blackwell.config import AttentionConfig, default_config  # noqa: E402
from gluon_kernels.verify.check import LSE_TOLERANCE, ROUNDING, TIMES_WORSE  # noqa: E402
from tests.gluon_kernels.support.blackwell_configs import CONFIGS, describe  # noqa: E402
from tests.gluon_kernels.support.emulated import Problem  # noqa: E402
from tritonhook.cubin.image import Cubin  # noqa: E402
from tritonhook.emulate.run import Run, run_ptx  # noqa: E402
from tritonhook.emulate.sanitizer.run import sanitize  # noqa: E402
from tritonhook.ptx.module import Ptx  # noqa: E402
from tritonhook.verify.cpu import run_cubin  # noqa: E402

# Two tiles of queries of which the second is not full, and three blocks of keys.
QUERIES, KEYS = 300, 333


pytestmark = pytest.mark.usefixtures("triton_cache")


def cases():
    daily = {("bf16", 64, False), ("fp8e4nv", 64, True)}
    for dtype in ROUNDING:
        for head_dim in (64, 128):
            for causal in (False, True):
                config = default_config(100, dtype, head_dim, causal=causal, seqlen_q=QUERIES, seqlen_k=KEYS)
                marks = [] if (dtype, head_dim, causal) in daily else [pytest.mark.nightly]
                yield pytest.param(100, config, id=describe(config), marks=marks)
    for config in CONFIGS:  # other ways to add, and no parts that are ragged
        yield pytest.param(100, config, id=f"plain-{describe(config)}", marks=pytest.mark.nightly)
    for dtype, head_dim in (("bf16", 64), ("fp8e4nv", 128)):
        config = default_config(103, dtype, head_dim, causal=True, seqlen_q=QUERIES, seqlen_k=KEYS)
        yield pytest.param(103, config, id=f"sm_103-{describe(config)}", marks=pytest.mark.nightly)


@pytest.mark.parametrize(("arch", "config"), list(cases()))
def test_the_attention_is_what_float64_says(arch: int, config: AttentionConfig):
    kernel = compile_offline(config, arch)
    problem = Problem(config, *((QUERIES, KEYS) if config.ragged else (256, 384)))
    launch, contents = problem.launch(kernel)
    run = Run(launch, (0,))

    stored = run_ptx(Ptx(kernel.asm["ptx"]), run, contents)

    error, error_lse = problem.errors(stored.contents)
    assert stored.unknown == ()
    assert error <= max(TIMES_WORSE * problem.error_of_low_precision, ROUNDING[config.dtype])
    assert error_lse <= LSE_TOLERANCE
    assert run_cubin(Cubin.from_bytes(kernel.asm["cubin"]), config.name, run, contents).contents == stored.contents


FP8 = replace(CONFIGS[-2], dtype="fp8e4nv", causal=False)


@pytest.mark.parametrize("config", [CONFIGS[-2], pytest.param(FP8, marks=pytest.mark.nightly)])
def test_nothing_is_found_in_it_and_what_is_not_waited_for_is(config):
    ptx = compile_offline(config).asm["ptx"]
    launch, contents = Problem(config, 256, 256).launch(compile_offline(config))
    run = Run(launch, (0,))
    assert sanitize(Ptx(ptx), run, contents).findings == ()
    # Mutation check: what the correction partition scales is not stored yet when the next product adds to it.
    found = sanitize(Ptx(ptx.replace("tcgen05.wait::st.sync.aligned;", "")), run, contents).findings
    assert found and all(one.kind == "race" and "tensor memory" in one.text for one in found)
