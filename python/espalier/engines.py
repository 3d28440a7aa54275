"""Engines at the end of the process, and arguments that their calls share."""

from __future__ import annotations

import atexit
import math
import numbers
import weakref

from ._espalier import Engine, set_exiting
from .errors import invalid

_open: weakref.WeakSet[Engine] = weakref.WeakSet()


def _close_all() -> None:
    set_exiting()
    for engine in list(_open):
        engine.close()


atexit.register(_close_all)


def close_at_exit(engine: Engine) -> None:
    _open.add(engine)


def seconds(value: float | None, name: str = "timeout") -> float:
    """A limit in seconds; None is none. Raises InvalidArgument."""
    if value is None:
        return math.inf
    if not isinstance(value, numbers.Real) or not value > 0:
        raise invalid(name, "must be above 0 seconds", value)
    return float(value)
