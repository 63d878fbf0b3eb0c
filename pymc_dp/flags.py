"""PyTensor's configuration, which all threads of a process share, and the order in which they change it.

``change_flags`` puts back what it found. Of two threads that change the same flags, the second finds what the
first has set, and if it ends last, that stays for good: all later models would be compiled in the mode of a
release. So whatever changes flags in this package holds one lock as long as they are changed.
"""

import os
import threading


class _FlagsLock:
    """A re-entrant lock that forks of the process wait for, once it has been used.

    A forked process would never see it released, or flags put back, that a thread of its parent had.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._seen_by_forks = False

    def __enter__(self) -> None:
        self._lock.acquire()
        if not self._seen_by_forks and hasattr(os, "register_at_fork"):
            self._seen_by_forks = True
            os.register_at_fork(
                before=self._lock.acquire,
                after_in_parent=self._lock.release,
                after_in_child=self._lock.release,
            )

    def __exit__(self, *error: object) -> None:
        self._lock.release()


flags_lock = _FlagsLock()
"""Held around every ``change_flags``: ``with flags_lock, config.change_flags(...)``. Re-entrant.

It is taken before locks of compilers, which code that runs under it takes. Nothing takes it under them.
"""
