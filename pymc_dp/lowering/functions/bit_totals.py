r"""Probability of the totals of unary encoded bits, with the categories of n people integrated out.

Given how many people c_j have each category, the totals are independent,
:math:`z_j = \text{Bin}(c_j, p) + \text{Bin}(n - c_j, q)`, and c is multinomial: independent Poisson numbers
that add up to n. So the probability is the value at n of a convolution of K sequences, each of them the
product of a Poisson weight and of the value at z_j of a convolution of two binomials. Both convolutions are
Fourier integrals. All factors are tilted first, so that z and n are where the tilted laws have their means:
then nothing cancels, and integrands are negligible beyond some standard deviations.

Integrals and sums of functions as smooth as these, over all of their range, are equal to sums over a few
equidistant points: the error is the aliased tail, below rounding for the spacings chosen here. So the cost
is O(K) whatever n is, and the result is exact to rounding. Where the sums are short they run over all terms.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import disconnected_type
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op

from pymc_dp.lowering.compiling.keys import version_of
from pymc_dp.lowering.compiling.nopython import njit, njit_for_graphs
from pymc_dp.upstream.pytensor_private import register_funcify_default_op_cache_key

# Standard deviations beyond which a tilted law has no mass in double precision.
_REACH = 9.0
# Extra terms for the skewness of Poisson laws of small mean.
_MORE = 36


@njit
def _log_poisson(c, mu):  # type: ignore[no-untyped-def]
    """Log probability of c under Poisson(mu), accurate however large both are."""
    if mu == 0.0:
        return 0.0 if c == 0.0 else -math.inf
    if c < 16.0:
        return c * math.log(mu) - mu - math.lgamma(c + 1.0)
    e = (c - mu) / mu
    deviance = mu * ((1.0 + e) * math.log1p(e) - e)
    stirling = (1.0 / 12.0 - (1.0 / 360.0 - (1.0 / 1260.0 - 1.0 / (1680.0 * c * c)) / (c * c)) / (c * c)) / c
    return -deviance - stirling - 0.5 * math.log(2.0 * math.pi * c)


@njit
def _tilt(c, n, z, p, q):  # type: ignore[no-untyped-def]
    """Tilt x under which z is the mean of the total given c; 0 or inf at the ends."""
    if z == 0.0:
        return 0.0
    if z == n:
        return math.inf
    a = p * q * (n - z)
    b = z * ((1.0 - p) * q + p * (1.0 - q)) - c * p * (1.0 - q) - (n - c) * q * (1.0 - p)
    root = math.sqrt(b * b + 4.0 * a * z * (1.0 - p) * (1.0 - q))
    return (b + root) / (2.0 * a) if b >= 0.0 else 2.0 * z * (1.0 - p) * (1.0 - q) / (root - b)


@njit
def _ratio(x, p, q):  # type: ignore[no-untyped-def]
    """(1 - p + p x) / (1 - q + q x)."""
    return p / q if x == math.inf else (1.0 - p + p * x) / (1.0 - q + q * x)


@njit
def _centre(rho, lam, n, z, p, q):  # type: ignore[no-untyped-def]
    """Number c of people near the peak of the terms of one category: c = rho lam ratio(tilt(c))."""
    lo, hi = rho * lam * (1.0 - p) / (1.0 - q), rho * lam * p / q  # beyond n while rho is searched for
    for _ in range(80):
        c = 0.5 * (lo + hi)
        if hi - lo <= 0.02 * math.sqrt(c) + 1e-3 * min(c, 1.0):
            break
        if c < rho * lam * _ratio(_tilt(c, n, z, p, q), p, q):
            lo = c
        else:
            hi = c
    return 0.5 * (lo + hi)


@njit
def _log_sizes(p1, q1, s):  # type: ignore[no-untyped-def]
    """Logarithms of abs(1 - p1 + p1 exp(is)), and of the same with q1."""
    square = math.sin(0.5 * s) ** 2
    return (
        0.5 * math.log1p(max(-4.0 * p1 * (1.0 - p1) * square, -1.0 + 1e-15)),
        0.5 * math.log1p(max(-4.0 * q1 * (1.0 - q1) * square, -1.0 + 1e-15)),
    )


@njit
def _grid(sd, mean, n, p1, q1):  # type: ignore[no-untyped-def]
    """First, last and spacing of the whole numbers that a tilted law is summed over, and if it ends abruptly.

    Terms with c > n add up to nothing, since no other number of people is negative. They are kept where
    they are a smooth continuation; otherwise the sum ends abruptly and has to run over all terms.
    """
    first = max(0.0, math.floor(mean - (_REACH + 1.0) * sd - 6.0))
    last = math.ceil(mean + (_REACH + 1.0) * sd + _MORE)
    if last > n:
        noise = n * p1 * (1.0 - p1)
        a, b = _log_sizes(p1, q1, math.pi if noise <= 0.0 else min(math.pi, 1.5 * _REACH / math.sqrt(noise)))
        if sd < 3.0 or (last - n) * b < 0.5 * last * a:
            return first, n, 1.0, True
    return first, last, max(1.0, math.floor(sd / 3.0)), False


@njit
def _nodes(reach, period):  # type: ignore[no-untyped-def]
    """Number of nodes on one side, and spacing, for a law of this standard deviation and width."""
    spacing = 2.0 * math.pi / period
    if reach <= 0.0 or _REACH / reach >= math.pi:
        return int(period) // 2, spacing, int(period) % 2 == 0
    return math.ceil(_REACH / reach / spacing), spacing, False


@njit
def _weights(first, step, mu, n, z, p1, q1, out):  # type: ignore[no-untyped-def]
    """Fill in Poisson(c; mu) times the tilted probability of z given c, at c = first, first + step, ..."""
    m = out.shape[0]
    for i in range(m):
        out[i] = 1.0 if z == 0.0 or z == n else 0.0
    period = 1.0
    if 0.0 < z < n:
        last = first + (m - 1) * step
        at_first = first * p1 * (1.0 - p1) + (n - first) * q1 * (1.0 - q1)
        at_last = last * p1 * (1.0 - p1) + (n - last) * q1 * (1.0 - q1)
        # the mean of the total moves with c: aliases have to stay beyond the reach of them all
        width = (last - first) * abs(p1 - q1) + 2.0 * (_REACH + 1.0) * math.sqrt(max(at_first, at_last))
        period = math.ceil(min(n + 1.0, width + 2.0 * _MORE))
        count, spacing, even = _nodes(math.sqrt(max(min(at_first, at_last), 0.0)), period)
        middle = m // 2
        for k in range(count + 1):
            s = k * spacing
            a, b = _log_sizes(p1, q1, s)
            u, v = math.cos(s) - 1.0, math.sin(s)
            arg_a, arg_b = math.atan2(p1 * v, 1.0 + p1 * u), math.atan2(q1 * v, 1.0 + q1 * u)
            share = 1.0 if k == 0 or (even and k == count) else 2.0
            c = first + middle * step
            size, angle = share * math.exp(c * a + (n - c) * b), c * arg_a + (n - c) * arg_b - s * z
            start = complex(size * math.cos(angle), size * math.sin(angle))
            size, angle = math.exp((a - b) * step), (arg_a - arg_b) * step
            factor = complex(size * math.cos(angle), size * math.sin(angle))
            at = start
            for i in range(middle, m):
                out[i] += at.real
                at *= factor
            factor = complex(math.cos(angle) / size, -math.sin(angle) / size)
            at = start
            for i in range(middle - 1, -1, -1):
                at *= factor
                out[i] += at.real
    for i in range(m):
        out[i] *= math.exp(_log_poisson(first + i * step, mu)) / period


@njit
def log_probability(probs, n, z, p, q, expected):  # type: ignore[no-untyped-def]
    """Log probability of bit totals, and the expected number of people in each category given them."""
    k = probs.shape[0]
    lo, hi = math.log((1.0 - q) / (1.0 - p)), math.log(q / p)
    lo, hi = min(lo, hi) - 1e-9, max(lo, hi) + 1e-9
    rho = 1.0
    centres = np.empty(k)
    for _ in range(60):
        rho = math.exp(0.5 * (lo + hi))
        total, spread = 0.0, 0.0
        for j in range(k):
            centres[j] = _centre(rho, n * probs[j], n, z[j], p, q)
            total += centres[j]
        spread = math.sqrt(n)
        if abs(total - n) <= 0.01 * spread or hi - lo < 1e-13:
            break
        if total < n:
            lo = math.log(rho)
        else:
            hi = math.log(rho)
    # tilted weights of each category
    grids, mus, ones = np.empty((k, 3)), np.empty(k), np.zeros((k, 2))
    most, constant, variance, soft, width = 0, 0.0, 0.0, 0.0, 0.0
    for j in range(k):
        c = centres[j]
        x = _tilt(c, n, z[j], p, q)
        mus[j] = rho * n * probs[j] * _ratio(x, p, q)
        constant += mus[j] - n * probs[j]
        sd = math.sqrt(c)
        if x == math.inf:
            constant += n * math.log(q)
        else:
            constant += n * math.log1p(q * (x - 1.0)) - (z[j] * math.log(x) if z[j] > 0.0 else 0.0)
        if 0.0 < x < math.inf:
            p1, q1 = ones[j, 0], ones[j, 1] = p * x / (1.0 - p + p * x), q * x / (1.0 - q + q * x)
            noise = c * p1 * (1.0 - p1) + (n - c) * q1 * (1.0 - q1)
            sd = math.sqrt(c * noise / (noise + c * (p1 - q1) ** 2)) if noise > 0.0 else 0.0
        first, last, step, abrupt = _grid(sd, c, n, ones[j, 0], ones[j, 1])
        grids[j, 0], grids[j, 1], grids[j, 2] = first, last, step
        variance += sd * sd
        soft += 0.0 if abrupt else sd * sd
        width += last - first
        most = max(most, int((last - first) // step) + 1)
    period = math.ceil(min(width + 1.0, 2.0 * (_REACH + 1.0) * math.sqrt(variance) + 2.0 * _MORE))
    # the transform of an abrupt end decays slowly: rely on the others
    count, spacing, even = _nodes(math.sqrt(soft), period)
    weights, sizes = np.zeros((k, most)), np.empty(k, np.int64)
    for j in range(k):
        sizes[j] = int((grids[j, 1] - grids[j, 0]) // grids[j, 2]) + 1
        out = weights[j, : sizes[j]]
        _weights(grids[j, 0], grids[j, 2], mus[j], n, z[j], ones[j, 0], ones[j, 1], out)
    # the convolution of them all at n, and with each of them weighted by c
    value = 0.0
    f, g = np.empty(k, np.complex128), np.empty(k, np.complex128)
    before = np.empty(k + 1, np.complex128)
    for j in range(k):
        expected[j] = 0.0
    for i in range(count + 1):
        t = i * spacing
        turn = n
        for j in range(k):
            reference = math.floor(centres[j])
            turn -= reference
            angle = t * grids[j, 2]
            factor = complex(math.cos(angle), math.sin(angle))
            angle = t * (grids[j, 0] - reference)
            at = complex(math.cos(angle), math.sin(angle))
            f[j] = g[j] = 0.0
            for m in range(sizes[j]):
                term = weights[j, m] * at
                f[j] += term
                g[j] += (grids[j, 0] + m * grids[j, 2] - reference) * term
                at *= factor
            f[j] *= grids[j, 2]
            g[j] *= grids[j, 2]
        share = 1.0 if i == 0 or (even and i == count) else 2.0
        before[0] = share * complex(math.cos(t * turn), -math.sin(t * turn))
        for j in range(k):
            before[j + 1] = before[j] * f[j]
        value += before[k].real
        after = complex(1.0, 0.0)
        for j in range(k - 1, -1, -1):
            expected[j] += (before[j] * g[j] * after).real
            after *= f[j]
    for j in range(k):
        expected[j] = math.floor(centres[j]) + expected[j] / value
    if not value > 0.0:
        return -math.inf
    return constant - n * math.log(rho) + math.log(value / period) - _log_poisson(n, n)


class BitTotals(Op):
    """Log probability of bit totals and expected counts of the categories, for a batch of tables.

    Inputs: probabilities (b, K), numbers of people (b,), totals (b, K), and the probabilities p and q of a
    one at the true category and elsewhere. Differentiable in the probabilities.
    """

    __props__ = ()

    def make_node(self, probs: Any, n: Any, totals: Any, p: Any, q: Any) -> Apply:
        """Apply it to tensors."""
        inputs = [pt.cast(pt.as_tensor_variable(v), "float64") for v in (probs, n, totals, p, q)]
        return Apply(self, inputs, [pt.dvector(), pt.dmatrix()])

    def perform(self, node: Apply, inputs: Any, outputs: Any) -> None:
        """Compute both."""
        outputs[0][0], outputs[1][0] = _log_probabilities(*inputs)

    def pullback(
        self, inputs: Sequence[Variable], outputs: Sequence[Variable], cotangents: Sequence[Variable]
    ) -> list[Variable]:
        """Gradient: expected counts over probabilities."""
        slope = cotangents[0][:, None] * outputs[1] / pt.maximum(inputs[0], 1e-300)  # type: ignore[index]
        return [slope, *(disconnected_type() for _ in inputs[1:])]

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """Only the log probability is differentiable, and only in the probabilities."""
        return [[True, False], *([False, False] for _ in node.inputs[1:])]


@njit
def _log_probabilities(probs, n, totals, p, q):  # type: ignore[no-untyped-def]
    out, expected = np.empty(probs.shape[0]), np.empty(probs.shape)
    for b in range(probs.shape[0]):
        total = 0.0
        for j in range(probs.shape[1]):
            total += probs[b, j]
        if abs(total - 1.0) < 1e-6:  # otherwise there is no such law, and nothing to search for
            out[b] = log_probability(probs[b], n[b], totals[b], p.item(), q.item(), expected[b])
        else:
            out[b] = -math.inf
    return out, expected


@register_funcify_default_op_cache_key(BitTotals)
def _funcify_bit_totals(op: BitTotals, **kwargs: Any) -> Any:
    @njit_for_graphs
    def bit_totals(probs, n, totals, p, q):  # type: ignore[no-untyped-def]
        return _log_probabilities(probs, n, totals, p, q)

    return bit_totals, version_of(bit_totals)


bit_totals = BitTotals()
