r"""The density of a noisy sum over independent people, by the characteristic function of one person.

With points :math:`x_j` of what a person of group g adds and their probabilities :math:`p_j`, the sum has
:math:`K(\zeta) = c \zeta + \sum_g n_g \log \sum_j p_j e^{\zeta x_j}` for the logarithm of its moment
generating function M, at complex arguments too. Under Gaussian noise the density at z is

.. math:: f(z) = \frac{1}{2\pi} \int \exp\{K(s + it) + \sigma^2 (s + it)^2 / 2 - (s + it) z\} \, dt

for every real s. The midpoint rule with step h folds onto z what the law of the sum, tilted by s, has at
multiples of L = 2 pi / h from z: nothing, if s is near the saddlepoint and L is many tilted standard
deviations. Under Laplace noise of scale b the factor of the noise, :math:`1 / (1 - b^2 \zeta^2)`, has poles
at :math:`\pm 1/b`, and what is folded decays as the noise does. These are geometric series of residues:

.. math:: f(z) = T(s) + \sum_\pm \frac{M(\pm 1/b) e^{\mp z / b}}{2b} \, \frac{1}{1 + e^{L (1/b \mp s)}},

where T is the midpoint rule, up to folding of the law of the sum alone, for s on either side of the poles and
on them. So s is near the saddlepoint of the sum without its noise, and at most a little beyond a pole, where
the residue is all. The cost is in proportion to nodes times points, whatever the numbers of people.

References
----------
Daniels (1954), *Saddlepoint approximations in statistics*, for the path; Trefethen and Weideman (2014), *The
exponentially convergent trapezoidal rule*, section 5, for poles.
"""

import math

import numpy as np

from pymc_dp.lowering.compiling.nopython import njit

# Width that the midpoint rule folds onto itself, in standard deviations of the tilted sum.
WIDTH = 16.0
# Steps of the search of the saddlepoint, and how near it is sought, in units of 1 / sd.
_STEPS, _NEAR = 80, 0.03
# How far beyond a pole the path lies at most: exp(-40) of the residue is left to the rule.
_BEYOND = 40.0
# Where exp(-45) of a residue is folded onto z, it is left out: the sum need not have its tail there.
_FOLDED = 45.0
# How many of its standard deviations of a law are looked at for where it is.
_REACH = 6.0
# The least standard deviation of a sum, in scales of its Laplace noise.
_LEAST = 1e-6
# Logarithm of the size of the function, relative to that at 0, below which a node is left out.
_SMALL = 50.0
# As many times the nodes are taken at most, where a larger share of the density than this is left beyond
# them, by what the pieces of one person's function are at this many of them.
_FURTHER, _LEFT, _LAST = 32, 1e-5, 4
# Share of the sum of the sizes of all terms below which a sum is rounding.
_ROUNDING = 1e-15
# Exponents are no larger: points of hardly any probability may be far above the others.
_LARGEST = 700.0


@njit
def _tilted(s, added, chances, people, constant, ratio):  # type: ignore[no-untyped-def]
    """Fill in how much likelier tilting makes each point; K(s), and the tilted sum's mean and variance."""
    cumulant, mean, variance = s * constant, constant, 0.0
    for g in range(people.shape[0]):
        shift = -math.inf
        for j in range(added.shape[1]):
            if chances[g, j] > 0.0:
                shift = max(shift, s * added[g, j] + math.log(chances[g, j]))
        total = first = 0.0
        for j in range(added.shape[1]):
            ratio[g, j] = math.exp(min(s * added[g, j] - shift, _LARGEST))
            total += chances[g, j] * ratio[g, j]
            first += chances[g, j] * ratio[g, j] * added[g, j]
        first /= total
        second = 0.0
        for j in range(added.shape[1]):
            ratio[g, j] /= total
            second += chances[g, j] * ratio[g, j] * (added[g, j] - first) ** 2
        cumulant += people[g] * (shift + math.log(total))
        mean += people[g] * first
        variance += people[g] * second
    return cumulant, mean, variance


@njit
def _path(z, added, chances, people, constant, noise, laplace, width, ratio):  # type: ignore[no-untyped-def]
    """Where the integral is taken: the tilt, the tilted sum's standard deviation, and whether z is far out.

    The last is 1 or -1 where the saddlepoint is well beyond a pole.
    """
    extra = 0.0 if laplace else noise * noise
    least = _LEAST * noise if laplace else 0.0
    side = 0.0
    if laplace:
        pole = 1.0 / noise
        variance = _tilted(pole, added, chances, people, constant, ratio)[2]
        hi = pole + _BEYOND / (width * max(math.sqrt(variance), least))
        variance = _tilted(-pole, added, chances, people, constant, ratio)[2]
        lo = -pole - _BEYOND / (width * max(math.sqrt(variance), least))
        if _tilted(hi, added, chances, people, constant, ratio)[1] < z:
            side = 1.0
        elif _tilted(lo, added, chances, people, constant, ratio)[1] > z:
            side = -1.0
    else:
        lo = hi = z - constant
        for g in range(people.shape[0]):
            smallest = largest = added[g, 0]
            for j in range(added.shape[1]):
                smallest, largest = min(smallest, added[g, j]), max(largest, added[g, j])
            lo -= people[g] * largest
            hi -= people[g] * smallest
        lo, hi = lo / extra, hi / extra
    unit = max(math.sqrt(_tilted(0.0, added, chances, people, constant, ratio)[2] + extra), least)
    s = hi if side > 0.0 else (lo if side < 0.0 else min(max(0.0, lo), hi))
    sd = unit
    for k in range(_STEPS):
        _, mean, variance = _tilted(s, added, chances, people, constant, ratio)
        mean += extra * s
        sd = max(math.sqrt(variance + extra), least)
        if side != 0.0 or abs(mean - z) < _NEAR * sd or not hi > lo:
            break
        if mean > z:
            hi = s
        else:
            lo = s
        s += (z - mean) / (sd * sd)
        # Newton's steps are short where the mean hardly moves with s: after a few, every other one halves
        # what is left, by its order of magnitude, since far tilts are many times larger than near ones
        if not lo < s < hi or (k >= 4 and k % 2 == 1):
            s = math.sinh(0.5 * (math.asinh(lo * unit) + math.asinh(hi * unit))) / unit
    if side != 0.0:  # so that the same share of the residue is left to the rule, whatever the tilted sum's sd
        sd = max(sd, _BEYOND / (width * (abs(s) - 1.0 / noise)))
    return s, sd, side


@njit
def _folded(z, s, sd, side, sign, mean, variance, noise, width):  # type: ignore[no-untyped-def]
    """Whether a pole's residue is taken, with the tilted law at the pole.

    What is folded onto z has the form of the residue if that law is nearer. Far out on one side it is no tail
    of the other side.
    """
    if side != 0.0:
        return side == sign
    near = sign * (mean - z) + _REACH * math.sqrt(variance) < width * sd
    return near and width * sd * (1.0 / noise - sign * s) < _FOLDED


@njit
def log_density(  # type: ignore[no-untyped-def]
    z, added, chances, people, constant, noise, pieces, laplace, nodes, width, by_added, by_chances
):
    """Log density and its derivatives by z and the noise; fills in those by what is added and its chances.

    Then what estimates of its error need: the tilt, the standard deviation there, the side, K(s) - s z, and
    how many nodes there were: more than `nodes` where pieces of one person's function are not small there.
    """
    groups, points = added.shape
    slopes = by_added.shape[1] > 0
    ratio = np.empty((groups, points))
    s, sd, side = _path(z, added, chances, people, constant, noise, laplace, width, ratio)
    widths = width * sd
    logs, tilts = np.full(2, -math.inf), np.array([1.0, -1.0])
    for which in range(2 if laplace else 0):
        at = tilts[which] / noise
        cumulant, mean, variance = _tilted(at, added, chances, people, constant, ratio)
        if _folded(z, s, sd, side, tilts[which], mean, variance, noise, width):
            exponent = widths * (1.0 / noise - tilts[which] * s)
            folded = math.log1p(math.exp(-abs(exponent))) + max(exponent, 0.0)
            logs[which] = cumulant - at * z - math.log(2.0 * noise) - folded
    cumulant, mean, _ = _tilted(s, added, chances, people, constant, ratio)
    start = cumulant - s * z
    if not laplace:
        start += 0.5 * (noise * s) ** 2
    top = max(start, logs[0], logs[1])
    step = 2.0 * math.pi / widths
    scale = math.exp(start - top) * step / math.pi
    residues = math.exp(logs[0] - top) + math.exp(logs[1] - top)
    centres, phi = np.zeros(groups), np.empty(groups, np.complex128)
    turns, parts = np.empty((groups, points), np.complex128), np.empty(pieces.max() + 1, np.complex128)
    for g in range(groups):
        for j in range(points):
            centres[g] += chances[g, j] * ratio[g, j] * added[g, j]
    if slopes:
        by_added[:], by_chances[:] = 0.0, 0.0
    value = by_z = by_noise = sizes = 0.0
    left, end = -math.inf, nodes
    for k in range(_FURTHER * nodes):
        if k == end:
            so_far = max(scale * value + residues, _ROUNDING * (scale * sizes + residues))
            if left + math.log(scale / so_far) < math.log(_LEFT):
                break
            left, end = -math.inf, end + nodes
        t = (k + 0.5) * step
        zeta = complex(s, t)
        size, bound, angle = 0.0, 0.0, t * (mean - z)
        for g in range(groups):
            one = complex(0.0, 0.0)
            for j in range(points):
                turned = t * (added[g, j] - centres[g])
                turns[g, j] = complex(math.cos(turned), math.sin(turned))
                one += chances[g, j] * ratio[g, j] * turns[g, j]
            phi[g] = one
            # turning by whole circles changes nothing, since people are whole numbers
            size += people[g] * 0.5 * math.log(one.real**2 + one.imag**2)
            angle += people[g] * math.atan2(one.imag, one.real)
            if k >= end - _LAST:
                parts[:] = 0.0
                for j in range(points):
                    parts[pieces[j]] += chances[g, j] * ratio[g, j] * turns[g, j]
                bound += people[g] * math.log(np.abs(parts).sum())
        if laplace:
            factor = 1.0 / (1.0 - (noise * zeta) * (noise * zeta))
            moved = 2.0 * noise * zeta * zeta * factor
            bound -= math.log(noise * noise * t * step)
        else:
            size -= 0.5 * (noise * t) ** 2
            bound -= 0.5 * (noise * t) ** 2 + math.log(noise * noise * t * step)
            angle += noise * noise * s * t
            factor = complex(1.0, 0.0)
            moved = noise * zeta * zeta
        if k >= end - _LAST:
            left = max(left, bound)
        if math.isnan(size):
            value += size
            break
        if size < -_SMALL:  # it may be larger again farther out, as of a law that is nearly a lattice
            continue
        term = math.exp(size) * complex(math.cos(angle), math.sin(angle)) * factor
        value += term.real
        sizes += abs(term)
        by_z -= (term * zeta).real
        by_noise += (term * moved).real
        for g in range(groups if slopes else 0):
            of_group = people[g] * term / phi[g]
            for j in range(points):
                turned_so = of_group * turns[g, j]
                by_chances[g, j] += turned_so.real * ratio[g, j]
                by_added[g, j] += (turned_so * zeta).real * ratio[g, j] * chances[g, j]
    # terms may cancel to less than their rounding, as between the points of a lattice
    total = max(scale * value + residues, _ROUNDING * (scale * sizes + residues))
    share = scale / total
    by_z *= share
    by_noise *= share
    if slopes:
        by_added *= share
        by_chances *= share
    for which in range(2):
        if logs[which] == -math.inf:
            continue
        share = math.exp(logs[which] - top) / total
        at = tilts[which] / noise
        _, mean, _ = _tilted(at, added, chances, people, constant, ratio)
        exponent = widths * (1.0 / noise - tilts[which] * s)
        by_z -= share * at
        moved = widths / (noise * noise) / (1.0 + math.exp(-exponent)) - 1.0 / noise
        by_noise += share * (moved - at / noise * (mean - z))
        for g in range(groups if slopes else 0):
            for j in range(points):
                by_chances[g, j] += share * people[g] * ratio[g, j]
                by_added[g, j] += share * people[g] * at * ratio[g, j] * chances[g, j]
    return top + math.log(total), by_z, by_noise, s, sd, side, start, end


@njit
def density_and_slopes(  # type: ignore[no-untyped-def]
    z, added, chances, people, constant, noise, pieces, laplace, nodes, width
):
    """Log density, and its derivatives by z, what is added, its chances, and the noise."""
    by_added, by_chances = np.empty(added.shape), np.empty(added.shape)
    found, by_z, by_noise, _, _, _, _, _ = log_density(
        z, added, chances, people, constant, noise, pieces, laplace, nodes, width, by_added, by_chances
    )
    return found, by_z, by_added, by_chances, by_noise
