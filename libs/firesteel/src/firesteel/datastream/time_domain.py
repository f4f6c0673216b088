"""Time domains of timers, under PyFlink's module path."""

from firesteel.functions.timerservice import TimeDomain

__all__ = ["TimeDomain"]
