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

from pymc_dp.lowering.exponential import SPARE
from pymc_dp.lowering.native import SourceFunction
from pymc_dp.lowering.nopython import njit
from pymc_dp.step_methods.mixture import normalisers
from pymc_dp.step_methods.mixture.conjugacy import AtomLaws
from pymc_dp.step_methods.mixture.labels import record_numbers
from pymc_dp.step_methods.mixture.moments import coefficients, n_moments, scales
from pymc_dp.step_methods.mixture.program import MixtureProgram
from pymc_dp.step_methods.mixture.source import LEAVE, compiled, header, join, occupation
from pymc_dp.step_methods.mixture.tally import DEALINGS, DEALT
from pymc_dp.step_methods.sweeps.source import indented


def can_collapse(program: MixtureProgram, laws: AtomLaws) -> bool:
    """Whether all numbers of a slot integrate out, and what is left is linear in moments."""
    if not program.degree or laws.other:
        return False
    one = len(laws.single) == 1 and not laws.normal and laws.scale is None
    return one or (bool(laws.normal) and not laws.single)


def normaliser(laws: AtomLaws):  # type: ignore[no-untyped-def]
    """Return the logarithm of the normaliser that fits the laws of a slot's numbers."""
    if laws.normal and laws.scale is None:
        return normalisers.normal
    if laws.normal:
        return normalisers.normal_inverse_gamma_above if laws.above else normalisers.normal_inverse_gamma
    return normalisers.inverse_gamma_above if laws.above else normalisers.SINGLE[laws.single[0][1]]


class Normaliser:
    """Source of the normaliser of a slot, from its statistics; those of record i are ``o0, o1, ...``."""

    def __init__(self, laws: AtomLaws, n_statistics: int):
        self.n_statistics, self.q = n_statistics, len(laws.normal)
        self.with_scale = laws.scale is not None
        self.function = normaliser(laws)
        # whether the number of records may decide most of it
        self.tabled = self.q == 1 and not laws.above

    def prepare(self) -> list[str]:
        """Source of what is needed for any slot."""
        lines = [
            f"root = np.empty(({max(self.q, 1)}, {self.q + 1}))",
            f"both, t = np.empty({self.n_statistics}), np.empty((n_slots, {self.n_statistics}))",
        ]
        if self.tabled:
            lines += [
                "each, lead = weights[:, 0], np.full(n + 2, np.nan)",
                "half, shape = np.empty(n + 2), np.empty(n + 2)",
                f"alike = add_alike(weights, {min(3, self.n_statistics)})",
            ]
        return lines

    def know(self, n: str) -> list[str]:
        """Source that prepares for slots of n and of n + 1 records, before :meth:`of` is asked for them."""
        if not self.tabled:
            return []
        return [
            "if alike:",
            f"    for a in range({n}, {n} + 2):",
            "        if np.isnan(lead[a]):",
            "            know(a, lead, half, shape, empty, each)",
        ]

    def of(self, n: str, statistics: str) -> list[str]:
        """Source that sets ``z_now``, for n records with these statistics (``{0}`` stands for the index)."""
        every = [f"both[{r}] = {statistics.format(r)}" for r in range(self.n_statistics)]
        every += [f"z_now = log_z(both, root, {self.q})"]
        if not self.tabled:
            return every
        square = "slope * slope * half[a]"
        rest = statistics.format(self.n_statistics - 1)
        return [
            "if alike:",
            f"    a, slope = {n}, {statistics.format(0)}",
            f"    z_now = lead[a] - shape[a] * np.log({rest} - {square})"
            if self.with_scale
            else f"    z_now = lead[a] + {square}",
            "else:",
            *indented(every, 4),
        ]

    def add(self, target: str, sign: str = "+") -> list[str]:
        """Source that adds the statistics of record i to those of a slot."""
        return [f"{target.format(r)} {sign}= o{r}" for r in range(self.n_statistics)]


def collapsed_sweep(program: MixtureProgram, laws: AtomLaws) -> SourceFunction:
    """Compile the sweep, O(number of clusters) per record, and the splits and merges that follow each."""
    size = n_moments(program)
    lines_of_weights, n_statistics, used = weights_of_records(program, laws)
    z = Normaliser(laws, n_statistics)
    record = [
        *record_numbers(program),
        *(
            f"o{r} = {' + '.join(f'weights[{r}, {j}] * m{j}' for j in range(size))}"
            for r in range(n_statistics)
        ),
    ]
    lines = [
        *header("collapsed_sweep", program),
        f"    alpha, d = {program.call('urn', row='')}",
        *occupation(),
        *indented(scales(program), 4),
        *indented(lines_of_weights, 4),
        *indented(z.prepare(), 4),
        f"    z, logs, joined = np.empty(n_slots), np.empty(n_slots + {1 + SPARE}), np.empty(n_slots + 1)",
        "    sizes = np.empty(n_slots)",
        "    for h in range(n_slots):",
        "        t[h, :] = empty",
        "        sizes[h] = np.log(counts[h] - d) if counts[h] > 0 else 0.0",
        "    for i in range(n):",
        *indented(record, 8),
        "        h = labels[i]",
        *indented(z.add("t[h, {}]"), 8),
        *indented(z.know("0"), 4),
        *indented(z.of("0", "empty[{}]"), 4),
        "    z_empty = z_now",
        "    for h in range(n_slots):",
        *indented(z.know("counts[h]"), 8),
        *indented(z.of("counts[h]", "t[h, {}]"), 8),
        "        z[h] = z_now",
        "    moved = 0.0",
        "    for i in range(n):",
        *indented(LEAVE, 8),
        *indented(record, 8),
        "        z_before = z[h]",
        "        if alone:",
        "            t[h, :] = empty",
        "            z[h] = z_empty",
        "        else:",
        *indented(z.add("t[h, {}]", "-"), 12),
        *indented(z.know("counts[h]"), 12),
        *indented(z.of("counts[h]", "t[h, {}]"), 12),
        "            z[h] = z_now",
        "            sizes[h] = np.log(counts[h] - d)",
        "        for m in range(k):",
        "            g = slots[m]",
        "            if g == h:",
        "                z_now = z_before",
        "            else:",
        *indented(z.of("counts[g] + 1", "t[g, {0}] + o{0}"), 16),
        "            joined[m] = z_now",
        "            logs[m] = sizes[g] + z_now - z[g]",
        "        rest = weight_of_new_cluster(alpha, d, k)",
        "        m = k",
        "        if rest > 0.0:",
        "            if k == n_slots:",
        "                tally[6] = 1.0",
        "            else:",
        *indented(z.of("1", "empty[{0}] + o{0}"), 16),
        "                joined[k] = z_now",
        "                logs[k] = np.log(rest) + z_now - z_empty",
        "                m = k + 1",
        "        m = pick(rng, logs, m)",
        "        g = h",
        "        if m == k:",
        "            g = free_slot(rng, slots, k)",
        "        elif m >= 0:",
        "            g = slots[m]",
        "        moved += g != h",
        *indented(join("g"), 8),
        *indented(z.add("t[g, {}]"), 8),
        "        z[g] = joined[m] if m >= 0 else z_before",
        "        sizes[g] = np.log(counts[g] - d)",
        *indented(z.know("counts[g]"), 8),
        "    tally[2] += moved",
        "    tally[3] += n",
        *_splits(z, record),
    ]
    helpers = {"log_z": z.function, "split_ratio": split_ratio}
    helpers |= {"add_alike": normalisers.add_alike, "know": normalisers.know}
    return compiled("collapsed_sweep", lines, program, ["urn", "features", *used], **helpers)


@njit
def split_ratio(alpha, d, k, m, s):
    """Logarithm of the partition's ratio where a cluster of m, one of k, loses s to a new one."""
    part = math.lgamma(m - s - d) + math.lgamma(s - d) - math.lgamma(m - d) - math.lgamma(1.0 - d)
    rest = alpha + d * k if d >= 0.0 else -d * (np.round(-alpha / d) - k)
    return part + np.log(rest) if rest > 0.0 else -np.inf


def _splits(z: Normaliser, record: list[str]) -> list[str]:
    """Source of ``n_sweeps`` splits or merges, for two records at random."""
    return [
        f"    one, other = np.empty({z.n_statistics}), np.empty({z.n_statistics})",
        "    to_other = np.zeros(n, np.bool_)",
        "    for _ in range(n_sweeps if n > 1 else 0):",
        "        first, second = int(random(rng) * n), int(random(rng) * (n - 1))",
        "        second += second >= first",
        "        h, g = labels[first], labels[second]",
        "        splits = h == g",
        "        if splits and (k == n_slots or weight_of_new_cluster(alpha, d, k) == 0.0):",
        "            continue",
        "        one[:], other[:] = empty, empty",
        "        for i in (first, second):",
        *indented(record, 12),
        "            if i == first:",
        *indented(z.add("one[{}]"), 16),
        "            else:",
        *indented(z.add("other[{}]"), 16),
        *indented(z.of("1", "one[{}]"), 8),
        "        z_one = z_now",
        *indented(z.of("1", "other[{}]"), 8),
        "        z_other = z_now",
        "        n_one, n_other, chosen = 1, 1, 0.0",
        "        for i in range(n):",
        "            if (labels[i] != h and labels[i] != g) or i == first or i == second:",
        "                continue",
        *indented(record, 12),
        *indented(z.know("n_one"), 12),
        *indented(z.know("n_other"), 12),
        *indented(z.of("n_one + 1", "one[{0}] + o{0}"), 12),
        "            with_one = z_now",
        *indented(z.of("n_other + 1", "other[{0}] + o{0}"), 12),
        "            with_other = z_now",
        "            odds = np.log((n_other - d) / (n_one - d)) + with_other - z_other - with_one + z_one",
        # log(1 + exp(odds)), without overflow
        "            both_ways = max(odds, 0.0) + np.log1p(np.exp(-abs(odds)))",
        "            if splits:",
        "                goes = np.log(random(rng)) < odds - both_ways",
        "            else:",
        "                goes = labels[i] == g",
        "            to_other[i] = goes",
        "            if goes:",
        "                chosen += odds - both_ways",
        *indented(z.add("other[{}]"), 16),
        "                z_other = with_other",
        "                n_other += 1",
        "            else:",
        "                chosen -= both_ways",
        *indented(z.add("one[{}]"), 16),
        "                z_one = with_one",
        "                n_one += 1",
        *indented(z.know("n_one + n_other - 1"), 8),
        *indented(z.of("n_one + n_other", "one[{0}] + other[{0}] - empty[{0}]"), 8),
        "        total = z_one + z_other - z_now - z_empty - chosen",
        "        total += split_ratio(alpha, d, k if splits else k - 1, n_one + n_other, n_other)",
        "        total = total if splits else -total",
        f"        tally[{DEALINGS}] += 1.0",
        "        if not (total >= 0.0 or total > -standard_exponential(rng)):",
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
        # of two numbers that cancel, rounding is left
        f"    if abs(weights[{at_a}, j]) < 1e-12 * (abs(c1s[0, j]) + abs(c2s[0, j])):",
        f"        weights[{at_a}, j] = 0.0",
        f"empty[{at_b}] = {second.format(one='b1s', two='b2s')}",
        f"empty[{at_a}] = {first.format(one='b1s', two='b2s', b=f'empty[{at_b}]')}",
    ]
    for j in laws.above:
        used.append(f"lower{j}")
        lower = program.call(f"lower{j}", row="")
        lines += [f"weights[{at_b + 1}, :] = 0.0", f"empty[{at_b + 1}] = {lower}[0]"]
    return lines, n_statistics, used
