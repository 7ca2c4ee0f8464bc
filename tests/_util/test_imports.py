"""Names that are loaded when they are used, a callback after a module's import, functions by name."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tritonhook._util.imports import AfterImport, call_function, lazy_names
from tritonhook.errors import UsageError


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module that can be imported by its name."""
    name = "a_module_of_this_test"
    (tmp_path / f"{name}.py").write_text("VALUE = 7\n\n\ndef times(by):\n    return VALUE * by\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    yield name
    sys.modules.pop(name, None)


def test_the_callback_comes_once_after_the_module_ran(module: str) -> None:
    seen: list[int] = []
    waiting = AfterImport(module, lambda: seen.append(sys.modules[module].VALUE))
    waiting.begin()
    assert waiting.find_spec("json") is None, "other modules are not touched"
    assert sys.meta_path[0] is waiting and seen == []
    __import__(module)
    assert seen == [7] and waiting not in sys.meta_path
    del sys.modules[module]
    __import__(module)
    assert seen == [7]


def test_the_callback_comes_at_once_for_a_module_imported_earlier(module: str) -> None:
    seen: list[int] = []
    __import__(module)
    waiting = AfterImport(module, lambda: seen.append(sys.modules[module].VALUE))
    waiting.begin()
    assert seen == [7] and waiting not in sys.meta_path


def test_asking_for_the_spec_is_no_import(module: str) -> None:
    seen: list[str] = []
    waiting = AfterImport(module, lambda: seen.append(module))
    waiting.begin()
    spec = waiting.find_spec(module)
    assert spec is not None and spec.name == module
    assert seen == [] and waiting in sys.meta_path
    waiting.end()
    waiting.end()
    __import__(module)
    assert seen == []


def test_a_module_that_is_not_there(module: str) -> None:
    waiting = AfterImport("no_module_of_this_name", lambda: None)
    waiting.begin()
    with pytest.raises(ModuleNotFoundError):
        __import__("no_module_of_this_name")
    assert waiting in sys.meta_path


def test_a_lazy_name_is_loaded_from_its_home_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a_package").mkdir()
    (tmp_path / "a_package" / "__init__.py").write_text("")
    (tmp_path / "a_package" / "home.py").write_text("NAME = object()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    load = lazy_names("a_package", {"NAME": "home"})
    with pytest.raises(AttributeError, match="module 'a_package' has no attribute 'OTHER'"):
        load("OTHER")
    found = load("NAME")
    assert found is sys.modules["a_package.home"].NAME is sys.modules["a_package"].NAME
    for name in ("a_package", "a_package.home"):
        del sys.modules[name]


def test_a_function_of_the_current_folder_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "a_module_of_the_current_folder"
    (tmp_path / f"{name}.py").write_text("def times(by):\n    return 7 * by\n\n\nNUMBER = 1\n")
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    assert call_function(f"{name}:times", by=3) == 21
    assert sys.path[0] == str(tmp_path)
    call_function(f"{name}:times", by=3)
    assert sys.path.count(str(tmp_path)) == 1
    for wrong, why in (("NUMBER", "is a int, not a function"), ("nothing", "has no 'nothing'")):
        with pytest.raises(UsageError, match=why):
            call_function(f"{name}:{wrong}")
    del sys.modules[name]


def test_waiting_ends_also_while_the_interpreter_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python takes sys.meta_path away before it ends generators that wait for an import."""
    waiting = AfterImport("none", lambda: None)
    monkeypatch.setattr(sys, "meta_path", None)
    waiting.end()
