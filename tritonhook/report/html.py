"""One self-contained HTML file of a page: our own template, style and script inside, nothing fetched.

Every text of a result is untrusted (a kernel may be called <script>): the template escapes it, the script only sets
text, and the page's content policy forbids any script but ours, and any request.
"""

from __future__ import annotations

import base64
import hashlib
import json
from functools import lru_cache
from importlib.resources import files
from typing import Any

from tritonhook import __version__
from tritonhook.errors import UsageError
from tritonhook.report.pages.common import Page, number, sentence, short, signed, size

_REMEDY = "HTML reports need jinja2, which is not installed; pip install 'jinja2>=3.1'"


def render_html(page: Page, source: str = "") -> str:
    """The file's text. source: where the values come from, for the foot of the page. Raises UsageError without
    jinja2."""
    environment = _environment()
    script = _asset("page.js")
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
            version=__version__,
        )
    )


def check_available() -> None:
    """Raises UsageError without jinja2."""
    _environment()


def _asset(name: str) -> str:
    return (files("tritonhook.report") / "templates" / name).read_text(encoding="utf-8")


def _embedded(data: Any) -> Any:
    """JSON that cannot end the element it stands in."""
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


def visible(text: Any) -> str:
    """A text with its control characters written out, so that a line break in a name is seen and breaks nothing."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in str(text)
    )
