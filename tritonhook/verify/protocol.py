"""How verify and its child process talk: one JSON document a line.

To the child: an order, one a line; it ends when its input ends. From the child, for each order: {"at": [input, build]}
before each launch, {"after": [input, build]} when it has come to its end, {"ran": ...} when its results are compared
(model.Ran), and {"done": true} last. {"error": text, "kind": name of the error's class} instead, where an order cannot
be carried out at all. A child that ends without "done" has lost the GPU in what it was "at".
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tritonhook.capture.launches.record import to_document
from tritonhook.capture.launches.schema import from_document
from tritonhook.verify.model import Build, Order


def order_to_json(order: Order) -> str:
    """One line."""
    fields = {name: getattr(order, name) for name in ("inputs", "runs", "keep")}
    places = {name: None if (path := getattr(order, name)) is None else str(path) for name in ("folder", "save")}
    builds = [asdict(build) | {"path": str(build.path)} for build in order.builds]
    return json.dumps({"launch": to_document(order.launch), "builds": builds, **fields, **places})


def order_from_json(text: str) -> Order:
    given: dict[str, Any] = json.loads(text)
    builds = tuple(
        Build(**build | {"path": Path(build["path"]), "options": tuple(build["options"])}) for build in given["builds"]
    )
    folder, save = (None if given[name] is None else Path(given[name]) for name in ("folder", "save"))
    launch = from_document(given["launch"], "the order")
    return Order(launch, builds, tuple(given["inputs"]), given["runs"], folder, tuple(given["keep"]), save)
