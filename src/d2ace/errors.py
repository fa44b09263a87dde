"""Errors that are one sentence for the person who caused them; `d2ace.cli` prints them as such."""

from __future__ import annotations


class UserError(ValueError):
    """What was typed is wrong (exit code 2)."""


class RunError(RuntimeError):
    """What was asked for failed (exit code 1)."""
