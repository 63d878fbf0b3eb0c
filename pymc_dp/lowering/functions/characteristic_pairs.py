r"""The density of two noisy sums over independent people, by the characteristic function of one person.

With points :math:`x_j` (vectors of two numbers) of what a person of group g adds and their probabilities
:math:`p_j`, the sums T have :math:`K(\zeta) = c \cdot \zeta + \sum_g n_g \log \sum_j p_j e^{\zeta \cdot x_j}`
for the logarithm of their moment generating function. Tilted by s, their density is a Fourier series in a
window of widths W around their tilted mean m, outside of which it is nothing:

.. math:: f_T(t) = \frac{e^{K(s) - s \cdot t}}{W_1 W_2} \sum_{k} e^{K(s + i \omega_k) - K(s) - i \omega_k
    \cdot t}, \quad \omega_k = 2 \pi k / W.

So the density of the release is the sum over k of these coefficients times

.. math:: C_1(\omega_{k1}) C_2(\omega_{k2}), \quad C(\omega) = \int_{m - W/2}^{m + W/2} e^{-(s + i \omega) t}
    q(z - t) \, dt,

q being the density of the noise, which is a closed form for Laplace noise of any scale. Gaussian noise is
taken as part of the sums. The tilt is that at which the tilted mean is z, or nearest to it where a tilt of
more than 1 / b would make the integrals of Laplace noise of scale b infinite without the window: terms are
then of one order, also far out. The cost is in proportion to frequencies times points, whatever the numbers
of people; there are more frequencies where the two sums are strongly correlated.

References
----------
Daniels (1954), *Saddlepoint approximations in statistics*, for the tilt; Abate and Whitt (1992), *The
Fourier-series method for inverting transforms of probability distributions*.
"""

import math

import numpy as np

from pymc_dp.lowering.compiling.nopython import njit

# Width of the window, in standard deviations of the tilted sums.
WIDTH = 13.0
# Steps of the search of the tilt, halvings of each, and how near the mean is brought, in standard deviations.
_STEPS, _HALVINGS, _NEAR = 60, 40, 0.03
# The least standard deviation of a sum, in scales of its Laplace noise.
_LEAST = 1e-6
# Frequencies reach to where a normal law's function is exp(-18), and so many times as far, again and again,
# until no more than this share of the density is left by what the pieces of one person's function are at the
# last few frequencies of either sum, or there are the most that are taken.
_REACH, _FURTHER, _LEFT, _LAST, _MOST = 6.0, 1.5, 1e-5, 2, 400
# Share of the sum of the sizes of all terms below which a sum is rounding.
_ROUNDING = 1e-15
# Exponents are no larger: points of hardly any probability may be far above the others.
_LARGEST = 700.0
# Arguments below which integrals of exponentials are summed as series, and their number of terms.
_SHORT, _TERMS = 0.5, 14


@njit
def tilted(s, added, chances, people, constant, ratio):  # type: ignore[no-untyped-def]
    """Fill in how much likelier tilting makes each point; K(s), and the tilted sums' means and covariance."""
    cumulant = s[0] * constant[0] + s[1] * constant[1]
    mean, covariance = constant.copy(), np.zeros((2, 2))
    for g in range(people.shape[0]):
        shift = -math.inf
        for j in range(added.shape[1]):
            if chances[g, j] > 0.0:
                at = s[0] * added[g, j, 0] + s[1] * added[g, j, 1]
                shift = max(shift, at + math.log(chances[g, j]))
        total = first = second = 0.0
        for j in range(added.shape[1]):
            at = s[0] * added[g, j, 0] + s[1] * added[g, j, 1]
            ratio[g, j] = math.exp(min(at - shift, _LARGEST))
            share = chances[g, j] * ratio[g, j]
            total += share
            first += share * added[g, j, 0]
            second += share * added[g, j, 1]
        first /= total
        second /= total
        for j in range(added.shape[1]):
            ratio[g, j] /= total
            share = people[g] * chances[g, j] * ratio[g, j]
            apart, other = added[g, j, 0] - first, added[g, j, 1] - second
            covariance[0, 0] += share * apart * apart
            covariance[0, 1] += share * apart * other
            covariance[1, 1] += share * other * other
        cumulant += people[g] * (shift + math.log(total))
        mean[0] += people[g] * first
        mean[1] += people[g] * second
    covariance[1, 0] = covariance[0, 1]
    return cumulant, mean, covariance


@njit
def _newton(gradient, covariance, fixed):  # type: ignore[no-untyped-def]
    """Newton's step of what is not fixed; the standard deviations alone, where sums are nearly the same."""
    step = np.zeros(2)
    inner = covariance[0, 0] * covariance[1, 1] - covariance[0, 1] ** 2
    if not fixed[0] and not fixed[1] and inner > 1e-12 * covariance[0, 0] * covariance[1, 1]:
        step[0] = (covariance[1, 1] * gradient[0] - covariance[0, 1] * gradient[1]) / inner
        step[1] = (covariance[0, 0] * gradient[1] - covariance[0, 1] * gradient[0]) / inner
        return step
    for d in range(2):
        if not fixed[d]:
            step[d] = gradient[d] / covariance[d, d]
    return step


@njit
def tilt_for(z, added, chances, people, constant, noise, laplace, ratio):  # type: ignore[no-untyped-def]
    """The tilt at which the mean is z, or the nearest to it that Laplace noise allows."""
    s, fixed = np.zeros(2), np.zeros(2, np.bool_)
    most = 1.0 / noise
    cumulant, mean, covariance = tilted(s, added, chances, people, constant, ratio)
    for _ in range(_STEPS):
        gradient, near = mean - z, True
        for d in range(2):
            if laplace:
                covariance[d, d] += (_LEAST * noise[d]) ** 2
                fixed[d] = (s[d] >= most[d] and gradient[d] < 0) or (s[d] <= -most[d] and gradient[d] > 0)
            else:
                covariance[d, d] += noise[d] ** 2
                gradient[d] += noise[d] ** 2 * s[d]
            near = near and (fixed[d] or abs(gradient[d]) < _NEAR * math.sqrt(covariance[d, d]))
        if near:
            break
        value = cumulant - s[0] * z[0] - s[1] * z[1]
        if not laplace:
            value += 0.5 * ((noise[0] * s[0]) ** 2 + (noise[1] * s[1]) ** 2)
        step = _newton(gradient, covariance, fixed)
        length = 1.0
        for _ in range(_HALVINGS):
            new = s - length * step
            if laplace:
                new = np.minimum(np.maximum(new, -most), most)
            cumulant, mean, covariance = tilted(new, added, chances, people, constant, ratio)
            then = cumulant - new[0] * z[0] - new[1] * z[1]
            if not laplace:
                then += 0.5 * ((noise[0] * new[0]) ** 2 + (noise[1] * new[1]) ** 2)
            gain = gradient[0] * (new[0] - s[0]) + gradient[1] * (new[1] - s[1])
            if then <= value + 1e-4 * gain:
                break
            length *= 0.5
        s = new
    return s


@njit
def _integrals(rate, length):  # type: ignore[no-untyped-def]
    """The integrals of exp(-rate u) and of u exp(-rate u), u from 0 to a length."""
    x = rate * length
    if abs(x) > _SHORT:
        gone = np.exp(-x)
        return (1.0 - gone) / rate, (1.0 - gone * (1.0 + x)) / (rate * rate)
    term, zeroth, first = complex(1.0, 0.0), complex(0.0, 0.0), complex(0.0, 0.0)
    for k in range(_TERMS):
        zeroth += term / (k + 1)
        first += term / (k + 2)
        term *= -x / (k + 1)
    return length * zeroth, length * length * first


@njit
def _of_noise(s, off, width, noise, laplace, first, found):  # type: ignore[no-untyped-def]
    """Fill in C at frequencies from a first multiple on, and its derivatives; return the log of its scale.

    `found` gets C, and its derivatives by z and by the noise; `off` is how far z is from the middle of the
    window.
    """
    factor, by_z, by_noise = found
    if not laplace:
        top = 0.5 * (noise * s) ** 2 - s * off
        for k in range(factor.shape[0]):
            t = (first + k) * 2.0 * math.pi / width
            zeta = complex(s, t)
            angle = noise * noise * s * t - t * off
            size = math.exp(-0.5 * (noise * t) ** 2)
            factor[k] = size * complex(math.cos(angle), math.sin(angle))
            by_z[k] = -zeta * factor[k]
            by_noise[k] = noise * zeta * zeta * factor[k]
        return top
    half = 0.5 * width
    peak = min(max(off, -half), half)
    apart = abs(off - peak)
    for k in range(factor.shape[0]):
        t = (first + k) * 2.0 * math.pi / width
        # u is the distance from z: t' = off - u below z, off + u above it
        below, moment_below = _integrals(complex(1.0 / noise - s, -t), peak + half)
        above, moment_above = _integrals(complex(1.0 / noise + s, t), half - peak)
        turned = complex(math.cos(t * peak), -math.sin(t * peak)) / (2.0 * noise)
        below, above = turned * below, turned * above
        moments = turned * (moment_below + moment_above) + apart * (below + above)
        factor[k] = below + above
        by_z[k] = (above - below) / noise
        by_noise[k] = moments / (noise * noise) - factor[k] / noise
    return -s * peak - apart / noise


@njit
def _turns(added, chances, ratio, widths, counts):  # type: ignore[no-untyped-def]
    """Weighted turns of one group's points by multiples of the first frequency, and turns by the second's."""
    points = added.shape[0]
    centre = np.zeros(2)
    for j in range(points):
        centre += chances[j] * ratio[j] * added[j]
    rows = np.empty((counts[0] + 1, points), np.complex128)
    columns = np.empty((points, 2 * counts[1] + 1), np.complex128)
    for j in range(points):
        angles = (added[j] - centre) * 2.0 * math.pi / widths
        rows[0, j] = chances[j] * ratio[j]
        turn = complex(math.cos(angles[0]), math.sin(angles[0]))
        for k in range(counts[0]):
            rows[k + 1, j] = rows[k, j] * turn
        columns[j, counts[1]] = 1.0
        turn = complex(math.cos(angles[1]), math.sin(angles[1]))
        for m in range(counts[1]):
            columns[j, counts[1] + m + 1] = columns[j, counts[1] + m] * turn
        columns[j, : counts[1]] = np.conj(columns[j, : counts[1] : -1])
    return rows, columns


@njit
def _at_ends(rows, columns, pieces, people, bound):  # type: ignore[no-untyped-def]
    """Add to the logarithms of bounds what pieces have at the last frequencies of either sum."""
    parts = np.empty(pieces.max() + 1, np.complex128)
    for k in range(bound.shape[0]):
        for m in range(bound.shape[1]):
            if _LAST <= m < bound.shape[1] - _LAST and k < bound.shape[0] - _LAST:
                continue
            parts[:] = 0.0
            for j in range(pieces.shape[0]):
                parts[pieces[j]] += rows[k, j] * columns[j, m]
            bound[k, m] += people * math.log(np.abs(parts).sum())


@njit
def _summed(  # type: ignore[no-untyped-def]
    s, added, chances, people, ratio, widths, counts, pieces, first, second, by_added, by_chances
):
    """Sum the series; its value, the sizes of its terms, derivatives by z and noise, and what is left of it.

    `counts` are the largest multiples of the two frequencies; `first` and `second` what `_of_noise` found at
    these. What is left is a bound for each of the two sums, from the pieces of one person's function.
    """
    groups, (rows, columns) = people.shape[0], (counts[0] + 1, 2 * counts[1] + 1)
    function, bound = np.zeros((rows, columns), np.complex128), np.zeros((rows, columns))
    each = np.empty((groups, rows, columns), np.complex128)
    for g in range(groups):
        turns = _turns(added[g], chances[g], ratio[g], widths, counts)
        each[g] = np.dot(turns[0], turns[1])
        for k in range(rows):
            for m in range(columns):
                if each[g, k, m] == 0.0:  # its logarithm is taken, and it is divided by
                    each[g, k, m] = 1e-300
        # turning by whole circles changes nothing, since people are whole numbers
        function += people[g] * np.log(each[g])
        _at_ends(turns[0], turns[1], pieces, people[g], bound)
    left, large = np.full(2, -math.inf), 0.0
    for k in range(rows):
        for m in range(columns):
            function[k, m] = np.exp(function[k, m])
            if k > 0 or m > counts[1]:  # it stands for its conjugate, too
                function[k, m] *= 2.0
            elif m < counts[1]:
                function[k, m] = 0.0
            size = abs(first[0, k] * second[0, m])
            large += size * abs(function[k, m])
            if size > 0.0 and k >= rows - _LAST:
                left[0] = max(left[0], bound[k, m] + math.log(size))
            if size > 0.0 and not _LAST <= m < columns - _LAST:
                left[1] = max(left[1], bound[k, m] + math.log(size))
    by_first, by_second = np.dot(function, second[0]), np.dot(first[0], function)
    value = np.dot(first[0], by_first).real
    moved = np.array([np.dot(first[1], by_first).real, np.dot(by_second, second[1]).real])
    louder = np.array([np.dot(first[2], by_first).real, np.dot(by_second, second[2]).real])
    if by_added.shape[1] > 0:
        eta = s[1] + 2j * math.pi / widths[1] * (np.arange(columns) - counts[1])
        for k in range(rows):
            function[k] *= first[0, k] * second[0]
        for g in range(groups):
            turns = _turns(added[g], chances[g], ratio[g], widths, counts)
            of_group = people[g] * function / each[g]
            back = np.ascontiguousarray(turns[1].T)
            plain, turned = np.dot(of_group, back), np.dot(of_group * eta, back)
            for j in range(added.shape[1]):
                by_chances[g, j] = by_added[g, j, 0] = by_added[g, j, 1] = 0.0
                for k in range(rows):
                    zeta = complex(s[0], 2.0 * math.pi / widths[0] * k)
                    by_chances[g, j] += (turns[0][k, j] * plain[k, j]).real
                    by_added[g, j, 0] += (turns[0][k, j] * plain[k, j] * zeta).real
                    by_added[g, j, 1] += (turns[0][k, j] * turned[k, j]).real
    return value, large, moved, louder, left


@njit
def _spread(covariance, noise, laplace, width):  # type: ignore[no-untyped-def]
    """Standard deviations of the sums, and how many frequencies of each they take."""
    least = covariance.copy()
    for d in range(2):
        least[d, d] += (_LEAST * noise[d] if laplace else noise[d]) ** 2
    inner = 1.0 - least[0, 1] ** 2 / (least[0, 0] * least[1, 1])
    return np.sqrt(np.diag(least)), _REACH * width / (2.0 * math.pi) / math.sqrt(max(inner, 1e-12))


@njit
def frequencies_for(s, added, chances, people, noise, laplace):  # type: ignore[no-untyped-def]
    """How many frequencies of each sum the density takes at a tilt, and the standard deviations there."""
    covariance = tilted(s, added, chances, people, np.zeros(2), np.empty(chances.shape))[2]
    sd, reach = _spread(covariance, noise, laplace, WIDTH)
    return reach, sd


@njit
def log_density(  # type: ignore[no-untyped-def]
    z, added, chances, people, constant, noise, pieces, laplace, width, by_added, by_chances
):
    """Log density and its derivatives by z and the noise; fills in those by what is added and its chances.

    Then what estimates of its error need: the tilt, the standard deviations there, and the share that is left
    beyond the last frequencies.
    """
    ratio = np.empty(chances.shape)
    s = tilt_for(z, added, chances, people, constant, noise, laplace, ratio)
    cumulant, mean, covariance = tilted(s, added, chances, people, constant, ratio)
    sd, reach = _spread(covariance, noise, laplace, width)
    widths = width * sd
    counts = np.full(2, _MOST)
    if reach < _MOST:
        counts[:] = math.ceil(reach)
    start = cumulant - s[0] * mean[0] - s[1] * mean[1]
    value, share, tops = math.nan, math.nan, 0.0
    moved, louder = np.full(2, math.nan), np.full(2, math.nan)
    if math.isnan(start + sd.sum()):
        return value, moved, louder, s, sd, share
    while True:
        first = np.empty((3, counts[0] + 1), np.complex128)
        second = np.empty((3, 2 * counts[1] + 1), np.complex128)
        off = z - mean
        tops = _of_noise(s[0], off[0], widths[0], noise[0], laplace, 0, first)
        tops += _of_noise(s[1], off[1], widths[1], noise[1], laplace, -counts[1], second)
        value, sizes, moved, louder, left = _summed(
            s, added, chances, people, ratio, widths, counts, pieces, first, second, by_added, by_chances
        )
        # terms may cancel to less than their rounding, as between the points of a lattice
        value = max(value, _ROUNDING * sizes)
        shares = np.exp(left + math.log(8.0 * counts[0] * counts[1]) - math.log(value))
        share = shares.sum()
        # not "at least", so that it ends where the share is no number
        if not share >= _LEFT or counts.max() >= _MOST:
            break
        for d in range(2):
            if shares[d] > 0.5 * _LEFT:
                counts[d] = min(int(_FURTHER * counts[d]) + 1, _MOST)
    if by_added.shape[1] > 0:
        by_added /= value
        by_chances /= value
        for g in range(people.shape[0]):
            for j in range(added.shape[1]):
                # the turns hold the probabilities
                by_chances[g, j] /= max(chances[g, j], 1e-300)
    found = start + tops + math.log(value) - math.log(widths[0]) - math.log(widths[1])
    return found, moved / value, louder / value, s, sd, share
