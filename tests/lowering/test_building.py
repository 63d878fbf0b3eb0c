"""What is left alone while graphs are built is as it was afterwards."""

import gc
import threading

import pytensor
import pytensor.tensor as pt
import pytest

from pymc_dp.lowering.compiling.building import building


@pytest.fixture(autouse=True)
def collecting():
    """As in a program: the tests themselves are run without."""
    before = gc.isenabled()
    gc.enable()
    yield
    if not before:
        gc.disable()


@building()
def trace_of_a_node():
    assert not gc.isenabled()
    return pt.exp(pt.scalar("x")).tag.trace


def test_garbage_and_traces_are_left_alone_meanwhile():
    limit = pytensor.config.traceback__limit
    assert gc.isenabled()
    assert not any(trace_of_a_node())
    assert gc.isenabled()
    assert pytensor.config.traceback__limit == limit != 0


def test_errors_end_it_and_it_may_begin_within_itself():
    with pytest.raises(ZeroDivisionError), building():
        with building():
            pass
        assert not gc.isenabled()
        1 / 0  # noqa: B018
    assert gc.isenabled()


def test_who_does_not_collect_garbage_is_left_without():
    gc.disable()
    trace_of_a_node()
    assert not gc.isenabled()


def test_several_threads_put_back_what_was_before_all_of_them():
    limit = pytensor.config.traceback__limit
    inside, first_is_out = threading.Barrier(2), threading.Event()

    def build(first):
        with building():
            inside.wait(60)
            if not first:
                first_is_out.wait(60)
        if first:
            first_is_out.set()

    threads = [threading.Thread(target=build, args=(first,)) for first in (True, False)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert gc.isenabled()
    assert pytensor.config.traceback__limit == limit
