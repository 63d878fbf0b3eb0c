"""What a caller of the lowering relies on: inputs, models, errors, processes."""

import pickle
import subprocess
import sys
from importlib.util import find_spec

import numba
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.link.numba.dispatch.random import numba_core_rv_funcify
from pytensor.tensor.random.op import RandomVariable
from scipy import stats

from pymc_dp.lowering.errors import LoweringError
from pymc_dp.lowering.scalar import lower_scalar


class InterpretedIdentity(Op):
    """An operation that numba does not know."""

    __props__ = ()

    def make_node(self, x):
        x = pt.as_tensor_variable(x)
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, outputs):
        outputs[0][0] = np.asarray(inputs[0])


def test_a_variable_of_a_model_with_its_parents_as_inputs():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 3)
        tau = pm.Gamma("tau", 2, 1)
        pm.Deterministic("slope", mu * 2)
        y = pm.Normal("y", mu * 2 + 1, tau=tau)
    kernel = lower_scalar(y, {"mu": mu, "precision": tau})
    assert kernel.names == ("mu", "precision")
    assert kernel.logp(0.5, 0.3, 4.0) == pytest.approx(stats.norm(1.6, 0.5).logpdf(0.5))
    x = [kernel.draw(np.random.default_rng(s), 0.3, 4.0) for s in range(2000)]
    # tau is an argument: a second, hidden draw of it would spread the draws
    assert np.std(x) == pytest.approx(0.5, rel=0.08)
    assert kernel.description == "Normal 'y'"
    assert model.named_vars["y"] is y  # the model is untouched


def test_an_expression_may_be_an_input():
    z = pt.dscalar("z")
    eta = pt.exp(z)
    kernel = lower_scalar(pm.Poisson.dist(eta), {"rate": eta}, want=["logp"])
    assert kernel.logp(2.0, 3.0) == pytest.approx(stats.poisson(3.0).logpmf(2))


def test_integer_and_array_inputs():
    n, p = pt.lscalar("n"), pt.dvector("p")
    binomial = lower_scalar(pm.Binomial.dist(n, 0.3), [n])
    assert binomial.logp(2, 5) == pytest.approx(stats.binom(5, 0.3).logpmf(2))
    assert binomial.grad(2, 5) == (0.0, 0.0)
    categorical = lower_scalar(pm.Categorical.dist(p=p), [p], want=["logp", "draw"])
    weights = np.array([0.2, 0.5, 0.3])
    assert categorical.logp(1, weights) == pytest.approx(np.log(0.5))
    assert categorical.logp(3, weights) == -np.inf
    assert categorical.draw(np.random.default_rng(1), weights) in (0, 1, 2)


def test_logp_and_gradient_together():
    a = pt.dscalar("a")
    kernel = lower_scalar(pm.Gamma.dist(a, 2.0), [a], want=["logp", "grad", "logp_grad"])
    assert kernel.logp_grad(0.7, 1.5) == pytest.approx((kernel.logp(0.7, 1.5), *kernel.grad(0.7, 1.5)))
    counts = lower_scalar(pm.Poisson.dist(a), [a], want=["logp_grad"])
    assert counts.logp_grad(2.5, 1.5) == (-np.inf, 0.0, 0.0)
    assert counts.grad is None


def test_gradient_of_a_derived_density_reaches_the_parameters():
    # PyMC derives this density from a clone of the graph; differentiating with respect to the
    # original nodes gives zeros without a word
    m, s = pt.dscalars("m", "s")
    rv = pm.CustomDist.dist(m, s, dist=lambda m, s, size: pm.math.exp(pm.Normal.dist(m, s, size=size)))
    grad = lower_scalar(rv, [m, s], want=["grad"]).grad(1.7, 0.2, 0.5)
    assert grad[1] == pytest.approx((np.log(1.7) - 0.2) / 0.25)


@pytest.mark.statistical
@pytest.mark.parametrize("length", [3, 20])
def test_vectors_of_any_length_inside_a_law(length):
    # short ones are written out as numbers, long ones stay arrays
    weights = np.arange(1.0, length + 1) / np.arange(1.0, length + 1).sum()
    means = np.linspace(-3, 3, length)
    s = pt.dscalar("s")
    mixture = lower_scalar(pm.NormalMixture.dist(w=weights, mu=means, sigma=s), [s])
    density = np.log(np.sum(weights * stats.norm(means, 0.4).pdf(0.3)))
    assert mixture.logp(0.3, 0.4) == pytest.approx(density)
    assert mixture.logp(1e6, 0.4) < -1e10  # far out: neither nan nor -inf
    rng = np.random.default_rng(5)
    x = [mixture.draw(rng, 0.4) for _ in range(4000)]
    assert np.mean(x) == pytest.approx(weights @ means, abs=0.15)
    rv = pm.Categorical.dist(p=pt.as_tensor(weights) ** s)
    categorical = lower_scalar(rv, [s], want=["logp"])
    assert [categorical.logp(k, 1.0) for k in (0, 2, length)] == pytest.approx(
        [np.log(weights[0]), np.log(weights[2]), -np.inf]
    )
    assert categorical.logp(-1, 1.0) == -np.inf
    assert ("logp" in mixture.fallback) == (length == 20)


def test_functions_are_called_from_nopython_code():
    mu = pt.dscalar("mu")
    logp, draw = (lambda k: (k.logp, k.draw))(lower_scalar(pm.Laplace.dist(mu, 1.0), [mu]))

    @numba.njit
    def metropolis(rng, x, n):
        for _ in range(n):
            new = x + 0.1 * draw(rng, 0.0)
            if np.log(rng.random()) < logp(new, 0.0) - logp(x, 0.0):
                x = new
        return x

    assert np.isfinite(metropolis(np.random.default_rng(1), 0.0, 100))


def test_one_generator_is_threaded_through_every_draw():
    mu = pt.dscalar("mu")
    kernel = lower_scalar(pm.ExGaussian.dist(mu=mu, sigma=1.0, nu=2.0), [mu], want=["draw"])
    rng, twin = np.random.default_rng(3), np.random.default_rng(3)
    first, second = kernel.draw(rng, 0.0), kernel.draw(rng, 0.0)
    assert first != second
    assert sorted([first, second]) == sorted([kernel.draw(twin, 0.0), kernel.draw(twin, 0.0)])
    assert rng.bit_generator.state == twin.bit_generator.state


def test_equal_parts_of_one_law_are_drawn_apart():
    # two equal draws must not be merged into one
    rv = pm.CustomDist.dist(
        dist=lambda size: pm.Normal.dist(0, 1, size=size) - pm.Normal.dist(0, 1, size=size)
    )
    kernel = lower_scalar(rv, want=["draw"])
    rng = np.random.default_rng(2)
    assert np.std([kernel.draw(rng) for _ in range(2000)]) == pytest.approx(np.sqrt(2), rel=0.08)


def test_interpreted_operations_work_and_are_stated():
    mu = pt.dscalar("mu")
    rv = pm.Normal.dist(InterpretedIdentity()(mu), 1.0)
    kernel = lower_scalar(rv, [mu], want=["logp", "draw"])
    assert set(kernel.fallback) == {"logp", "draw"}
    assert "interpreter: InterpretedIdentity" in kernel.fallback["logp"]
    assert kernel.logp(0.5, 0.2) == pytest.approx(stats.norm(0.2, 1).logpdf(0.5))
    assert np.isfinite(kernel.draw(np.random.default_rng(1), 0.2))

    @numba.njit
    def twice(f, x):
        return f(x, 0.2) + f(x, 0.2)

    assert twice(kernel.logp, 0.5) == pytest.approx(2 * stats.norm(0.2, 1).logpdf(0.5))


class TwiceRV(RandomVariable):
    """A law that only its own Python method can draw from."""

    name, signature, dtype = "twice", "()->()", "floatX"
    _print_name = ("Twice", "Twice")

    @classmethod
    def rng_fn(cls, rng, mu, size):
        return np.asarray(2 * rng.normal(mu, size=size))


def test_interpreted_draws_use_the_generator_they_are_given():
    mu = pt.dscalar("mu")
    _, rv = TwiceRV()(mu, rng=pt.random.shared_rng(seed=None), return_next_rng=True)
    kernel = lower_scalar(rv, [mu], want=["draw"])
    assert "interpreter: twice_rv" in kernel.fallback["draw"]
    rng = np.random.default_rng(1)
    found = [kernel.draw(rng, 0.5) for _ in range(3)]
    assert found == list(2 * np.random.default_rng(1).normal(0.5, size=3))


class ScaledRV(RandomVariable):
    """A law whose sampler depends on what the Op holds."""

    name, signature, dtype = "scaled", "()->()", "float64"
    _print_name = ("Scaled", "Scaled")
    __props__ = ("name", "signature", "dtype", "inplace", "scale")

    def __init__(self, scale, **kwargs):
        self.scale = scale
        super().__init__(**kwargs)


@numba_core_rv_funcify.register(ScaledRV)
def _scaled_sampler(op, node):
    scale = op.scale

    @numba.njit
    def draw(rng, mu):
        return mu + scale * rng.standard_normal()

    return draw


def test_cached_draws_of_two_ops_are_kept_apart():
    mu = pt.dscalar("mu")
    for scale in (1.0, 100.0, 1.0):
        _, rv = ScaledRV(scale)(mu, rng=pt.random.shared_rng(seed=None), return_next_rng=True)
        kernel = lower_scalar(rv, [mu], want=["draw"])
        assert kernel.fallback == {}
        normal = np.random.default_rng(1).standard_normal()
        assert kernel.draw(np.random.default_rng(1), 0.0) == pytest.approx(scale * normal)


def _refused(build, message, **keywords):
    with pytest.raises(LoweringError, match=message):
        lower_scalar(*build(), **keywords)


def test_unsupported_distributions_are_refused_by_name():
    mu = pt.dscalar("mu")
    _refused(lambda: (pm.Flat.dist(), []), "draws of Flat: it is improper", want=["draw"])
    _refused(lambda: (pm.Normal.dist(mu, 1, shape=3), [mu]), r"Normal: it has 1 dimension\(s\)")
    _refused(lambda: (pm.Normal.dist(mu, 1), []), "depend on 'mu', a free variable")
    _refused(
        lambda: (pm.Normal.dist(InterpretedIdentity()(mu), 1), [mu]),
        "the gradient of Normal.*no gradient",
        want=["grad"],
    )
    _refused(
        lambda: (pm.CustomDist.dist(mu, logp=lambda value, mu: -((value - mu) ** 2)), [mu]),
        "draws of CustomDist: it was built from a log density alone",
        want=["draw"],
    )
    if find_spec("polyagamma") is None:
        for want in ("logp", "draw"):
            _refused(lambda: (pm.PolyaGamma.dist(1.0, mu), [mu]), "polyagamma", want=[want])
    no_density = lambda size: pm.math.floor(  # noqa: E731
        pm.Normal.dist(0, 1, size=size) * pm.Normal.dist(0, 1, size=size)
    )
    _refused(
        lambda: (pm.CustomDist.dist(dist=no_density), []),
        "the log density of CustomDist.*CustomDist with logp=",
        want=["logp"],
    )


def test_variables_of_a_model_are_refused_by_name():
    with pm.Model():
        scale = pm.HalfNormal("scale")
        z = pm.Data("z", 2.0)
        y = pm.Normal("y", z, scale)
    _refused(lambda: (y, {"z": z}), "Normal 'y'.*'scale', a random variable")
    _refused(lambda: (y, {"scale": scale}), "Normal 'y'.*'z', data that may change")


def test_misspelt_requests_and_equal_names_are_refused():
    mu, other = pt.dscalar("mu"), pt.dscalar("mu")
    with pytest.raises(ValueError, match=r"want=\['density'\] is not among"):
        lower_scalar(pm.Normal.dist(mu, 1), [mu], want=["density"])
    with pytest.raises(ValueError, match="names are not distinct"):
        lower_scalar(pm.Normal.dist(mu, other), [mu, other])


def test_errors_and_kernels_between_processes():
    error = pickle.loads(pickle.dumps(LoweringError("Flat", "draws", "it is improper", "do so")))
    assert str(error) == "Cannot compile draws of Flat: it is improper. To go on: do so."
    mu = pt.dscalar("mu")
    with pytest.raises(TypeError, match="call lower_scalar again"):
        pickle.dumps(lower_scalar(pm.Normal.dist(mu, 1.0), [mu], want=["logp"]))


def test_another_process_draws_the_same(tmp_path):
    code = (
        "import numpy as np, pymc as pm, pytensor.tensor as pt\n"
        "from pymc_dp.lowering.scalar import lower_scalar\n"
        "a = pt.dscalar('a')\n"
        "rv = pm.SkewNormal.dist(mu=a, sigma=1.0, alpha=2.0)\n"
        "k = lower_scalar(rv, [a], want=['draw', 'logp'])\n"
        "rng = np.random.default_rng(4)\n"
        "print([k.draw(rng, 0.5).hex() for _ in range(5)], k.logp(0.2, 0.5).hex())\n"
    )
    command = [sys.executable, "-c", code]
    # the second loads what the first compiled
    runs = [subprocess.run(command, capture_output=True, check=True).stdout for _ in range(2)]
    assert runs[0] == runs[1]
    assert pytensor.config.floatX == "float64"
