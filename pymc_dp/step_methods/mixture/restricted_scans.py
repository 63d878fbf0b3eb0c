"""Splits and merges of clusters by restricted Gibbs scans, with the atoms integrated out.

Two records are chosen; if they share a cluster it is split, otherwise their clusters are merged (Jain & Neal
2004). A *launch state* divides the records of these clusters among the two: atoms are drawn for each part,
given at first one of the two records and later all that the part has, and the other records are assigned in
proportion to their density under either and to the parts' weights, which are drawn too. The last scan from
there proposes the division that is decided on; where clusters are merged, it is asked for the probability of
the division that there is. Given the launch state the records are independent of each other, so that a scan
costs one density ratio for each.
"""

from pymc_dp.lowering.native import SourceFunction
from pymc_dp.step_methods.mixture.collapsed import normaliser, split_ratio, weights_of_records
from pymc_dp.step_methods.mixture.conjugacy import AtomLaws
from pymc_dp.step_methods.mixture.labels import record_numbers
from pymc_dp.step_methods.mixture.marginal_draws import draw_lines, draw_of
from pymc_dp.step_methods.mixture.moments import coefficients, n_moments, scales
from pymc_dp.step_methods.mixture.program import MixtureProgram
from pymc_dp.step_methods.mixture.source import compiled, header, numbers, occupation
from pymc_dp.step_methods.mixture.tally import SPLIT, TRIED
from pymc_dp.step_methods.sweeps.source import indented


def choose_two(first: int = 0) -> list[str]:
    """Source that chooses two records and lists the others of their clusters, from ``part[first]`` on.

    With ``first`` = 2 the two stand before the others.
    """
    return [
        "first, second = int(random(rng) * n), int(random(rng) * (n - 1))",
        "second += second >= first",
        "h, g = labels[first], labels[second]",
        "splits = h == g",
        "if splits and (k == n_slots or weight_of_new_cluster(alpha, d, k) == 0.0):",
        "    continue",
        *(["part[0], part[1] = first, second"] if first else []),
        f"size = {first}",
        "for i in range(n):",
        "    if (labels[i] == h or labels[i] == g) and i != first and i != second:",
        "        part[size] = i",
        "        size += 1",
    ]


def decide(first: int = 0) -> list[str]:
    """Source that decides on the logarithm ``total`` of a split's ratio, and writes the labels."""
    return [
        f"n_both = size + {2 - first}",
        "total += split_ratio(alpha, d, k if splits else k - 1, n_both, n_other)",
        "total = total if splits else -total",
        f"tally[{TRIED}] += 1.0",
        "if not (total >= 0.0 or total > -standard_exponential(rng)):",
        "    continue",
        f"tally[{SPLIT}] += 1.0",
        "if splits:",
        "    g = free_slot(rng, slots, k)",
        "    swap(slots, where, where[g], k)",
        "    k += 1",
        "    labels[second] = g",
        f"    for r in range({first}, size):",
        "        if to_other[r]:",
        "            labels[part[r]] = g",
        "    counts[h], counts[g] = n_both - n_other, n_other",
        "else:",
        "    labels[second] = h",
        f"    for r in range({first}, size):",
        "        labels[part[r]] = h",
        "    counts[h], counts[g] = n_both, 0",
        "    k -= 1",
        "    swap(slots, where, where[g], k)",
    ]


def collapsed_scans(program: MixtureProgram, laws: AtomLaws, n_scans: int) -> SourceFunction:
    """Compile ``n_sweeps`` splits or merges, each ``n_scans`` + 1 passes over the records of two clusters."""
    q, size = len(laws.normal), n_moments(program)
    lines_of_weights, n_statistics, used = weights_of_records(program, laws)

    def statistics(side: int) -> list[str]:
        return [
            f"for r in range({n_statistics}):",
            f"    t[{side}, r] = empty[r]",
            f"    for j in range({size}):",
            f"        t[{side}, r] += weights[r, j] * sums[{side}, j]",
        ]

    def atoms_of(side: int) -> list[str]:
        return [
            *draw_lines(laws, f"t[{side}]", "drawn_atoms", str(side)),
            *coefficients(program, "own", numbers("drawn_atoms", str(side), program.width), 1, "coef"),
            *(f"density[{side}, {j}] = coef[0, {j}]" for j in range(size)),
        ]

    of_anchor = [
        "for side in range(2):",
        "    i = second if side else first",
        *indented(record_numbers(program), 4),
        *(f"    anchors[side, {j}] = m{j}" for j in range(size)),
    ]
    gather = [
        "for r in range(size):",
        "    i = part[r]",
        *indented(record_numbers(program), 4),
        *(f"    moment[r, {j}] = m{j}" for j in range(size)),
    ]
    odds = " + ".join(f"shift{j} * moment[r, {j}]" for j in range(size))
    scan = [
        *(f"shift{j} = density[1, {j}] - density[0, {j}]" for j in range(size)),
        "shift0 += weight",
        "n_other, chosen = 1, 0.0",
        *(f"sums[{s}, {j}] = anchors[{s}, {j}]" for s in range(2) for j in range(size)),
        "for r in range(size):",
        f"    odds = {odds}",
        # a scan on the way draws; so does the last of a split; that of a merge meets what there is
        f"    if splits or scan < {n_scans}:",
        "        goes = random(rng) * (1.0 + np.exp(-odds)) < 1.0",
        "    else:",
        "        goes = labels[part[r]] == g",
        f"    if scan == {n_scans}:",
        "        to_other[r] = goes",
        "        chosen += min(odds, 0.0) if goes else -max(odds, 0.0)",
        "        chosen -= np.log1p(np.exp(-abs(odds)))",
        "    if goes:",
        "        n_other += 1",
        *(f"        sums[1, {j}] += moment[r, {j}]" for j in range(size)),
        "    else:",
        *(f"        sums[0, {j}] += moment[r, {j}]" for j in range(size)),
        *statistics(0),
        *statistics(1),
    ]
    lines = [
        *header("collapsed_scans", program),
        f"    alpha, d = {program.call('urn', row='')}",
        *occupation(),
        *indented(scales(program), 4),
        *indented(lines_of_weights, 4),
        f"    root, mean = np.empty(({max(q, 1)}, {q + 1})), np.empty({max(q, 1)})",
        f"    t, both = np.empty((2, {n_statistics})), np.empty({n_statistics})",
        f"    sums, anchors = np.empty((2, {size})), np.empty((2, {size}))",
        f"    coef, density = np.empty((1, {size})), np.empty((2, {size}))",
        f"    drawn_atoms = np.zeros((2, {program.width}))",
        "    part, to_other = np.empty(n, np.int64), np.zeros(n, np.bool_)",
        f"    moment = np.empty((n, {size}))",
        f"    z_empty = log_z(empty, root, {q})",
        "    for _ in range(n_sweeps if n > 1 else 0):",
        *indented(choose_two(), 8),
        *indented(of_anchor, 8),
        *indented(gather, 8),
        *(f"        sums[{s}, {j}] = anchors[{s}, {j}]" for s in range(2) for j in range(size)),
        *indented(statistics(0), 8),
        *indented(statistics(1), 8),
        "        weight, chosen, n_other = 0.0, 0.0, 1",
        f"        for scan in range({n_scans + 1}):",
        *indented(atoms_of(0), 12),
        *indented(atoms_of(1), 12),
        "            if scan > 0:",
        "                of_other = rng.standard_gamma(n_other - d)",
        "                weight = np.log(of_other / rng.standard_gamma(size + 2 - n_other - d))",
        *indented(scan, 12),
        f"        for r in range({n_statistics}):",
        "            both[r] = t[0, r] + t[1, r] - empty[r]",
        f"        total = log_z(t[0], root, {q}) + log_z(t[1], root, {q}) - log_z(both, root, {q})",
        "        total -= z_empty + chosen",
        *indented(decide(), 8),
    ]
    further = {
        "log_z": normaliser(laws),
        "draw_atom": draw_of(laws),
        "split_ratio": split_ratio,
    }
    return compiled("collapsed_scans", lines, program, ["urn", "features", "own", *used], **further)
