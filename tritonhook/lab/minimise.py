"""Find the part of a name that changes the code: the shortest that suffices, and which of its letters matter.

Pure: a function answers whether a name changes the code. Nothing here knows a trigger.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tritonhook._util.reduction import Asked
from tritonhook.ptx.tokens import IDENTIFIER

Changes = Callable[[Sequence[str]], Sequence[bool]]  # for each name, whether it changes the code

_FILLERS = "vwxyz"
_AROUND = 6  # filler letters around the word when it is tried at other places


@dataclass(frozen=True, slots=True)
class NamePart:
    """The shortest part of a name that changes the code.

    word: the part, which starts at index `start` of `name`.
    needed: for each letter of the word, whether the effect ends when another letter stands there.
    cased: for each letter, whether the effect ends when its case changes; None if it has no case.
    places: where in a name of filler letters the word was tried, and whether it worked there.
    tried: how many names were tried.
    """

    name: str
    start: int
    word: str
    needed: tuple[bool, ...]
    cased: tuple[bool | None, ...]
    places: Mapping[str, bool]
    tried: int

    @property
    def pattern(self) -> str:
        """The word with a ? for each letter that may be any other."""
        return "".join(letter if needed else "?" for letter, needed in zip(self.word, self.needed, strict=True))

    @property
    def case(self) -> str:
        known = [cased for cased, needed in zip(self.cased, self.needed, strict=True) if needed and cased is not None]
        if all(known):
            return "case-sensitive" if known else "without letters"
        if not any(known):
            return "in any case"
        letters = ", ".join(repr(c) for c, cased in zip(self.word, self.cased, strict=True) if cased)
        return f"case-sensitive in {letters} only"

    @property
    def position(self) -> str:
        works = [place for place, ok in self.places.items() if ok]
        if len(works) == len(self.places):
            return "anywhere in the name"
        if not works:
            return f"only {self.start} letters after the name's start, where it was found"
        return f"only {' or '.join(works)}"

    @property
    def sentence(self) -> str:
        return f"minimal trigger: `{self.pattern}`, {self.case}, {self.position}"


def minimise(name: str, changes: Changes) -> NamePart | None:
    """Find the trigger in `name`; None if the name changes nothing. Letters that it does not need are replaced by
    filler letters, so that every name tried has the length of the first."""
    return _Search(name, changes).run()


class _Search:
    def __init__(self, name: str, changes: Changes) -> None:
        self.name = name
        self.filler = _filler(name)
        self.changes = Asked(changes)

    def run(self) -> NamePart | None:
        if not self.ask([self.name])[0]:
            return None
        start, end = self.shrink(0, len(self.name))
        while shorter := self.shorter_window(end - start - 1):
            start, end = self.shrink(*shorter)
        word = self.name[start:end]
        others = [self.with_letter(start, end, i, self.filler[i]) for i in range(start, end)]
        swapped = [self.with_letter(start, end, i, self.name[i].swapcase()) for i in range(start, end)]
        places = _places(word, start)
        answers = self.ask([*others, *swapped, *places.values()])
        k = len(word)
        return NamePart(
            name=self.name,
            start=start,
            word=word,
            needed=tuple(not answer for answer in answers[:k]),
            cased=tuple(
                None if letter.swapcase() == letter else not answer
                for letter, answer in zip(word, answers[k : 2 * k], strict=True)
            ),
            places=dict(zip(places, answers[2 * k :], strict=True)),
            tried=self.changes.tried,
        )

    def ask(self, names: Sequence[str]) -> list[bool]:
        """Say for each name whether it changes the code; False if it is no valid name."""
        valid = [name for name in names if IDENTIFIER.fullmatch(name)]
        answers = dict(zip(valid, self.changes(valid), strict=True))
        return [answers.get(name, False) for name in names]

    def keeping(self, start: int, end: int) -> str:
        return self.filler[:start] + self.name[start:end] + self.filler[end:]

    def with_letter(self, start: int, end: int, index: int, letter: str) -> str:
        kept = self.keeping(start, end)
        return kept[:index] + letter + kept[index + 1 :]

    def shrink(self, start: int, end: int) -> tuple[int, int]:
        """Shorten a window by bisection, from the left, then from the right, until one letter less does not work."""
        good, bad = start, end
        while bad - good > 1:
            middle = (good + bad) // 2
            good, bad = (middle, bad) if self.ask([self.keeping(middle, end)])[0] else (good, middle)
        start, good, bad = good, end, good
        while good - bad > 1:
            middle = (good + bad) // 2
            good, bad = (middle, bad) if self.ask([self.keeping(start, middle)])[0] else (good, middle)
        return start, good

    def shorter_window(self, length: int) -> tuple[int, int] | None:
        """A window of this length that works. There may be several triggers; bisection finds only one of them."""
        if length < 1:
            return None
        windows = [(start, start + length) for start in range(len(self.name) - length + 1)]
        answers = self.ask([self.keeping(*window) for window in windows])
        return next((window for window, works in zip(windows, answers, strict=True) if works), None)


def _filler(name: str) -> str:
    """A text as long as the name that has another letter at every place."""
    pairs = zip(name, (_FILLERS * (len(name) // len(_FILLERS) + 1)), strict=False)
    return "".join(letter if letter != character.lower() else "q" for character, letter in pairs)


def _places(word: str, start: int) -> dict[str, str]:
    """Names that have the word at the start, in the middle, at the end, between underscores, or are the word.
    In the middle it stands at another distance from the start than where it was found."""
    around = (_FILLERS * 2)[:_AROUND]
    half = _AROUND // 2 + (start == _AROUND // 2)
    names = {
        "at its start": word + around,
        "in its middle": around[:half] + word + around[half:],
        "at its end": around + word,
        "between underscores": f"{around[:half]}_{word}_{around[half:]}",
        "as the whole name": word,
    }
    return {place: name for place, name in names.items() if IDENTIFIER.fullmatch(name)}
