"""Errors of the engine. Each says in its message what is wrong and what to do;
`field`, `value` and `limit` say it to programs."""

from __future__ import annotations

import reprlib

__all__ = [
    "CancelledError",
    "EspalierError",
    "InvalidArgument",
    "NeverFits",
    "NotFound",
    "Overloaded",
    "TimeoutError",
    "Unavailable",
]

_TimeoutError = TimeoutError


class EspalierError(Exception):
    """The base of all errors of this package."""

    #: The field of the request, or the option, that is wrong; None if none is.
    field: str | None = None
    #: Its value, as it is shown in the message.
    value: str | None = None
    #: The bound that the value exceeds.
    limit: str | None = None


class InvalidArgument(EspalierError, ValueError):
    """A request, an option or a file is wrong: the message names it."""


class NeverFits(InvalidArgument):
    """The request needs more key/value memory than there is at all."""


class NotFound(EspalierError, LookupError):
    """There is no such file, template or catalogue."""


class Overloaded(EspalierError):
    """Too many requests are open, or memory is short: later it may succeed."""


class Unavailable(EspalierError, RuntimeError):
    """The engine cannot run it: a step takes too long, a device failed, the
    model lacks what the call needs."""


class TimeoutError(EspalierError, _TimeoutError):
    """The call's timeout passed."""


class CancelledError(EspalierError):
    """The LLM was closed while the request ran."""


def invalid(field: str, text: str, value: object) -> InvalidArgument:
    """An error "FIELD TEXT, got VALUE"."""
    shown = reprlib.repr(value)
    error = InvalidArgument(f"{field} {text}, got {shown}")
    error.field, error.value = field, shown
    return error


_BY_CODE: dict[str, type[EspalierError]] = {
    "INVALID_ARGUMENT": InvalidArgument,
    "OUT_OF_RANGE": InvalidArgument,
    "NOT_FOUND": NotFound,
    "RESOURCE_EXHAUSTED": Overloaded,
    "DEADLINE_EXCEEDED": TimeoutError,
    "CANCELLED": CancelledError,
}


def make_error(
    code: str,
    message: str,
    never_fits: bool,
    field: str | None,
    value: str | None,
    limit: str | None,
) -> EspalierError:
    """The exception for an error of the engine."""
    kind = NeverFits if never_fits else _BY_CODE.get(code, Unavailable)
    error = kind(message)
    error.field, error.value, error.limit = field, value, limit
    return error
