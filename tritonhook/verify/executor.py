"""Run builds in a child process that uses the GPU (worker.py), with a time limit for each launch. If a build crashes
the child, or hangs, it gets a Failure, and another child runs the remaining builds."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tritonhook.capture.launches.schema import LaunchFields
from tritonhook.device.child import Child, Lost, Message
from tritonhook.errors import DeviceError
from tritonhook.verify.model import TRIAL_LIMIT_S, Build, Failure, FailureKind, Order, Ran, Runner


class RunBuilds(Message):
    """Request: run builds on one input. Fields: as in model.Order. The answers are a BuildResult for each build, then
    Done. Before each launch the child sends the label of the build."""

    launch: LaunchFields
    input: str
    builds: tuple[Build, ...]
    runs: int
    folder: Path | None
    keep: tuple[int, ...]
    save: Path | None


class BuildResult(Message):
    ran: Ran


class Done(Message):
    pass


WORKER = (sys.executable, "-m", "tritonhook.verify.worker")
LIMIT_S = 10.0  # time limit of a launch
_SPARES = 2  # children started in advance after one was lost, because a start takes longer than most launches
_REST_S = 120.0  # time limit between launches, when the child compares large buffers


class Executor(Runner):
    """Runs builds in a child process with the GPU, which is started when it is first needed. Use it as a context
    manager.

    limit_s: time limit of a launch, in seconds. command: command line that starts the child."""

    def __init__(self, limit_s: float = LIMIT_S, command: Sequence[str] = WORKER) -> None:
        self.limit_s, self.command = limit_s, command
        self._child: Child | None = None
        self._spares: deque[Child] = deque()
        self.device: str | None = None  # the GPU's name, once a child has sent it

    def trials(self) -> Executor:
        return Executor(min(self.limit_s, TRIAL_LIMIT_S), self.command)

    def close(self) -> None:
        self._drop()
        while self._spares:
            self._spares.popleft().end()

    def _drop(self) -> None:
        if self._child is not None:
            self._child.end()
            self._child = None

    def run(self, order: Order, stop: Callable[[Ran], bool] = lambda ran: False) -> tuple[Ran, ...]:
        """Run the builds on the inputs of an Order. If the reference fails on an input, the other builds run on it
        without a comparison. Raises DeviceError without a GPU, UsageError if the launch does not fit into the GPU's
        memory."""
        results: dict[tuple[str, str], Ran] = {}
        for name in order.inputs:
            for ran in self._on_input(order, name):
                results.setdefault((name, ran.build), ran)
                if stop(ran):
                    self._drop()  # the child still runs builds
                    return tuple(results.values())
        return tuple(results[name, build.label] for name in order.inputs for build in order.builds)

    def _on_input(self, order: Order, name: str) -> Iterator[Ran]:
        """Run each build on one input; start another child process whenever one is lost."""
        reference, waiting, done = order.builds[0], order.builds, set[str]()
        while waiting:
            last = ""
            for ran in self._one_child(order, name, waiting):
                last = ran.build
                done.add(last)
                yield ran
            left = tuple(build for build in waiting if build.label not in done)
            # A new child must run the reference again: the contents that it stored were lost with the old child.
            again = (reference,) if left and reference in waiting and last != reference.label else ()
            waiting = again + left

    def _one_child(self, order: Order, name: str, builds: tuple[Build, ...]) -> Iterator[Ran]:
        """Run builds on one input in one child process, until all have run or the child is lost."""
        if self._child is None:
            self._child = self._spares.popleft() if self._spares else self._started()
        child = self._child
        try:
            self.device = child.device
            fields = order.runs, order.folder, order.keep, order.save
            request = RunBuilds(LaunchFields.of(order.launch), name, builds, *fields)
            answer = child.ask(request, BuildResult, Done, rest_s=_REST_S)
            while isinstance(answer, BuildResult):
                yield answer.ran
                answer = child.answer(BuildResult, Done, rest_s=_REST_S)
        except Lost as lost:
            self._drop()
            if lost.at is None:
                raise DeviceError(
                    f"the process that uses the GPU gave no answer: {lost}; its output is above"
                ) from None
            while len(self._spares) < _SPARES:  # after one crash or hang, others often follow
                self._spares.append(self._started())
            kind = FailureKind.HANG if lost.hung else FailureKind.CRASH
            yield Ran(name, lost.at, failure=Failure(kind, str(lost)))

    def _started(self) -> Child:
        child = Child(self.command, self.limit_s)
        child.begin()
        return child
