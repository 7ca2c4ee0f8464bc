"""The operator of attention: shapes of the result, one node when traced. Nothing is launched."""

import pytest

torch = pytest.importorskip("torch", reason="needs torch")
pytest.importorskip("triton", reason="needs triton")

from gluon_kernels import attention  # noqa: E402
from gluon_kernels.attention_hopper import attention as hopper  # noqa: E402
from gluon_kernels.attention_mma import attention as mma  # noqa: E402


@pytest.mark.parametrize("operator", [hopper, mma])
@pytest.mark.parametrize(("dtype", "out"), [("bfloat16", "bfloat16"), ("float8_e4m3fn", "bfloat16")])
def test_fake_tensors_get_the_shapes_and_dtypes_of_the_result(operator, dtype, out):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        q = torch.empty(2, 16, 4, 64, dtype=getattr(torch, dtype), device="cuda").transpose(1, 2)
        k = torch.empty(2, 1, 33, 64, dtype=q.dtype, device="cuda")
        o, lse = operator(q, k, k, causal="top-left", return_lse=True)
        alone = operator(q, k, k)
    for one in (o, alone):
        assert (one.shape, one.dtype, one.stride()) == (q.shape, getattr(torch, out), q.stride())
    assert (lse.shape, lse.dtype) == ((2, 4, 16), torch.float32)


def test_a_compiled_program_has_one_node_for_each_call():
    nodes = []

    def backend(graph, inputs):
        nodes.extend(node.target for node in graph.graph.nodes if node.op == "call_function")
        return graph.forward

    def program(q, k, v):
        both = hopper(q, k, v, scale=0.3, return_lse=True)
        return attention(q, k, v, causal="bottom-right") * 2, both[1], mma(q, k, v)

    x = torch.zeros(1, 2, 16, 64, dtype=torch.bfloat16)
    with pytest.raises(ValueError, match="must be on one CUDA device|run on CUDA devices"):
        torch.compile(program, fullgraph=True, backend=backend)(x, x, x)
    assert sum("gluon_kernels.attention" in str(target) for target in nodes) == 3


def test_a_configuration_is_no_argument_of_an_operator():
    from torch._subclasses.fake_tensor import FakeTensorMode

    from gluon_kernels.hopper.config import HopperConfig

    with FakeTensorMode(), pytest.raises(ValueError, match="config: not supported under torch.compile"):
        x = torch.empty(1, 2, 16, 64, dtype=torch.bfloat16, device="cuda")
        hopper(x, x, x, config=HopperConfig())
