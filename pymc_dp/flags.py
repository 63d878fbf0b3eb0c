"""PyTensor's configuration, which all threads of a process share, and the order in which they change it.

``change_flags`` puts back what it found. Of two threads that change the same flags, the second finds what the
first has set, and if it ends last, that stays for good: all later models would be compiled in the mode of a
release. So whatever changes flags in this package holds one lock as long as they are changed.
"""

import os
import threading

flags_lock = threading.RLock()
"""Held around every ``change_flags``: ``with flags_lock, config.change_flags(...)``. Re-entrant.

It is taken before locks of compilers, which code that runs under it takes. Nothing takes it under them.
"""

# A forked process would never see a lock released, or flags put back, that a thread of its parent had.
os.register_at_fork(
    before=flags_lock.acquire, after_in_parent=flags_lock.release, after_in_child=flags_lock.release
)
