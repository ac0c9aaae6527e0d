"""``capture()`` and ``profile()`` of users' scripts: run the script again under ncu, and return the account here.

Nothing heavy is imported in the run under ncu: what it imports, it imports instrumented.
"""

from __future__ import annotations

import re
import tempfile
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack

from profiler import errors, payload, relaunch
from profiler.errors import CaptureError, CyinstError, NoLaunchError, UsageError
from profiler.ranges import DOMAIN, annotate
from profiler.relaunch import Order, Part
from profiler.specimen import NAME

if TYPE_CHECKING:
    from profiler.books import Account
    from profiler.capture import Captured
    from profiler.model import LaunchProfile, Report, Work
    from profiler.session import Options
    from profiler.sidecar import Sidecar
    from profiler.targets import Target


class Choices(TypedDict, total=False):
    """How to capture: the options of ``cyinst profile`` of these names, with its defaults."""

    plan: str
    metrics: str
    kernel: str
    skip: int
    output: str | Path
    force: bool
    timeout: float
    samples: int
    interval: int
    clock_control: str
    cache_control: str
    replay: str
    ncu: str


_CHOICES = frozenset(Choices.__annotations__)
# What came of each call of this process, by key, for the runs that come by it again.
_outcomes: dict[str, dict[str, str]] = {}


class Capture:
    """One captured launch: what it was asked for before, and its books afterwards.

    ``name``; ``account``, ``launch``, ``report``, ``path`` and ``sidecar`` of the launch; ``error``, the exception that
    the capture ended in, or None. They raise UsageError where nothing was captured, and say why.
    """

    def __init__(
        self,
        name: str,
        work: Work | Sequence[int] | None,
        process_wide: bool,
        choices: Choices,
        pack: Callable[[], bytes] | None = None,
    ) -> None:
        """``pack`` returns the payload of a function, which can do without a script; for the others see ``capture``."""
        kind = "capture" if pack is None else "profile"
        if not NAME.fullmatch(name):
            raise UsageError(f"{kind}({name!r}): a name is made of letters, digits, '_', '-' and '.'")
        if unknown := choices.keys() - _CHOICES:
            raise TypeError(f"{kind}() got an unexpected keyword argument {min(unknown)!r}")
        self.name = name
        self.error: CyinstError | None = None
        self._call = f"{kind}({name!r})"
        self._work, self._wide, self._choices = work, process_wide, choices
        self._part = relaunch.part()
        self._pack, self._payload = pack, b""
        self._key = ""
        self._target: Target | None = None
        self._options: Options | None = None
        self._found: tuple[Captured, Account] | None = None
        self._why = "has not begun"

    @property
    def account(self) -> Account:
        """The books of the launch."""
        return self._result()[1]

    @property
    def launch(self) -> LaunchProfile:
        """The launch, with its metrics."""
        return self._result()[0].launch

    @property
    def report(self) -> Report:
        """The report that holds the launch."""
        return self._result()[0].report

    @property
    def path(self) -> Path:
        """The .ncu-rep file."""
        return self._result()[0].path

    @property
    def sidecar(self) -> Sidecar:
        """What is known beside the report."""
        return self._result()[0].sidecar

    def __enter__(self) -> Self:
        self._begin()
        self._open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(error)
        if error is not None:
            self._why = f"was left by {type(error).__name__}"
            return
        self._end()

    def __repr__(self) -> str:
        return f"<{self._call}: {self._why if self._found is None else self._found[0].path}>"

    def _repr_html_(self) -> str | None:
        return None if self._found is None else self._found[1]._repr_html_()

    @property
    def _runs(self) -> bool:
        """Whether the range is opened here."""
        return self._part in (Part.FOLLOWER, Part.ATTACHED)

    def _open(self) -> None:
        if self._part is Part.FOLLOWER:
            relaunch.reached()
        if self._runs:
            annotate(self.name, process_wide=self._wide).__enter__()

    def _close(self, error: BaseException | None) -> None:
        if self._runs:
            annotate(self.name, process_wide=self._wide).__exit__(None, None, None)
        if self._part is Part.FOLLOWER:
            if error is not None:
                traceback.print_exception(error)
            relaunch.end(0 if error is None else 1)

    def _begin(self) -> None:
        """Count the call and find out what this process has to do at it."""
        occurrence = relaunch.count(self.name)
        self._key = relaunch.key(self.name, occurrence)
        if occurrence > 1:
            self._call = f"{self._call.partition(' no. ')[0]} no. {occurrence}"
        self._found, self.error, self._why = None, None, "has not begun"
        self._part = relaunch.part()
        if self._part is Part.FOLLOWER and (order := relaunch.order()) is not None:
            _outcomes.update({at: dict(outcome) for at, outcome in order.outcomes.items()})
            if order.key != self._key:
                self._part = Part.BYSTANDER
        if self._part is Part.OTHER:
            raise UsageError(f"{self._call}: only the main process of a script can run it again under ncu")
        if self._part is Part.LEADER:
            self._prepare()
        self._why = "has not ended yet"

    def _prepare(self) -> None:
        """Say what stands in the way before the body runs, which may take long."""
        from profiler import session
        from profiler.model import Work
        from profiler.targets import Target, package_path

        if (many := relaunch.ranks()) > 1:
            raise UsageError(
                f"{self._call}: this is one of {many} processes of a job, and would wait for the others when it is run "
                "again alone; profile the whole job, with cyinst profile"
            )
        words = relaunch.script()
        environment: dict[str, str] = {}
        if words is None:
            if self._pack is None:
                raise UsageError(
                    f"{self._call}: there is no script to run again here: call profiler.profile(function, ...), or put "
                    "the block into a file"
                )
            self._payload = self._pack()
            environment = {"PYTHONPATH": package_path()}
        work = self._work if self._work is None or isinstance(self._work, Work) else Work.gemm(*self._work)
        given: dict[str, Any] = dict(self._choices)
        if "output" in given:
            given["output"] = str(given["output"])
        self._options = session.Options(**given)
        self._target = Target(
            self.name, tuple(words or payload.command(Path("payload"))), self._options.kernel, f"{DOMAIN}@{self.name}",
            work=work, environment=environment,
        )  # fmt: skip
        session.request_of(self._target, self._options)
        _preflight(self._options.ncu)

    def _end(self) -> None:
        """Capture the launch, or recall what came of it when the parent did."""
        if self._part is Part.LEADER:
            try:
                self._found = self._capture()
            except CyinstError as error:
                self.error, self._why = error, str(error)
                _outcomes[self._key] = {"kind": type(error).__name__, "text": str(error)}
                raise
            _outcomes[self._key] = {"path": str(self.path.resolve())}
        elif self._part is Part.ATTACHED:
            self._why = "ran under a profiler that was started by hand: its launch is in that profiler's report"
        elif self._key not in _outcomes:
            self._why = "is not what this run under ncu is for"
        elif "kind" in (outcome := _outcomes[self._key]):
            self._why = outcome["text"]
            self.error = getattr(errors, outcome["kind"])(self._why)
            raise self.error
        else:
            self._why = "was captured before"

    def _capture(self) -> tuple[Captured, Account]:
        from profiler import session

        assert self._target is not None
        assert self._options is not None
        relaunch.synchronise()
        with tempfile.TemporaryDirectory(prefix="cyinst-") as folder:
            if self._payload:
                file = Path(folder) / "payload"
                file.write_bytes(self._payload)
                # A payload needs no order, and what it calls must find none.
                target, mark = replace(self._target, program=tuple(payload.command(file))), file
                environment = {relaunch.VARIABLE: relaunch.OFF}
            else:
                name, _, occurrence = self._key.rpartition("#")
                order = Order(name, int(occurrence), _outcomes).write(Path(folder))
                target, mark = self._target, relaunch.mark(order)
                environment = {relaunch.VARIABLE: str(order)}
            target = replace(target, environment={**target.environment, **environment})
            try:
                profiled = session.run([target], self._options)
            except NoLaunchError as error:
                if mark.exists():
                    raise NoLaunchError(f"{self._call}: it ran under ncu, and {error}") from None
                raise CaptureError(
                    f"{self._call}: the script, run again under ncu, ended before it came to this call: it must take "
                    "the same way each time"
                ) from None
            except CaptureError as error:
                raise CaptureError(f"{self._call}: {error}") from error
        return profiled.captures[0], profiled.accounts[0]

    def _result(self) -> tuple[Captured, Account]:
        if self._found is None:
            outcome = _outcomes.get(self._key, {})
            if self._part is not Part.BYSTANDER or "path" not in outcome:
                raise UsageError(f"{self._call}: {self._why.removeprefix(f'{self._call}: ')}")
            self._found = _recalled(Path(outcome["path"]))
        return self._found


def _recalled(path: Path) -> tuple[Captured, Account]:
    """Return what the parent captured before, so that a script which decides by it takes the same way again."""
    from profiler.accounting import account
    from profiler.capture import Captured
    from profiler.ncu_parse import load
    from profiler.sidecar import read

    sidecar = read(path)
    if sidecar is None:
        raise CaptureError(f"{path}: its sidecar is gone")
    found = Captured(path, load(path, instances=False, sources=False), sidecar)
    return found, account(found.launch, sidecar.work)


@cache
def _preflight(ncu: str | None) -> None:
    """Look once for what would stop a capture; what may do harm is a warning."""
    from profiler import session

    for doubt in session.preflight(session.Options(ncu=ncu)):
        warnings.warn(f"cyinst: {doubt}", stacklevel=2)


def capture(
    name: str, *, work: Work | Sequence[int] | None = None, process_wide: bool = False, **choices: Unpack[Choices]
) -> Capture:
    """Capture a launch of the block that follows: ``with profiler.capture("step") as c: ...``, then ``c.account``.

    After the block the script is run again under ncu, to the same block and no further: everything before it runs
    twice. ``name`` is that of the NVTX range; blocks of one name are told apart by their order. The launch is the first
    in the range, or the first that matches ``kernel`` after ``skip`` others. ``work`` are its MACs, or (m, n, k) of a
    GEMM. With ``process_wide`` launches of other threads count, as PyTorch's backward kernels are. ``choices`` are
    options of ``cyinst profile``. Raises UsageError before the block where that cannot work, and after it CaptureError
    for what stood in the way.
    """
    return Capture(name, work, process_wide, choices)


def profile(
    fn: Callable[..., Any],
    /,
    *args: Any,
    work: Work | Sequence[int] | None = None,
    name: str | None = None,
    warmup: int = 1,
    process_wide: bool = False,
    **kwargs: Any,
) -> Capture:
    """Capture a launch of ``fn(*args, **kwargs)``, which is called ``warmup`` times before that one call.

    Only the run under ncu calls it, and what it returns is dropped. Where there is no script to run again, as in a
    notebook, ``fn`` with its arguments is sent to a process of its own: that takes a function that can be imported, or
    cloudpickle. Keywords that are options of ``cyinst profile`` (see ``Choices``) are taken as such, all others are the
    function's; for the rest see ``capture``.
    """
    choices: Any = {word: kwargs.pop(word) for word in _CHOICES & kwargs.keys()}
    called = name or _name_of(fn)
    one = Capture(
        called, work, process_wide, choices,
        lambda: payload.pack(fn, args, kwargs, name=called, warmup=warmup, process_wide=process_wide),
    )  # fmt: skip
    one._begin()
    if one._runs:
        for _ in range(warmup):
            fn(*args, **kwargs)
        one._open()
        try:
            fn(*args, **kwargs)
        except BaseException as error:
            one._close(error)
            raise
        one._close(None)
    one._end()
    return one


def _name_of(fn: Callable[..., Any]) -> str:
    """Return a range's name for a function: its own, or that of what it wraps or of its type."""
    fn = getattr(fn, "func", fn)
    name = getattr(fn, "__name__", None) or type(fn).__name__
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", name).strip("_.-") or "function"
