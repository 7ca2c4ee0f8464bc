"""Pass many compile-time arguments to a kernel as one parameter."""

from typing import Any

from triton.experimental.gluon import language as gl


class Constants:
    """Wrapper of a frozen dataclass whose fields a kernel reads as constexprs. Pass it as a `gl.constexpr` argument.

    Its repr is the dataclass's repr and becomes part of Triton's cache key.
    """

    def __init__(self, record: Any) -> None:
        self._record = record

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # copy and Triton probe every object for such attributes
            raise AttributeError(name)
        return gl.constexpr(getattr(self._record, name))

    def __repr__(self) -> str:
        return repr(self._record)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constants) and self._record == other._record

    def __hash__(self) -> int:
        return hash(self._record)
