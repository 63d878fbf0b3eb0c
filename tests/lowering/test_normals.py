"""Multivariate normal laws written out, against SciPy."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.distributions.dist_math import check_parameters
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors
from scipy import stats

from pymc_dp.lowering.functions.normals import (
    LARGEST,
    factor_of,
    inverse_of,
    is_multivariate_normal,
    with_known_factors,
)
from pymc_dp.lowering.rows.domains import Domain
from pymc_dp.lowering.rows.written import density_at, written_logp

D = 4


def covariances(rng, *shape, d=D):
    root = rng.normal(size=(*shape, d, d))
    return root @ np.swapaxes(root, -1, -2) + np.eye(d)


GIVEN = {"cov": lambda c: c, "chol": np.linalg.cholesky, "tau": np.linalg.inv}


@pytest.mark.parametrize("constant", [True, False], ids=["constant", "variable"])
@pytest.mark.parametrize("one", [True, False], ids=["one", "each"])
@pytest.mark.parametrize("kind", GIVEN)
def test_log_density(kind, one, constant, rng, python_mode):
    """One covariance for all rows, or one for each, whichever way it is given."""
    mean, value = rng.normal(size=(2, 3, D))
    cov = covariances(rng) if one else covariances(rng, 3)
    matrix = GIVEN[kind](cov)
    given = pt.constant(matrix) if constant else pt.tensor("given", shape=matrix.shape)
    law = pm.MvNormal.dist(mean, **{kind: given})
    at = law.type("at")
    (logp,) = graph_replace([written_logp(law)], {law: at}, strict=False)
    found = pytensor.function([at] if constant else [at, given], logp)(value, *([] if constant else [matrix]))
    each = np.broadcast_to(cov, (3, D, D))
    expected = [stats.multivariate_normal.logpdf(*row) for row in zip(value, mean, each, strict=True)]
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_factor_and_inverse(rng, python_mode):
    cov = covariances(rng, d=LARGEST)
    given = pt.tensor("given", shape=cov.shape)
    for matrix in (pt.constant(cov), given):
        factor = factor_of(matrix, LARGEST, "y")
        both = [[v for row in part for v in row] for part in (factor, inverse_of(factor))]
        found = pytensor.function([given], [pt.stack(part) for part in both], on_unused_input="ignore")(cov)
        root = np.linalg.cholesky(cov)
        for values, expected in zip(found, (root, np.linalg.inv(root)), strict=True):
            np.testing.assert_allclose(values, expected[np.tril_indices(LARGEST)], rtol=1e-8, atol=1e-12)


def test_what_is_written_out():
    assert is_multivariate_normal(pm.MvNormal.dist(np.zeros(LARGEST), np.eye(LARGEST)))
    assert not is_multivariate_normal(pm.MvNormal.dist(np.zeros(LARGEST + 1), np.eye(LARGEST + 1)))
    assert not is_multivariate_normal(pm.MvStudentT.dist(4, mu=np.zeros(2), scale=np.eye(2)))
    assert not is_multivariate_normal(pm.Normal.dist(np.zeros(2)))


def test_other_laws_have_their_own_density(python_mode):
    law = pm.Normal.dist(1.0, 2.0)
    at = law.type("at")
    (logp,) = graph_replace([written_logp(law)], {law: at}, strict=False)
    np.testing.assert_allclose(logp.eval({at: 0.3}), stats.norm.logpdf(0.3, 1, 2))


def test_no_covariance():
    with pytest.raises(ValueError, match="The covariance of y is not positive definite: give a symmetric"):
        factor_of(pt.constant([[1.0, 2.0], [2.0, 1.0]]), 2, "y")


def test_a_factor_that_is_known_leaves_random_variables_alone():
    """Densities of a variable at itself are read by rows, which know the variable by its identity."""
    scale = pm.Normal.dist(shape=())
    factor = scale * np.array([[1.0, 0.0], [0.5, 2.0]])
    cov = pm.MvNormal.dist(np.zeros(2), chol=factor).owner.inputs[-1]
    checked = check_parameters(cov, pt.linalg.cholesky(cov)[0, 0] > 0)  # as marginal models do
    y = pm.MvNormal.dist(np.zeros(2), checked, shape=(3, 2))
    (known,) = with_known_factors([pt.sum(y) + pt.linalg.cholesky(cov)[0, 0]])
    assert known.eval({y: np.ones((3, 2)), scale: -2.0}) == 6.0 - 2.0
    domain = Domain(density_at(y, y), lambda v: False)
    assert domain.conditions
    assert y in set(ancestors([domain.guarded()]))
