"""Releases from OpenDP: JSON written by hand as ``opendp.prelude.serialize`` does, and the library itself."""

import copy
import json
import math

import numpy as np
import pytest

import pymc_dp as dp
from tests.importers.models import check_declared

VERSION = "0.14.1"


def made(function, module="measurements", **kwargs):
    return {"__function__": function, "__module__": module, "__kwargs__": kwargs, "__version__": VERSION}


def metric(name, **kwargs):
    return made(name, "metrics", **kwargs)


def vector(of="i32"):
    atom = made("atom_domain", "domains", bounds=None, nan=None, T=of)
    return made("vector_domain", "domains", atom_domain=atom, size=None)


def laplace(of="i32", scale=2.0, k=None):
    l1 = metric("l1_distance", T=of)
    return made(
        "make_laplace", input_domain=vector(of), input_metric=l1, scale=scale, k=k, MO="MaxDivergence"
    )


def gaussian(of="i32", scale=3.0, k=None):
    return made(
        "make_gaussian", input_domain=vector(of), input_metric=metric("l2_distance", T="f64"), scale=scale,
        k=k, MO="ZeroConcentratedDivergence",
    )  # fmt: skip


def chained(noise, data="symmetric_distance"):
    """A sum of bounded numbers, to which noise is added."""
    sum_of = made("make_sum", "transformations", input_domain=vector(), input_metric=metric(data))
    computed = made("transformation_output_domain", "core", this=sum_of)
    noise = copy.deepcopy(noise)
    noise["__kwargs__"]["input_domain"] = computed
    return made("make_chain_mt", "combinators", measurement1=noise, transformation0=sum_of)


def fixed(measurement, delta=1e-6):
    approximate = made("make_zCDP_to_approxDP", "combinators", measurement=measurement)
    return made("make_fix_delta", "combinators", measurement=approximate, delta=delta)


ONE = {"neighbours": "replace-one"}
WHOLE, REAL = np.array([31, -2, 7]), np.array([31.25, -2.5, 7.0])


@pytest.mark.parametrize(
    ("measurement", "value", "mechanism", "level"),
    [
        (laplace(), WHOLE, dp.DiscreteLaplaceMechanism, {"scale": 2.0}),
        (laplace("f64"), REAL, dp.LaplaceMechanism, {"scale": 2.0}),
        (gaussian(), WHOLE, dp.DiscreteGaussianMechanism, {"sigma": 3.0}),
        (gaussian("f64", k=-1074), REAL, dp.GaussianMechanism, {"sigma": 3.0}),
        (chained(laplace()), WHOLE, dp.DiscreteLaplaceMechanism, {"scale": 2.0}),
        (chained(gaussian("f64")), REAL, dp.GaussianMechanism, {"sigma": 3.0}),
        (fixed(gaussian()), WHOLE, dp.DiscreteGaussianMechanism, {"sigma": 3.0}),
    ],
)
def test_noise_without_a_guarantee(measurement, value, mechanism, level):
    """What the JSON states is the noise; without a sensitivity there is no guarantee."""
    release = dp.importers.opendp(value, json.dumps(measurement))
    assert release.mechanism == mechanism.__name__ and dict(release.parameters) == level
    assert release.guarantee is None and "guarantee is not known" in str(release)
    check_declared(release, mechanism, **level)


def test_make_noise_and_geometric():
    measure = made("zero_concentrated_divergence", "measures")
    noise = made(
        "make_noise", input_domain=vector(), input_metric=metric("l2_distance", T="f64"), scale=1.5, k=None,
        output_measure=measure,
    )  # fmt: skip
    release = dp.importers.opendp(WHOLE, noise)
    assert release.mechanism == "DiscreteGaussianMechanism" and release.parameters["sigma"] == 1.5
    noise["__kwargs__"]["output_measure"] = made("max_divergence", "measures")
    assert dp.importers.opendp(WHOLE, noise).mechanism == "DiscreteLaplaceMechanism"
    atom = made("atom_domain", "domains", bounds=None, nan=None, T="i32")
    geometric = made(
        "make_geometric", input_domain=atom, input_metric=metric("absolute_distance", T="i32"), scale=1.5,
        bounds=None, MO="MaxDivergence",
    )  # fmt: skip
    assert dp.importers.opendp(4, geometric).parameters["scale"] == 1.5
    geometric["__kwargs__"]["bounds"] = {"__tuple__": [0, 10]}
    with pytest.raises(ValueError, match=r"bounds, to which the noisy value is clamped"):
        dp.importers.opendp(4, geometric)


def test_guarantees():
    """Sensitivity is d_in where noise is added to the input, and otherwise follows from d_out."""
    release = dp.importers.opendp(WHOLE, laplace(), d_in=1, neighbours="replace-one")
    assert release.guarantee == dp.PrivacyGuarantee(0.5)
    check_declared(release, dp.DiscreteLaplaceMechanism, scale=2.0, sensitivity=1.0)
    release = dp.importers.opendp(WHOLE, chained(laplace()), d_in=1, d_out=5.0)
    assert release.parameters["sensitivity"] == 10
    assert release.guarantee == dp.PrivacyGuarantee(5.0, neighbours="add-remove")
    assert dp.guarantee(release) == release.guarantee
    release = dp.importers.opendp(REAL, chained(gaussian("f64"), "change_one_distance"), d_in=1, d_out=2.0)
    assert release.guarantee.rho == 2 and release.guarantee.neighbours == "replace-one"
    assert release.parameters["sensitivity"] == pytest.approx(6)
    release = dp.importers.opendp(
        REAL, fixed(gaussian("f64")), d_in=2.0, d_out=(9.0, 1e-6), neighbours="add-remove"
    )
    assert (release.guarantee.epsilon, release.guarantee.delta) == (9, 1e-6)
    pure = made("make_pureDP_to_zCDP", "combinators", measurement=laplace())
    release = dp.importers.opendp(WHOLE, pure, d_in=2, d_out=0.5, neighbours="replace-one")
    assert release.guarantee.rho == 0.5 and release.parameters["sensitivity"] == 2


def test_budgets_that_do_not_follow_are_not_stated():
    """Of discrete Gaussian noise rho is known: an epsilon that it does not imply is left out."""
    release = dp.importers.opendp(WHOLE, fixed(gaussian()), d_in=3, d_out=(0.9, 1e-6), **ONE)
    assert release.guarantee == dp.PrivacyGuarantee(math.inf, rho=0.5)
    release = dp.importers.opendp(WHOLE, fixed(gaussian()), d_in=3, d_out=(9.0, 1e-6), **ONE)
    assert (release.guarantee.epsilon, release.guarantee.delta) == (9, 1e-6)


def test_file(tmp_path):
    path = tmp_path / "measurement.json"
    path.write_text(json.dumps(laplace()))
    assert dp.importers.opendp(WHOLE, path) == dp.importers.opendp(WHOLE, laplace())


def without(name, measurement):
    measurement = copy.deepcopy(measurement)
    del measurement["__kwargs__"][name]
    return measurement


THRESHOLD = made("make_laplace_threshold", scale=2.0, threshold=9)
PROFILE = made("make_zCDP_to_approxDP", "combinators", measurement=gaussian())


@pytest.mark.parametrize(
    ("value", "measurement", "given", "message"),
    [
        (WHOLE, without("scale", laplace()), {}, "field scale is missing from make_laplace"),
        (WHOLE, without("measurement1", chained(laplace())), {}, "measurement1 is missing from make_chain"),
        (WHOLE, {"scale": 2.0}, {}, "field __function__ is missing"),
        (WHOLE, made("make_fix_delta", measurement={}), {}, "missing inside of make_fix_delta"),
        (WHOLE, "make_laplace", {}, "measurement is not JSON"),
        (WHOLE, None, {}, "field __function__ is missing"),
        (WHOLE, "[" * 100_000, {}, "measurement is not JSON"),
        (REAL, laplace("f64", k="0"), {}, "k must be one real number"),
        (WHOLE, laplace(), {"d_in": 1, "neighbours": 1}, "neighbours must be one of"),
        (WHOLE, laplace(scale=-1.0), {}, r"scale must be a finite number > 0, got -1"),
        (WHOLE, laplace(scale=0.0), {}, r"scale must be a finite number > 0, got 0"),
        (WHOLE, laplace(scale=[2.0, 3.0]), {}, "scale must be one real number"),
        (REAL, laplace(), {}, r"value must be whole numbers, got 31.25 at index \(0,\): discrete"),
        ([1, np.nan], laplace("f64"), {}, r"missing or infinite entries, the first at index \(1,\)"),
        ([[1, 2], [3]], laplace("f64"), {}, "rows of different lengths"),
        (WHOLE, THRESHOLD, {}, "make_laplace_threshold, which is not noise.*dp.postprocessed"),
        (1, made("make_randomized_response_bool", prob=0.7), {}, "make_randomized_response_bool, which"),
        (REAL, laplace("f64", k=1), {}, r"k = 1 of measurement makes noise in steps of 2.1"),
        (WHOLE, laplace(), {"d_in": 1}, "neighbours is missing"),
        (WHOLE, laplace(), {"d_in": -1, **ONE}, r"sensitivity must be a finite number > 0, got -1"),
        (WHOLE, laplace(), {"d_in": 1, "neighbours": "unbounded"}, "neighbours must be one of"),
        (WHOLE, laplace(), {"d_in": 1, "sensitivity": 2, **ONE}, "contradicts d_in = 1"),
        (WHOLE, laplace(), {"d_in": 1, "d_out": 0.1, **ONE}, r"budget contradicts.*epsilon = 0.1.*= 0.5"),
        (WHOLE, laplace(), {"d_out": (0.5, 1e-6), **ONE}, "that of make_laplace is one number"),
        (WHOLE, fixed(gaussian()), {"d_out": 0.5, **ONE}, "that of make_fix_delta is a pair with delta"),
        (WHOLE, fixed(gaussian()), {"d_out": (0.5, 1e-6), **ONE}, "sensitivity is missing.*with delta"),
        (WHOLE, PROFILE, {"d_in": 1, "d_out": 0.5, **ONE}, "d_out is a privacy profile"),
        (WHOLE, chained(laplace()), {"d_in": 1}, "d_out is missing: d_in is a distance before"),
    ],
)  # fmt: skip
def test_refusals(value, measurement, given, message):
    with pytest.raises((TypeError, ValueError), match=message):
        dp.importers.opendp(value, measurement, **given)


class TestTheLibrary:
    """The same from OpenDP itself, where it is installed."""

    @pytest.fixture
    def op(self):
        op = pytest.importorskip("opendp.prelude")
        op.enable_features("contrib", "honest-but-curious")
        return op

    def test_measurement_and_json(self, op):
        space = op.vector_domain(op.atom_domain(T=int)), op.l1_distance(T=int)
        measurement = op.m.make_laplace(*space, scale=2.0)
        value = measurement([20, 3, 0])
        release = dp.importers.opendp(value, measurement, d_in=1, neighbours="add-remove")
        assert release.mechanism == "DiscreteLaplaceMechanism" and release.value.tolist() == value
        assert release.guarantee.epsilon == measurement.map(1) == 0.5
        again = dp.importers.opendp(value, op.serialize(measurement), d_in=1, neighbours="add-remove")
        assert again == release

    def test_after_a_transformation(self, op):
        space = op.vector_domain(op.atom_domain(bounds=(0, 10))), op.symmetric_distance()
        measurement = op.t.make_sum(*space) >> op.m.then_laplace(scale=3.0)
        release = dp.importers.opendp(measurement([1, 2, 3]), measurement, d_in=1)
        assert release.mechanism == "DiscreteLaplaceMechanism"
        assert release.parameters["sensitivity"] == pytest.approx(10)
        assert release.guarantee.neighbours == "add-remove"
        d_out = measurement.map(1)
        assert dp.importers.opendp(int(release.value), op.serialize(measurement), d_out=d_out) == release

    def test_restated(self, op):
        space = op.atom_domain(T=float, nan=False), op.absolute_distance(T=float)
        measurement = op.m.make_gaussian(*space, scale=3.0)
        restated = op.c.make_fix_delta(op.c.make_zCDP_to_approxDP(measurement), 1e-6)
        release = dp.importers.opendp(restated(4.0), restated, d_in=1.0, neighbours="replace-one")
        assert release.mechanism == "GaussianMechanism"
        assert (release.guarantee.epsilon, release.guarantee.delta) == restated.map(1.0)
        assert release.guarantee.rho == pytest.approx(1 / 18) or math.isfinite(release.guarantee.epsilon)
