"""--html FOLDER/: a first page that leads to a page for each kernel."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

import tritonhook
from tritonhook.cli import main

kernels = pytest.importorskip("triton_kernels", reason="needs Triton")


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two folders: "old" has an addition in two sizes, "new" another one in one of them, and a product in place of the
    other."""
    folder = tmp_path_factory.mktemp("captured")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(folder / "cache"))
        with tritonhook.session(folder / "captured" / "old"):
            for block in (128, 256):
                kernels.compile_kernel(block=block)
        with tritonhook.session(folder / "captured" / "new"):
            kernels.compile_kernel(kernels.other_add_kernel(), block=128)
            kernels.compile_kernel(kernels.multiply_kernel)
    return folder / "captured"


@pytest.fixture
def captures(captured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(captured, tmp_path, dirs_exist_ok=True))


def links(page: Path) -> dict[str, str]:
    """The pages of kernels that a page leads to, by their titles. Each is there, and leads back."""
    texts = [
        (page.parent / it).read_text() for it in re.findall(r'<a href="(kernels/[0-9a-f]+\.html)">', page.read_text())
    ]
    assert all('href="../index.html"' in text for text in texts)
    return {re.findall(r'<h1 id="verdict">([^<]+)', text)[0]: text for text in texts}


def test_a_folder_leads_to_the_page_of_each_kernel(captures: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["show", "old", "--html", "site/"]) == 0
    assert "wrote site/index.html" in capsys.readouterr().err
    pages = links(captures / "site" / "index.html")
    assert set(pages) == {"add_kernel[BLOCK=128]", "add_kernel[BLOCK=256]"}
    for page in pages.values():
        assert "def add_kernel" in page and '"listings"' in page
    assert len(list((captures / "site" / "kernels").iterdir())) == 2
    assert main(["show", "old", "--html", "site"]) == 2  # the folder is there, and has a page
    assert "site/index.html: exists; pass --force" in capsys.readouterr().err
    assert main(["show", "old", "--html", "site", "--force", "--filter", "BLOCK=128"]) == 0
    assert set(links(captures / "site" / "index.html")) == {"add_kernel[BLOCK=128]"}


def test_a_folder_diff_leads_to_the_diff_of_each_kernel_that_changed(captures: Path) -> None:
    assert main(["diff", "old", "new", "--html", "site/"]) == 1
    pages = links(captures / "site" / "index.html")
    whats = [page.partition('class="what">')[2].partition("<")[0] for page in pages.values()]
    assert sorted(whats) == ["Capture", "Capture", "Diff"]  # new, gone, changed
    assert len(pages) == 3


def test_a_check_leads_to_the_captures(captures: Path) -> None:
    assert main(["lock", "old", "-o", "k.lock"]) == 0
    assert main(["check", "k.lock", "new", "--html", "site/"]) == 1
    pages = links(captures / "site" / "index.html")
    assert len(pages) == 2 and all("add_kernel(x, y" in page or "multiply_kernel(x" in page for page in pages.values())


def test_one_file_stays_one_file(captures: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["show", "old", "--html", "one.html"]) == 0
    assert links(captures / "one.html") == {} and not (captures / "kernels").exists()
    assert main(["show", "old", "--html", "nowhere/site/"]) == 2
    assert "nowhere does not exist; make it first" in capsys.readouterr().err
