"""Machine code from Python functions, in which division by zero is NumPy's: a number, never an error.

Numbers that a proposal tries may round to zero or overflow anywhere. What is infinite or no number is
compared, and refused; Python's error would end the chain instead. A callee that does not say how it divides
does as whoever compiles it first, so every function of the package says it.
"""

from functools import partial

import numba
from pytensor.link.numba.dispatch.basic import numba_njit

njit = partial(numba.njit, error_model="numpy")
# for what PyTensor's functions call: without wrappers, and with their freedoms in arithmetic
njit_for_graphs = partial(numba_njit, error_model="numpy")
