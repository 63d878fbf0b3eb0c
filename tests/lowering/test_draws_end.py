"""Draws with parameters that are no numbers come to an end: a hang in machine code stops for no signal."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import itertools
import numpy as np
from pymc_dp.lowering.functions import samplers, truncated

laws = {kind.__name__: f for kind, f in samplers.SAMPLERS.items()}
laws |= {"log_gamma": samplers.log_gamma, "cut": truncated.truncated_inverse_gamma}
counts = ("HyperGeometricRV", "DiscreteUniformRV")  # parameters are whole numbers
rng = np.random.default_rng(0)
for name, law in laws.items():
    if name in counts:
        continue
    n = law.py_func.__code__.co_argcount - 1
    for k, odd in itertools.product(range(n), (np.nan, np.inf)):
        parameters = [0.7] * n
        if name == "BetaBinomialRV":
            parameters[0] = 5
            if k == 0:
                continue
        parameters[k] = odd
        print(name, k, odd, flush=True)
        draw = law(rng, *parameters)
        if np.isnan(odd) and name != "BernoulliRV":
            assert np.isnan(draw) or draw == -1, draw
print("all ended")
"""


@pytest.mark.compiles(2)
def test_draws_without_numbers_end():
    try:
        done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=240)
    except subprocess.TimeoutExpired as error:
        pytest.fail(f"did not end: {(error.stdout or b'')[-300:]!r}")
    assert "all ended" in done.stdout, done.stdout[-200:] + done.stderr[-2000:]
