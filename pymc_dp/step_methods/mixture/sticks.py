"""Sweeps over the labels given the records and the clusters' weights: the slice sampler.

Given the labels, the weights of the occupied slots and the rest are Dirichlet(n_1 - d, ..., n_k - d, alpha +
d k), in whatever order the slots are, and the rest is broken by sticks that know of no record: Beta(1 - d,
alpha + d k + d j) for the j-th one; with K components in all and weight g for each, Beta(g, g (K - k - j)). A
record's slice variable leaves it the components whose weight is above it, which are finitely many.

Kalli, Griffin & Walker (2011) draw all sticks from the labels, which must then be in the order of the sticks;
labels that are exchangeable slots are not.
"""

import numpy as np

from pymc_dp.lowering.exponential import SPARE
from pymc_dp.lowering.native import SourceFunction
from pymc_dp.lowering.nopython import njit
from pymc_dp.step_methods.mixture.labels import density_of, record_numbers
from pymc_dp.step_methods.mixture.moments import coefficients, n_moments, scales
from pymc_dp.step_methods.mixture.program import MixtureProgram
from pymc_dp.step_methods.mixture.source import compiled, header, numbers, occupation
from pymc_dp.step_methods.sweeps.source import indented

# Components beyond which a sweep is left out. Weights and slice variables decide which ones are, and no sweep
# changes them, so that leaving it out is exact; only a discount near 1 needs so many often.
MAX_STICKS = 10_000


@njit
def break_stick(rng, alpha, d, k, j):
    """Share of the rest that the j-th component without a record takes (j = 1, 2, ...); see the module."""
    if d < 0.0:
        left = np.round(-alpha / d) - k - j
        return 1.0 if left <= 0.0 else rng.beta(-d, -d * left)
    return rng.beta(1.0 - d, alpha + d * k + d * j)


@njit
def longer(array, size):
    """Return a copy of an array with room for more rows."""
    out = np.empty((size, array.shape[1]))
    for i in range(array.shape[0]):
        for j in range(array.shape[1]):
            out[i, j] = array[i, j]
    return out


def slice_sweep(program: MixtureProgram) -> SourceFunction:
    """Compile the sweep: O(components above a record's slice variable) per record."""
    width = program.width
    kept = n_moments(program) if program.degree else 1
    prepare = [
        f"{''.join(f'parts[t, {j}], ' for j in range(width))} = {', '.join(numbers('atoms', 'g', width))},"
    ]
    fresh = [
        f"{''.join(f'parts[t, {j}], ' for j in range(width))} = {program.call('base_draw', rng=True, row='')}"
    ]
    density = coefficients(program, "own", numbers("parts", "t", width), 1, "coef") if program.degree else []
    density += [f"terms[t, {j}] = coef[0, {j}]" for j in range(kept)] if program.degree else []
    lines = [
        *header("slice_sweep", program),
        f"    alpha, d = {program.call('urn', row='')}",
        *(indented(scales(program), 4) if program.degree else []),
        f"    coef = np.empty((1, {kept}))",
        "    room = 2 * n_slots + 16",
        f"    parts, terms = np.empty((room, {width})), np.empty((room, {kept}))",
        "    weights = np.empty((room, 1))",
        "    slot_of = np.empty(n_slots, np.int64)",
        f"    u, logs, which = np.empty(n), np.empty(room + {SPARE}), np.empty(n, np.int64)",
        "    moved, order = 0.0, np.empty(64, np.int64)",
        "    for _ in range(n_sweeps):",
        *indented(occupation(), 4),
        # components: the occupied slots first, then those without a record
        "        total, size = 0.0, k",
        "        for t in range(k):",
        "            g = slots[t]",
        "            slot_of[t] = g",
        "            weights[t, 0] = rng.standard_gamma(counts[g] - d)",
        "            total += weights[t, 0]",
        *indented([*prepare, *density], 12),
        "        rest = weight_of_new_cluster(alpha, d, k)",
        "        rest = rng.standard_gamma(rest) if rest > 0.0 else 0.0",
        "        total += rest",
        "        for t in range(k):",
        "            weights[t, 0] /= total",
        "        rest /= total",
        "        least = 1.0",
        "        for i in range(n):",
        "            which[i] = where[labels[i]]",
        "            u[i] = random(rng) * weights[which[i], 0]",
        "            least = min(least, u[i])",
        "        while rest > least:",
        "            if size == room:",
        f"                if room > {MAX_STICKS}:",
        "                    break",
        "                room *= 2",
        "                parts, terms = longer(parts, room), longer(terms, room)",
        f"                weights, logs = longer(weights, room), np.empty(room + {SPARE})",
        "            t = size",
        "            share = break_stick(rng, alpha, d, k, size - k + 1)",
        "            weights[t, 0] = rest * share",
        "            rest *= 1.0 - share",
        *indented([*fresh, *density], 12),
        "            size += 1",
        "        if rest > least:",
        "            continue",
        # heaviest first, so that a record need not look further than its slice variable
        "        if size > 64:",
        "            order = np.argsort(-weights[:size, 0])",
        "        else:",
        "            for t in range(size):",
        "                m = t",
        "                while m > 0 and weights[order[m - 1], 0] < weights[t, 0]:",
        "                    order[m] = order[m - 1]",
        "                    m -= 1",
        "                order[m] = t",
        f"        heaviest, ordered = np.empty(size), np.empty((size, {kept}))",
        "        for m in range(size):",
        "            heaviest[m] = weights[order[m], 0]",
        f"            for j in range({kept}):",
        "                ordered[m, j] = terms[order[m], j]",
        "        for i in range(n):",
        *indented(record_numbers(program), 12),
        "            m = 0",
        "            while m < size and heaviest[m] > u[i]:",
        f"                logs[m] = {density_of(program, 'ordered', 'm', 'parts', 'order[m]')}",
        "                m += 1",
        # the only one is where the record is
        "            if m == 1:",
        "                continue",
        "            m = pick(rng, logs, m)",
        "            if m >= 0:",
        "                moved += order[m] != which[i]",
        "                which[i] = order[m]",
        # give the components that have records now, and had none, a slot each
        "        for h in range(n_slots):",
        "            counts[h] = 0",
        "        for i in range(n):",
        "            if which[i] < k:",
        "                counts[slot_of[which[i]]] += 1",
        "        taken = np.full(size, -1)",
        "        for i in range(n):",
        "            t = which[i]",
        "            if t < k:",
        "                labels[i] = slot_of[t]",
        "                continue",
        "            if taken[t] < 0:",
        "                free = 0",
        "                for h in range(n_slots):",
        "                    free += counts[h] == 0",
        "                if free == 0:",
        "                    tally[6] = 1.0",
        "                    return",
        "                left = int(random(rng) * free)",
        "                for h in range(n_slots):",
        "                    if counts[h] == 0:",
        "                        if left == 0:",
        "                            taken[t] = h",
        "                            break",
        "                        left -= 1",
        *(f"                atoms[taken[t], {j}] = parts[t, {j}]" for j in range(width)),
        "            labels[i] = taken[t]",
        "            counts[taken[t]] += 1",
        "    tally[2] += moved",
        "    tally[3] += n * n_sweeps",
    ]
    used = ["urn", "base_draw", "features", "own"]
    return compiled("slice_sweep", lines, program, used, break_stick=break_stick, longer=longer)
