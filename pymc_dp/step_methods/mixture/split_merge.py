"""Splits and merges of clusters, with the records of one part drawn anew.

A split takes a random record's cluster, of size m; s of its records, any with the same probability, become a
cluster of their own, with atoms from the base and records drawn from them. The size is drawn with

    r(s | m) = log(1 + 1/s) / log m,        s = 1, ..., m - 1,

about as 1/s, so that small clusters come and go as often as the partition's law wants them to. A merge takes
a cluster at random, each with the same probability, and dissolves it in that of a random other record, its
records drawn from there. The law of the records cancels against their draws, so that a split of a cluster
among k is decided by

    EPPF ratio * [ (m - s) / ((k + 1) (n - s)) ] / [ (m / n) r(s | m) / C(m, s) ] * q(z | new) / q(z | old)

with C(m, s) the number of subsets. Without the releases that is about the concentration times log(m) / k.
"""

from pymc_dp.lowering.native import SourceFunction
from pymc_dp.step_methods.mixture.program import MixtureProgram
from pymc_dp.step_methods.mixture.slots import log_split
from pymc_dp.step_methods.mixture.source import compiled, header, numbers, occupation
from pymc_dp.step_methods.sweeps.source import indented


def split_merge(program: MixtureProgram) -> SourceFunction:
    """Compile ``n_sweeps`` moves for local releases, a pass over labels and draws of one part each."""
    p, d, width = program.n_columns_of_record, program.statistics, program.width
    drawn = [f"a{j}" for j in range(width)]
    # no record is drawn from atoms for which the kernel has no law
    asked = f"if not {program.call('inside', *drawn)}[0] > 0.0:" if program.may_fail else ""
    leave = [asked, "    outside = True", "    break"] if asked else []
    lines = [
        *header("split_merge", program),
        f"    alpha, d = {program.call('urn', row='')}",
        *occupation(),
        "    w, weight, part = np.empty(n), np.empty(n), np.empty(n, np.int64)",
        f"    fresh = np.empty((n, {p}))",
        "    for i in range(n):",
        f"        w[i] = {program.call('current', *numbers('x', 'i', p))}[{d}]",
        "    for _ in range(n_sweeps):",
        "        splits = random(rng) < 0.5",
        "        g = labels[int(random(rng) * n)] if splits else slots[int(random(rng) * k)]",
        "        left = counts[g]",
        "        if left == (1 if splits else n):",
        "            continue",
        "        if splits:",
        "            if weight_of_new_cluster(alpha, d, k) == 0.0:",
        "                continue",
        "            if k == n_slots:",
        "                tally[6] = 1.0",
        "                return",
        "            h = g",
        "            need = int(np.exp(random(rng) * np.log(left)))",
        "            need = min(max(need, 1), left - 1)",
        "            total = log_split(alpha, d, k, n, left, need)",
        f"            {''.join(f'{a}, ' for a in drawn)} = {program.call('base_draw', rng=True, row='')}",
        "        else:",
        "            h = g",
        "            while h == g:",
        "                h = labels[int(random(rng) * n)]",
        "            need = left",
        "            total = -log_split(alpha, d, k - 1, n, counts[h] + left, left)",
        f"            {''.join(f'{a}, ' for a in drawn)} = {', '.join(numbers('atoms', 'h', width))},",
        *(["        outside = False"] if program.may_fail else []),
        "        size, i = 0, 0",
        "        while size < need:",
        "            if labels[i] == g:",
        "                if left == need - size or random(rng) * left < need - size:",
        *indented(leave, 20),
        f"                    r = {program.call('propose', *drawn, rng=True)}",
        *(f"                    fresh[size, {q}] = r[{q}]" for q in range(p)),
        f"                    weight[size] = r[{p + d}]",
        "                    if w[i] != -np.inf:",
        f"                        total += r[{p + d}] - w[i]",
        "                    part[size] = i",
        "                    size += 1",
        "                left -= 1",
        "            i += 1",
        "        tally[5] += 1.0",
        *(["        if outside:", "            continue"] if program.may_fail else []),
        "        if total >= 0.0 or total > -standard_exponential(rng):",
        "            tally[4] += 1.0",
        "            if splits:",
        "                h = free_slot(rng, slots, k)",
        "                swap(slots, where, where[h], k)",
        "                k += 1",
        *indented([f"atoms[h, {j}] = {a}" for j, a in enumerate(drawn)], 16),
        "            else:",
        "                k -= 1",
        "                swap(slots, where, where[g], k)",
        "            counts[g] -= size",
        "            counts[h] += size",
        "            for t in range(size):",
        "                i = part[t]",
        "                labels[i] = h",
        "                w[i] = weight[t]",
        *(f"                x[i, {q}] = fresh[t, {q}]" for q in range(p)),
    ]
    used = ["urn", "base_draw", "propose", "current"]
    return compiled("split_merge", lines, program, used, log_split=log_split)
