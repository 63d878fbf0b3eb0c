"""Sweeps over the labels given the records with the atoms integrated out, and splits and merges of that kind.

Where the law of a slot's numbers given its records is a known one (:mod:`.conjugacy`), its normaliser is the
records' marginal density, a function of a few sums over them: the *statistics* of a slot. They are linear in
the moments of the records (:mod:`.moments`). Labels are drawn with the ratio of two normalisers in the place
of a density (Neal's algorithm 3), so that a record may open a cluster whatever the atoms of free slots happen
to be; the atoms are drawn afterwards. Splits deal the records of a cluster to two of them, one after another,
by the same ratios (Dahl 2005): divisions that fit are then proposed, not random ones.
"""

import math

import numpy as np
from numba import njit

from pymc_dp.lowering.native import SourceFunction
from pymc_dp.lowering.truncated import log_gamma_p
from pymc_dp.step_methods.mixture.conjugacy import AtomLaws
from pymc_dp.step_methods.mixture.draws import factor
from pymc_dp.step_methods.mixture.labels import record_numbers
from pymc_dp.step_methods.mixture.moments import coefficients, n_moments, scales
from pymc_dp.step_methods.mixture.program import MixtureProgram
from pymc_dp.step_methods.mixture.source import (
    DEALINGS,
    DEALT,
    LEAVE,
    compiled,
    header,
    join,
    occupation,
)
from pymc_dp.step_methods.sweeps.source import indented


@njit
def log_gamma(x):
    """Logarithm of the gamma function: Stirling's series is exact to rounding from 16 on, and faster."""
    if x < 16.0:
        return math.lgamma(x)
    y = 1.0 / (x * x)
    series = (1.0 / 12.0 - y * (1.0 / 360.0 - y * (1.0 / 1260.0 - y * (1.0 / 1680.0 - y / 1188.0)))) / x
    return (x - 0.5) * np.log(x) - x + 0.9189385332046727 + series


@njit
def _solve(t, root, q):
    """Half of L' P^-1 L, and the logarithm of the determinant of P, for statistics that begin with both."""
    if q == 1:
        return 0.5 * t[0] * t[0] / t[1], np.log(t[1])
    factor(t, root, q)
    half, log_det = 0.0, 0.0
    for i in range(q):
        z = t[i]
        for j in range(i):
            z -= root[i, j] * root[j, q]
        z /= root[i, i]
        root[i, q] = z
        half += 0.5 * z * z
        log_det += 2.0 * np.log(root[i, i])
    return half, log_det


@njit
def normal_inverse_gamma(t, root, q):
    """Statistics: slopes and precision of the normal numbers in units of the scale, then A and Q."""
    half, log_det = _solve(t, root, q)
    shape = t[t.size - 2] - 0.5 * q - 1.0
    return log_gamma(shape) - shape * np.log(t[t.size - 1] - half) - 0.5 * log_det


@njit
def normal(t, root, q):
    """Statistics: slopes and precision."""
    half, log_det = _solve(t, root, q)
    return half - 0.5 * log_det


@njit
def gamma(t, root, q):
    """Statistics: powers of the number and of its exponential."""
    return log_gamma(t[0] + 1.0) - (t[0] + 1.0) * np.log(t[1])


@njit
def inverse_gamma(t, root, q):
    """Statistics: powers of the inverse of the number and of its exponential."""
    return log_gamma(t[0] - 1.0) - (t[0] - 1.0) * np.log(t[1])


@njit
def beta(t, root, q):
    """Statistics: powers of the number and of its complement."""
    return log_gamma(t[0] + 1.0) + math.lgamma(t[1] + 1.0) - math.lgamma(t[0] + t[1] + 2.0)


@njit
def normal_inverse_gamma_above(t, root, q):
    """Statistics: those of a normal inverse gamma law, and the lower end of the scale."""
    half, log_det = _solve(t, root, q)
    shape, scale = t[t.size - 3] - 0.5 * q - 1.0, t[t.size - 2] - half
    mass = log_gamma_p(shape, scale / t[t.size - 1])
    return log_gamma(shape) - shape * np.log(scale) - 0.5 * log_det + mass


@njit
def inverse_gamma_above(t, root, q):
    """Statistics: powers of the inverse of the number and of its exponential, and the lower end."""
    return log_gamma(t[0] - 1.0) - (t[0] - 1.0) * np.log(t[1]) + log_gamma_p(t[0] - 1.0, t[1] / t[2])


_SINGLE = {"gamma": gamma, "inverse gamma": inverse_gamma, "beta": beta}


def can_collapse(program: MixtureProgram, laws: AtomLaws) -> bool:
    """Whether all numbers of a slot integrate out, and what is left is linear in moments."""
    if not program.degree or laws.other:
        return False
    one = len(laws.single) == 1 and not laws.normal and laws.scale is None
    return one or (bool(laws.normal) and not laws.single)


def normaliser(laws: AtomLaws):  # type: ignore[no-untyped-def]
    """Return the logarithm of the normaliser that fits the laws of a slot's numbers."""
    if laws.normal and laws.scale is None:
        return normal
    if laws.normal:
        return normal_inverse_gamma_above if laws.above else normal_inverse_gamma
    return inverse_gamma_above if laws.above else _SINGLE[laws.single[0][1]]


def collapsed_sweep(program: MixtureProgram, laws: AtomLaws) -> SourceFunction:
    """Compile the sweep, O(number of clusters) per record, and the splits and merges that follow each."""
    q, size = len(laws.normal), n_moments(program)
    lines_of_weights, n_statistics, used = weights_of_records(program, laws)
    add = [
        f"for r in range({n_statistics}):",
        "    own[r] = 0.0",
        *(f"    own[r] += weights[r, {j}] * m{j}" for j in range(size)),
    ]
    record = [*record_numbers(program), *add]
    lines = [
        *header("collapsed_sweep", program),
        f"    alpha, d = {program.call('urn', row='')}",
        *occupation(),
        *indented(scales(program), 4),
        *indented(lines_of_weights, 4),
        f"    root = np.empty(({max(q, 1)}, {q + 1}))",
        f"    own, both = np.empty({n_statistics}), np.empty({n_statistics})",
        f"    t = np.empty((n_slots, {n_statistics}))",
        "    z, logs, joined = np.empty(n_slots), np.empty(n_slots + 1), np.empty(n_slots + 1)",
        "    sizes = np.empty(n_slots)",
        "    for h in range(n_slots):",
        "        t[h, :] = empty",
        "        sizes[h] = np.log(counts[h] - d) if counts[h] > 0 else 0.0",
        "    for i in range(n):",
        *indented(record, 8),
        "        t[labels[i], :] += own",
        f"    z_empty = log_z(empty, root, {q})",
        "    for h in range(n_slots):",
        f"        z[h] = log_z(t[h], root, {q}) if counts[h] > 0 else z_empty",
        "    moved = 0.0",
        "    for i in range(n):",
        *indented(LEAVE, 8),
        *indented(record, 8),
        "        if alone:",
        "            t[h, :] = empty",
        "            z[h] = z_empty",
        "        else:",
        "            t[h, :] -= own",
        f"            z[h] = log_z(t[h], root, {q})",
        "            sizes[h] = np.log(counts[h] - d)",
        "        for m in range(k):",
        "            g = slots[m]",
        f"            for r in range({n_statistics}):",
        "                both[r] = t[g, r] + own[r]",
        f"            joined[m] = log_z(both, root, {q})",
        "            logs[m] = sizes[g] + joined[m] - z[g]",
        "        rest = weight_of_new_cluster(alpha, d, k)",
        "        m = k",
        "        if rest > 0.0:",
        "            if k == n_slots:",
        "                tally[6] = 1.0",
        "            else:",
        f"                for r in range({n_statistics}):",
        "                    both[r] = empty[r] + own[r]",
        f"                joined[k] = log_z(both, root, {q})",
        "                logs[k] = np.log(rest) + joined[k] - z_empty",
        "                m = k + 1",
        "        m = pick(rng, logs, m)",
        "        g = h",
        "        if m == k:",
        "            g = free_slot(rng, slots, k)",
        "        elif m >= 0:",
        "            g = slots[m]",
        "        moved += g != h",
        *indented(join("g"), 8),
        "        t[g, :] += own",
        f"        z[g] = joined[m] if m >= 0 else log_z(t[g], root, {q})",
        "        sizes[g] = np.log(counts[g] - d)",
        "    tally[2] += moved",
        "    tally[3] += n",
        *_splits(n_statistics, q, record),
    ]
    helpers = {"log_z": normaliser(laws), "split_ratio": split_ratio}
    return compiled("collapsed_sweep", lines, program, ["urn", "features", *used], **helpers)


@njit
def split_ratio(alpha, d, k, m, s):
    """Logarithm of the partition's ratio where a cluster of m, one of k, loses s to a new one."""
    part = math.lgamma(m - s - d) + math.lgamma(s - d) - math.lgamma(m - d) - math.lgamma(1.0 - d)
    rest = alpha + d * k if d >= 0.0 else -d * (np.round(-alpha / d) - k)
    return part + np.log(rest) if rest > 0.0 else -np.inf


def _splits(n_statistics: int, q: int, record: list[str]) -> list[str]:
    """Source of ``n_sweeps`` splits or merges, for two records at random."""
    return [
        f"    one, other = np.empty({n_statistics}), np.empty({n_statistics})",
        "    to_other = np.zeros(n, np.bool_)",
        "    for _ in range(n_sweeps if n > 1 else 0):",
        "        first, second = int(rng.random() * n), int(rng.random() * (n - 1))",
        "        second += second >= first",
        "        h, g = labels[first], labels[second]",
        "        splits = h == g",
        "        if splits and (k == n_slots or weight_of_new_cluster(alpha, d, k) == 0.0):",
        "            continue",
        "        one[:], other[:] = empty, empty",
        "        for i in (first, second):",
        *indented(record, 12),
        "            if i == first:",
        "                one += own",
        "            else:",
        "                other += own",
        f"        z_one, z_other = log_z(one, root, {q}), log_z(other, root, {q})",
        "        n_one, n_other, chosen = 1, 1, 0.0",
        "        for i in range(n):",
        "            if (labels[i] != h and labels[i] != g) or i == first or i == second:",
        "                continue",
        *indented(record, 12),
        f"            for r in range({n_statistics}):",
        "                both[r] = one[r] + own[r]",
        f"            with_one = log_z(both, root, {q})",
        f"            for r in range({n_statistics}):",
        "                both[r] = other[r] + own[r]",
        f"            with_other = log_z(both, root, {q})",
        "            odds = np.log((n_other - d) / (n_one - d)) + with_other - z_other - with_one + z_one",
        # log(1 + exp(odds)), without overflow
        "            both_ways = max(odds, 0.0) + np.log1p(np.exp(-abs(odds)))",
        "            if splits:",
        "                goes = np.log(rng.random()) < odds - both_ways",
        "            else:",
        "                goes = labels[i] == g",
        "            to_other[i] = goes",
        "            if goes:",
        "                chosen += odds - both_ways",
        "                other += own",
        "                z_other = with_other",
        "                n_other += 1",
        "            else:",
        "                chosen -= both_ways",
        "                one += own",
        "                z_one = with_one",
        "                n_one += 1",
        f"        for r in range({n_statistics}):",
        "            both[r] = one[r] + other[r] - empty[r]",
        f"        z_both = log_z(both, root, {q})",
        "        total = z_one + z_other - z_both - z_empty - chosen",
        "        total += split_ratio(alpha, d, k if splits else k - 1, n_one + n_other, n_other)",
        "        total = total if splits else -total",
        f"        tally[{DEALINGS}] += 1.0",
        "        if not (total >= 0.0 or total > -rng.standard_exponential()):",
        "            continue",
        f"        tally[{DEALT}] += 1.0",
        "        if splits:",
        "            g = free_slot(rng, slots, k)",
        "            swap(slots, where, where[g], k)",
        "            k += 1",
        "            to_other[second] = True",
        "            to_other[first] = False",
        "            for i in range(n):",
        "                if labels[i] == h and to_other[i]:",
        "                    labels[i] = g",
        "            counts[h], counts[g] = n_one, n_other",
        "        else:",
        "            for i in range(n):",
        "                if labels[i] == g:",
        "                    labels[i] = h",
        "            counts[h], counts[g] = n_one + n_other, 0",
        "            k -= 1",
        "            swap(slots, where, where[g], k)",
    ]


def weights_of_records(program: MixtureProgram, laws: AtomLaws) -> tuple[list[str], int, list[str]]:
    """Source of the statistics as functions of the moments, ``weights``, and those of the base, ``empty``.

    A lower end is a statistic of the base that no record adds to.
    """
    q, width, size = len(laws.normal), program.width, n_moments(program)
    n_quadratic = q + q * (q + 1) // 2
    k = laws.scale if laws.scale is not None else (laws.single[0][0] if laws.single else None)
    n_statistics = n_quadratic + (2 if k is not None else 0) + len(laws.above)
    family = laws.single[0][1] if laws.single else "inverse gamma"
    lines = [
        f"weights, empty = np.empty(({n_statistics}, {size})), np.empty({n_statistics})",
        f"s = atoms[slots[0], {k}]" if k is not None else "s = 1.0",
    ]

    def at(point: str) -> list[str]:
        return [point if j == k else "0.0" for j in range(width)]

    used: list[str] = []
    if q:
        used += ["own_quadratic", "base_quadratic"]
        lines += [
            *coefficients(program, "own_quadratic", at("s"), n_quadratic, "weights"),
            f"p = {program.call('base_quadratic', *at('s'), row='')}",
            *(f"empty[{j}] = p[{j}]" for j in range(n_quadratic)),
        ]
        if k is not None:
            lines += [f"for r in range({n_quadratic}):", "    weights[r, :] *= s", "    empty[r] *= s"]
    if k is None:
        return lines, n_statistics, used
    used += [f"own_slope{k}", f"base_slope{k}"]
    points, factors = (
        (("0.25", "0.75"), ("0.1875", "0.1875")) if family == "beta" else (("s", "2.0 * s"),) * 2
    )
    for j in range(2):
        lines += [
            f"c{j + 1}s = np.empty((1, {size}))",
            *coefficients(program, f"own_slope{k}", at(points[j]), 1, f"c{j + 1}s"),
            f"b{j + 1}s = {factors[j]} * {program.call(f'base_slope{k}', *at(points[j]), row='')}[0]",
            f"c{j + 1}s *= {factors[j]}",
        ]
    at_a, at_b = n_quadratic, n_quadratic + 1
    first, second = {
        "inverse gamma": ("{b} / s - {one}", "2.0 * s * ({one} - {two})"),
        "gamma": ("2.0 * {one} - {two}", "({one} - {two}) / s"),
        "beta": ("1.5 * {one} - 0.5 * {two}", "0.5 * {one} - 1.5 * {two}"),
    }[family]
    lines += [
        f"for j in range({size}):",
        f"    weights[{at_b}, j] = {second.format(one='c1s[0, j]', two='c2s[0, j]')}",
        f"    weights[{at_a}, j] = {first.format(one='c1s[0, j]', two='c2s[0, j]', b=f'weights[{at_b}, j]')}",
        f"empty[{at_b}] = {second.format(one='b1s', two='b2s')}",
        f"empty[{at_a}] = {first.format(one='b1s', two='b2s', b=f'empty[{at_b}]')}",
    ]
    for j in laws.above:
        used.append(f"lower{j}")
        lines += [
            f"weights[{at_b + 1}, :] = 0.0",
            f"empty[{at_b + 1}] = {program.call(f'lower{j}', row='')}[0]",
        ]
    return lines, n_statistics, used
