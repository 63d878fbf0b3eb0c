"""A compilation that takes long is told of, once, and leaves no thread."""

import threading
import time

from pymc_dp.lowering.compiling import building


def test_what_takes_long_is_told(caplog, monkeypatch):
    caplog.set_level("INFO", "pymc.dp")
    before = threading.active_count()
    with building.told_if_long():
        pass
    assert not caplog.messages and threading.active_count() == before
    monkeypatch.setattr(building, "LONG", 0.01)
    with building.told_if_long():
        time.sleep(0.2)
    assert caplog.messages == [
        "The steps of this model are being compiled, and kept on disk: the next run begins at once."
    ]
    assert threading.active_count() == before
