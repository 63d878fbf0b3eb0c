"""Every univariate distribution of PyMC, lowered, against independent answers."""

import functools
import inspect

import numba
import numpy as np
import pymc as pm
import pymc.distributions as pmd
import pytensor
import pytensor.tensor as pt
import pytest
from numba import types
from pytensor.compile.mode import Mode

from pymc_dp.lowering.native import function_at
from pymc_dp.lowering.rows import choose
from pymc_dp.lowering.scalar import lower_scalar
from tests.lowering.families import CONTINUOUS, DISCRETE, FAMILIES, over

# What is not plain scalar code: name -> functions that go through small arrays, 100 ns a call.
# Nothing goes through the interpreter. The list is exact, so that a change of PyTensor is seen.
ARRAYS = {"Interpolated": {"logp", "grad", "draw"}}

# Public names of pymc.distributions that are not one univariate law: base classes, several
# dimensions, time series, black boxes; and aliases. PolyaGamma needs a package that PyMC does not
# require.
NOT_UNIVARIATE = {
    *(
        "Continuous",
        "Discrete",
        "Distribution",
        "SymbolicRandomVariable",
        "DensityDist",
        "Simulator",
    ),
    *("AR", "EulerMaruyama", "GARCH11", "GaussianRandomWalk", "MvGaussianRandomWalk"),
    *("MvStudentTRandomWalk", "RandomWalk"),
    *("CAR", "ICAR", "Dirichlet", "DirichletMultinomial", "KroneckerNormal", "LKJCholeskyCov"),
    *("LKJCorr", "MatrixNormal", "Multinomial", "MvNormal", "MvStudentT", "OrderedMultinomial"),
    *("StickBreakingWeights", "Wishart", "WishartBartlett", "ZeroSumNormal"),
    *("Lognormal", "PolyaGamma"),
}

N_DRAWS = 200_000
# Dvoretzky-Kiefer-Wolfowitz: an empirical cdf of this many draws, of any law, is off by more than
# this with probability below 1e-6
BOUND = np.sqrt(np.log(2 / 1e-6) / (2 * N_DRAWS))

everywhere = over(FAMILIES)


@functools.cache
def kernel(family):
    inputs = [pt.dscalar(f"p{k}") for k in range(len(family.params))]
    return lower_scalar(family.build(*inputs), inputs, want=family.want)


def reference(family, function, values):
    """Evaluate pm.logp or pm.logcdf in the interpreter: none of the code under test."""
    inputs = [pt.dscalar(f"p{k}") for k in range(len(family.params))]
    rv = family.build(*inputs)
    value = pt.scalar("value", dtype=rv.type.dtype)
    compiled = pytensor.function(
        [value, *inputs],
        function(rv, value),
        mode=Mode("py", "fast_compile"),
        on_unused_input="ignore",
    )
    return np.array([compiled(np.asarray(v, rv.type.dtype), *family.params) for v in values])


@everywhere
def test_log_density_is_pymcs_and_scipys(family):
    if "logp" not in family.want:
        pytest.skip("no log density")
    found = np.array([kernel(family).logp(float(v), *family.params) for v in family.values])
    np.testing.assert_allclose(found, reference(family, pm.logp, family.values), rtol=1e-9, atol=1e-12)
    if family.scipy is not None:
        law = family.scipy(*family.params)
        density = law.logpmf if kernel(family).discrete else law.logpdf
        np.testing.assert_allclose(found, density(family.values), rtol=1e-7, atol=1e-10)


@everywhere
def test_gradient_is_the_slope(family):
    if "grad" not in family.want:
        pytest.skip("no gradient")
    logp, grad = kernel(family).logp, kernel(family).grad
    for value in family.values[:2]:
        point = np.array([value, *family.params], float)
        slopes = []
        for k in range(point.size):
            step = np.zeros_like(point)
            step[k] = 1e-5 * max(1.0, abs(point[k]))
            # fourth order, so that rounding and curvature both stay below the tolerance
            f = [logp(*(point + m * step)) for m in (-2, -1, 1, 2)]
            slopes.append((f[0] - 8 * f[1] + 8 * f[2] - f[3]) / (12 * step[k]))
        if kernel(family).discrete:
            slopes[0] = 0.0
        np.testing.assert_allclose(grad(float(value), *family.params), slopes, rtol=1e-5, atol=1e-7)


@over([f for f in FAMILIES if f.invalid is not None])
def test_parameters_outside_their_domain_have_no_density(family):
    logp = kernel(family).logp(float(family.values[0]), *family.invalid)
    assert logp == -np.inf or np.isnan(logp)


@over(DISCRETE)
def test_what_is_no_integer_has_no_mass(family):
    value = family.values[0] + 0.5
    assert kernel(family).logp(value, *family.params) == -np.inf
    assert kernel(family).logp(np.nan, *family.params) == -np.inf


@functools.cache
def _loop(signature):
    function_type = types.FunctionType(signature)

    @numba.njit
    def loop(address, out, rng, *params):
        draw = function_at(address, function_type)
        for i in range(out.size):
            out[i] = draw(rng, *params)

    return loop


def draws(family, seed, n=N_DRAWS):
    k = kernel(family)
    out = np.empty(n)
    _loop(k.signature("draw"))(k.address("draw"), out, np.random.default_rng(seed), *family.params)
    return out


@over([f for f in FAMILIES if "draw" in f.want])
def test_draws_follow_the_law(family):
    x = np.sort(draws(family, 20261))
    points = np.unique(x[:: 1 if kernel(family).discrete else 500])
    if family.scipy is not None:
        cdf = family.scipy(*family.params).cdf(points)
    elif family.cdf is not None:
        cdf = family.cdf(points, *family.params)
    else:
        cdf = np.exp(reference(family, pm.logcdf, points))
    below = np.searchsorted(x, points, side="right") / x.size
    assert np.abs(below - cdf).max() < BOUND


@over([f for f in FAMILIES if "draw" in f.want])
def test_draws_repeat_with_the_seed_and_advance_the_generator(family):
    first, again, other = draws(family, 5, 50), draws(family, 5, 50), draws(family, 6, 50)
    np.testing.assert_array_equal(first, again)
    if family.name != "DiracDelta":
        assert not np.array_equal(first, other)
        assert np.unique(first).size > 1
    single = kernel(family).draw(np.random.default_rng(5), *family.params)
    assert single == first[0]
    assert isinstance(single, int) == kernel(family).discrete


@everywhere
def test_what_falls_back_is_known(family):
    found = kernel(family).fallback
    assert set(found) == ARRAYS.get(family.name, set()), found
    assert not any("interpreter" in why for why in found.values())


def test_the_table_covers_pymc():
    covered = {f.covers or f.name for f in FAMILIES}
    public = {n for n in pmd.__all__ if inspect.isclass(getattr(pmd, n))}
    assert public - covered - NOT_UNIVARIATE == set(), "new in PyMC: add a row to families.py"
    assert covered <= public
    assert len(CONTINUOUS) >= 33


@pytest.mark.parametrize("values", [[0.0, 0.0, 2.0], [-2.0, 0.0, 2.0], ["a", 1.0, "b"]], ids=str)
def test_choice_by_an_index(values):
    """Negative positions count from the end; there is no number outside of the list."""
    symbols = {"a": pt.scalar("a", dtype="float64"), "b": pt.scalar("b", dtype="float64")}
    parts = [symbols[v] if isinstance(v, str) else pt.constant(v) for v in values]
    index = pt.lscalar("index")
    chosen = pytensor.function([index, *symbols.values()], choose(index, parts), on_unused_input="ignore")
    expected = [{"a": 5.0, "b": 7.0}.get(v, v) for v in values]
    for k in range(-3, 3):
        assert chosen(k, 5.0, 7.0) == expected[k]
    assert np.isnan([chosen(k, 5.0, 7.0) for k in (-7, -4, 3, 10)]).all()
