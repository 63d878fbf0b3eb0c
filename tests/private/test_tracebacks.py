"""Tracebacks that show local variables show no rows: of declarations that are refused, of sums that fail."""

import sys
import threading
import traceback
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytest
from rich.console import Console
from rich.traceback import Traceback

import pymc_dp as dp
from pymc_dp.private.approximation import _Newton
from pymc_dp.private.rows import ConfidentialRows
from tests.private import models

CANARY = 98765.4321
HERE = __file__


def locals_of(error):
    """Every local variable of every frame of the package, as text, and the sizes of arrays among them."""
    texts, seen = [], []
    while error is not None:
        for frame, _ in traceback.walk_tb(error.__traceback__):
            if frame.f_code.co_filename == HERE:
                continue  # the caller has the rows, of course
            for value in frame.f_locals.values():
                texts.append(repr(value))
                parts = value if isinstance(value, tuple | list) else [value]
                parts = [*parts.values()] if isinstance(parts, dict) else parts
                seen += [v for v in parts if isinstance(v, np.ndarray)]
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return texts, seen


def shows(error):
    """Whether a row, or an array with one in it, is a variable of a frame."""
    texts, arrays = locals_of(error)
    return any("98765" in text for text in texts) or any(
        np.isclose(array.astype(float), CANARY).any() for array in arrays if array.dtype.kind in "biuf"
    )


def holding(values):
    """What rows look like where nothing keeps them away."""
    table = np.asarray(values)
    raise ValueError(f"{len(table)} rows")


def test_the_search_finds_what_is_there(monkeypatch):
    """Power: rows that are an argument or a variable of a frame."""
    monkeypatch.setattr(sys.modules[__name__], "HERE", "elsewhere")
    with pytest.raises(ValueError) as caught:
        holding([1.0, CANARY])
    assert shows(caught.value)


REFUSED = {
    "missing": ([CANARY, np.nan], {}),
    "ragged": ([[CANARY], [1.0, 2.0]], {}),
    "cube": (np.full((2, 2, 2), CANARY), {}),
    "text": (["a", f"{CANARY}"], {}),
    "clip": ([CANARY, 1.0], {"clip": -1}),
    "lengths": ([CANARY, 1.0], {"covariates": {"z": [CANARY]}}),
    "covariate": ([CANARY, 1.0], {"covariates": {"z": [CANARY, np.nan]}}),
    "no mapping": ([CANARY, 1.0], {"covariates": [CANARY]}),
    "no law": ([CANARY, 1.0], {"dist": 3}),
    "whole numbers": ([CANARY, 1.0], {"dist": "poisson"}),
    "shape": ([[CANARY, 1.0], [1.0, 1.0]], {"dist": "vector"}),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_declarations(case):
    data, kwargs = REFUSED[case]
    with pm.Model():
        mu, three = pm.Normal("mu"), pm.Normal("three", shape=3)
        laws = {"poisson": pm.Poisson.dist(pm.math.exp(mu)), "vector": pm.Normal.dist(three, 1)}
        dist = kwargs.get("dist", pm.Normal.dist(mu, 1))
        kwargs = {"clip": 1.0, **kwargs, "dist": laws.get(dist, dist) if isinstance(dist, str) else dist}
        with pytest.raises((ValueError, TypeError)) as caught:
            dp.ConfidentialLikelihood("x", data=data, **kwargs)
    assert not shows(caught.value)


def test_no_model_around_it():
    with pytest.raises(TypeError, match="No model around") as caught:
        dp.ConfidentialLikelihood("x", pm.Normal.dist(0, 1), [CANARY, 1.0], clip=1)
    assert not shows(caught.value)


class Failure(RuntimeError):
    pass


@pytest.fixture(scope="module")
def step():
    rows = np.append(models.normal_rows(), CANARY)
    return models.hmc(models.normal_model(rows, clip_gradient=2.0), 0.5, step_size=0.1, clipped_noise=3.0)


def fails(*args):
    inside = args  # as a local variable, beside the arguments
    raise Failure(f"{len(inside)} arguments")


@pytest.mark.parametrize("what", ["total", "exceeding", "gradient"])
def test_sums_that_fail(step, monkeypatch, what):
    """In the worst place: where rows are the arguments."""
    owner, name = (step._gradient, "total") if what == "gradient" else (step._sums._ratio, what)
    monkeypatch.setattr(owner, name, fails)
    with pytest.raises(Failure, match="7 arguments") as caught:
        step.step(step.model.initial_point())
    assert not shows(caught.value)
    console = Console(width=200, record=True, file=open("/dev/null", "w"))
    error = caught.value
    console.print(Traceback.from_exception(type(error), error, error.__traceback__, show_locals=True))
    text = console.export_text()
    # variables of the frames that called the sum are shown, the rows are none of them
    assert "over_rows" in text and "locals" in text and "98765" not in text


@pytest.mark.parametrize("what", ["total", "exceeding", "gradient"])
def test_sums_that_fail_in_a_thread(step, monkeypatch, what):
    """A part of the rows that another thread adds up."""
    from pymc_dp.private import sums

    monkeypatch.setattr(sums, "_PARALLEL_FROM", 1)
    monkeypatch.setattr(step._sums, "_ends", np.linspace(0, step.term.rows.n, 4).astype(int))
    owner, name = (step._gradient, "total") if what == "gradient" else (step._sums._ratio, what)
    right = getattr(owner, name)

    def in_threads(*args):
        return right(*args) if threading.current_thread() is threading.main_thread() else fails(*args)

    monkeypatch.setattr(owner, name, in_threads)
    with pytest.raises(Failure, match="7 arguments") as caught:
        step.step(step.model.initial_point())
    assert not shows(caught.value)


def test_noise_that_fails_leaves_no_exact_sum(step, monkeypatch):
    """Nor the noise of a sum that is shown: one variable has both, or none is there."""

    class Broken:
        def draw(self, count):
            raise Failure

    new, theta, other = at = np.array([0.3]), np.array([0.0]), np.zeros(0)
    numbers = step.numbers_at(new, other), step.numbers_at(theta, other)
    exact = [float(step._sums.clipped(*numbers, 3.6)), float(step._sums.exceeding(*numbers, 3.6))]
    assert exact[0] != 0 and exact[1] == 1
    for name in ("_noise", "_counted"):
        with monkeypatch.context() as patch, pytest.raises(Failure) as caught:
            patch.setattr(step, name, Broken())
            step.noisy_ratio(*at, 0.3)
        frames = [f for f, _ in traceback.walk_tb(caught.value.__traceback__) if f.f_code.co_filename != HERE]
        values = [v for f in frames for v in f.f_locals.values() if isinstance(v, int | float)]
        assert frames and not set(map(float, values)) & set(exact)


def test_arrays_that_are_not_filled_yet_show_nothing(step, monkeypatch):
    """Memory that is handed out may have been the rows', and an interrupt may come before it is filled."""
    empty = np.empty
    monkeypatch.setattr(np, "empty", lambda shape, dtype=float: np.full_like(empty(shape, dtype), CANARY))
    point, other = np.zeros(step.layout.size), np.zeros(0)
    calls = {
        "_numbers": lambda: step.numbers_at(point, other),
        "_jacobian": lambda: step.jacobian_at(point, other),
        "_slope": lambda: step.slope_at(point, other),
    }
    for name, call in calls.items():
        with monkeypatch.context() as patch, pytest.raises(Failure) as caught:
            patch.setattr(getattr(step, name), "dispatcher", fails)
            call()
        assert locals_of(caught.value)[1] and not shows(caught.value)
    with pytest.raises(Failure) as caught:
        _Newton._curvature(SimpleNamespace(slope_at=fails), point, other)
    assert locals_of(caught.value)[1] and not shows(caught.value)


@pytest.mark.parametrize("what", ["_sums", "_count"])
def test_batches_that_fail(monkeypatch, what):
    """Neither rows nor what chooses them is a variable."""
    from pymc_dp.private import batches

    rows = np.append(models.normal_rows(), CANARY)
    step = models.driven(dp.MinibatchPenalty, models.normal_model(rows), 0.5, batch_size=5, clipped_noise=3.0)
    monkeypatch.setattr(batches, what, fails)
    with pytest.raises(Failure, match="9 arguments") as caught:
        step.step(step.model.initial_point())
    assert not shows(caught.value)
    assert not [v for v in locals_of(caught.value)[1] if v.dtype == np.uint64]


def test_copying_rows_to_workers_that_fails(monkeypatch):
    from pymc_dp.private import rows

    monkeypatch.setattr(rows, "_copy_to", fails)
    held = ConfidentialRows(np.array([[CANARY, 1.0]]))
    with pytest.raises(Failure) as caught:
        held.__reduce__()
    assert not shows(caught.value)
