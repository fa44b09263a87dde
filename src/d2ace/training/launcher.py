"""The processes of a run on this machine, started, watched and ended together.

The parent process trains nothing. It starts the processes of the run. It passes a first signal on
to them, so that they save and end. It ends them all if one is gone or a second signal comes. If the
parent itself is gone, their pipe to it closes, and they end.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import connection, resource_tracker
from time import monotonic
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch

from d2ace._util.errors import RunError, UserError
from d2ace._util.machine import cores
from d2ace._util.signals import SIGNALS, heeded_signals
from d2ace._util.streams import lasting_streams
from d2ace.data import DataError

from .interruption import RunInterrupted

if TYPE_CHECKING:
    from lightning_fabric import Fabric

__all__ = ["run_in_processes"]

PAUSE = 0.5  # seconds between two checks of the processes
AFTERMATH = 1.0  # seconds in which a process's end explains another one's error
GRACE = 60.0  # seconds for the others to save once one has stopped
_TOLD = (RunError, UserError, DataError)
_MISSED = "run the same command again to resume from the last checkpoint, if there is one"


def run_in_processes(
    world: int, make_fabric: Callable[[], Fabric], run: Callable[[Fabric], str]
) -> str:
    """Run it in ``world`` processes, each with its own Fabric; return the first one's value."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise UserError(
            "New processes import your script, which starts processes itself; put its code under "
            '`if __name__ == "__main__":`.'
        )
    main = sys.modules["__main__"]
    script = getattr(main, "__file__", None) if main.__spec__ is None else None
    if script is not None and not os.path.exists(script):
        raise UserError(
            f"New processes import your script, but {script} is not a file; save the script, or "
            "use devices=1."
        )
    try:
        work = pickle.dumps((make_fabric, run, _flags()))
    except Exception as problem:  # the caller's objects may raise anything
        raise _unsendable(problem) from problem
    children: list[_Child] = []
    port = _free_port()
    with _passed_on(children) as asked:
        try:
            for rank in range(world):
                with _signals_held():
                    children.append(_Child(rank, world, port))
                if asked.signum is not None:
                    raise _interrupted(asked.signum)
            for child in children:
                child.hand(work)
            return _outcome(children)
        finally:
            asked.over = True
            for child in children:
                child.end()


@dataclass
class _Asked:
    """The signals received so far."""

    signum: int | None = None
    over: bool = False
    """Whether all processes are being ended, which nothing may interrupt."""


class _Child:
    """One process of the run, as the parent sees it."""

    def __init__(self, rank: int, world: int, port: int) -> None:
        context = torch.multiprocessing.get_context("spawn")
        theirs, self._tasks = context.Pipe(duplex=False)
        self._answers, answers = context.Pipe(duplex=False)
        self.name = f"Process {rank} of {world}"
        self.answer: str | Exception | None = None
        self.process = context.Process(
            target=_work, args=(theirs, answers, rank, world, port), daemon=False
        )
        self.process.start()
        theirs.close()
        answers.close()
        self.ends = (self._answers, self.process.sentinel)

    def hand(self, work: bytes) -> None:
        with suppress(OSError):  # it is gone, which :meth:`lost` reports
            self._tasks.send_bytes(work)

    def pass_on(self, signum: int) -> None:
        if hasattr(os, "setpgrp") and self.process.exitcode is None:  # otherwise it got it too
            os.kill(self.process.pid or 0, signum)

    def hear(self) -> None:
        """Read its answer if there is one."""
        with suppress(EOFError, OSError):
            if self.answer is None and self._answers.poll():
                self.answer = self._answers.recv()

    @property
    def gone(self) -> bool:
        """Whether it ended without an answer."""
        ended = self.process.exitcode is not None
        if ended:
            self.hear()  # an answer may have come since
        return ended and self.answer is None

    def why(self) -> Exception:
        """The error for its end."""
        code = self.process.exitcode or 0
        if -code in SIGNALS:
            return _interrupted(-code)
        how = f"ended with exit code {code}"
        if code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
        return RunError(f"{self.name} {how}; {_MISSED}.")

    def end(self) -> None:
        if self.answer is not None:
            self.process.join(AFTERMATH)
        self.process.kill()
        self.process.join()
        self._tasks.close()
        self._answers.close()


def _outcome(children: list[_Child]) -> str:
    """Wait until all have ended well, or one has failed."""
    deadline: float | None = None
    while True:
        silent = [child for child in children if child.answer is None]
        connection.wait([end for child in silent for end in child.ends], PAUSE)
        for child in silent:
            child.hear()
        failed = [child.answer for child in children if isinstance(child.answer, Exception)]
        stopped = [error for error in failed if isinstance(error, RunInterrupted)]
        if len(failed) > len(stopped):
            raise _cause(children)
        gone = [child for child in children if child.gone]
        if gone and not stopped:
            raise gone[0].why()
        if stopped and deadline is None:
            deadline = monotonic() + GRACE  # another may be writing the checkpoint
        waiting = any(child.answer is None and not child.gone for child in children)
        if stopped and (not waiting or monotonic() > (deadline or 0.0)):
            raise stopped[0]
        if not waiting:
            return str(children[0].answer)


def _cause(children: list[_Child]) -> Exception:
    """The error that caused the others: a process that ends makes the others fail.

    An error that a process reports itself counts first, whatever the order.
    """
    for child in children:
        if not any(isinstance(each.answer, _TOLD) for each in children):
            child.process.join(AFTERMATH)
        child.hear()
    gone = [child.why() for child in children if child.gone]
    errors = [child.answer for child in children if isinstance(child.answer, Exception)]
    told = [error for error in errors if isinstance(error, _TOLD)]
    return [*told, *gone, *errors][0]


def _interrupted(signum: int) -> RunInterrupted:
    return RunInterrupted(signum, f"Stopped by {signal.Signals(signum).name}; {_MISSED}.")


@contextmanager
def _passed_on(children: list[_Child]) -> Iterator[_Asked]:
    """While entered, a first signal goes to the children, and a second one ends them at once."""
    asked = _Asked()
    if threading.current_thread() is not threading.main_thread():  # only that one may set handlers
        yield asked
        return

    def pass_on(signum: int, frame: FrameType | None) -> None:
        if asked.over:
            return
        if asked.signum is None:
            asked.signum = signum
            for child in children:
                child.pass_on(signum)
            return
        asked.over = True
        for child in children:
            child.process.kill()
        before = handlers[signal.Signals(signum)]
        if callable(before):
            before(signum, frame)
        else:
            signal.signal(signum, before)
            signal.raise_signal(signum)

    handlers: dict[signal.Signals, Any] = {}
    handlers.update((each, signal.signal(each, pass_on)) for each in heeded_signals())
    try:
        yield asked
    finally:
        for each, handler in handlers.items():
            signal.signal(each, handler)


@contextmanager
def _signals_held() -> Iterator[None]:
    """Block signals until after this, here and in a process started inside, which unblocks them."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # it would unblock them
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _unsendable(problem: Exception) -> UserError:
    return UserError(
        f"The run cannot be sent to new processes ({type(problem).__name__}: {problem}); define "
        "watch at the top of a module or script, outside if __name__ == '__main__', or use "
        "devices=1."
    )


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _flags() -> dict[str, bool]:
    """Global settings of torch that new processes must copy."""
    return {
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "warn_only": torch.is_deterministic_algorithms_warn_only_enabled(),
        "benchmark": torch.backends.cudnn.benchmark,
    }


# In the new process -------------------------------------------------------------------------


def _work(tasks: Any, answers: Any, rank: int, world: int, port: int) -> None:
    for each in heeded_signals():  # until the run handles them, they silently end the process
        signal.signal(each, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        os.setpgrp()  # the parent passes on a signal to its group
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    try:
        make_fabric, run, flags = pickle.loads(tasks.recv_bytes())  # noqa: S301 - the parent's
    except EOFError:
        os._exit(1)
    except Exception as problem:
        answers.send(_unsendable(problem))
        return
    threading.Thread(target=_end_with, args=(tasks,), daemon=True).start()
    os.environ |= {
        "LOCAL_RANK": str(rank),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    if "OMP_NUM_THREADS" not in os.environ:
        os.environ["OMP_NUM_THREADS"] = str(max(1, cores() // world))
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    torch.use_deterministic_algorithms(flags["deterministic"], warn_only=flags["warn_only"])
    torch.backends.cudnn.benchmark = flags["benchmark"]
    try:
        with lasting_streams():  # the run may print to them
            answer: str | Exception = make_fabric().launch(run)
    except Exception as error:
        answer = _portable(error)
    with suppress(OSError):
        answers.send(answer)


def _end_with(tasks: Any) -> None:
    """End this process when the parent ends, however it ends."""
    with suppress(EOFError, OSError):
        tasks.recv_bytes()
    os._exit(1)


def _portable(error: Exception) -> Exception:
    """The error in a form that can be pickled, with its traceback as a note."""
    told = "".join(traceback.format_exception(error))
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    except Exception:
        error = RuntimeError(f"{type(error).__name__}: {error}")
    error.__notes__ = [told]  # type: ignore[attr-defined, unused-ignore]
    return error
