"""Work on a store: import runs from a file, run the rest, print a summary."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from d2ace._util.errors import RunError
from d2ace.benchmark.plan import RunSpec
from d2ace.benchmark.run import Engine, LocalEngine, Summary, plan, run_grid, runs_folder
from d2ace.benchmark.store import Store
from d2ace.report import tell_apart
from d2ace.training import RunInterrupted

from .bench_output import print_json
from .bench_view import make_view


@dataclass(frozen=True)
class Session:
    """How to run: where results go, how many runs at a time, and on what."""

    db: Path
    jobs: int = 1
    engine: str = "local"
    address: str | None = None
    retry: bool = False
    keep: bool = False
    stack: bool | None = None

    def make_engine(self, store: Store) -> Engine:
        """The engine named by ``--engine``."""
        if self.engine == "ray":
            from d2ace.benchmark.run import RayEngine

            return RayEngine(self.jobs, self.address)
        return LocalEngine(self.jobs, runs_folder(store) / "workers.log")


def work(
    session: Session, specs: list[RunSpec], source: Path | None, notes: list[str], as_json: bool
) -> None:
    """Run what is not stored; raise if runs failed or a signal came."""
    for note in notes:
        print(f"d2ace: note: {note}", file=sys.stderr)
    summary, errors = run(session, specs, source)
    if as_json:
        print_json(_described(session, summary, errors))
    else:
        print(_said(session, summary))
    raise_unless_well(summary, errors)


def run(
    session: Session, specs: list[RunSpec], source: Path | None = None
) -> tuple[Summary, list[str | None]]:
    """Run what is not stored; return a summary, and the errors of failed runs."""
    with Store(session.db) as store:
        if source is not None:
            store.import_(source)
        pending = plan(store.status, specs, retry=session.retry).pending
        names = tell_apart(specs)
        view = make_view(len(pending), session.jobs, store.mean_seconds(), names)
        summary = run_grid(
            store,
            specs,
            lambda: session.make_engine(store),
            view,
            retry=session.retry,
            keep=session.keep,
            stack=session.stack if session.engine == "local" else False,
        )
        keys = {spec.key for spec in specs}
        failed = {run.key: run.error for run in store.failed() if run.key in keys}
    return summary, list(failed.values())


def _described(session: Session, summary: Summary, errors: list[str | None]) -> dict[str, Any]:
    return {
        "db": str(session.db),
        "stored": summary.stored + summary.finished,
        "finished_now": summary.finished,
        "failed": summary.failed + summary.failed_before,
        "left": summary.left,
        "errors": errors,
    }


def _said(session: Session, summary: Summary) -> str:
    before = f" ({summary.stored} were there before)" if summary.stored else ""
    return (
        f"{summary.stored + summary.finished} runs in {session.db}{before}, "
        f"{summary.failed + summary.failed_before} failed, {summary.left} left"
    )


def raise_unless_well(
    summary: Summary, errors: list[str | None], again: str = "the same command with --retry"
) -> None:
    """A signal or failed runs as the error that a command ends with."""
    if summary.signum is not None:
        raise RunInterrupted(
            summary.signum,
            f"stopped with {summary.left} runs left; run the same command again to resume",
        )
    if summary.left:  # their processes were ended, not this one
        raise RunError(
            f"{summary.left} runs were stopped from outside; run the same command again to resume"
        )
    if errors:
        raise RunError(
            f"{len(errors)} runs failed, the first because: {str(errors[0]).removesuffix('.')}; "
            f"{again} tries them again"
        )
