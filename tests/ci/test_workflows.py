"""The workflows do what they say: their steps run in a fresh clone, from the YAML.

`make test-nightly` runs one job, the build of a release; `make test-workflows` runs all but uploads.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest
import yaml
from repository import ROOT
from workflows import Runner, first_of_matrix, jobs, read_yaml, used_actions

import tritonhook
from tritonhook.cli import parser

WORKFLOWS = ROOT / ".github" / "workflows"
FILES = [*sorted(WORKFLOWS.glob("*.yml")), ROOT / "action.yml"]
UPLOADS = {("release", "publish"), ("release", "release"), ("upgrades", "propose")}
JOBS = [(path.stem, job) for path in FILES[:-1] for job in jobs(path) if (path.stem, job) not in UPLOADS]
BUILD = ("release", "build")
SERVER, REPOSITORY, TAG = "https://git.example.org", "someone/a-fork", f"v{tritonhook.__version__}"

pytestmark = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs the repository: this is a copy")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A fresh clone, with a changelog as it is when a version is released."""
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(tmp_path / "clone")], check=True)
    changelog = tmp_path / "clone" / "CHANGELOG.md"
    changelog.write_text(changelog.read_text().replace("## [Unreleased]", f"## [{tritonhook.__version__}]"))
    return tmp_path / "clone"


def run_job(clone: Path, home: Path, workflow: str, job: str) -> Runner:
    found = jobs(WORKFLOWS / f"{workflow}.yml")[job]
    runner = Runner(
        clone,
        home,
        {"matrix": first_of_matrix(found), "github": {"ref": "refs/heads/main"}, "vars": {}},
        {"GITHUB_REF_NAME": TAG, "GITHUB_SERVER_URL": SERVER, "GITHUB_REPOSITORY": REPOSITORY},
    )
    runner.run(found["steps"])
    assert not runner.failed and runner.ran, runner.output[-5000:]
    return runner


@pytest.mark.nightly
def test_a_release_is_built_from_a_fresh_clone(clone: Path, tmp_path: Path) -> None:
    runner = run_job(clone, tmp_path / "runner", *BUILD)
    assert [command for command, _ in runner.ran if "twine check --strict" in command]
    (wheel,) = (tmp_path / "runner" / "artifacts" / "dist").glob("*.whl")
    assert wheel.name == f"tritonhook-{tritonhook.__version__}-py3-none-any.whl"
    check_contents(wheel)
    check_names_its_repository(wheel)
    notes = (tmp_path / "runner" / "artifacts" / "notes" / "notes.md").read_text()
    assert notes.startswith("### Added") and "## [" not in notes


def check_contents(wheel: Path) -> None:
    import json

    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (bill,) = [name for name in names if ".dist-info/sboms/" in name]
        document = json.loads(archive.read(bill))
    assert document["bomFormat"] == "CycloneDX"
    assert document["metadata"]["component"]["version"] == tritonhook.__version__
    needed = {component["name"] for component in document["components"]}
    assert {"msgspec", "nvidia-cuda-nvdisasm", "rich"} <= needed and "triton" not in needed
    tops = {name.partition("/")[0] for name in names if ".dist-info" not in name}
    assert tops == {"tritonhook"}


def check_names_its_repository(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (path,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = message_from_bytes(archive.read(path))
    repository = f"{SERVER}/{REPOSITORY}"
    assert metadata.get_all("Project-URL") == [
        f"Source, {repository}",
        f"Issues, {repository}/issues",
        f"Changelog, {repository}/blob/{TAG}/CHANGELOG.md",
    ]
    links = re.findall(r"\]\(([^)]*)\)", metadata.get_payload())
    assert links and all(link.startswith((f"{repository}/", "#")) for link in links), links


def test_links_of_the_package_page_lead_into_the_repository() -> None:
    import runpy

    found = runpy.run_path(str(ROOT / ".ci" / "name_repository.py"))["absolute"]
    text = "![a](b.png) [c](d.md#e) [f](#g) [h](https://example.org)"
    assert found(text, "https://x.org/o/n", "v1") == (
        "![a](https://x.org/o/n/raw/v1/b.png) [c](https://x.org/o/n/blob/v1/d.md#e) [f](#g) [h](https://example.org)"
    )


@pytest.mark.machine
@pytest.mark.skipif(os.environ.get("WORKFLOWS") != "all", reason="hours: `make test-workflows`")
@pytest.mark.parametrize(("workflow", "job"), [one for one in JOBS if one != ("release", "try")])
def test_every_job_passes_in_a_fresh_clone(clone: Path, tmp_path: Path, workflow: str, job: str) -> None:
    run_job(clone, tmp_path / "runner", workflow, job)


@pytest.mark.machine
@pytest.mark.skipif(os.environ.get("WORKFLOWS") != "all", reason="downloads Triton: `make test-workflows`")
def test_the_wheel_runs_the_demo_in_a_clean_environment(clone: Path, tmp_path: Path) -> None:
    run_job(clone, tmp_path / "runner", *BUILD)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    runner = run_job(elsewhere, tmp_path / "runner", "release", "try")
    assert "3. Under another name" in runner.output
    assert f"tritonhook {tritonhook.__version__}" in runner.output


@pytest.mark.parametrize(
    ("tag", "changelog", "said"),
    [
        ("v0.0.9", "## [0.1.0]\n\ntext\n", "tag v0.1.0, or change it"),
        ("v0.1.0", "## [Unreleased]\n\ntext\n", r"no text below a heading \[0.1.0\]"),
        ("v0.1.0", "## [0.1.0]\n\n## [0.0.9]\n\ntext\n", "no text"),
    ],
)
def test_a_release_without_notes_or_with_another_tag_is_refused(tag: str, changelog: str, said: str) -> None:
    notes = read_release_notes()
    with pytest.raises(ValueError, match=said):
        notes(tag, "0.1.0", changelog)


def test_the_notes_are_those_of_the_version() -> None:
    text = "# Changelog\n\n## [Unreleased]\n\nnew\n\n## [0.1.0] - 2026-12-01\n\n- this\n\n## [0.0.9]\n\n- old\n"
    assert read_release_notes()("v0.1.0", "0.1.0", text) == "- this\n"


def test_links_of_the_notes_lead_into_the_repository() -> None:
    text = "## [0.1.0]\n\n[a](a.md#b), [c](https://example.org)\n"
    found = read_release_notes()("v0.1.0", "0.1.0", text, "https://example.org/hello/blob/v0.1.0/")
    assert found == "[a](https://example.org/hello/blob/v0.1.0/a.md#b), [c](https://example.org)\n"


def read_release_notes():  # type: ignore[no-untyped-def]
    import runpy

    return runpy.run_path(str(ROOT / ".ci" / "release_notes.py"))["notes"]


def test_the_version_stands_in_one_place() -> None:
    version = re.escape(tritonhook.__version__)
    assert 'dynamic = ["version"]' in (ROOT / "pyproject.toml").read_text()
    assert re.search(rf"^version: {version}$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_actions_are_pinned_by_commit(path: Path) -> None:
    used = list(used_actions(read_yaml(path)))
    assert used
    for action in used:
        assert re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", action), action
        assert re.search(rf"{re.escape(action)}  # v\d+\.\d+\.\d+$", path.read_text(), re.MULTILINE), action


def test_one_action_has_one_commit() -> None:
    used = {action for path in FILES for action in used_actions(read_yaml(path))}
    assert len({action.partition("@")[0] for action in used}) == len(used)


def test_ci_covers_the_supported_versions() -> None:
    found = jobs(WORKFLOWS / "ci.yml")
    project = (ROOT / "pyproject.toml").read_text()
    classifiers = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', project)
    assert found["test"]["strategy"]["matrix"]["python"] == classifiers
    tritons = re.search(r"^TRITONS \?= (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert tritons and found["triton"]["strategy"]["matrix"]["triton"] == tritons[1].split()
    targets = jobs(WORKFLOWS / "nightly.yml")["long"]["strategy"]["matrix"]["target"]
    assert {"test-nightly", "test-matrix", "stress", "fuzz", "test-workflows"} <= set(targets)
    for target in targets:
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE), target


def linter(name: str) -> str:
    """A program of this environment, or of PATH."""
    found = shutil.which(name, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if found is None:
        pytest.skip(f"needs {name}, which requirements.txt has")
    return found


def test_zizmor_finds_nothing() -> None:
    line = [linter("zizmor"), "--offline", "--persona", "pedantic", "--no-progress", str(ROOT)]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("schema", "paths"),
    [
        ("github-workflows", FILES[:-1]),
        ("github-actions", FILES[-1:]),
        ("dependabot", [ROOT / ".github" / "dependabot.yml"]),
        ("citation-file-format", [ROOT / "CITATION.cff"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_yaml_has_its_schema(schema: str, paths: list[Path]) -> None:
    line = [linter("check-jsonschema"), "--builtin-schema", f"vendor.{schema}", "--default-filetype", "yaml"]
    done = subprocess.run([*line, *map(str, paths)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def yaml_blocks(page: str) -> list[str]:
    return re.findall(r"^```yaml\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


def test_the_hooks_of_the_docs_exist_and_their_words_parse() -> None:
    hooks = {hook["id"]: hook for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())}
    (block,) = [text for text in yaml_blocks("docs/how-to/check-in-ci.md") if text.startswith("repos:")]
    shown = yaml.safe_load(block)["repos"][0]["hooks"]
    assert [hook["id"] for hook in shown] == list(hooks)
    for hook in shown:
        program, *words = hooks[hook["id"]]["entry"].split()
        assert program == "tritonhook" and not hooks[hook["id"]]["pass_filenames"]
        assert parser().parse_args([*words, *hook["args"]]).verb == words[0]


def test_the_inputs_of_the_docs_are_those_of_the_action() -> None:
    page = (ROOT / "docs" / "how-to" / "check-in-ci.md").read_text()
    table = page.partition("| input |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `([\w-]+)` \|", table, re.MULTILINE) == list(read_yaml(ROOT / "action.yml")["inputs"])
    for block in yaml_blocks("docs/how-to/check-in-ci.md"):
        for action in used_actions(yaml.safe_load(block)):
            assert action == "OWNER/tritonhook@COMMIT" or action in (ROOT / ".github/workflows/ci.yml").read_text()


def test_the_template_for_gitlab_has_its_schema(tmp_path: Path) -> None:
    (block,) = [text for text in yaml_blocks("docs/how-to/check-in-ci.md") if "CI_PROJECT_DIR" in text]
    (tmp_path / ".gitlab-ci.yml").write_text(block)
    line = [linter("check-jsonschema"), "--builtin-schema", "vendor.gitlab-ci", "--data-transform", "gitlab-ci"]
    done = subprocess.run([*line, str(tmp_path / ".gitlab-ci.yml")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
