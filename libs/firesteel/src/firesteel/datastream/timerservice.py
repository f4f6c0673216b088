"""The timer service, under PyFlink's module path."""

from firesteel.functions.timerservice import TimerService

__all__ = ["TimerService"]
