r"""Splits and merges of clusters by their weights: a part of a cluster gets atoms of its own.

Within a cluster h of m records a new one g has some weight v. Given both, labels in the union have the
partition's law: with discount d and k clusters before,

    (alpha + d k) Gamma(m - 2 d) / (Gamma(m - d) Gamma(1 - d)) v^(s-d-1) (1 - v)^(m-s-d-1)

for s records in g, which is the partition's ratio times the law Beta(s - d, m - s - d) of v. A split takes
the cluster of a random record, draws v with density 1 / (L v) on (least, most) and atoms of g from the base,
and lets each record i go with probability v r_i / (1 - v + v r_i), where r_i says how much better it is off
in g. What is left for the decision is

    (alpha + d k) L v^-d (1 - v)^(-d-1) Gamma(m - 2 d) / (Gamma(m - d) Gamma(1 - d))
        prod_i (1 - v + v r_i) [(m - s) / ((k + 1) (n - s))] / [m / n]

in which no size of the parts but the last two occurs. A merge takes any cluster and dissolves it in that of
a random other record, with v from its Beta law. There are three kinds of r_i:

* *fresh*: record i is drawn anew from g (in a merge: from h, if it is in g), and r_i is the ratio of the
  densities of its releases. For local releases of any kind; best where they tell little of a record.
* *released*: the ratio of the releases' densities with the record integrated out, which is drawn given its
  release if it moves. For closed releases; always accepted most often, and dearest.
* *kept*: records stay, and r_i is the ratio of their densities. For any kernel; best where releases tell
  nearly all of a record.

Of fresh records only a part is tried: each with probability t = min(1, 4 v), and those let go with
probability v / t in place of v. The others of h had no part in it, with probability (t - v) / (1 - v) each
of being tried when the move goes back.
"""

from collections.abc import Callable

from pymc_dp.lowering.native import SourceFunction
from pymc_dp.step_methods.mixture.moments import features
from pymc_dp.step_methods.mixture.program import MixtureProgram
from pymc_dp.step_methods.mixture.slots import draw_weight, has_weight, log_split
from pymc_dp.step_methods.mixture.source import compiled, header, numbers, occupation
from pymc_dp.step_methods.mixture.tally import FIRST_SPLIT, SPLIT_KINDS
from pymc_dp.step_methods.mixture.urn import add_closed
from pymc_dp.step_methods.sweeps.source import indented

# Fresh records that are tried, for each that would go if all had the same density.
_TRIED = 4.0
# Ratios of densities whose logarithm is larger are not multiplied up.
_LARGE = 300.0


def split_merge(program: MixtureProgram, kind: str) -> SourceFunction:
    """Compile ``n_sweeps`` moves of a kind: each a pass over the labels, and the records of two clusters.

    Of a split of m records, fresh ones cost up to m draws and densities of their releases, released ones 2 m
    densities without the record, kept ones 2 m densities of the kernel; of those before the move, each is
    worked out once in a call.
    """
    p, width = program.n_columns_of_record, program.width
    drawn, old = [f"a{j}" for j in range(width)], numbers("atoms", "h", width)
    targets = "".join(f"{a}, " for a in drawn)
    count = f"tally[{FIRST_SPLIT} + {2 * SPLIT_KINDS.index(kind)}"
    before, there, used = _weights(program, kind)
    lines = [
        *header(f"{kind}_splits", program),
        f"    alpha, d = {program.call('urn', row='')}",
        *occupation(),
        "    w, there, goes = np.full(n, np.nan), np.empty(n), np.zeros(n, np.bool_)",
        f"    fresh = np.empty(({'n' if kind == 'fresh' else '0'}, {p}))",
        "    for _ in range(n_sweeps):",
        "        splits = random(rng) < 0.5",
        "        if splits:",
        "            h = labels[int(random(rng) * n)]",
        "            g, m = -1, counts[h]",
        "            if m == 1 or weight_of_new_cluster(alpha, d, k) == 0.0:",
        "                continue",
        "            v = draw_weight(rng, m)",
        f"            {targets} = {program.call('base_draw', rng=True, row='')}",
        "        else:",
        "            g = slots[int(random(rng) * k)]",
        "            if counts[g] == n:",
        "                continue",
        "            h = g",
        "            while h == g:",
        "                h = labels[int(random(rng) * n)]",
        "            m = counts[h] + counts[g]",
        "            v = rng.beta(counts[g] - d, counts[h] - d)",
        "            if not has_weight(v, m):",
        "                continue",
        f"            {targets} = {', '.join(numbers('atoms', 'g', width))},",
        f"        tried = min(1.0, {_TRIED} * v)" if kind == "fresh" else "        tried = 1.0",
        "        weight, again = v / tried, (tried - v) / (1.0 - v)",
        "        total, product, size = 0.0, 1.0, 0",
        "        for i in range(n):",
        "            if labels[i] == h:",
        "                goes[i] = False",
        "                if tried < 1.0 and random(rng) >= (tried if splits else again):",
        "                    continue",
        *indented(_where_there_is_a_law(program, drawn, there(drawn)), 16),
        "            elif labels[i] == g:",
        *indented(_where_there_is_a_law(program, old, there(old)), 16),
        "            else:",
        "                continue",
        "            if np.isnan(w[i]):",
        *indented(before, 16),
        # whoever starts where its release is impossible may go anywhere
        "            change = there[i] - w[i] if w[i] != -np.inf else 0.0",
        "            change = change if labels[i] == h else -change",
        f"            if change < {_LARGE}:",
        "                gain = weight * np.exp(change)",
        "                each = 1.0 - weight + gain",
        "                product *= each",
        "                if not 1e-100 < product < 1e100:",
        "                    total += np.log(product)",
        "                    product = 1.0",
        "                goes[i] = splits and random(rng) * each < gain",
        "            else:",
        "                total += change + np.log(weight)",
        "                goes[i] = splits",
        "            size += goes[i]",
        f"        {count} + 1] += 1.0",
        "        if splits and (size == 0 or size == m):",
        "            continue",
        "        size = size if splits else counts[g]",
        "        total += np.log(product) + log_split(alpha, d, k if splits else k - 1, n, m, size, v)",
        "        total = total if splits else -total",
        "        if not (total >= 0.0 or total > -standard_exponential(rng)):",
        "            continue",
        f"        {count}] += 1.0",
        "        if splits and k == n_slots:",
        "            tally[6] = 1.0",
        "            return",
        "        if splits:",
        "            g = free_slot(rng, slots, k)",
        "            swap(slots, where, where[g], k)",
        "            k += 1",
        *indented([f"atoms[g, {j}] = {a}" for j, a in enumerate(drawn)], 12),
        "            counts[h], counts[g], to = m - size, size, g",
        "        else:",
        "            k -= 1",
        "            swap(slots, where, where[g], k)",
        "            counts[h], counts[g], to = m, 0, h",
        "        for i in range(n):",
        "            if (splits and labels[i] == h and goes[i]) or (not splits and labels[i] == g):",
        "                labels[i], w[i] = to, there[i]",
        *indented(_move(program, kind), 16),
    ]
    helpers = {"log_split": log_split, "draw_weight": draw_weight, "has_weight": has_weight}
    return compiled(f"{kind}_splits", lines, program, ["urn", "base_draw", *used], **helpers)


def _weights(
    program: MixtureProgram, kind: str
) -> tuple[list[str], Callable[[list[str]], list[str]], list[str]]:
    """Source of a record's log density as it is, and as it would be with some atoms; the functions used."""
    p, d, width = program.n_columns_of_record, program.statistics, program.width
    own = numbers("atoms", "labels[i]", width)
    if kind == "fresh":
        now = f"w[i] = {program.call('current', *numbers('x', 'i', p))}[{d}]"

        def drawn(atoms: list[str]) -> list[str]:
            record = [f"fresh[i, {q}] = r[{q}]" for q in range(p)]
            return [f"r = {program.call('propose', *atoms, rng=True)}", *record, f"there[i] = r[{p + d}]"]

        return [now], drawn, ["current", "propose"]
    if kind == "released":
        released, _ = add_closed(program)

        def density(atoms: list[str]) -> list[str]:
            return [f"there[i] = {released(atoms)}"]

        return [f"w[i] = {released(own)}"], density, ["released", "given_release"]
    numbers_of_record = f"f = {features(program)}"

    def kernel(atoms: list[str]) -> str:
        return f"{program.call('own', *(f'f[{j}]' for j in range(program.n_features)), *atoms)}[0]"

    return (
        [numbers_of_record, f"w[i] = {kernel(own)}"],
        lambda atoms: [numbers_of_record, f"there[i] = {kernel(atoms)}"],
        ["features", "own"],
    )


def _where_there_is_a_law(program: MixtureProgram, atoms: list[str], lines: list[str]) -> list[str]:
    """Source that gives a record no density in a cluster whose atoms are outside of the kernel's domain."""
    if not program.may_fail:
        return lines
    return [
        f"if {program.call('inside', *atoms)}[0] > 0.0:",
        *indented(lines, 4),
        "else:",
        "    there[i] = -np.inf",
    ]


def _move(program: MixtureProgram, kind: str) -> list[str]:
    """Source that gives a record what it is in its new cluster."""
    if kind == "kept":
        return []
    if kind == "fresh":
        return [f"x[i, {q}] = fresh[i, {q}]" for q in range(program.n_columns_of_record)]
    _, given_release = add_closed(program)
    return given_release(numbers("atoms", "to", program.width))
