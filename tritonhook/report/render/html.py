"""A Page as one HTML file that includes its style and script, and requests nothing.

A result's texts are untrusted (a kernel may be called <script>). The template escapes them, the script only sets text,
and the page's content security policy forbids other scripts and all requests.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Any

from tritonhook import __version__
from tritonhook.errors import UsageError
from tritonhook.report.result import Page, number, sentence, short, signed, size, visible

_SCRIPTS = ("listing.js", "chart.js", "table.js", "page.js")  # in this order: page.js calls the functions of the others
_REMEDY = "HTML reports need jinja2, which is not installed; pip install 'jinja2>=3.1'"


def render_html(page: Page, source: str = "", links: Mapping[str, str] | None = None, home: str = "") -> str:
    """Write a Page as the text of an HTML file. Raises UsageError if jinja2 is not installed.

    source: name of the saved result that the page shows. links: addresses of kernels' pages, by row key. home: address
    of the parent page.
    """
    environment = _environment()
    script = _script()
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
        f"script-src 'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
    )
    template = environment.get_template(f"{page.template}.html.j2")
    return str(
        template.render(
            summary=page.summary,
            **page.parts,
            data=None if page.data is None else _embedded(page.data),
            style=_asset("page.css"),
            script=script,
            policy=policy,
            source=source,
            links=links or {},
            home=home,
            version=__version__,
        )
    )


def check_available() -> None:
    """Raise UsageError if jinja2 is not installed."""
    _environment()


def _script() -> str:
    """Join the parts of the page's script into one function."""
    parts = "\n".join(_asset(name) for name in _SCRIPTS)
    return f'"use strict";\n(() => {{\n{parts}}})();\n'


def _asset(name: str) -> str:
    return (files("tritonhook.report") / "templates" / name).read_text(encoding="utf-8")


def _embedded(data: Any) -> Any:
    """Encode values as JSON, escaped so that no text can end the surrounding <script> element."""
    from markupsafe import Markup

    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


@lru_cache(maxsize=1)
def _environment() -> Any:
    try:
        import jinja2
    except ImportError:
        raise UsageError(_REMEDY) from None
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_asset),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(number=number, size=size, signed=signed, short=short, sentence=sentence, visible=visible)
    return environment
