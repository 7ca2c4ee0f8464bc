"""On a GPU: the operator under torch.compile and CUDA graphs, no compile per length, and a part of `check`'s matrix.

`python -m sm120_attn check` runs the whole matrix, the mutations and the random cases.
"""

import pytest

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch", reason="needs torch: pip install torch")
pytest.importorskip("cutlass.cute", reason="needs the CuTe DSL: pip install 'nvidia-cutlass-dsl[cu13]'")

from sm120_attn import attention  # noqa: E402
from sm120_attn.compile import cache  # noqa: E402
from sm120_attn.planner import CHOICES  # noqa: E402
from sm120_attn.verify import cases, judging  # noqa: E402
from sm120_attn.verify.promises import promises, same_bits  # noqa: E402
from sm120_attn.verify.reference import attention_reference  # noqa: E402
from sm120_attn.verify.wrong_results import MUTATED_FP8, mutations  # noqa: E402
from tests.sm120_attn.mutants import broken_kernels  # noqa: E402

PART = ("113 x 203", "tail 1 of 64", "tail -1 of 128", "GQA 8/2", "packed, causal", "values", "layout", "10 keys")


def normal(*shape: int, dtype=torch.bfloat16):
    return [torch.randn(shape, dtype=dtype, device="cuda") for _ in range(3)]


@pytest.mark.parametrize("kernel", ["tma", "cp_async", None])
def test_a_part_of_the_matrix(kernel: str | None) -> None:
    chosen = [case for case in cases.matrix(kernel) if any(text in case.name for text in PART)]
    failed = [verdict for case in chosen if not (verdict := judging.check(case)).passed]
    assert len(chosen) > 30
    assert failed == []


@pytest.mark.parametrize("name", list(mutations()))
def test_a_mistake_is_seen(name: str) -> None:
    assert mutations()[name]().why


@pytest.mark.parametrize("kernel", [None, *cases.FP8_TILES])
def test_a_part_of_fp8s_matrix(kernel: str | None) -> None:
    """On an H100 the native path is made of stand-ins."""
    chosen = [case for case in cases.fp8_matrix(kernel) if any(text in case.name for text in PART)]
    failed = [verdict for case in chosen if not (verdict := judging.check(case)).passed]
    assert len(chosen) > 60 and {case.fp8_mma for case in chosen} == {"native", "plain", "portable"}
    assert failed == []


def test_mistakes_are_seen_in_fp8() -> None:
    mistakes = mutations(MUTATED_FP8) | broken_kernels()
    assert len(mistakes) >= 14
    assert [name for name, verdict in mistakes.items() if not verdict().why] == []


@pytest.mark.parametrize("name", [n for n in promises(MUTATED_FP8) if "int32" not in n])
def test_a_promise_is_kept_by_fp8(name: str) -> None:
    assert promises(MUTATED_FP8)[name]() == ""


@pytest.mark.parametrize("name", list(same_bits()))
def test_paths_of_fp8_give_the_same_bits(name: str) -> None:
    assert same_bits()[name]() == ""


def test_torch_compile_takes_fp8() -> None:
    # given tensors that become FP8 in the compiled function
    def quantised(q, k, v, factor):
        q, k, v = (t.to(torch.float8_e4m3fn) for t in (q, k, v))
        return attention(q, k, v, causal=True, q_descale=factor, out_dtype=torch.float32)

    tensors, factor = normal(2, 90, 4, 64), torch.rand(2, 4, device="cuda")

    # when
    o = torch.compile(quantised, fullgraph=True)(*tensors, factor)

    # then
    assert o.dtype == torch.float32 and torch.equal(o, quantised(*tensors, factor=factor))


@pytest.mark.parametrize("name", [n for n in promises() if "int32" not in n])
def test_a_promise_is_kept(name: str) -> None:
    assert promises()[name]() == ""


def test_lengths_do_not_compile() -> None:
    # given the few tilings that plan chooses from, whatever the length
    for rows in (1, 17, 100, 333, 640, 1500, 4000):
        attention(*normal(2, rows, 2, 64), causal=True)
    before = set(cache._compiled)
    assert len([c for c in before if c.head_dim == 64 and c.causal and not c.lse and not c.softcap]) <= len(CHOICES[64])

    # when there are other lengths, then nothing is compiled
    for rows in (2, 18, 101, 334, 641, 1501, 3999):
        attention(*normal(2, rows, 2, 64), causal=True)
    assert set(cache._compiled) == before


@pytest.mark.parametrize("dynamic", [False, True])
def test_torch_compile_takes_it_whole(dynamic: bool) -> None:
    # given
    weight = torch.randn(128, 384, dtype=torch.bfloat16, device="cuda") / 11

    def block(x):
        q, k, v = (x @ weight).unflatten(-1, (3, 2, 64)).unbind(2)
        o, lse = attention(q, k, v, causal=True, return_lse=True)
        return x + o.flatten(2), lse.max()

    whole = torch.compile(block, fullgraph=True, dynamic=dynamic)
    for rows in (70, 90):
        x = torch.randn(2, rows, 128, dtype=torch.bfloat16, device="cuda")

        # when
        with torch.no_grad():
            o, peak = whole(x)
            wanted, wanted_peak = block(x)

        # then
        assert torch.allclose(o.float(), wanted.float(), atol=0.05, rtol=0.02)
        assert torch.allclose(peak, wanted_peak, atol=1e-2)


def test_torch_compile_with_cuda_graphs() -> None:
    whole = torch.compile(lambda *t: attention(*t, causal=True) * 2, fullgraph=True, mode="reduce-overhead")
    for _ in range(4):
        q, k, v = normal(1, 200, 2, 128)
        with torch.no_grad():
            o = whole(q, k, v).clone()
        wanted, _ = attention_reference(q, k, v, causal=True)
        assert torch.allclose(o.double(), wanted * 2, atol=0.05)


def test_the_operator_keeps_torchs_rules() -> None:
    q, k, v = normal(1, 40, 4, 64)
    starts = torch.tensor([0, 15, 40], dtype=torch.int32, device="cuda")
    operator = torch.ops.sm120_attn.forward.default
    dense = (q, k, v, None, None, 40, 40, True, "top-left", -1, -1, 0.125, 0.0, True)
    packed = (q[0], k[0], v[0], starts, starts, 25, 25, False, "top-left", 4, 4, 0.125, 0.0, False)
    for arguments in (dense, packed):
        torch.library.opcheck(
            operator, arguments, test_utils=("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
        )


def test_backward_says_that_there_is_none() -> None:
    q, k, v = normal(1, 20, 2, 64)
    o = attention(q.requires_grad_(), k, v)
    with pytest.raises(NotImplementedError, match="forward only"):
        o.float().sum().backward()


def test_a_reloaded_kernel_gives_the_same_bits() -> None:
    q, k, v = normal(1, 300, 4, 64)
    first = attention(q, k, v, softcap=9.0)
    from sm120_attn.launch.prepare import prepared_calls

    cache._compiled.clear()
    prepared_calls.clear()
    assert torch.equal(attention(q, k, v, softcap=9.0), first)
    if cache.cache_folder() is not None:
        assert any(kernel.cached for kernel in cache._compiled.values())
