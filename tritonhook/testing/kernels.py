"""The fixture `captured_kernels`: the kernels that a test has compiled, for its assertions. Also the plugin that
captures kernels in this process, and remembers which kernels existed when a test began."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

from tritonhook.capture.session import Session
from tritonhook.capture.store.schema import read_capture
from tritonhook.errors import listed
from tritonhook.snapshot.kernels import CapturedKernel
from tritonhook.testing.recording import RecordedRun, is_recorded, sessions


class CapturedKernels:
    """The kernels that a test has compiled, or loaded from a cache, so far.

    Triton keeps compiled kernels in memory and does not compile them again. A kernel of an earlier test in this process
    is therefore found, too, unless this test compiled a kernel of the same name.
    """

    def __init__(self, sessions: Callable[[], Sequence[Session]]) -> None:
        """Begin a test. sessions: returns the sessions that capture in this process."""
        self._sessions = sessions
        self._begun = {session: len(session.met) for session in sessions()}
        self._read: dict[tuple[Session, str], CapturedKernel] = {}

    def __getitem__(self, wanted: str | tuple[str, ...]) -> CapturedKernel:
        """Look up a kernel by name: `captured_kernels["add"]`. If it was compiled several times, add keys that select
        one: `captured_kernels["add", "BLOCK=128", "sm_90a"]`.

        Raises KeyError, with a list of the captured kernels, if no kernel or more than one fits.
        """
        __tracebackhide__ = True  # pytest then shows the line of the test instead of this function
        name, *words = (wanted,) if isinstance(wanted, str) else wanted
        fitting = self.all(name, *words)
        if len(fitting) == 1:
            return fitting[0]
        shown = ", ".join(map(repr, (name, *words)))
        if fitting:
            telling = _telling(fitting)
            remedy = f"choose one, as in captured_kernels[{name!r}, {telling!r}], or " if telling else ""
            raise KernelLookupError(
                f"{len(fitting)} kernels match {shown}; {remedy}get all with .all({shown}):", fitting
            )
        if same := self.all(name):
            raise KernelLookupError(f"no kernel matches {shown}; kernels of that name:", same)
        raise KernelLookupError(f"no kernel matches {shown}; captured so far:", self._all())

    def all(self, name: str, *words: str) -> list[CapturedKernel]:
        """List all kernels of this name that have all of these keys, such as "BLOCK=128" or "sm_90a"."""
        return [kernel for kernel in self._named(name) if set(words) <= {kernel.arch, *kernel.specialisation}]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and bool(self._named(name))

    def __iter__(self) -> Iterator[str]:
        """Yield the names of the kernels of this test."""
        return iter(dict.fromkeys(kernel.name for kernel in self._since_the_test_began()))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __repr__(self) -> str:
        return f"CapturedKernels({', '.join(kernel.text for kernel in self._since_the_test_began()) or 'none'})"

    def _named(self, name: str) -> list[CapturedKernel]:
        for kernels in (self._since_the_test_began(), self._all()):
            if named := [kernel for kernel in kernels if kernel.name == name]:
                return named
        return []

    def _since_the_test_began(self) -> list[CapturedKernel]:
        return self._kernels(self._begun)

    def _all(self) -> list[CapturedKernel]:
        return self._kernels({})

    def _kernels(self, begun: dict[Session, int]) -> list[CapturedKernel]:
        """List the kernels of all sessions, without duplicates and without losers of an autotuning. begun: by session,
        the number of earlier kernels to leave out."""
        met = {s: dict.fromkeys(s.met[begun.get(s, 0) :]) for s in self._sessions()}
        made = [self._kernel(s, record) for s, records in met.items() for record in records if record not in s.lost]
        return list({(kernel.identity, kernel.ptx): kernel for kernel in made}.values())

    def _kernel(self, session: Session, record: str) -> CapturedKernel:
        key = session, record
        if key not in self._read:
            self._read[key] = CapturedKernel(read_capture(session.out / "kernels" / record))
        return self._read[key]


class KernelLookupError(KeyError):
    """Raised if no kernel matches, or several do. Its text is shown without the quotes that KeyError adds."""

    def __init__(self, what: str, several: Sequence[CapturedKernel]) -> None:
        super().__init__(f"{what}\n  {listed([kernel.text for kernel in several], chr(10) + '  ')}")

    def __str__(self) -> str:
        return str(self.args[0])


def _telling(kernels: Sequence[CapturedKernel]) -> str | None:
    """Find a key that the first kernel has but not all others have; None if there is none."""
    of_each = [{kernel.arch, *kernel.specialisation} for kernel in kernels]
    own = [word for word in sorted(of_each[0]) if not all(word in words for words in of_each)]
    return min(own, key=len, default=None)


class FixtureRun:
    """A plugin that captures into a temporary folder, unless this process is captured already."""

    def __init__(self) -> None:
        self.kernels = CapturedKernels(sessions)
        self._recorded = None if is_recorded() else RecordedRun()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """Begin a test before its fixtures, which may compile the kernels that it asserts about."""
        self.kernels = CapturedKernels(sessions)

    def pytest_unconfigure(self) -> None:
        if self._recorded is not None:
            self._recorded.pytest_unconfigure()
