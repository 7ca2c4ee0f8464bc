"""Patch: the replacement is called, and the original is given back unless another tool has replaced ours."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tritonhook.capture.patching import Patch


def shouting(original: Callable[..., str]) -> Callable[..., str]:
    return lambda *arguments: original(*arguments).upper()


class Base:
    def method(self) -> str:
        """The name of the method."""
        return "method"

    @staticmethod
    def static() -> str:
        return "static"

    @classmethod
    def klass(cls) -> str:
        return cls.__name__

    @property
    def value(self) -> str:
        return "value"


class Derived(Base):
    pass


@pytest.mark.parametrize("name", ["method", "static", "klass"])
def test_a_method_of_any_kind_is_replaced_and_given_back(name: str) -> None:
    plain, before = getattr(Base(), name)(), Base.__dict__[name]
    patch = Patch(Base, name, shouting)
    assert getattr(Base(), name)() == plain.upper()
    assert type(Base.__dict__[name]) is type(before)
    assert getattr(Base, name).__doc__ == getattr(before, "__doc__", None)
    patch.undo()
    assert Base.__dict__[name] is before
    assert not patch.alive


def test_a_property_is_replaced_by_a_property() -> None:
    before = Base.__dict__["value"]
    patch = Patch(Base, "value", lambda original: property(lambda self: original.fget(self).upper()))
    assert Base().value == "VALUE"
    patch.undo()
    assert Base.__dict__["value"] is before


@pytest.mark.parametrize("owner", [ModuleType("module"), SimpleNamespace()], ids=["module", "object"])
@pytest.mark.parametrize("there", [None, lambda: "there"], ids=["none", "function"])
def test_an_attribute_of_a_module_or_an_object(owner: Any, there: Any) -> None:
    owner.hook = there
    patch = Patch(owner, "hook", lambda original: lambda: ("ours", original and original()))
    assert owner.hook() == ("ours", there and "there")
    patch.undo()
    assert owner.hook is there


def test_what_a_class_inherits_is_not_its_own() -> None:
    with pytest.raises(KeyError, match="method"):
        Patch(Derived, "method", shouting)
    with pytest.raises(AttributeError, match="missing"):
        Patch(SimpleNamespace(), "missing", shouting)
    assert Derived().method() == "method"


def test_another_tools_wrapper_around_ours_stays() -> None:
    before = Base.__dict__["method"]
    patch = Patch(Base, "method", shouting)
    ours = Base.method
    theirs = Base.method = lambda self: f"theirs, {ours(self)}"  # type: ignore[method-assign]
    patch.undo()
    assert Base.__dict__["method"] is theirs
    assert not patch.alive  # so that ours, which theirs calls, can only pass the call on
    Base.method = before  # type: ignore[method-assign]


def test_patches_of_one_method_are_undone_in_reverse() -> None:
    before = Base.__dict__["method"]
    patches = [Patch(Base, "method", shouting), Patch(Base, "method", lambda original: lambda self: original(self) * 2)]
    assert Base().method() == "METHODMETHOD"
    while patches:
        patches.pop().undo()
    assert Base.__dict__["method"] is before
