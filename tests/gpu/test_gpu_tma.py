"""On a GPU: kernels with TMA loads compute the same, bit for bit, with `.shared::cluster` and `.shared::cta`; a
watch sees no pool grow where there is no syscall. Executed where there is one."""

import json
from types import SimpleNamespace

import pytest
from repository import SUPPORT

import tritonhook
from tritonhook.cli import main
from tritonhook.memwatch import watch

torch = pytest.importorskip("torch", reason="needs torch")
triton = pytest.importorskip("triton", minversion="3.6", reason="needs triton")

from tma_kernels import CASES, run_on_gpu  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] < 9, reason="needs a GPU with TMA"
    ),
]


needs_cluster_form = pytest.mark.skipif(
    tuple(map(int, triton.__version__.split(".")[:2])) > (3, 6), reason="Triton 3.7 and newer emits .shared::cta"
)


@pytest.fixture(autouse=True)
def descriptors(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8, device="cuda"))


@needs_cluster_form
@pytest.mark.parametrize("name", CASES)
def test_both_forms_give_the_same_bits(tmp_path, name) -> None:
    outputs, code = [], []
    for rewrites in ([], ["tma-cta"], []):
        with tritonhook.session(tmp_path / "out", rewrites=rewrites) as session:
            outputs.append(run_on_gpu(CASES[name]))
        (capture,) = session.captures
        loads = capture.ptx.text.count("shared::cluster.global.mbarrier")
        assert (loads == 0) == bool(rewrites)
        code.append(tritonhook.Cubin.from_bytes(capture.cubin).text(capture.kernel))
    for x, y, z in zip(*outputs, strict=True):
        assert torch.isfinite(x.float()).all() and x.abs().max() > 0
        assert torch.equal(x, y) and torch.equal(x, z)
    if torch.cuda.get_device_capability() == (9, 0):
        assert code[0] == code[1], "on sm_90a the two forms are the same instructions"


def test_a_renamed_and_fixed_kernel_runs(tmp_path) -> None:
    case = CASES["copy 2d 64x64"]
    (plain,) = run_on_gpu(case)
    with tritonhook.session(tmp_path / "out", rename="cutlass_", rewrites=["tma-cta"]) as session:
        (both,) = run_on_gpu(case)
    (capture,) = session.captures
    assert capture.kernel == "cutlass_copy_2d"
    assert "shared::cta.global.mbarrier" in capture.ptx.text
    assert torch.equal(plain, both)


def test_a_watch_names_the_kernels_and_explains_the_growth(tmp_path) -> None:
    torch.zeros(1, device="cuda")
    with watch() as seen:
        run_on_gpu(CASES["matmul w8 s2"])
        torch.cuda.synchronize()
    timeline = seen.timeline
    assert [mark.kernel for mark in timeline.launches] == ["matmul"]
    (mark,) = timeline.launches
    assert mark.before is not None and mark.after is not None and mark.note is None
    assert mark.stack_growth_bytes == 0 or torch.cuda.get_device_capability()[0] == 12
    assert timeline.attribution().growth_bytes is not None


def test_launches_with_descriptors_of_the_host_are_replayed(tmp_path, monkeypatch, capsys) -> None:
    """The tool encodes them again, for its own buffers."""
    monkeypatch.chdir(tmp_path)
    script = str(SUPPORT / "host_descriptors.py")
    assert main(["verify", script, "--json"]) == 0
    (verified,) = json.loads(capsys.readouterr().out)["kernels"]
    assert (verified["kernel"], verified["verdict"]) == ("product", "SAME")
    assert not any("no build changed" in note for note in verified["notes"])
    short = ["--processes", "1", "--seconds", "2", "--save", "timed.json"]
    main(["ab", script, "--candidate-options=-O1", "--rtol", "0.01", *short])
    timed = json.loads((tmp_path / "timed.json").read_text())
    assert timed["wrong"] == {} and timed["blocks"]


def test_descriptors_in_bytes_are_recorded_and_launched_again() -> None:
    """As torch's static launcher passes them, already encoded by the driver."""
    import host_descriptors as program
    from triton.backends.nvidia.driver import make_tensordesc_arg
    from triton.tools.tensor_descriptor import TensorDescriptor

    from tritonhook.capture.launches.record import Descriptor
    from tritonhook.capture.launches.recorder import of_inductor
    from tritonhook.timing.replay import Buffers, LoadedKernel

    # given
    a, b, c = (torch.randn(shape, device="cuda", dtype=torch.float16) for shape in ((100, 96), (64, 96), (100, 64)))
    given = [TensorDescriptor.from_tensor(x, list(box)) for x, box in zip((a, b, c), program.boxes, strict=True)]
    compiled = program.product[(2, 1)](*given, 96, 64, 64, 32)
    expected = c.clone()
    about = compiled.metadata
    arguments = [
        one
        for which, meta in zip(given, about.tensordesc_meta, strict=True)
        for one in make_tensordesc_arg(which, meta)
    ]
    scratch = {f"has_{what}_scratch": hasattr(about, f"{what}_scratch_size") for what in ("global", "profile")}
    launcher = SimpleNamespace(
        name=compiled.name, arg_tys="Miill" * 3 + "i", num_warps=about.num_warps, shared=about.shared, **scratch
    )

    # when
    launch, _ = of_inductor(launcher, (2, 1, 1), [*arguments, 96])
    memory = Buffers(launch)
    for tensor, source in zip(memory.tensors, (a, b, c), strict=True):
        tensor.copy_(source.view(torch.uint8).flatten())
    memory.tensors[2].zero_()
    LoadedKernel(compiled.asm["cubin"], compiled.name, memory).launch()
    torch.cuda.synchronize()

    # then
    assert all(isinstance(one, Descriptor) for one in launch.parameters[:15:5])
    assert torch.allclose(expected.float(), a.float() @ b.float().T, atol=0.05, rtol=0.02)
    assert torch.equal(memory.views()[2], expected.flatten())
