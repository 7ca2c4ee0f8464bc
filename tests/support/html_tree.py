"""A parsed page, for tests that compare structure: elements by tag and class, and their texts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

_VOID = {"meta", "link", "input", "br", "hr", "img"}


@dataclass
class Element:
    tag: str
    attributes: dict[str, str]
    children: list[Element | str] = field(default_factory=list)

    @property
    def classes(self) -> set[str]:
        return set(self.attributes.get("class", "").split())

    @property
    def text(self) -> str:
        return "".join(c if isinstance(c, str) else c.text for c in self.children)

    def all(self, tag: str = "", of_class: str = "", **attributes: str) -> Iterator[Element]:
        for child in self.children:
            if isinstance(child, str):
                continue
            fits = tag in ("", child.tag) and (not of_class or of_class in child.classes)
            if fits and all(child.attributes.get(k) == v for k, v in attributes.items()):
                yield child
            yield from child.all(tag, of_class, **attributes)

    def one(self, tag: str = "", of_class: str = "", **attributes: str) -> Element:
        found = list(self.all(tag, of_class, **attributes))
        assert len(found) == 1, f"{len(found)} of {tag} {of_class} {attributes}"
        return found[0]

    def rows(self) -> list[list[str]]:
        """The texts of a table's body."""
        body = self.one("tbody")
        return [
            [" ".join(cell.text.split()) for cell in row.children if isinstance(cell, Element)]
            for row in body.all("tr")
        ]

    def outline(self, depth: int = 0) -> Iterator[str]:
        """A line for each element: its tag, attributes and own text, behind those around it."""
        own = " ".join(word for c in self.children if isinstance(c, str) for word in c.split())
        tag = " ".join([self.tag, *(f"{name}={value!r}" for name, value in self.attributes.items())])
        yield f"{' ' * depth}<{tag}> {own}".rstrip()
        for child in self.children:
            if isinstance(child, Element):
                yield from child.outline(depth + 1)


class _Builder(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("", {})
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {k: v or "" for k, v in attrs})
        self.open[-1].children.append(element)
        if tag not in _VOID:
            self.open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].tag == tag, f"</{tag}> closes <{self.open[-1].tag}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def parse(html: str) -> Element:
    """The tree of a page. Raises AssertionError if an element is not closed, or closed by another's end tag."""
    builder = _Builder()
    builder.feed(html)
    builder.close()
    assert len(builder.open) == 1, f"<{builder.open[-1].tag}> is not closed"
    return builder.root
