"""The one error tree. Each message says what was seen, what was expected and what to do next."""


class HarnessError(Exception):
    """Base of every error a user can meet; its text is one clear sentence or two, no traceback."""


class SetupError(HarnessError):
    """The run could not start as asked: a wrong option, file, server or machine."""


class ServerError(HarnessError):
    """The server answered with an error, or not at all.

    `cause` is one of the causes of `records.lines.Failure`; `log_tail` the server's last lines.
    """

    def __init__(self, message: str, cause: str = "SERVER_ERROR", log_tail: tuple[str, ...] = ()):
        super().__init__(message)
        self.cause = cause
        self.log_tail = log_tail


class OverBudgetError(HarnessError):
    """A climb was stopped because the rest of it would not fit into the run's budget."""


class StoreError(HarnessError):
    """A record or baseline could not be read or written."""


class LockedError(HarnessError):
    """Another run holds this machine."""
