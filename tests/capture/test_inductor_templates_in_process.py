"""Choices of Inductor's templates and configurations in this process, with stand-ins for Inductor and for sessions."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from tritonhook.capture import inductor_templates as module
from tritonhook.capture.inductor_templates import choice_text, key_of, key_of_pins, patch_scheduling, patch_selection
from tritonhook.capture.policy.model import Pin, Policy

ARCH, KEY = "sm_90a", ("input=a 1", "input=b 1", "output=torch.float16", "precision=high")
PIN = Pin("mm", ARCH, KEY, "triton_mm: BLOCK=64", gpu="H100", date="2026-11-22", source="template A".ljust(16)[:16])


@dataclass(eq=False)
class Choice:
    """As a choice of Inductor's: of a template, or of a library where it has none."""

    name: str
    description: str = ""
    template: str | None = None
    kwargs: dict[str, Any] = field(default_factory=dict)

    @property
    def annotations(self) -> dict[str, Any]:
        return {"ktc": SimpleNamespace(template=SimpleNamespace(src_hash=self.template))} if self.template else {}


A = Choice("triton_mm_7", "BLOCK=64", "template A" + " " * 20)
B = Choice("triton_mm_8", "BLOCK=32", "template B" + " " * 20)
LIBRARY = Choice("mm")
ALL = [A, B, LIBRARY]
TEXTS = ["triton_mm: BLOCK=64", "triton_mm: BLOCK=32", "mm"]


class Asking:
    """As a session with a policy, or without one: what it was told."""

    def __init__(self, *pins: Pin) -> None:
        self.told: list[Any] = []
        policy = Policy((), "p.toml", pins=pins) if pins else None
        find = lambda *asked: None if policy is None else policy.pin_for(*asked)  # noqa: E731
        self.settings = SimpleNamespace(policy=policy, pin_for=find)

    def note(self, text: str) -> None:
        self.told.append(text)

    def contain(self, doing: str, error: Exception) -> None:
        self.told.append((doing, error))

    def selected(self, *given: Any) -> None:
        self.told.append(given)


class Cache:
    """As Inductor's AlgorithmSelectorCache, which takes the last choice, or leaves it open."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.node = SimpleNamespace(data=SimpleNamespace(data=SimpleNamespace()))
        self.leaves_open = False

    def key_of(self, node: Any) -> tuple[Any, ...]:
        return node, 1

    def __call__(self, name: str, choices: Any, nodes: Any, layout: Any, *rest: Any, **named: Any) -> Any:
        self.calls.append((name, list(choices), nodes, layout, rest, named))
        return self.node, None if self.leaves_open else choices[-1]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Ask a cache for a choice under sessions; returns its answer, and gives back what was patched."""
    torch = SimpleNamespace(get_float32_matmul_precision=lambda: "high")
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(module, "_arch", lambda: ARCH)

    def ask(cache: Any, *sessions: Any, choices: Any = ALL, device: str = "cuda") -> Any:
        layout = SimpleNamespace(device=SimpleNamespace(type=device), dtype="torch.float16")
        (patch,) = patch_selection(SimpleNamespace(AlgorithmSelectorCache=Cache), lambda: sessions)
        try:
            answer = cache("mm", choices, ["a", "b"], layout, "rest", more=1)
        finally:
            patch.undo()
        name, given, nodes, told, rest, named = cache.calls[-1]
        assert (name, nodes, told, rest, named) == ("mm", ["a", "b"], layout, ("rest",), {"more": 1})
        return given, answer

    return ask


# --- what is asked, and what is chosen ------------------------------------------------------------


def test_what_inductor_chose_is_told_to_each_session(asked) -> None:
    cache, sessions = Cache(), [Asking(), Asking()]
    given, answer = asked(cache, *sessions)
    assert (given, answer) == (ALL, (cache.node, LIBRARY))
    for session in sessions:
        assert session.told == [("mm", ARCH, KEY, "mm", TEXTS, None)]
    session = Asking()
    asked(cache, session, choices=[LIBRARY, B, B])
    assert session.told == [("mm", ARCH, KEY, TEXTS[1], ["mm", TEXTS[1]], "template B      ")]


@pytest.mark.parametrize(("choices", "device"), [([A], "cuda"), (ALL, "cpu"), ([], "cuda")])
def test_what_is_no_choice_on_a_gpu_is_not_told(asked, choices, device) -> None:
    cache, session = Cache(), Asking(PIN)
    if not choices:
        cache.leaves_open = True
    given, _ = asked(cache, session, choices=choices, device=device)
    assert (given, session.told, vars(cache.node.data.data)) == (choices, [], {})


def test_a_choice_that_is_left_open_is_told_after_the_fusions(asked) -> None:
    cache, session = Cache(), Asking()
    cache.leaves_open = True
    asked(cache, session)
    buffer = cache.node.data.data
    assert session.told == [] and vars(buffer) == {module._ASKED: ("mm", ARCH, KEY)}
    for choice in (A, B):
        vars(choice)["get_make_kernel_render"] = lambda choice=choice: choice
    try:
        ends: list[Any] = []

        class Scheduler:
            nodes: ClassVar[list[Any]] = [
                SimpleNamespace(get_nodes=lambda: [SimpleNamespace(node=SimpleNamespace())]),
                SimpleNamespace(get_nodes=lambda: [SimpleNamespace(node=other) for other in (buffer, broken)]),
            ]

            def finalize_multi_template_buffers(self) -> None:
                ends.append(1)
                buffer.make_kernel_render = B

        buffer.choices = ALL
        broken = SimpleNamespace(**{module._ASKED: ("mm", ARCH, KEY)}, choices=None)
        own = Scheduler.finalize_multi_template_buffers
        (patch,) = patch_scheduling(SimpleNamespace(Scheduler=Scheduler), lambda: [session])
        Scheduler().finalize_multi_template_buffers()
        patch.undo()
        assert ends == [1] and Scheduler.finalize_multi_template_buffers is own
        told, (doing, error) = session.told
        assert told == ("mm", ARCH, KEY, TEXTS[1], TEXTS, "template B      ")
        assert "not known" in doing and isinstance(error, (TypeError, AttributeError))
        other = Choice("other")
        times = {A: 1.0, B: 2.0, LIBRARY: 4.0, other: 3.0}
        made = SimpleNamespace(make_kernel_render=None, choices=[*ALL, other, Choice("unmeasured")])
        made.choice_timings = lambda: times
        assert module._final(made) is other, "no template's code: the fastest of the others"
    finally:
        for choice in (A, B):
            vars(choice).pop("get_make_kernel_render")


def test_an_error_of_ours_is_told_and_inductor_goes_on(asked, monkeypatch) -> None:
    def fail(*_: Any) -> None:
        raise ValueError("wrong")

    cache, session = Cache(), Asking()
    monkeypatch.setattr(module, "_report", fail)
    assert asked(cache, session)[1] == (cache.node, LIBRARY)
    monkeypatch.setattr(module, "_key", fail)
    assert asked(cache, session)[1] == (cache.node, LIBRARY)
    assert ["not known" in doing for doing, _ in session.told] == [True, False]
    assert [str(error) for _, error in session.told] == ["wrong"] * 2


@pytest.mark.parametrize(
    ("choice", "text"),
    [
        (A, TEXTS[0]),
        (LIBRARY, "mm"),
        (Choice("bmm_3", kwargs={"b": "x", "a": 1}), "bmm: a=1, b='x'"),
        (SimpleNamespace(name="bmm_3", description=None), "bmm"),
    ],
)
def test_a_choice_is_known_by_its_name_and_what_describes_it(choice, text) -> None:
    assert choice_text(choice) == text


# --- pins -----------------------------------------------------------------------------------------


def test_a_pinned_choice_is_the_only_one_that_inductor_gets(asked) -> None:
    cache = Cache()
    for pin in (PIN, replace(PIN, source=None)):
        session, other = Asking(pin), Asking()
        given, answer = asked(cache, other, session)
        assert (given, answer) == ([A], (cache.node, A))
        assert session.told == other.told == []
    inner = Asking(replace(PIN, config=TEXTS[1], source=None))
    assert asked(cache, Asking(PIN), inner)[0] == [B], "of the innermost session"
    vars(cache)["preprocessing_fns"] = [lambda choices: choices[1:], lambda choices: [c for c in choices if c is not B]]
    session = Asking(PIN)
    given, _ = asked(cache, session)
    assert given == ALL and "has no choice" in session.told[0], "the program's own filters left it out"


@pytest.mark.parametrize(
    ("change", "note"),
    [
        ({"config": "mm: gone"}, "p.toml: mm has no choice 'mm: gone'"),
        ({"source": "another"}, f"p.toml: the template {PIN.config!r} of mm has changed"),
        ({"arch": "sm_80"}, None),
        ({"function": "bmm"}, None),
        ({"key": KEY[1:]}, None),
    ],
)
def test_a_pin_that_does_not_fit_is_noted_and_left(asked, change, note) -> None:
    session = Asking(replace(PIN, **change))
    given, _ = asked(Cache(), session)
    assert given == ALL
    *notes, chosen = session.told
    assert chosen[3] == "mm" and len(notes) == (note is not None)
    assert note is None or notes[0].startswith(note)


# --- pins of generated kernels --------------------------------------------------------------------

SOURCE = "index={}\n'backend_hash': '{}'\ndef {}(x): pass\n"


@pytest.fixture
def generated(tmp_path: Path) -> Callable[..., tuple[str, dict[str, Any]]]:
    """A file of Inductor's with a kernel, and what it says of it."""

    def write(index: int = 1, backend: str = "ab12", name: str = "triton_poi_fused_3") -> tuple[str, dict[str, Any]]:
        path = tmp_path / f"{index}{backend}{name}.py"
        path.write_text(SOURCE.format(index, backend, name))
        return str(path), {"kernel_name": name}

    return write


def test_a_generated_kernel_has_the_key_of_its_source(generated) -> None:
    text = SOURCE.format("", "", "KERNEL")
    key = "triton_poi_fused", ("source=" + hashlib.sha256(text.encode()).hexdigest()[:16],)
    for other in (generated(), generated(2), generated(1, "cd34"), generated(1, "ab12", "triton_poi_fused_4")):
        assert key_of(*other) == key, "whatever its number, and the index of the GPU"
    path, meta = generated()
    Path(path).write_text("changed")
    assert key_of(path, meta) != key
    assert key_of(None, meta) is key_of("", meta) is key_of(path, {}) is key_of(path, {"kernel_name": 5}) is None


class Config:
    """As Triton's."""

    def __init__(self, kwargs: dict[str, Any], num_warps: int = 4, num_stages: int = 1) -> None:
        self.kwargs, self.num_warps, self.num_stages = kwargs, num_warps, num_stages

    def __str__(self) -> str:
        each = self.kwargs | {"num_warps": self.num_warps, "num_ctas": 1, "num_stages": self.num_stages}
        return ", ".join(f"{name}: {value}" for name, value in each.items())


CONFIGS = [Config({"XBLOCK": 64, "RBLOCK": 8}), Config({"XBLOCK": 128, "RBLOCK": 8}, 8, 2)]


@pytest.mark.parametrize(
    ("config", "found"),
    [
        (str(CONFIGS[1]), (128, 8, 8, 2)),
        (str(Config({"XBLOCK": 16, "RBLOCK": 2}, 2, 3)), (16, 2, 2, 3)),  # coordinate descent made it
        ("XBLOCK: 16, RBLOCK: 2, num_warps: 2, num_ctas: 1, num_stages: 3, more: 1", None),
        ("XBLOCK: 16, num_warps: 2, num_ctas: 1, num_stages: 3", None),
        ("XBLOCK: 16, RBLOCK: 2, num_warps: 2, num_ctas: 1", None),
        ("XBLOCK: x, RBLOCK: 2, num_warps: 2, num_ctas: 1, num_stages: 3", None),
    ],
)
def test_a_pinned_configuration_is_found_or_made_else_noted(generated, config, found) -> None:
    path, meta = generated()
    function, key = key_of(path, meta) or ("", ())
    pin = Pin(function, ARCH, key, config, gpu="H100", date="2026-11-22")
    session: Any = Asking(replace(pin, function="other"), replace(pin, key=("source=other",)), pin)
    made = module.pinned(session, CONFIGS, path, meta)
    if found is None:
        assert made is None
        assert session.told == [f"p.toml: {function} has no configuration {config!r} any more; pin it again"]
    else:
        assert (made.kwargs, made.num_warps, made.num_stages) == (
            {"XBLOCK": found[0], "RBLOCK": found[1]},
            *found[2:],
        )
        assert made.found_by_coordesc is made.found_by_combo_autotune is True and session.told == []
    assert module.pinned(session, [], path, meta) is None


def test_without_a_pin_for_it_a_kernel_is_tuned(generated) -> None:
    path, meta = generated()
    function, key = key_of(path, meta) or ("", ())
    pin = Pin(function, ARCH, key, str(CONFIGS[0]), gpu="H100", date="2026-11-22")
    for session in (Asking(), Asking(PIN), Asking(replace(pin, function="other")), Asking(replace(pin, key=("x",)))):
        given: Any = session
        assert module.pinned(given, CONFIGS, path, meta) is None and session.told == []
    given = Asking(pin)
    assert module.pinned(given, CONFIGS, None, meta) is None
    assert module.pinned(given, CONFIGS, path, meta) is CONFIGS[0]


def test_the_pins_for_inductor_are_in_its_cache_keys() -> None:
    generated = replace(PIN, function="f", key=("source=1",))
    tritons = replace(PIN, key=("1",))
    policies = [Policy((), pins=pins) for pins in ((), (tritons,), (PIN,), (generated,), (PIN, generated))]
    keys = [key_of_pins(policy) for policy in (None, *policies)]
    assert keys[:3] == [""] * 3 and len(set(keys)) == 4 and {len(key) for key in keys[3:]} == {64}
    assert key_of_pins(Policy((), pins=(tritons, PIN))) == key_of_pins(Policy((), pins=(PIN,)))
    for change in ({"function": "f"}, {"key": KEY[:3]}, {"config": "mm"}):
        assert key_of_pins(Policy((), pins=(replace(PIN, **change),))) != keys[3]  # type: ignore[arg-type]
