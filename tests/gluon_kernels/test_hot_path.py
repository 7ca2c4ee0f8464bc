"""Which calls are launched at once, and which are checked and go through Triton. On the CPU."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from gluon_kernels import hot_path

torch = pytest.importorskip("torch", reason="needs torch")
pytest.importorskip("triton", reason="needs triton")


@pytest.fixture
def world(monkeypatch):
    """`call(q, k, v, **options)` of a kernel whose launches are kept: first calls and launches, in order."""
    log = []

    class Launch:
        def __init__(self, *launched):
            self.number = len(log)

        def __call__(self, addresses, stream):
            log.append(("launch", addresses, stream))

    def first(q, k, v, *, facts=None, return_lse=False, **options):
        o = torch.empty_like(q, dtype=torch.bfloat16)
        lse = torch.empty(q.shape[:3]) if return_lse else None
        log.append(("first", [q, k, v], options))
        hot_path.keep(facts, hot_path.Launched(object(), (1,), {}, {}), q, o, lse)
        return (o, lse) if return_lse else o

    monkeypatch.setattr(hot_path, "Launch", Launch)
    monkeypatch.setattr(hot_path, "_prepared", {})
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: -1, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 5, raising=False)
    call = lambda *tensors, **options: hot_path.call("hopper", first, *tensors, **options)  # noqa: E731
    return SimpleNamespace(call=call, log=log)


@pytest.mark.parametrize("return_lse", [False, True])
def test_a_call_for_another_gpu_is_made_there(world, monkeypatch, return_lse):
    current = [7]

    @contextmanager
    def device(number):
        current.append(number)
        yield
        current.pop()

    monkeypatch.setattr(torch.cuda, "device", device)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: current[-1], raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: ("stream of", device), raising=False)
    one, other = [tensor() for _ in range(3)], [tensor() for _ in range(3)]
    world.call(*one, return_lse=return_lse)
    made = world.call(*other, return_lse=return_lse)
    outputs = made if return_lse else (made,)
    kind, addresses, stream = world.log[-1]
    assert (kind, stream, current) == ("launch", ("stream of", -1), [7])
    assert addresses == tuple(x.data_ptr() for x in (*other, *outputs))


def tensor(*shape, dtype=torch.bfloat16):
    return torch.zeros(shape or (1, 2, 16, 64), dtype=dtype)


def test_the_second_call_like_one_before_is_launched_at_once(world):
    one, other = [tensor() for _ in range(3)], [tensor() for _ in range(3)]
    world.call(*one, causal=None)
    o = world.call(*other, causal=None)
    kinds = [entry[0] for entry in world.log]
    assert kinds == ["first", "launch"]
    assert world.log[1][1] == (*(x.data_ptr() for x in other), o.data_ptr()) and world.log[1][2] == 5
    assert (o.shape, o.dtype) == (other[0].shape, torch.bfloat16)


def test_lse_is_made_where_it_is_asked_for(world):
    x = tensor()
    world.call(x, x, x, return_lse=True)
    o, lse = world.call(x, x, x, return_lse=True)
    assert (lse.shape, lse.dtype) == ((1, 2, 16), torch.float32)
    assert world.log[-1][1] == (*[x.data_ptr()] * 3, o.data_ptr(), lse.data_ptr())


@pytest.mark.parametrize(
    "other",
    [
        lambda x: ([tensor(1, 2, 17, 64)] * 3, {}),
        lambda x: ([x, tensor(1, 2, 32, 64), tensor(1, 2, 32, 64)], {}),
        *(
            lambda x, i=i: ([tensor(1, 16, 2, 64).transpose(1, 2) if n == i else x for n in range(3)], {})
            for i in range(3)
        ),
        lambda x: ([tensor(dtype=torch.float16)] * 3, {}),
        lambda x: ([x] * 3, {"causal": "top-left"}),
        lambda x: ([x] * 3, {"scale": 0.5}),
    ],
    ids=["length", "keys", "strides of q", "of k", "of v", "dtype", "mask", "scale"],
)
def test_a_call_that_differs_is_checked(world, other):
    x = tensor()
    world.call(x, x, x, causal=None, scale=None)
    tensors, options = other(x)
    world.call(*tensors, **{"causal": None, "scale": None} | options)
    assert [entry[0] for entry in world.log] == ["first", "first"]


@pytest.mark.parametrize("which", [0, 1, 2])
def test_an_address_that_is_not_aligned_is_checked(world, which):
    x = tensor()
    world.call(x, x, x)
    off = torch.zeros(x.numel() + 1, dtype=x.dtype)[1:].view(x.shape)
    assert off.data_ptr() % 16
    world.call(*(off if number == which else x for number in range(3)))
    assert [entry[0] for entry in world.log] == ["first", "first"]


def test_a_watched_launch_goes_through_triton_and_is_not_kept(world):
    from triton import knobs

    x = tensor()
    knobs.runtime.launch_enter_hook.add(print)
    try:
        world.call(x, x, x)
        assert not hot_path._prepared
    finally:
        knobs.runtime.launch_enter_hook.remove(print)
    world.call(x, x, x)
    world.call(x, x, x)
    knobs.runtime.launch_enter_hook.add(print)
    try:
        world.call(x, x, x)
    finally:
        knobs.runtime.launch_enter_hook.remove(print)
    assert [entry[0] for entry in world.log] == ["first", "first", "launch", "first"]


@pytest.mark.parametrize("options", [{"rename": "cutlass_"}, {"launches": True}], ids=str)
def test_a_session_that_renames_or_records_launches_is_seen(triton_cache, tmp_path, options):
    tritonhook = pytest.importorskip("tritonhook")
    with tritonhook.session(tmp_path / "out", **options):
        assert hot_path.is_watched()
    assert not hot_path.is_watched()
