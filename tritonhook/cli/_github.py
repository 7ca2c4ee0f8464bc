"""Report a check to GitHub Actions: the job's summary, annotations, and one comment on the pull request.

Environment variables describe the workflow's run. The program `gh` writes the comment. If commenting fails, as for a
pull request from a fork, warn; the exit code is unchanged.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritonhook.capture.model import Capture, Stage
from tritonhook.cli._results import Results
from tritonhook.cli._streams import write_out
from tritonhook.errors import UsageError
from tritonhook.snapshot.changes import Change, ChangeStatus
from tritonhook.snapshot.facts import Identity, KernelFacts
from tritonhook.snapshot.spills import SourceLine, spill_lines

if TYPE_CHECKING:
    from tritonhook.report.results.snapshot import KernelChanges

_TRIES = 3  # attempts to write the comment: other jobs of the workflow may write it at the same time
_LIMIT_S = 60
_SPILLS = ("spill_stores", "spill_loads")
_COMMENTS = """query($owner: String!, $name: String!, $number: Int!, $after: String) {
  repository(owner: $owner, name: $name) { pullRequest(number: $number) { comments(first: 100, after: $after) {
    nodes { databaseId body viewerDidAuthor } pageInfo { hasNextPage endCursor } } } } }"""


class _GitHubError(Exception):
    """The comment could not be read or written."""


@dataclass(frozen=True, slots=True)
class GitHub:
    """One run of a workflow. summary: file for the job's summary. workspace: folder of the repository. link: URL of the
    run. commit: the commit under test. pull: number of the pull request that started the run; None: another event
    started it."""

    summary: Path
    workspace: Path
    repository: str
    link: str
    commit: str
    pull: int | None

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> GitHub:
        """Read the runner's environment. Raises UsageError outside of GitHub Actions."""
        names = ("GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE", "GITHUB_REPOSITORY", "GITHUB_SHA", "GITHUB_EVENT_PATH")
        if missing := [name for name in names if not environment.get(name)]:
            raise UsageError(f"--github: {', '.join(missing)} not set; it is for a step of GitHub Actions")
        summary, workspace, repository, commit, event = (environment[name] for name in names)
        request = _pull_request(Path(event))
        server, run = environment.get("GITHUB_SERVER_URL"), environment.get("GITHUB_RUN_ID")
        link = f"{server}/{repository}/actions/runs/{run}" if server and run else ""
        commit = request.get("head", {}).get("sha") or commit  # GITHUB_SHA is a temporary merge commit
        return cls(Path(summary), Path(workspace), repository, link, commit, request.get("number"))

    def tell(self, result: KernelChanges, lines: Sequence[SourceLine | None] = ()) -> None:
        """Write the summary, print the annotations, and write the comment. lines: source lines of each kernel's
        spills."""
        from tritonhook.report.render.github import annotation_commands, job_summary

        with self.summary.open("a", encoding="utf-8") as file:
            file.write(job_summary(result) + "\n")
        for command in annotation_commands(result, map(self._in_repository, lines)):
            print(command)
        if self.pull is not None:
            try:
                self._comment(result)
            except _GitHubError as error:
                print(f"::notice title=tritonhook::no comment was written: {' '.join(str(error).split())}")

    def _in_repository(self, line: SourceLine | None) -> SourceLine | None:
        return None if line is None else replace(line, file=str(Path(line.file).relative_to(self.workspace)))

    def is_own(self, file: str) -> bool:
        """Return whether a source file is in the repository."""
        return Path(file).is_relative_to(self.workspace) and "site-packages" not in Path(file).parts

    def _comment(self, result: KernelChanges) -> None:
        """Write this check's section into the shared comment.

        GitHub has no transactions, and other jobs may write at the same time. So read the comment back; and if two jobs
        created a comment each, keep the earlier one.
        """
        from tritonhook.report.render.github import has_section, joined

        for _ in range(_TRIES):
            own = self._own_comments()
            if not (own or any(kernel.status is not ChangeStatus.SAME for kernel in result.kernels)):
                return  # nothing to report
            if own:
                number, text = own[0]
                _gh(
                    "PATCH",
                    f"repos/{self.repository}/issues/comments/{number}",
                    {"body": joined(text, result, self.commit, self.link)},
                )
            else:
                text = joined("", result, self.commit, self.link)
                number = _gh("POST", f"repos/{self.repository}/issues/{self.pull}/comments", {"body": text})["id"]
            after = self._own_comments()
            if after and after[0][0] != number:
                _gh("DELETE", f"repos/{self.repository}/issues/comments/{number}")
            elif after and has_section(after[0][1], result, self.commit):
                return
        raise _GitHubError("other jobs of the workflow changed the comment at the same time")

    def _own_comments(self) -> list[tuple[int, str]]:
        """List the comments that this token wrote for tritonhook, the earliest first. A comment that contains the mark
        can also come from another author."""
        from tritonhook.report.render.github import MARK

        owner, _, name = self.repository.partition("/")
        comments: list[tuple[int, str]] = []
        after = None
        while True:
            variables = {"owner": owner, "name": name, "number": self.pull, "after": after}
            answer = _gh("POST", "graphql", {"query": _COMMENTS, "variables": variables})
            try:
                page = answer["data"]["repository"]["pullRequest"]["comments"]
                mine = (it for it in page["nodes"] if it["viewerDidAuthor"] and it["body"].startswith(MARK))
                comments += ((it["databaseId"], it["body"].replace("\r\n", "\n")) for it in mine)
                after = page["pageInfo"]["endCursor"] if page["pageInfo"]["hasNextPage"] else None
            except (KeyError, TypeError):
                raise _GitHubError("GitHub's list of comments cannot be read") from None
            if after is None:
                return sorted(comments)


def _pull_request(event: Path) -> Mapping[str, Any]:
    """Read the pull request from the event's file; {} if the event is not about a pull request."""
    try:
        document = json.loads(event.read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError(f"{event}: GitHub's event cannot be read: {error}") from None
    request = document.get("pull_request") if isinstance(document, dict) else None
    return request if isinstance(request, dict) and isinstance(request.get("number"), int) else {}


def _gh(method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
    """Call GitHub's API. Raises _GitHubError."""
    given = [] if body is None else ["--input", "-"]
    try:
        done = subprocess.run(
            ["gh", "api", "--method", method, path, *given],
            input=None if body is None else json.dumps(body),
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
        if done.returncode:
            raise _GitHubError(done.stderr.strip() or f"gh ended with status {done.returncode}")
        return json.loads(done.stdout) if done.stdout.strip() else None
    except FileNotFoundError:
        raise _GitHubError("the program gh is not on PATH") from None
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise _GitHubError(str(error)) from None


@contextmanager
def without_commands(active: bool) -> Iterator[None]:
    """Stop the runner from reading printed lines as its commands: a kernel's name may look like one."""
    word = secrets.token_hex(16)
    if active:
        write_out(f"::stop-commands::{word}\n")
    try:
        yield
    finally:
        if active:
            write_out(f"::{word}::\n")


def lines_of(
    kernels: Sequence[tuple[Capture, KernelFacts]], changes: Sequence[Change], wanted: Callable[[str], bool]
) -> list[SourceLine | None]:
    """Find the source line where each kernel of `changes` spills now; None if it does not spill or the line is unknown.

    kernels: the captured kernels with their facts before the comparison, which may have renumbered the kernels of
    `changes`. wanted: returns True for source files that may be named.
    """
    captures = {_key(facts): capture for capture, facts in kernels if Stage.CUBIN in capture.artifacts}
    spilling = {
        n: captures[_key(facts)]
        for n, facts in enumerate(change.new for change in changes)
        if facts is not None and any(map(facts.figures.get, _SPILLS)) and _key(facts) in captures
    }
    lines = dict(zip(spilling, spill_lines(list(spilling.values()), wanted), strict=True))
    return [lines.get(n) for n in range(len(changes))]


def _key(facts: KernelFacts) -> tuple[Identity, str | None]:
    return replace(facts.identity, number=1), facts.ptx_sha256


def run_of_workflow(asked: bool, results: Results) -> GitHub | None:
    """Read the workflow's run for --github; None without --github. Raises UsageError outside of GitHub Actions."""
    if asked and results.is_printed:
        raise UsageError("--github prints commands for the runner; leave out --json, --markdown and --csv")
    return GitHub.of(os.environ) if asked else None
