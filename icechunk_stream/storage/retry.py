"""Trying again: full jitter, a number of tries, and a time budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from icechunk_stream.effects import monotonic, random_fraction, sleep
from icechunk_stream.storage.failures import Failure

if TYPE_CHECKING:
    from collections.abc import Callable

    from icechunk_stream.config import StorageSettings

T = TypeVar("T")

_DEFAULT_BUDGET = 180.0
_LARGEST_EXPONENT = 60


@dataclass(frozen=True, slots=True)
class Waiting:
    """The clock, the pause and the dice that retries use."""

    monotonic: Callable[[], float] = monotonic
    sleep: Callable[[float], None] = sleep
    fraction: Callable[[], float] = random_fraction


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often, how soon and for how long a request is tried again; times are in seconds."""

    max_tries: int = 10
    initial_backoff: float = 0.1
    max_backoff: float = 180.0
    budget: float = _DEFAULT_BUDGET

    @classmethod
    def of(cls, settings: StorageSettings) -> RetryPolicy:
        """The policy of settings in which retries are filled in."""
        retries = settings.retries
        assert retries is not None
        assert retries.max_tries is not None
        assert retries.initial_backoff_ms is not None
        assert retries.max_backoff_ms is not None
        limit = settings.timeouts.operation_timeout_ms if settings.timeouts else None
        return cls(
            max_tries=retries.max_tries,
            initial_backoff=retries.initial_backoff_ms / 1000,
            max_backoff=retries.max_backoff_ms / 1000,
            budget=_DEFAULT_BUDGET if limit is None else limit / 1000,
        )

    def pause(self, tries: int, fraction: float) -> float:
        """Seconds to wait after so many tries: anything up to a bound that doubles."""
        bound = self.initial_backoff * 2.0 ** min(tries - 1, _LARGEST_EXPONENT)
        return fraction * min(bound, self.max_backoff)


@dataclass(frozen=True, slots=True)
class Retry:
    """Repeats what fails for a reason that may pass."""

    policy: RetryPolicy = RetryPolicy()
    waiting: Waiting = Waiting()

    def call(self, attempt: Callable[[int], T | Failure], spent: float = 0.0) -> T | Failure:
        """The first outcome that is not transient, or the last one when tries or time are up.

        ``attempt`` gets the number of tries before it; ``spent`` is what one made elsewhere took of
        the budget.
        """
        deadline = self.waiting.monotonic() + self.policy.budget - spent
        tries = 0
        while True:
            outcome = attempt(tries)
            if not (isinstance(outcome, Failure) and outcome.transient):
                return outcome
            tries += 1
            pause = self.policy.pause(tries, self.waiting.fraction())
            if tries >= self.policy.max_tries:
                return outcome
            if self.waiting.monotonic() + pause > deadline:
                return outcome
            self.waiting.sleep(pause)
