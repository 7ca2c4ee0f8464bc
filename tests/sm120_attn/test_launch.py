"""From tensors to arguments, and the torch operator. On the CPU: the kernel is a stand-in that keeps what it is given.

torch is not among the pinned packages (it is gigabytes); where it is installed, these run.
"""

import ctypes
import math
import threading
import time
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="needs torch: pip install torch")

from sm120_attn.api import attention  # noqa: E402
from sm120_attn.compile import abi  # noqa: E402
from sm120_attn.launch import prepare as launch  # noqa: E402
from sm120_attn.mask_bounds import bounds  # noqa: E402
from sm120_attn.verify.reference import attention_reference  # noqa: E402


class Sized:
    def __init__(self, width: int) -> None:
        self.width = width


class Int32:
    pass


class Float32:
    pass


class CUstream:
    pass


def fake_tensor(rank: int, last: int | None) -> SimpleNamespace:
    sizes = [Sized(32) for _ in range(rank - 1)] + [last or Sized(32)]
    return SimpleNamespace(element_type="bf16", shape=tuple(sizes), stride=(*(Sized(64) for _ in range(rank - 1)), 1))


class Kernel:
    """What compiled.get would give. `calls` has, per call, each argument by name."""

    def __init__(self) -> None:
        self.calls: list[dict] = []
        self.configs: list = []
        self.error = 0
        self.delay_s = 0.0
        self.lock = threading.Lock()

    def get(self, config):
        self.configs.append(config)
        rank = 3 if config.varlen else 4
        rows = [fake_tensor(rank, config.head_dim) for _ in range(4)]
        lse = fake_tensor(rank - 1, None) if config.lse else None
        offsets = [SimpleNamespace(element_type="i32", shape=(Sized(32),), stride=(1,)) if config.varlen else None] * 2
        one = SimpleNamespace(element_type="f32", shape=(Sized(32),) * 2, stride=(Sized(64),) * 2)
        factors = [one if config.fp8 else None] * 3
        scalars = [Int32(), Float32(), Float32(), Int32(), Int32(), Int32(), CUstream()]
        names = (
            "q k v o lse cu_seqlens_q cu_seqlens_k q_descale k_descale v_descale max_seqlen_q scale_log2 softcap "
            "window_left window_right sms stream"
        )
        slots = abi.slots_of(names.split(), [*rows, lse, *offsets, *factors, *scalars])

        def entry(address):
            time.sleep(self.delay_s)  # another thread may run now, as during a real launch
            pointers = (ctypes.c_void_p * (len(slots) + 1)).from_address(address)
            found = {}
            for slot, pointer in zip(slots, pointers, strict=False):
                size = abi.Layout([slot]).packer.size
                values = abi.Layout([slot]).packer.unpack(ctypes.string_at(pointer, size))
                found[slot.name] = values if slot.rank else values[0]
            with self.lock:
                self.calls.append(found)
            ctypes.c_int32.from_address(pointers[len(slots)]).value = self.error

        return SimpleNamespace(config=config, layout=abi.Layout(slots), entry=entry)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[Kernel]:
    """CPU tensors pass for CUDA tensors of device 0, an RTX 5090's sizes."""
    made = Kernel()
    monkeypatch.setattr(launch, "prepared", {})
    monkeypatch.setattr(launch.compiled, "get", made.get)
    monkeypatch.setattr(launch.compiled, "is_ready", lambda config: True)
    monkeypatch.setattr(launch, "device_facts", lambda index: ("sm_120a", 170))
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda index: 0x5EA, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: -1, raising=False)  # what a CPU tensor's device is called
    real = launch._check_kinds

    def check_kinds(tensors, dimensions):
        moved = {n: SimpleNamespace(dim=t.dim, dtype=t.dtype, shape=t.shape, device=CUDA) for n, t in tensors.items()}
        real(moved, dimensions)

    monkeypatch.setattr(launch, "_check_kinds", check_kinds)
    yield made


CUDA = torch.device("cuda", 0)


def qkv(*shape: int, heads_kv: int | None = None, keys: int | None = None, dtype=torch.bfloat16):
    *outer, rows, heads, dim = shape
    kv = (*outer, rows if keys is None else keys, heads if heads_kv is None else heads_kv, dim)
    return torch.zeros(shape, dtype=dtype), torch.zeros(kv, dtype=dtype), torch.zeros(kv, dtype=dtype)


# --- what the kernel is given --------------------------------------------------------------------------------------


def test_sizes_strides_and_scalars_arrive(kernel: Kernel) -> None:
    # given
    q, k, v = qkv(2, 70, 8, 128, heads_kv=2, keys=90)

    # when
    o, lse = attention(q, k, v, causal=True, window=(33, 5), scale=0.25, softcap=30.0, return_lse=True)

    # then
    (call,) = kernel.calls
    assert call["q"] == (q.data_ptr(), 2, 70, 8, 70 * 1024, 1024, 128)
    assert call["k"] == (k.data_ptr(), 2, 90, 2, 90 * 256, 256, 128)
    assert call["v"][0] == v.data_ptr()
    assert call["o"] == (o.data_ptr(), 2, 70, 8, 70 * 1024, 1024, 128)
    assert call["lse"][0] == lse.data_ptr()
    assert lse.shape == (2, 8, 70) and lse.dtype == torch.float32
    assert call["scale_log2"] == pytest.approx(0.25 * math.log2(math.e))
    assert call["softcap"] == 30.0
    assert (call["window_left"], call["window_right"]) == (33, 0)
    assert (call["max_seqlen_q"], call["sms"], call["stream"]) == (70, 170, 0x5EA)
    (config,) = kernel.configs
    assert (config.causal, config.window, config.softcap, config.lse, config.align) == (True,) * 4 + ("bottom-right",)


def test_the_default_scale_is_one_over_the_root_of_head_dim(kernel: Kernel) -> None:
    attention(*qkv(1, 16, 1, 64))
    assert kernel.calls[0]["scale_log2"] == pytest.approx(math.log2(math.e) / 8)


def test_a_window_may_be_a_list(kernel: Kernel) -> None:
    attention(*qkv(1, 16, 1, 64), window=[3, 4])
    assert (kernel.calls[0]["window_left"], kernel.calls[0]["window_right"]) == (3, 4)


def test_packed_sequences_arrive(kernel: Kernel) -> None:
    # given
    q, k, v = qkv(50, 4, 64, keys=80)
    starts_q = torch.tensor([0, 20, 50], dtype=torch.int32)
    starts_k = torch.tensor([0, 0, 80], dtype=torch.int32)

    # when
    o, lse = attention(
        q, k, v, cu_seqlens_q=starts_q, cu_seqlens_k=starts_k, max_seqlen_q=30, max_seqlen_k=80, return_lse=True
    )

    # then
    (call,) = kernel.calls
    assert call["q"] == (q.data_ptr(), 50, 4, 256, 64)
    assert call["cu_seqlens_q"] == (starts_q.data_ptr(), 3)
    assert call["cu_seqlens_k"] == (starts_k.data_ptr(), 3)
    assert call["max_seqlen_q"] == 30
    assert o.shape == q.shape and lse.shape == (4, 50)


def test_the_second_call_prepares_nothing_and_takes_new_addresses(kernel: Kernel) -> None:
    # given
    first = qkv(1, 20, 2, 64)
    second = qkv(1, 20, 2, 64)
    attention(*first)

    # when
    attention(*second)

    # then
    assert len(kernel.configs) == 1
    assert [call["q"][0] for call in kernel.calls] == [first[0].data_ptr(), second[0].data_ptr()]
    assert kernel.calls[0]["q"][1:] == kernel.calls[1]["q"][1:]


@pytest.mark.parametrize(
    "change",
    [
        {"causal": True},
        {"window": (3, 4)},
        {"scale": 0.5},
        {"softcap": 3.0},
        {"return_lse": True},
    ],
    ids=str,
)
def test_another_question_is_another_call(kernel: Kernel, change: dict) -> None:
    tensors = qkv(1, 20, 2, 64)
    attention(*tensors)
    attention(*tensors, **change)
    assert len(kernel.configs) == 2


def test_lengths_do_not_make_other_kernels(kernel: Kernel) -> None:
    for rows in (17, 33, 64, 100):
        attention(*qkv(1, rows, 2, 64))
    assert len(set(kernel.configs)) == 1


def test_square_problems_use_one_kernel_for_both_alignments(kernel: Kernel) -> None:
    tensors = qkv(1, 20, 2, 64)
    for align in ("top-left", "bottom-right"):
        attention(*tensors, causal=True, align=align)
    assert len(set(kernel.configs)) == 1


def test_strided_tensors_are_not_copied(kernel: Kernel) -> None:
    # given one tensor of q, k and v side by side, as a linear layer gives it, and heads before rows
    together = torch.zeros(2, 40, 3, 4, 64, dtype=torch.bfloat16)
    q, k, _ = together.unbind(2)
    v = torch.zeros(2, 4, 40, 64, dtype=torch.bfloat16).transpose(1, 2)

    # when
    attention(q, k, v)

    # then
    (call,) = kernel.calls
    assert call["q"] == (q.data_ptr(), 2, 40, 4, 40 * 768, 768, 64)
    assert call["v"] == (v.data_ptr(), 2, 40, 4, 4 * 40 * 64, 64, 40 * 64)


def _odd_rows(values):
    return torch.zeros(*values.shape[:-1], 65, dtype=values.dtype)[..., :64]


def _odd_address(values):
    return torch.zeros(values.numel() + 1, dtype=values.dtype)[1:].view(values.shape)


def _strided_columns(values):
    return torch.zeros(*values.shape[:-1], 128, dtype=values.dtype)[..., ::2]


@pytest.mark.parametrize("spoil", [_odd_rows, _odd_address, _strided_columns])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_what_is_off_the_16_byte_grid_is_copied(kernel: Kernel, spoil, which: int) -> None:
    # given
    tensors = list(qkv(1, 20, 2, 64))
    tensors[which] = spoil(tensors[which])
    for _ in range(2):
        # when
        attention(*tensors)

        # then only that one has moved
        call = kernel.calls[-1]
        for i, name in enumerate("qkv"):
            assert (call[name][0] == tensors[i].data_ptr()) == (i != which)
            assert call[name][0] % 16 == 0
            assert call[name][4:] == (20 * 128, 128, 64)


def test_the_stride_of_a_size_of_one_does_not_matter(kernel: Kernel) -> None:
    q, k, v = (t.as_strided(t.shape, (7, 128, 64, 1)) for t in qkv(1, 20, 2, 64))
    attention(q, k, v)
    assert kernel.calls[0]["q"] == (q.data_ptr(), 1, 20, 2, 20 * 128, 128, 64)


@pytest.mark.parametrize("shape", [(0, 20, 2, 64), (2, 0, 2, 64)])
def test_nothing_to_compute_launches_nothing(kernel: Kernel, shape: tuple) -> None:
    o, lse = attention(*qkv(*shape), return_lse=True)
    assert kernel.calls == [] and o.shape == shape and lse.numel() == 0


def test_no_key_is_zero_and_minus_infinity(kernel: Kernel) -> None:
    o, lse = attention(*qkv(2, 20, 2, 64, keys=0), return_lse=True)
    assert kernel.calls == []
    assert (o == 0).all() and torch.isneginf(lse).all()


def test_a_launch_that_fails_says_which_kernel(kernel: Kernel) -> None:
    kernel.error = 1
    with pytest.raises(RuntimeError, match="CUDA error 1.* at the launch of sm120_attn_"):
        attention(*qkv(1, 20, 2, 64))


def test_threads_do_not_share_a_buffer(kernel: Kernel) -> None:
    # given
    inputs = [qkv(1, 20, 2, 64) for _ in range(8)]
    attention(*inputs[0])
    kernel.calls.clear()
    kernel.delay_s = 1e-5

    # when
    threads = [threading.Thread(target=lambda t=t: [attention(*t) for _ in range(50)]) for t in inputs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    # then each thread's addresses were launched as often as it called
    wanted = {tuple(t.data_ptr() for t in tensors): 50 for tensors in inputs}
    assert Counter(tuple(call[n][0] for n in "qkv") for call in kernel.calls) == wanted


def test_a_kernel_that_is_not_compiled_does_not_join_a_capture(kernel: Kernel, monkeypatch) -> None:
    monkeypatch.setattr(launch.compiled, "is_ready", lambda config: False)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.raises(
        RuntimeError, match="is not compiled yet, and a CUDA graph is being captured: call attention once"
    ):
        attention(*qkv(1, 20, 2, 64))


def test_kept_calls_do_not_grow_without_end(kernel: Kernel, monkeypatch) -> None:
    monkeypatch.setattr(launch, "KEPT_CALLS", 4)
    for rows in range(1, 20):
        attention(*qkv(1, rows, 1, 64))
    assert len(launch.prepared) <= 4


# --- what is refused -----------------------------------------------------------------------------------------------


def _cu(*values: int):
    return torch.tensor(values, dtype=torch.int32)


REFUSED = {
    "q has 3 and k 3 dimensions.*or packed": lambda: (qkv(20, 2, 64), {}),
    "k has a size|head_dim is 64 in q, 128 in k": lambda: ((qkv(1, 20, 2, 64)[0], *qkv(1, 20, 2, 128)[1:]), {}),
    "3 query heads and 2 key heads": lambda: (qkv(1, 20, 3, 64, heads_kv=2), {}),
    "batch is 2 in q and 1 in k": lambda: ((qkv(2, 20, 2, 64)[0], *qkv(1, 20, 2, 64)[1:]), {}),
    r"k is \[1, 20, 2, 64\] and v is \[1, 21, 2, 64\]": lambda: ((*qkv(1, 20, 2, 64)[:2], qkv(1, 21, 2, 64)[2]), {}),
    "head_dim 260: 32 to 256": lambda: (qkv(1, 20, 2, 260), {}),
    "head_dim 24: 32 to 256": lambda: (qkv(1, 20, 2, 24), {}),
    "scale is -1.0: must be finite and greater than 0": lambda: (qkv(1, 20, 2, 64), {"scale": -1.0}),
    "scale is nan": lambda: (qkv(1, 20, 2, 64), {"scale": math.nan}),
    "softcap is -2.0": lambda: (qkv(1, 20, 2, 64), {"softcap": -2.0}),
    "align is 'middle'": lambda: (qkv(1, 20, 2, 64), {"align": "middle"}),
    "window's left is -5": lambda: (qkv(1, 20, 2, 64), {"window": (-5, 0)}),
    "window is 5: must be": lambda: (qkv(1, 20, 2, 64), {"window": 5}),
    r"q is \[1, 20, 2, 0\]: its last dimension": lambda: (qkv(1, 20, 2, 0), {}),
    r"q is \[\]: its last dimension": lambda: (
        [torch.tensor(1.0)] * 3,
        {"cu_seqlens_q": _cu(0, 20), "cu_seqlens_k": _cu(0, 20), "max_seqlen_q": 20, "max_seqlen_k": 20},
    ),
    "max_seqlen_q and max_seqlen_k are needed": lambda: (
        qkv(20, 2, 64),
        {"cu_seqlens_q": _cu(0, 20), "cu_seqlens_k": _cu(0, 20)},
    ),
    "cu_seqlens_q is missing": lambda: (
        qkv(20, 2, 64),
        {"cu_seqlens_k": _cu(0, 20), "max_seqlen_q": 20, "max_seqlen_k": 20},
    ),
    "cu_seqlens_k is missing": lambda: (
        qkv(20, 2, 64),
        {"cu_seqlens_q": _cu(0, 20), "max_seqlen_q": 20, "max_seqlen_k": 20},
    ),
    "cu_seqlens_q has 3 entries and cu_seqlens_k 2": lambda: (
        qkv(20, 2, 64),
        {"cu_seqlens_q": _cu(0, 5, 20), "cu_seqlens_k": _cu(0, 20), "max_seqlen_q": 20, "max_seqlen_k": 20},
    ),
}


def test_what_is_no_tensor_is_named(kernel: Kernel) -> None:
    q, _, v = qkv(1, 20, 2, 64)
    with pytest.raises(TypeError, match=r"k is of type list: must be a torch\.Tensor"):
        attention(q, [1.0], v)


@pytest.mark.parametrize("message", REFUSED)
def test_a_bad_call_says_what_is_wrong(kernel: Kernel, message: str) -> None:
    tensors, options = REFUSED[message]()
    with pytest.raises(ValueError, match=message):
        attention(*tensors, **options)
    assert kernel.calls == []


@pytest.mark.parametrize(
    ("message", "change"),
    [
        (
            "q is torch.float32: must be one of torch.bfloat16, torch.float16, torch.float8",
            lambda q, k, v: (q.float(), k, v),
        ),
        ("v is torch.float16 and q is torch.bfloat16", lambda q, k, v: (q, k, v.half())),
    ],
)
def test_a_bad_dtype_says_what_is_wrong(kernel: Kernel, message: str, change) -> None:
    with pytest.raises(TypeError, match=message):
        attention(*change(*qkv(1, 20, 2, 64)))


def test_a_call_that_differs_in_dtype_only_is_checked_again(kernel: Kernel) -> None:
    q, k, v = qkv(1, 20, 2, 64)
    attention(q, k, v)
    for tensors in ((q.half(), k, v), (q, k.half(), v), (q, k, v.half())):
        with pytest.raises(TypeError, match="and q is"):
            attention(*tensors)


def test_cu_seqlens_of_64_bits_are_refused(kernel: Kernel) -> None:
    starts = torch.tensor([0, 20])
    with pytest.raises(TypeError, match="cu_seqlens_q is torch.int64: must be torch.int32"):
        attention(*qkv(20, 2, 64), cu_seqlens_q=starts, cu_seqlens_k=starts, max_seqlen_q=20, max_seqlen_k=20)


def test_tensors_on_the_cpu_are_refused() -> None:
    with pytest.raises(ValueError, match="q is on cpu: must be on a CUDA device"):
        attention(*qkv(1, 20, 2, 64))


def test_other_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = SimpleNamespace(name="NVIDIA A100", major=8, minor=0, multi_processor_count=108)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: facts)
    with pytest.raises(
        ValueError, match=r"NVIDIA A100 has compute capability 8.0: the kernels are for 12.0, 12.1, 9.0"
    ):
        launch.device_facts.__wrapped__(0)


# --- FP8 -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
@pytest.mark.parametrize("out", [None, torch.bfloat16, torch.float16, torch.float32])
def test_fp8_arguments_arrive(kernel: Kernel, dtype, out) -> None:
    # given a scale for each query head, one for all keys, none for the values
    q, k, v = qkv(2, 70, 8, 128, heads_kv=2, dtype=dtype)
    per_head, one = torch.rand(2, 8), torch.tensor(0.5)

    # when
    o = attention(q, k, v, q_descale=per_head, k_descale=one, out_dtype=out)

    # then
    (call,), (config,) = kernel.calls, kernel.configs
    assert o.dtype == (out or torch.bfloat16) and o.shape == q.shape and o.is_contiguous()
    assert call["o"] == (o.data_ptr(), 2, 70, 8, 70 * 1024, 1024, 128)
    assert call["q_descale"] == (per_head.data_ptr(), 2, 8, 8, 1)
    assert call["k_descale"] == (one.data_ptr(), 2, 2, 0, 0)
    assert call["v_descale"][1:] == (2, 2, 0, 0)
    assert ctypes.c_float.from_address(call["v_descale"][0]).value == 1.0
    assert (config.dtype, config.output_dtype) == (launch.DTYPES[dtype], launch.OUT_DTYPES[o.dtype])


def test_the_path_of_fp8_can_be_asked_for(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given the variable, when called, then FP8 takes that path, and 16-bit inputs know nothing of it."""
    fp8, bf16 = qkv(1, 16, 1, 64, dtype=torch.float8_e4m3fn), qkv(1, 16, 1, 64)
    for asked in ("native", "plain", "portable"):
        monkeypatch.setenv("SM120_ATTN_FP8_MMA", asked)
        launch.planned.cache_clear()
        launch.prepared.clear()
        attention(*fp8)
        attention(*bf16)
    assert [c.fp8_mma for c in kernel.configs] == ["native", "native", "plain", "native", "portable", "native"]

    monkeypatch.setenv("SM120_ATTN_FP8_MMA", "best")
    launch.planned.cache_clear()
    launch.prepared.clear()
    attention(*bf16)
    with pytest.raises(ValueError, match="SM120_ATTN_FP8_MMA=best: must be one of native, plain, portable, or not"):
        attention(*fp8)
    launch.planned.cache_clear()


@pytest.mark.parametrize("direct", [False, True])
def test_calls_that_differ_in_their_descales_are_told_apart(kernel: Kernel, direct: bool) -> None:
    """Given one call after the other, when they differ in nothing but the form of a descale, then each gets its own."""
    q, k, v = qkv(2, 70, 8, 128, heads_kv=2, dtype=torch.float8_e4m3fn)
    forms = [None, torch.rand(2, 8), torch.tensor(0.5), torch.rand(8, 2).T]
    for form in [*forms, *forms]:
        if direct:
            attention(q, k, v, q_descale=form)
        else:
            call = launch.Call(bounds(False, None), "top-left", 0.1, 0.0, False, 70, 70)
            launch.forward(q, k, v, None, None, call, (form, None, None))
    found = [call["q_descale"] for call in kernel.calls]
    assert [f[3:] for f in found] == [(0, 0), (8, 1), (0, 0), (1, 2)] * 2
    assert [f[0] for f, form in zip(found, forms, strict=False) if form is not None] == [
        t.data_ptr() for t in forms[1:]
    ]


@pytest.mark.parametrize("heads", [1, 3])
def test_fp8_rows_that_cannot_be_packed_are_copied_apart(kernel: Kernel, heads: int) -> None:
    """Given rows of 72 bytes, when called, then rows of the copies are 80 bytes apart, and the output is packed."""
    q, k, v = (torch.rand(2, 20, heads, 72).to(torch.float8_e4m3fn) for _ in range(3))
    o = attention(q, k, v)
    (call,) = kernel.calls
    for name in ("q", "k", "v"):
        assert call[name][1:4] == (2, 20, heads) and not any(step % 16 for step in call[name][-3:])
    assert o.is_contiguous() and call["o"][-3:] == (20 * heads * 72, heads * 72, 72)


def test_an_aligned_copy_has_the_values_and_rows_of_16_bytes() -> None:
    for dtype, wide in ((torch.float8_e5m2, 80), (torch.bfloat16, 72)):
        values = torch.rand(2, 5, 3, 144)[..., ::2].to(dtype)
        copied = launch.aligned_copy(values)
        assert torch.equal(copied.float(), values.float())
        assert copied.stride() == (15 * wide, 3 * wide, wide, 1)


def test_fp8_rows_off_the_16_byte_grid_are_copied(kernel: Kernel) -> None:
    """Given strides of 8 elements, which would do for two bytes each, when called, then q is copied."""
    _, k, v = qkv(1, 20, 2, 64, dtype=torch.float8_e4m3fn)
    wide = torch.zeros(1, 20, 2, 72, dtype=torch.float8_e4m3fn)[..., :64]
    attention(wide, k, v)
    (call,) = kernel.calls
    assert call["q"][0] != wide.data_ptr() and call["k"][0] == k.data_ptr()


@pytest.mark.parametrize(
    ("message", "dtype", "options"),
    [
        ("q_descale is given with torch.bfloat16 inputs", torch.bfloat16, {"q_descale": torch.ones(())}),
        ("out_dtype is torch.float32 with torch.bfloat16 inputs", torch.bfloat16, {"out_dtype": torch.float32}),
        ("out_dtype is torch.float64", torch.float8_e4m3fn, {"out_dtype": torch.float64}),
        ("k_descale is torch.float64", torch.float8_e4m3fn, {"k_descale": torch.ones((), dtype=torch.float64)}),
        (r"v_descale is \[2, 4\]: must be one number, or", torch.float8_e5m2, {"v_descale": torch.ones(2, 4)}),
    ],
)
def test_a_bad_fp8_call_says_what_is_wrong(kernel: Kernel, message: str, dtype, options: dict) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        attention(*qkv(2, 16, 4, 64, heads_kv=2, dtype=dtype), **options)
    assert not kernel.calls


def test_the_fake_of_fp8_has_the_outputs_dtype() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        q = torch.empty(2, 30, 4, 64, dtype=torch.float8_e4m3fn)
        o = attention(q, q, q, out_dtype=torch.float32)
    assert o.dtype == torch.float32 and o.shape == (2, 30, 4, 64)


# --- the operator --------------------------------------------------------------------------------------------------


@pytest.fixture
def on_cpu() -> Iterator[None]:
    """The operator on CPU tensors, by the reference."""
    library = torch.library.Library("sm120_attn", "IMPL")

    def plain(q, k, v, cu_q, cu_k, max_q, max_k, causal, align, left, right, scale, softcap, return_lse):
        o, lse = attention_reference(
            q, k, v, causal=causal, window=(left, right), align=align, scale=scale, softcap=softcap, cu_seqlens_q=cu_q,
            cu_seqlens_k=cu_k,
        )  # fmt: skip
        return o.to(q.dtype).contiguous(), lse.float() if return_lse else torch.empty(0)

    library.impl("forward", plain, "CPU")
    yield
    library._destroy()


def normal(*shape: int):
    return (torch.randn(shape, dtype=torch.bfloat16) for _ in range(3))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_torch_compile_takes_it_whole_and_with_dynamic_lengths(on_cpu: None, backend: str) -> None:
    # given
    def model(q, k, v):
        o, lse = attention(q * 2, k, v, causal=True, window=(9, None), return_lse=True)
        return o + 1, lse.sum(-1)

    compiled_model = torch.compile(model, fullgraph=True, dynamic=True, backend=backend)
    for rows in (20, 33):
        q, k, v = normal(2, rows, 4, 64)

        # when
        o, total = compiled_model(q, k, v)

        # then
        wanted, wanted_lse = attention_reference(q * 2, k, v, causal=True, window=(9, None))
        assert torch.allclose(o, (wanted.bfloat16() + 1))
        assert torch.allclose(total, wanted_lse.sum(-1).float(), rtol=1e-4)


def test_without_lse_the_graph_has_no_use_for_it(on_cpu: None) -> None:
    q, k, v = normal(1, 20, 2, 64)
    o = torch.compile(lambda *t: attention(*t), fullgraph=True, backend="aot_eager")(q, k, v)
    assert torch.equal(o, attention_reference(q, k, v)[0].bfloat16())


def test_the_operator_keeps_torchs_rules(on_cpu: None) -> None:
    q, k, v = normal(1, 20, 2, 64)
    starts = torch.tensor([0, 7, 20], dtype=torch.int32)
    operator = torch.ops.sm120_attn.forward.default
    dense = (q, k, v, None, None, 20, 20, True, "top-left", -1, -1, 0.125, 0.0, True)
    packed = (q[0], k[0], v[0], starts, starts, 13, 13, False, "top-left", 4, 4, 0.125, 0.0, True)
    for arguments in (dense, packed, (*dense[:-1], False)):
        torch.library.opcheck(operator, arguments, test_utils=("test_schema", "test_faketensor"))


def test_the_fake_says_what_the_launch_would_return(kernel: Kernel) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        q = torch.empty(2, 30, 8, 96, dtype=torch.float16, device="cuda")
        k, v = (torch.empty(2, 30, 2, 96, dtype=torch.float16, device="cuda") for _ in range(2))
        o, lse = attention(q, k, v, return_lse=True)
        assert (o.shape, o.dtype, o.device.type) == (q.shape, torch.float16, "cuda")
        assert (lse.shape, lse.dtype) == ((2, 8, 30), torch.float32)
    assert kernel.calls == []


def test_backward_says_that_there_is_none(on_cpu: None) -> None:
    q, k, v = normal(1, 20, 2, 64)
    q.requires_grad_()
    o = attention(q, k, v)  # a forward pass does no harm
    with pytest.raises(NotImplementedError, match="forward only; call it under torch.no_grad"):
        o.float().sum().backward()


def test_with_gradients_off_parameters_take_the_short_way(kernel: Kernel) -> None:
    q, k, v = (torch.nn.Parameter(t) for t in qkv(1, 20, 2, 64))
    with torch.no_grad():
        attention(q, k, v)
    with torch.inference_mode():
        attention(q, k, v)
    assert len(kernel.calls) == 2


def test_a_benchmark_of_another_kernel_launches_that_kernel(kernel: Kernel) -> None:
    """The public call must find what was prepared for it: else the planned kernel would be timed under another name."""
    from dataclasses import replace

    from sm120_attn.verify import bench

    # given two calls that ask for tiles of their own
    tensors = qkv(1, 128, 2, 64)
    others = [bench.chosen(lambda c, n=n: replace(c, tile_n=n), i + 1)(*tensors, True) for i, n in enumerate((32, 128))]
    known = dict(launch.prepared)

    # when they are made, and the planned call between them
    others[0]()
    attention(*tensors, causal=True)
    others[1]()

    # then nothing was prepared but the planned one, and each has its kernel
    assert sorted(found.kernel.config.tile_n for found in known.values()) == [32, 128]
    assert all(launch.prepared[facts] is found for facts, found in known.items())
    assert len(launch.prepared) == 3

    # and a second one like the first is refused, since it could be another's
    with pytest.raises(RuntimeError, match="has been made before"):
        bench.chosen(lambda c: c, 1)(*tensors, True)
