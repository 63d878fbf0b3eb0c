"""Sweeps over labels and records together: each proposed from the urn and its cluster.

Algorithm 1 of Beraha, Favaro & Rao. The label comes from the law of one more record given the others' labels,
the record from that cluster, and the release decides. The urn costs O(1), as the label of another record
picked at random, or one of a new cluster. Where the release has a closed law without the record, that may
decide instead, and the record is drawn given the release.
"""

from collections.abc import Callable

from pymc_dp.lowering import bins
from pymc_dp.lowering.exponential import SPARE
from pymc_dp.lowering.native import SourceFunction
from pymc_dp.records import parameters_of
from pymc_dp.step_methods.mixture.program import MixtureProgram
from pymc_dp.step_methods.mixture.released import SummedRelease, not_closed
from pymc_dp.step_methods.mixture.source import (
    LEAVE,
    compiled,
    header,
    join,
    numbers,
    occupation,
    refused,
    whether_inside,
)
from pymc_dp.step_methods.sweeps.source import indented

# The urn. With a discount d, a record's label is kept with probability 1 - d / n_h, and a new cluster opened
# otherwise; with -d = g > 0 (K components, concentration K g), g more for each occupied slot. All k discounts
# together are the chance d k of a new cluster, of which a negative concentration takes a part away: of those
# cases as many are drawn again.
URN = [
    "g = -1",
    "u = random(rng) * (n - 1 + max(alpha, 0.0))",
    "while u < n - 1:",
    "    j = int(u)",
    "    u -= j",
    "    j += j >= i",
    "    g = labels[j]",
    "    if d <= 0.0 or u * counts[g] >= d:",
    "        break",
    "    g = -1",
    "    if alpha >= 0.0 or random(rng) * d * k >= -alpha:",
    "        break",
    "    u = random(rng) * (n - 1)",
    "if g < 0 and d < 0.0:",
    "    j = int((u - (n - 1)) / -d)",
    "    if j < k or weight_of_new_cluster(alpha, d, k) == 0.0:",
    "        g = slots[min(j, k - 1)]",
]
OPEN = [
    "    if k == n_slots:",
    "        tally[6] = 1.0",
    "        g = h",
    "    else:",
    "        g = free_slot(rng, slots, k)",
]


def drawn_atoms(program: MixtureProgram) -> list[str]:
    """Source of the atoms that record i would have: those of slot g, or new ones from the base."""
    drawn = [f"a{j}" for j in range(program.width)]
    atoms = "".join(f"{a}, " for a in drawn)
    return [
        "if g >= 0:",
        f"    {atoms} = {', '.join(numbers('atoms', 'g', program.width))},",
        "else:",
        f"    {atoms} = {program.call('base_draw', rng=True, row='')}",
        *whether_inside(program, drawn),
    ]


def urn_sweep(program: MixtureProgram) -> SourceFunction:
    """Compile the sweep with one auxiliary record, for releases of any kind."""
    p, d, width = program.n_columns_of_record, program.statistics, program.width
    histograms = program.histograms
    dense = list(enumerate(program._positions))
    starts = [program._starts[h.release.rv] for h in histograms]
    now = program.call("current", *numbers("x", "i", p))
    drawn = [f"a{j}" for j in range(width)]
    lines = [
        *header("urn_sweep", program),
        f"    alpha, d = {program.call('urn', row='')}",
        *occupation(),
        "    old, new = offset.copy(), offset.copy()",
        "    w = np.empty(n)",
        f"    bins = np.empty(({len(histograms)}, n), np.int32)",
        "    for i in range(n):",
        f"        s = {now}",
        f"        w[i] = s[{d}]",
        *(f"        old[{at}] += s[{j}]" for j, at in dense),
    ]
    for h in range(len(histograms)):
        lines += [
            f"        bins[{h}, i] = bin_of(edges{h}, s[{d + 1 + h}])",
            f"        old[{starts[h][1]} + bins[{h}, i]] += 1.0",
        ]
    lines += [
        "    accepted, moved = 0.0, 0.0",
        "    for _ in range(n_sweeps):",
        "        for i in range(n):",
        *indented([*LEAVE, *URN], 12),
        *indented(drawn_atoms(program), 12),
        f"            r = {program.call('propose', *drawn, rng=True)}",
        *([f"            s = {now}"] if dense else []),
        *(f"            new[{at}] = old[{at}] + (r[{p + j}] - s[{j}])" for j, at in dense),
        *(
            f"            b{h} = {starts[h][1]} + bin_of(edges{h}, r[{p + d + 1 + h}])"
            for h in range(len(histograms))
        ),
        *(f"            o{h} = {starts[h][1]} + bins[{h}, i]" for h in range(len(histograms))),
        "            total = 0.0",
        *indented(program.program.central.loops(leaving_out=program.program.histograms), 12),
    ]
    for h, histogram in enumerate(histograms):
        at, rv = starts[h][0], histogram.release.rv
        lines += [f"            if o{h} != b{h}:"]
        for j, by in ((f"o{h}", "- 1.0"), (f"b{h}", "+ 1.0")):
            args = "".join(f", params[{j}, {m}]" for m in range(len(parameters_of(rv)) - 1))
            lines += [f"                total += change{at}(value[{j}], old[{j}], old[{j}] {by}{args})[0]"]
    if program.program.n_statistics:
        lines += [f"            total *= data[{program.program.temper_at}]"]
    lines += [
        "            if w[i] != -np.inf:",
        f"                total += r[{p + d}] - w[i]",
        *indented(refused(program), 12),
        "            if total >= 0.0 or total > -standard_exponential(rng):",
        "                accepted += 1.0",
        "                if g < 0:",
        *indented(OPEN, 16),
        *(f"                    atoms[g, {j}] = {a}" for j, a in enumerate(drawn)),
        "                moved += g != h",
        *(f"                x[i, {j}] = r[{j}]" for j in range(p)),
        f"                w[i] = r[{p + d}]",
        *(f"                old[{at}] = new[{at}]" for _, at in dense),
    ]
    for h in range(len(histograms)):
        lines += [
            f"                if o{h} != b{h}:",
            f"                    old[o{h}] -= 1.0",
            f"                    old[b{h}] += 1.0",
            f"                    bins[{h}, i] = b{h} - {starts[h][1]}",
        ]
    lines += [
        "            else:",
        "                g = h",
        *indented(join("g"), 12),
        "    for j in range(old.size):",
        "        totals[j] = old[j] - offset[j]",
        "    tally[0] += accepted",
        "    tally[1] += n * n_sweeps",
        "    tally[2] += moved",
        "    tally[3] += n * n_sweeps",
    ]
    arrays = {f"edges{h}": histogram.edges for h, histogram in enumerate(histograms)}
    further = {"bin_of": bins.bin_of, **arrays} if histograms else {}
    return compiled("urn_sweep", lines, program, ["urn", "base_draw", "propose", "current"], **further)


def auxiliary_sweep(program: MixtureProgram, m: int) -> SourceFunction:
    """Compile the sweep with m auxiliary records, for local releases.

    The record is one of its auxiliaries, and the others are drawn afresh from its cluster, so that nothing
    has to be kept between sweeps. A refused proposal leaves the record as it is. Where noise is additive no
    more of the others are drawn than the decision takes: none weighs more than a record without noise.
    """
    p, d, width = program.n_columns_of_record, program.statistics, program.width
    drawn = [f"a{j}" for j in range(width)]
    own = program.call("propose", *numbers("atoms", "h", width), rng=True)
    enough = "now == 0.0 or u * now < then"
    enough = f"defined and ({enough})" if program.may_fail else enough

    peak, lazily = [], ["decided = False"]
    if program.peak_graph is not None:
        program.add("peak", [], [program.peak_graph])
        peak = ["peak"]
        lazily = [
            f"top = {program.call('peak')}[0]",
            "now, then = np.exp(before[0] - top), 0.0",
            f"for j in range({m}):",
            "    weights[j] = np.exp(after[j] - top)",
            "    then += weights[j]",
            "j = 1",
            f"while j < {m} and u * now < then <= u * (now + {m} - j):",
            f"    now += np.exp({own}[{p + d}] - top)",
            "    j += 1",
            # otherwise all of them are too far out for these numbers
            "decided = now > 0.0 or then > 0.0",
        ]

    lines = [
        *header("auxiliary_sweep", program),
        f"    alpha, d = {program.call('urn', row='')}",
        *occupation(),
        *(f"    {name} = np.empty({m + SPARE})" for name in ("before", "after", "weights")),
        f"    fresh = np.empty(({m}, {p}))",
        "    accepted, moved = 0.0, 0.0",
        "    for _ in range(n_sweeps):",
        "        for i in range(n):",
        *indented(LEAVE, 12),
        f"            before[0] = {program.call('current', *numbers('x', 'i', p))}[{d}]",
        *indented(URN, 12),
        *indented(drawn_atoms(program), 12),
        f"            for j in range({m}):",
        f"                r = {program.call('propose', *drawn, rng=True)}",
        *(f"                fresh[j, {q}] = r[{q}]" for q in range(p)),
        f"                after[j] = r[{p + d}]",
        "            u = random(rng)",
        *indented(lazily, 12),
        "            if not decided:",
        f"                for j in range(1, {m}):",
        f"                    before[j] = {own}[{p + d}]",
        f"                now, then = exponentials(before, after, weights, {m})",
        f"            if {enough}:",
        "                accepted += 1.0",
        "                if g < 0:",
        *indented(OPEN, 16),
        *(f"                    atoms[g, {j}] = {a}" for j, a in enumerate(drawn)),
        "                moved += g != h",
        f"                t = weighted(rng, weights, then, {m})",
        *(f"                x[i, {q}] = fresh[t, {q}]" for q in range(p)),
        "            else:",
        "                g = h",
        *indented(join("g"), 12),
        "    tally[0] += accepted",
        "    tally[1] += n * n_sweeps",
        "    tally[2] += moved",
        "    tally[3] += n * n_sweeps",
    ]
    return compiled("auxiliary_sweep", lines, program, ["urn", "base_draw", "propose", "current", *peak])


def add_closed(
    program: MixtureProgram,
) -> tuple[Callable[[list[str]], str], Callable[[list[str]], list[str]]]:
    """Compile the density of a release without its record, and the record given it.

    Returns
    -------
    callables
        From atoms, as source: the log density of the release of record i; a draw of the record to its place.

    Raises
    ------
    ValueError
        If the release has no closed law without the record.
    """
    if isinstance(program.closed_graphs, str):
        raise not_closed(program.closed_graphs)
    assert not isinstance(program.closed_graphs, SummedRelease)
    density, record = program.closed_graphs
    if "released" not in program.functions:
        program.add("released", program.atom_inputs, [density])
        program.add("given_release", [program._rng, *program.atom_inputs], record, rng_first=True)

    def draw(atoms: list[str]) -> list[str]:
        columns = [f"x[i, {j}] = r[{j}]" for j in range(program.n_columns_of_record)]
        return [f"r = {program.call('given_release', *atoms, rng=True)}", *columns]

    return (lambda atoms: f"{program.call('released', *atoms)}[0]"), draw


def closed_sweep(program: MixtureProgram) -> SourceFunction:
    """Compile the sweep in which records are integrated out of the decision: infinitely many auxiliaries.

    Raises
    ------
    ValueError
        If the release has no closed law without the record.
    """
    released, given_release = add_closed(program)
    width = program.width
    drawn, own = [f"a{j}" for j in range(width)], numbers("atoms", "g", width)
    lines = [
        *header("closed_sweep", program),
        f"    alpha, d = {program.call('urn', row='')}",
        *occupation(),
        "    accepted, moved = 0.0, 0.0",
        "    for _ in range(n_sweeps):",
        "        for i in range(n):",
        *indented([*LEAVE, *URN], 12),
        "            total = 0.0",
        *indented(drawn_atoms(program), 12),
        # of its own cluster there is nothing to decide
        "            if g != h:",
        f"                before = {released(numbers('atoms', 'h', width))}",
        "                if before != -np.inf:",
        f"                    total = {released(drawn)} - before",
        *indented(refused(program), 12),
        "            if total >= 0.0 or total > -standard_exponential(rng):",
        "                accepted += 1.0",
        "                if g < 0:",
        *indented(OPEN, 16),
        *(f"                    atoms[g, {j}] = {a}" for j, a in enumerate(drawn)),
        "                moved += g != h",
        "            else:",
        "                g = h",
        *indented(join("g"), 12),
        *indented(given_release(own), 12),
        "    tally[0] += accepted",
        "    tally[1] += n * n_sweeps",
        "    tally[2] += moved",
        "    tally[3] += n * n_sweeps",
    ]
    return compiled("closed_sweep", lines, program, ["urn", "base_draw", "released", "given_release"])
