# SPDX-License-Identifier: Apache-2.0
"""The time that one question to the accountant may take."""

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ggdp.errors import CannotCertifyError


class Clock(threading.local):
    """The time that one question may take: engines look at it before every large piece of work.

    Without it the hardest questions would take half a minute. What has been certified until then is the
    answer, so a slower machine may give wider bounds, and never wrong ones.
    """

    until = math.inf

    @contextmanager
    def running(self, seconds: float) -> Iterator[None]:
        """Give the work inside at most so many seconds of this thread's time, and no more than is left."""
        before = self.until
        self.until = min(before, time.thread_time() + seconds)
        try:
            yield
        finally:
            self.until = before

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Let the work inside take what it takes: the wide answer that is left when the time is spent."""
        before, self.until = self.until, math.inf
        try:
            yield
        finally:
            self.until = before

    @property
    def left(self) -> float:
        """Seconds that are left; infinite where no question is timed."""
        return self.until - time.thread_time()

    def check(self) -> None:
        """Look at the time.

        Raises:
            CannotCertifyError: none is left.
        """
        if self.left < 0.0:
            raise CannotCertifyError("the time that one question may take is spent")


CLOCK = Clock()
