"""Log densities that are written out, beside PyMC's."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.logprob.utils import ParameterValueError

from pymc_dp.lowering.rows.written import written_logp

P = np.array([[0.2, 0.5, 0.3], [1.0, 0.0, 0.0], [0.1, 0.1, 0.8], [0.0, 0.6, 0.4]])


@pytest.mark.parametrize("values", [[0, 1, 2, 1], [2, 1, 0, 0], [-1, 3, -3, 99]])
def test_categories(python_mode, values):
    p = pt.constant(P)
    law = pm.Categorical.dist(p=p)
    at = pt.constant(np.array(values))
    with np.errstate(divide="ignore"):
        written, pymcs = (f(law, at).eval() for f in (written_logp, pm.logp))
        assert np.array_equal(written, pymcs)
        expected = [np.log(row[v]) if 0 <= v < 3 else -np.inf for row, v in zip(P, values, strict=True)]
    assert np.allclose(written, expected, rtol=1e-15)


@pytest.mark.parametrize("p", [[[1.2, -0.2]], [[0.5, 0.6]], [[np.nan, 0.5]]])
def test_what_is_no_probability_is_checked_as_by_pymc(python_mode, p):
    law = pm.Categorical.dist(p=pt.specify_shape(pt.as_tensor(np.array(p)) * pt.ones(2), (1, 2)))
    for f in (written_logp, pm.logp):
        with pytest.raises(ParameterValueError):
            f(law, pt.constant([0])).eval()
