"""The two kinds of errors a person can cause; each says in one sentence what is wrong and where."""


class UserError(ValueError):
    """What was asked for is wrong: a name, a number or an option (exit code 2)."""


class RunError(RuntimeError):
    """What was asked for could not be done: a file, a disk, a device (exit code 1)."""
