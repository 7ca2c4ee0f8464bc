"""The parent's side: give orders to a child process that has the GPU, with a time limit, and start another one where it
is lost. A build that ends the child, or hangs, gets a Failure, and the others run on."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import TracebackType

from tritonhook._util.line_child import LineChild
from tritonhook.errors import DeviceError, TritonHookError, UsageError
from tritonhook.verify.model import Failure, FailureKind, Order, Ran
from tritonhook.verify.protocol import order_to_json

WORKER = (sys.executable, "-m", "tritonhook.verify.worker")
LIMIT_S = 10.0
TRIAL_LIMIT_S = 2.0  # of a launch while a kernel is minimised: many trials never end
_SPARES = 2  # children that are started ahead once one was lost: a start takes longer than most launches
_START_S = 120.0  # for a child's start, and for what it does between launches: large buffers are compared there
_ERRORS = {error.__name__: error for error in (DeviceError, UsageError)}


class Executor:
    """A child process with the GPU, started when it is first needed. Use it as a context manager.

    limit_s: of one launch. command: of the child.
    """

    def __init__(self, limit_s: float = LIMIT_S, command: Sequence[str] = WORKER) -> None:
        self.limit_s, self.command = limit_s, command
        self._child: LineChild | None = None
        self._spares: deque[LineChild] = deque()
        self.device: str | None = None  # the GPU's name, once a child has told it

    def __enter__(self) -> Executor:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._drop()
        while self._spares:
            self._spares.popleft().end()

    def _drop(self) -> None:
        if self._child is not None:
            self._child.end()
            self._child = None

    def run_until_lost(self, order: Order) -> tuple[Ran, ...]:
        """Like `run`, but stop after the first build that ends its child process."""
        return self.run(order, lambda ran: ran.failure is not None and ran.failure.kind is not FailureKind.REFUSED)

    def run(self, order: Order, stop: Callable[[Ran], bool] = lambda ran: False) -> tuple[Ran, ...]:
        """Carry out an order: one Ran for each input and build, in that order.

        If the reference fails on an input, the other builds run without a comparison there. stop: ends the order after
        this Ran; what is left is not run. Raises DeviceError without a GPU, UsageError where the launch does not fit.
        """
        found: dict[tuple[str, str], Ran] = {}
        for name in order.inputs:
            for ran in self._on_input(order, name):
                found.setdefault((name, ran.build), ran)
                if stop(ran):
                    self._drop()  # the child is still at it
                    return tuple(found.values())
        return tuple(found[name, build.label] for name in order.inputs for build in order.builds)

    def _on_input(self, order: Order, name: str) -> Iterator[Ran]:
        """What each build gives on one input, by as many children as it takes."""
        reference, waiting, done = order.builds[0], order.builds, set[str]()
        while waiting:
            last = ""
            for ran in self._one_child(replace(order, inputs=(name,), builds=waiting)):
                last = ran.build
                done.add(last)
                yield ran
            left = tuple(build for build in waiting if build.label not in done)
            # A new child needs the reference's contents again: they went with the old one.
            again = (reference,) if left and reference in waiting and last != reference.label else ()
            waiting = again + left

    def _one_child(self, order: Order) -> Iterator[Ran]:
        """What one child gives for an order, until it is done or lost."""
        from msgspec import convert

        if self._child is None:
            self._child = self._spares.popleft() if self._spares else LineChild(self.command)
        child = self._child
        child.send(order_to_json(order))
        at: tuple[str, str] | None = None
        while True:
            answer = child.answer(self.limit_s if at is not None else _START_S)
            if answer is None or "lost" in answer:
                self._drop()
                kind = FailureKind.HANG if answer is None else FailureKind.CRASH
                if at is None:
                    raise DeviceError(f"the process with the GPU gave no answer: {child.ended()}; its output is above")
                while len(self._spares) < _SPARES:  # a kernel that loses one child is often followed by others
                    self._spares.append(LineChild(self.command))
                text = f"no end within {self.limit_s:g} s" if answer is None else answer["lost"] or child.ended()
                yield Ran(at[0], at[1], failure=Failure(kind, text))
                return
            if "error" in answer:
                raise _ERRORS.get(answer["kind"], TritonHookError)(answer["error"])
            if "at" in answer:
                at = answer["at"][0], answer["at"][1]
            elif "after" in answer:
                at = None
            elif "device" in answer:
                self.device = answer["device"]
            elif "ran" in answer:
                yield convert(answer["ran"], Ran)
            elif "done" in answer:
                return
