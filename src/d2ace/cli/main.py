"""The command ``d2ace``: collects the subcommands, and prints every error as one sentence.

Exit code 2: the command line is wrong. Exit code 1: the command failed. ``--debug`` shows the
traceback.
"""

from __future__ import annotations

import signal
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import Any, NoReturn, TextIO

from d2ace._util.errors import full_sentence
from d2ace._util.signals import heeded_signals
from d2ace._util.streams import lasting_streams, open_standard_streams


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    open_standard_streams()
    with lasting_streams() as output:
        code = _run(
            [word for word in words if word != "--debug"],
            debug="--debug" in words,
            alone=arguments is None,
        )
        output.flush()
        if isinstance(output.problem, BrokenPipeError):  # closed by its reader, as `| head` does
            code = code or 1
        elif output.problem is not None:
            why = getattr(output.problem, "strerror", None) or output.problem
            _say(f"standard output could not be written ({why}); everything else was done")
            code = code or 1
    sys.exit(code)


def _run(words: list[str], *, debug: bool, alone: bool) -> int:
    """The exit code of the command; ``alone``: it owns the process, and so handles signals."""
    try:
        import rich  # noqa: F401 - typer needs it for its help, we for tables
        import typer
    except ImportError as error:
        _say(
            f"the command line needs {error.name}; install it with "
            'pip install ".[bench]" in a checkout of d2ace'
        )
        return 1
    from d2ace._util.errors import RunError, UserError
    from d2ace._util.own_class import own_place
    from d2ace.data import DataError, UnknownDataError

    warnings.showwarning = _show_warning
    try:
        with _ended_by_signals() if alone else nullcontext():
            code = application(typer)(args=words, prog_name="d2ace", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except typer.Exit as stop:
        return int(stop.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        _say("interrupted")
        return 130
    except _Ended as ended:
        _say("interrupted" if ended.signum == signal.SIGINT else f"stopped by {ended.signum.name}")
        return 128 + ended.signum
    except Exception as error:
        if debug:
            raise
        typed_wrong = hasattr(error, "format_message")  # typer's own message about the arguments
        if typed_wrong:
            complaint = error.format_message().rstrip(".")  # type: ignore[attr-defined]
            if complaint:  # empty after the help of a bare `d2ace`
                _say(f"{complaint} (see: d2ace --help)")
        elif isinstance(error, DataError | RunError | UserError):
            _say(str(error))
        else:
            place = own_place(error)
            what = "unexpected" if place is None else f"{place} raised"
            why = str(error).removesuffix(".")
            _say(f"{what} {type(error).__name__}: {why}; run again with --debug for details")
        signum = getattr(error, "signum", None)  # a run that ended on request
        if signum is not None:
            return 128 + int(signum)
        return 2 if typed_wrong or isinstance(error, UnknownDataError | UserError) else 1


class _Ended(BaseException):
    """A signal without another handler; like KeyboardInterrupt, so that files are closed and
    processes ended on the way out.
    """

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signal.Signals(signum)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Signals without another handler end the command with our own exception.

    (Typer would silently turn KeyboardInterrupt into an exit code.)
    """

    def end(signum: int, frame: FrameType | None) -> None:
        raise _Ended(signum)

    heeded = heeded_signals()
    for each in heeded:
        signal.signal(each, end)
    afterwards: signal.Handlers = signal.SIG_IGN  # only a message is left to print
    try:
        yield
        afterwards = signal.SIG_DFL
    finally:
        for each in heeded:
            signal.signal(each, afterwards)


def application(typer: Any) -> Any:
    """All commands; typer comes as an argument, so that a missing one is an error in words."""
    from .bench import ablate, bench, compare, sweep
    from .data import app as data
    from .demo import demo
    from .inspect import inspect
    from .methods import methods
    from .report import report
    from .train import predict, train

    app = typer.Typer(
        name="d2ace",
        help="Find wrong labels and compare batch selectors in multi-label training.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        epilog="Add --debug to any command to see the traceback of an error.",
    )

    @app.callback()  # type: ignore[untyped-decorator, unused-ignore]
    def root() -> None:
        """Find wrong labels and compare batch selectors in multi-label training."""

    for command in (demo, train, predict, inspect, bench, ablate, sweep, report, compare, methods):
        app.command()(command)
    app.add_typer(data, name="data")
    return app


def _say(sentence: str) -> None:
    print(f"d2ace: {full_sentence(' '.join(sentence.split()))}", file=sys.stderr)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """A warning without the source line that raised it."""
    _say(f"note: {message}")
