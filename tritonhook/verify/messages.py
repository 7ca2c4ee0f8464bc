"""What verify asks its child process, and what that answers, beside the messages of device/child.py."""

from __future__ import annotations

from pathlib import Path

from tritonhook.capture.launches.schema import LaunchFields
from tritonhook.device.child import Message
from tritonhook.verify.model import Build, Order, Ran


class Run(Message):
    """An order. The answers are Result, one for each build and input, and Done; each launch is announced by its build's
    label."""

    launch: LaunchFields
    builds: tuple[Build, ...]
    inputs: tuple[str, ...]
    runs: int
    folder: Path | None
    keep: tuple[int, ...]
    save: Path | None

    @classmethod
    def of(cls, order: Order) -> Run:
        return cls(
            LaunchFields.of(order.launch), order.builds, order.inputs, order.runs, order.folder, order.keep, order.save
        )

    @property
    def order(self) -> Order:
        return Order(self.launch.launch, self.builds, self.inputs, self.runs, self.folder, self.keep, self.save)


class Result(Message):
    ran: Ran


class Done(Message):
    pass
