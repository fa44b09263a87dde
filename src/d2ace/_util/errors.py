"""The kinds of errors a person can cause; each says in one sentence what is wrong and where."""

from __future__ import annotations

__all__ = ["ContractError", "RunError", "SentenceError", "UserError", "full_sentence"]


def full_sentence(text: object) -> str:
    """The text with the full stop that a sentence ends with."""
    words = str(text).rstrip()
    return words if words.endswith((".", "?", "!")) else f"{words}."


class SentenceError(Exception):
    """Error messages are sentences: add the full stop if it is missing."""

    def __init__(self, sentence: object) -> None:
        super().__init__(full_sentence(sentence))

    @property
    def clause(self) -> str:
        """The sentence without its full stop, to use inside a longer one."""
        return str(self).removesuffix(".")


class UserError(SentenceError, ValueError):
    """What was asked for is wrong: a name, a number or an option (exit code 2)."""


class RunError(SentenceError, RuntimeError):
    """What was asked for could not be done: a file, a disk, a device (exit code 1)."""


class ContractError(RunError, TypeError, ValueError):
    """A class of the user's own does not return what its base class asks for (exit code 1)."""
