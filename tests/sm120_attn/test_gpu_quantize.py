"""On a GPU: quantisation bit by bit, as a torch operator, in front of attention; and the probes of the self-test."""

import pytest

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch", reason="needs torch: pip install torch")
pytest.importorskip("cutlass.cute", reason="needs the CuTe DSL: pip install 'nvidia-cutlass-dsl[cu13]'")

from sm120_attn import attention, quantize, quantize_qkv  # noqa: E402
from sm120_attn.verify import check_quantize  # noqa: E402
from sm120_attn.verify import hardware_probes as probe  # noqa: E402
from sm120_attn.verify.reference import attention_reference  # noqa: E402

E4M3 = torch.float8_e4m3fn


def normal(*shape: int, count: int = 3, dtype=torch.bfloat16):
    return [torch.randn(shape, dtype=dtype, device="cuda") for _ in range(count)]


def test_every_case_is_torchs_result_to_the_bit() -> None:
    failed = {case.name: wrong for case in check_quantize.matrix() if (wrong := check_quantize.check(case))}
    assert failed == {}


@pytest.mark.parametrize("name", list(check_quantize.promises()))
def test_a_promise_is_kept(name: str) -> None:
    assert check_quantize.promises()[name]() == ""


def test_nothing_waits_for_the_gpu() -> None:
    q, k, v = normal(2, 900, 4, 64)
    quantize_qkv(q, k, v)
    torch.cuda.set_sync_debug_mode("error")
    try:
        quantize_qkv(q, k, v)
        attention(q, k, v, quantize=E4M3)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_attention_that_quantises_is_attention_on_what_quantize_gives(dtype) -> None:
    # given
    q, k, v = normal(2, 700, 4, 128, dtype=dtype)
    (q8, k8, v8), (a, b, c) = quantize_qkv(q, k, v)

    # when
    o, lse = attention(q, k, v, causal=True, quantize=E4M3, return_lse=True)
    same, same_lse = attention(
        q8, k8, v8, causal=True, q_descale=a, k_descale=b, v_descale=c, out_dtype=dtype, return_lse=True
    )

    # then
    assert o.dtype == dtype and torch.equal(o, same) and torch.equal(lse, same_lse)
    wanted, _ = attention_reference(q, k, v, causal=True)
    off = (o.double() - wanted).abs().amax(-1) / wanted.abs().amax(-1)
    assert off.median() < 0.1


def test_torch_compile_takes_it_whole() -> None:
    def block(q, k, v):
        y, descale = quantize(q)
        return y.float() * descale[:, None, :, None], attention(q, k, v, quantize=E4M3)

    whole = torch.compile(block, fullgraph=True, dynamic=True)
    for rows in (70, 900):
        q, k, v = normal(2, rows, 4, 64)
        with torch.no_grad():
            found, wanted = whole(q, k, v), block(q, k, v)
        assert torch.allclose(found[0], wanted[0]) and torch.equal(found[1], wanted[1])


def test_the_operators_keep_torchs_rules() -> None:
    q, k, v = normal(1, 40, 4, 72)
    starts = torch.tensor([0, 15, 40], dtype=torch.int32, device="cuda")
    tests = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
    one, three = torch.ops.sm120_attn.quantize.default, torch.ops.sm120_attn.quantize_qkv.default
    torch.library.opcheck(one, (q, E4M3, None, 40), test_utils=tests)
    torch.library.opcheck(one, (q[0], E4M3, starts, 25), test_utils=tests)
    torch.library.opcheck(three, (q, k, v, torch.float8_e5m2, None, None, 40, 40), test_utils=tests)


def test_a_first_call_in_a_capture_says_so() -> None:
    (x,) = normal(1, 20, 2, 248, count=1)
    quantize(normal(1, 20, 2, 64, count=1)[0])
    graph = torch.cuda.CUDAGraph()
    said = "call quantize once with such tensors before the capture"
    with pytest.raises(RuntimeError, match=said), torch.cuda.graph(graph):
        quantize(x, torch.float8_e5m2)


def test_the_probes_find_what_the_kernels_take_for_granted() -> None:
    found = probe.run()
    assert found["passed"], found
    assert all(said for name, said in found["banks"].items() if name.startswith(("v_without", "turn"))), found["banks"]
