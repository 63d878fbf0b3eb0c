"""Sweeps over the labels given the records and the atoms of their clusters: Neal's algorithm 2.

The weight of a new cluster has the density of the record under the base, which is a ratio of normalisers
(:mod:`.collapsed`); its atoms are drawn given that record at once. An old cluster costs a density, which is
several times cheaper than the ratio of algorithm 3, and the more so the better the two agree: in large
clusters.
"""

from pymc_dp.lowering.exponential import SPARE, exp_in_place
from pymc_dp.lowering.native import SourceFunction
from pymc_dp.step_methods.mixture.collapsed import normaliser, weights_of_records
from pymc_dp.step_methods.mixture.conjugacy import AtomLaws
from pymc_dp.step_methods.mixture.labels import density_of, prepare_density, record_numbers
from pymc_dp.step_methods.mixture.marginal_draws import draw_lines, draw_of
from pymc_dp.step_methods.mixture.moments import coefficients, n_moments
from pymc_dp.step_methods.mixture.program import MixtureProgram
from pymc_dp.step_methods.mixture.source import LEAVE, compiled, header, join, numbers, occupation
from pymc_dp.step_methods.mixture.tally import CONSIDERED, FULL, MOVED
from pymc_dp.step_methods.sweeps.source import indented


def conjugate_gibbs(program: MixtureProgram, laws: AtomLaws) -> SourceFunction:
    """Compile the sweep, O(number of clusters) per record, after one normaliser for each record."""
    q, size = len(laws.normal), n_moments(program)
    lines_of_weights, n_statistics, used = weights_of_records(program, laws)
    both = [
        f"for r in range({n_statistics}):",
        "    both[r] = empty[r]",
        *(f"    both[r] += weights[r, {j}] * m{j}" for j in range(size)),
    ]
    at_slot = numbers("atoms", "g", program.width)
    lines = [
        *header("conjugate_gibbs", program),
        f"    alpha, d = {program.call('urn', row='')}",
        *occupation(),
        *indented(prepare_density(program, occupied_only=True), 4),
        *indented(lines_of_weights, 4),
        *indented(_constant(program, laws), 4),
        f"    root, mean = np.empty(({max(q, 1)}, {q + 1})), np.empty({max(q, 1)})",
        f"    both, z_empty = np.empty({n_statistics}), log_z(empty, root, {q})",
        # kept as long as it holds: a base without hyperparameters is integrated once in a chain
        *indented(_is_stale(program), 4),
        *(f"    totals[2 * n + {j}] = c{j}" for j in range(program.n_constants)),
        "    for i in range(n if stale else 0):",
        *indented(record_numbers(program), 8),
        *indented(both, 8),
        f"        totals[i] = log_z(both, root, {q}) - z_empty",
        *(f"        totals[i] += constant[{j}] * m{j}" for j in range(size)),
        "        totals[n + i] = np.exp(totals[i])",
        f"    logs = np.empty(n_slots + {1 + SPARE})",
        "    moved = 0.0",
        "    for _ in range(n_sweeps):",
        "        for i in range(n):",
        *indented(LEAVE, 12),
        *indented(record_numbers(program), 12),
        "            rest, total, m = weight_of_new_cluster(alpha, d, k), 0.0, k",
        "            for t in range(k):",
        "                g = slots[t]",
        f"                logs[t] = {density_of(program, 'density', 'g', 'atoms')}",
        "            exp_in_place(logs, k)",
        "            for t in range(k):",
        "                total += (counts[slots[t]] - d) * logs[t]",
        "                logs[t] = total",
        "            if rest > 0.0:",
        "                if k == n_slots:",
        f"                    tally[{FULL}] = 1.0",
        "                else:",
        "                    total += rest * totals[n + i]",
        "                    logs[k] = total",
        "                    m = k + 1",
        "            if total > 1e-250 and total < 1e250:",
        "                u, t = random(rng) * total, 0",
        "                while t < m - 1 and logs[t] <= u:",
        "                    t += 1",
        "            else:",  # densities beyond the range of numbers
        "                for t in range(k):",
        "                    g = slots[t]",
        "                    logs[t] = np.log(counts[g] - d)",
        f"                    logs[t] += {density_of(program, 'density', 'g', 'atoms')}",
        "                if m > k:",
        "                    logs[k] = np.log(rest) + totals[i]",
        "                t = pick(rng, logs, m)",
        "            g = slots[t] if t >= 0 else h",
        "            if t == k:",
        "                g = free_slot(rng, slots, k)",
        *indented(both, 16),
        *indented(draw_lines(laws, "both", "atoms", "g"), 16),
        *indented(coefficients(program, "own", at_slot, 1, "coef"), 16),
        *(f"                density[g, {j}] = coef[0, {j}]" for j in range(size)),
        "            moved += g != h",
        *indented(join("g"), 12),
        f"    tally[{MOVED}] += moved",
        f"    tally[{CONSIDERED}] += n * n_sweeps",
    ]
    further = {"log_z": normaliser(laws), "draw_atom": draw_of(laws), "exp_in_place": exp_in_place}
    return compiled("conjugate_gibbs", lines, program, ["urn", "features", "own", *used], **further)


def _is_stale(program: MixtureProgram) -> list[str]:
    """Source that finds out whether ``totals`` still holds the records' densities under the base."""
    if program.n_columns:  # what belongs to a record may have changed
        return ["stale = True"]
    return [
        "stale = not totals[0] == totals[0]",
        *(f"stale = stale or not totals[2 * n + {j}] == c{j}" for j in range(program.n_constants)),
    ]


def _constant(program: MixtureProgram, laws: AtomLaws) -> list[str]:
    """Source of the factor of a record's density that no atom is in, ``constant``, as moments of the record.

    It is what is left of the density at some atoms once the statistics' part is taken out; ``s`` is a value
    at which the statistics were worked out.
    """
    size, q = n_moments(program), len(laws.normal)
    first = q + q * (q + 1) // 2
    k = laws.scale if laws.scale is not None else (laws.single[0][0] if laws.single else None)
    family = laws.single[0][1] if laws.single else "inverse gamma"
    point = "0.5" if family == "beta" else "s"
    atoms = [point if j == k else "0.0" for j in range(program.width)]
    a, b = f"weights[{first}, j]", f"weights[{first + 1}, j]"
    part = {
        "inverse gamma": f"{a} * np.log(s) + {b} / s",
        "gamma": f"{b} * s - {a} * np.log(s)",
        "beta": f"({a} + {b}) * np.log(2.0)",
    }[family]
    return [
        f"constant = np.empty({size})",
        *coefficients(program, "own", atoms, 1, "coef"),
        f"for j in range({size}):",
        f"    constant[j] = coef[0, j] + {part if k is not None else '0.0'}",
    ]
