"""NVTX ranges of domain ``cyinst`` around a user's code and around every launch of a specimen.

The only room that imports nvtx, inside a function. It is light: users' programs import it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ContextDecorator
from functools import cache, partial
from typing import Any

from profiler.errors import UsageError
from profiler.specimen import NAME

DOMAIN = "cyinst"


class _PushPop(ContextDecorator):
    """A range of one thread. It keeps no state, so that one object serves every use of a name."""

    __slots__ = ("_attributes", "_pop", "_push", "wide")

    def __init__(self, name: str) -> None:
        domain = _domain()
        self._attributes = domain.get_event_attributes(message=name)
        self._push, self._pop = domain.push_range, domain.pop_range
        self.wide = _StartEnd(partial(domain.start_range, self._attributes), domain.end_range)

    def __enter__(self) -> None:
        self._push(self._attributes)

    def __exit__(self, *_: object) -> None:
        self._pop()


class _StartEnd(ContextDecorator):
    """A range of the whole process: it also holds what other threads launch meanwhile, as autograd does.

    Which of several open ones of a name an exit ends makes no difference: all of them hold every thread.
    """

    __slots__ = ("_end", "_open", "_start")

    def __init__(self, start: Callable[[], Any], end: Callable[[Any], None]) -> None:
        self._start, self._end = start, end
        self._open: list[Any] = []

    def __enter__(self) -> None:
        self._open.append(self._start())

    def __exit__(self, *_: object) -> None:
        self._end(self._open.pop())


_ranges: dict[str, _PushPop] = {}


def annotate(name: str, *, process_wide: bool = False) -> _PushPop | _StartEnd:
    """Put what runs in an NVTX range of domain ``cyinst``, as a context manager or as a decorator.

    ncu takes the kernels of a range by ``--nvtx --nvtx-include cyinst@NAME/``. A range belongs to the thread that
    opened it; with ``process_wide`` it holds the launches of every thread (PyTorch launches backward kernels on
    threads of its own), and ncu's filter is ``cyinst@NAME`` without the slash. Without a profiler a range costs
    less than a microsecond. Raises UsageError for a name that ncu's filter would read as more than a name.
    """
    found = _ranges.get(name)
    if found is None:
        if not NAME.fullmatch(name):
            raise UsageError(f"annotate({name!r}): a range's name is made of letters, digits, '_', '-' and '.'")
        found = _ranges[name] = _PushPop(name)
    return found.wide if process_wide else found


class _NoDomain:
    """What stands in for the nvtx package where it is not installed."""

    def get_event_attributes(self, message: str) -> None: ...
    def push_range(self, attributes: None) -> None: ...
    def pop_range(self) -> None: ...
    def start_range(self, attributes: None) -> int:
        return 0

    def end_range(self, number: int) -> None: ...


@cache
def _domain() -> Any:
    try:
        import nvtx
    except ImportError:
        return _NoDomain()
    return nvtx.get_domain(DOMAIN)
