"""Quantisation to FP8: how the work is cut, which addresses the kernel's own functions give, what `check` would see."""

import itertools
from dataclasses import replace
from types import SimpleNamespace

import pytest

from sm120_attn import quantize_config
from sm120_attn.quantize_config import CHUNKS, QuantizeConfig, cut, fits_whole, why_not


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"arch": "sm_80"}, "arch 'sm_80': compiled for sm_120a"),
        ({"dtype": "e4m3"}, "dtype 'e4m3': quantises bf16, fp16, fp32"),
        ({"fp8": "bf16"}, "fp8 'bf16': quantises to e4m3 or e5m2"),
        ({"head_dim": 24}, "head_dim 24: 32 to 256 in steps of 8"),
        ({"head_dim": 132}, "head_dim 132: 32 to 256 in steps of 8"),
        ({"tensors": 2}, "tensors 2: 1, or 3 (Q, K and V)"),
    ],
)
def test_what_cannot_be_built_says_why(changed: dict, said: str) -> None:
    assert why_not(QuantizeConfig()) is None
    assert why_not(replace(QuantizeConfig(), **changed)).startswith(said)


@pytest.mark.parametrize("rows", [1, 127, 128, 129, 5_000, 32_768, 32_769, 1_000_000])
@pytest.mark.parametrize("head_dim", [32, 72, 128, 256])
def test_chunks_cover_a_head_and_are_few_enough_for_the_second_pass(rows: int, head_dim: int) -> None:
    config = QuantizeConfig(head_dim=head_dim)
    work = cut(config, 6, rows, 50 << 20)
    vectors = rows * config.row_vectors
    assert work.chunks <= CHUNKS <= config.threads
    assert work.chunks * work.pieces * config.piece >= vectors
    assert (work.chunks - 1) * work.pieces * config.piece < vectors


def test_a_group_of_heads_is_a_share_of_l2() -> None:
    # given heads of 1 MiB: 4096 rows of 128 columns in bf16
    config, l2 = QuantizeConfig(), 50 << 20
    group = l2 // quantize_config.L2_AHEAD >> 20

    # then the first pass is so many heads ahead of the second, at least one, and all where they fit
    work = cut(config, 64, 4096, l2)
    assert (work.group, work.chunks) == (group, 32)
    assert work.blocks == (64 + 64 - group) * 32
    assert work.scratch == 64 * 32 + 1 + 64
    assert cut(config, 25, 4096, l2).group == 25
    assert cut(config, 26, 4096, l2).group == group
    assert cut(config, 3, 4096, 0).group == 1
    assert cut(replace(config, whole=True), 64, 400, l2).chunks == 1


def test_a_head_that_fits_into_one_cta_is_its_own_launch() -> None:
    assert fits_whole(QuantizeConfig(whole=True), 512)
    assert not fits_whole(QuantizeConfig(whole=True), 513)
    assert fits_whole(QuantizeConfig(whole=True, dtype="fp32", head_dim=64), 512)


# --- the kernel's addresses --------------------------------------------------------------------------------------


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(("dtype", "head_dim", "rows"), [
    ("bf16", 128, 300), ("bf16", 64, 700), ("bf16", 72, 333), ("fp32", 256, 128), ("fp32", 40, 500), ("fp16", 32, 1),
])  # fmt: skip
def test_every_vector_of_a_head_is_read_and_written_once_and_nothing_else(
    dtype: str, head_dim: int, rows: int, whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel's own address functions, on Python's integers."""
    pytest.importorskip("cutlass", reason="the CuTe DSL is not installed")
    from sm120_attn import kernel_quantize

    monkeypatch.setattr(kernel_quantize, "Int64", int)

    # given a head whose rows have room between them
    config = QuantizeConfig(dtype=dtype, head_dim=head_dim, whole=whole)
    row_bytes, source, target = head_dim * quantize_config.IN_BYTES[dtype], 1 << 20, 1 << 30
    slab = SimpleNamespace(
        source=source, source_stride=row_bytes + 48, target=target, target_stride=head_dim + 16,
        vectors=rows * config.row_vectors,
    )  # fmt: skip

    # when all threads of all CTAs have said where they read and write
    work = cut(config, 1, rows, 1 << 20)
    found = [
        place
        for piece in range(work.chunks * work.pieces)
        for thread in range(config.threads)
        for place in kernel_quantize.places(config, slab, piece, thread)
    ]

    # then those in the head are each of its vectors, once
    wanted = sorted(
        (source + row * (row_bytes + 48) + 16 * column, target + row * (head_dim + 16) + config.elements * column)
        for row in range(rows)
        for column in range(config.row_vectors)
    )
    assert sorted((read, written) for inside, read, written in found if inside) == wanted


@pytest.mark.parametrize("arch", ["sm_120a", "sm_121a", "sm_90a"])
@pytest.mark.parametrize("changed", [{}, {"whole": True}, {"dtype": "fp32", "tensors": 3, "varlen": True}])
def test_the_kernels_assemble_and_keep_their_values_in_registers(arch: str, changed: dict) -> None:
    pytest.importorskip("cutlass", reason="the CuTe DSL is not installed")
    from sm120_attn import sass
    from sm120_attn.offline import compile_offline

    # when: two launches of two kernels, or one of one
    assembled = compile_offline(QuantizeConfig(arch=arch, **changed))
    try:
        functions = sass._disassemble(assembled.cubin)
    except sass.DisassembleError as error:
        pytest.skip(str(error))

    # then
    assert len(functions) == (1 if changed.get("whole") else 2)
    # A division has a slow path, a function for whose call some registers may be put aside.
    assert all(sum(i.base in ("LDL", "STL") for i in code) <= 8 for code in functions.values())
    assert b"__cuda_syscall" not in assembled.cubin


# --- what the comparison sees --------------------------------------------------------------------------------------

torch = pytest.importorskip("torch", reason="needs torch: pip install torch")
from sm120_attn import check_quantize  # noqa: E402
from sm120_attn.check_quantize import Case, judge, quantize_reference  # noqa: E402

E4M3 = torch.float8_e4m3fn


def made(**changed):
    """A case's first tensor, cu_seqlens, and the right result, as a kernel would leave it."""
    case = Case("made", **changed)
    (x, *_), (starts, *_), _ = check_quantize.tensors(case, "cpu")
    y, descale = quantize_reference(x, check_quantize.torch_dtype(case.fp8), starts)
    return x, starts, y.contiguous(), descale


@pytest.mark.parametrize("values", check_quantize.VALUES)
@pytest.mark.parametrize("fp8", ["e4m3", "e5m2"])
def test_the_right_result_passes(values: str, fp8: str) -> None:
    x, starts, y, descale = made(values=values, fp8=fp8, rows=40)
    assert judge(x, check_quantize.torch_dtype(fp8), starts, y, descale) == ""


def test_packed_sequences_have_a_scale_each() -> None:
    x, starts, y, descale = made(lengths=(0, 5, 17))
    assert descale.shape == (3, 3) and (descale[0] == 1).all()
    assert judge(x, E4M3, starts, y, descale) == ""
    assert judge(x, E4M3, starts, y, descale.roll(1, 0))


def tail_dropped(x, y, descale):
    y[:, -1] = 0
    return y, descale


def tail_not_in_the_maximum(x, y, descale):
    x[:, -1, :, 3] = 50.0
    seen, factor = quantize_reference(x[:, :-1], E4M3)
    return torch.cat([seen.float(), (x[:, -1:].float() / factor[:, None, :, None]).clamp(-448, 448)], 1).to(
        E4M3
    ), factor


def sign_lost(x, y, descale):
    return y.float().abs().to(E4M3), descale


def descale_one_ulp_off(x, y, descale):
    return y, torch.nextafter(descale, torch.tensor(9.0))


def truncated(x, y, descale):
    bits = y.view(torch.uint8).clone()
    bits[0, 0, 0, 0] += 1
    return bits.view(E4M3), descale


MISTAKES = {
    "zeros": lambda x, y, descale: (torch.zeros_like(y.float()).to(E4M3), descale),
    "the last row not written": tail_dropped,
    "the last row not in the maximum": tail_not_in_the_maximum,
    "heads' scales swapped": lambda x, y, descale: (y, descale.flip(1)),
    "signs lost": sign_lost,
    "descales one unit off": descale_one_ulp_off,
    "one value off by one": truncated,
    "the scale of the whole tensor": lambda x, y, descale: (y, descale.amax().expand_as(descale).contiguous()),
    "e5m2": lambda x, y, descale: quantize_reference(x, torch.float8_e5m2),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_seen(name: str) -> None:
    x, starts, y, descale = made(rows=600, head_dim=64)
    y, descale = MISTAKES[name](x, y.clone(), descale.clone())
    assert judge(x, E4M3, starts, y, descale)


def test_a_nan_must_not_disappear() -> None:
    x, starts, y, descale = made(values="nan", rows=40)
    assert descale[-1, -1].isnan() and y[-1, :, -1].float().isnan().all() and not descale[0].isnan().any()
    assert judge(x, E4M3, starts, y.float().nan_to_num().to(E4M3), descale)
    assert judge(x, E4M3, starts, y, descale.nan_to_num(1.0))


def test_an_infinity_leaves_zeros_around_it() -> None:
    _, _, y, descale = made(values="inf", rows=40)
    assert descale[-1, -1].isinf()
    assert y[-1, :, -1].float().isnan().sum() == 1 and y[-1, :, -1].float().nan_to_num().abs().max() == 0


def test_the_cases_have_names_of_their_own_and_kernels_that_can_be_built() -> None:
    cases = list(check_quantize.matrix())
    assert len({case.name for case in cases}) == len(cases)
    assert [why_not(config) for config in check_quantize.needed(cases, "sm_120a") if why_not(config)] == []
    # both kernels, several groups of heads, more pieces than one to a CTA
    works = [
        cut(QuantizeConfig(head_dim=c.head_dim), c.batch * c.heads, c.rows, 1 << 26 if c.l2 is None else c.l2)
        for c in cases
    ]
    assert max(work.heads / work.group for work in works) > 3 and max(work.pieces for work in works) > 1


# --- calls -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ((torch.zeros(2, 3, 32),), ValueError, "x has 3 dimensions [2, 3, 32]: must be [batch, rows, heads, head_dim]"),
        ((torch.zeros(1, 2, 3, 32), torch.int8), TypeError, "dtype is torch.int8: must be torch.float8_e4m3fn"),
        ((torch.zeros(1, 2, 3, 32).long(),), TypeError, "x is torch.int64: must be torch.bfloat16, torch.float16"),
        ((torch.zeros(1, 2, 3, 32),), ValueError, "x is on cpu: must be on a CUDA device"),
    ],
)
def test_what_is_not_supported_says_so(arguments: tuple, error: type, said: str) -> None:
    from sm120_attn import quantize

    with pytest.raises(error) as raised:
        quantize(*arguments)
    assert str(raised.value).startswith(said)


def test_packed_sequences_need_their_longest() -> None:
    from sm120_attn import quantize, quantize_qkv

    x, starts = torch.zeros(10, 2, 64), torch.tensor([0, 10], dtype=torch.int32)
    with pytest.raises(ValueError, match="max_seqlen is needed with cu_seqlens: reading it from there would wait"):
        quantize(x, cu_seqlens=starts)
    with pytest.raises(ValueError, match="packed sequences need both cu_seqlens_q and cu_seqlens_k"):
        quantize_qkv(x, x, x, cu_seqlens_q=starts, max_seqlen_q=10)


def test_attention_quantises_or_takes_descales_but_not_both() -> None:
    from sm120_attn import attention

    x = torch.zeros(1, 4, 2, 64, dtype=torch.bfloat16)
    with pytest.raises(TypeError, match="quantize makes the descales"):
        attention(x, x, x, quantize=E4M3, q_descale=torch.ones(()))


@pytest.mark.parametrize("head_dim", [64, 72])
def test_torch_traces_it_with_the_right_shapes(head_dim: int) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    from sm120_attn import quantize, quantize_qkv

    with FakeTensorMode():
        x, kv = (torch.empty(2, rows, 4, head_dim, device="cuda", dtype=torch.bfloat16) for rows in (10, 30))
        y, descale = quantize(x)
        (_, k, _), (_, factor, _) = quantize_qkv(x, kv, kv, torch.float8_e5m2)
    assert (y.shape, y.dtype, descale.shape, descale.dtype) == (x.shape, E4M3, (2, 4), torch.float32)
    assert (k.shape, k.dtype, factor.shape) == (kv.shape, torch.float8_e5m2, (2, 4))
    assert [step % 16 for step in y.stride()[:-1]] == [0, 0, 0]


def test_a_gradient_through_it_is_refused() -> None:
    from sm120_attn import quantization

    with pytest.raises(NotImplementedError, match="quantize has no backward"):
        quantization._backward(None)


def test_the_lengths_of_a_case_are_those_of_its_tensors() -> None:
    for case in itertools.islice(check_quantize.matrix(), 0, None, 7):
        if case.rows > 5000 or case.batch > 100:
            continue
        xs, starts, longest = check_quantize.tensors(case, "cpu")
        for x, start, most in zip(xs, starts, longest, strict=True):
            assert most == (int(start.diff().max()) if start is not None else x.shape[1])
