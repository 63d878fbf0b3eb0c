"""Splits and merges of clusters by restricted Gibbs scans, where atoms do not integrate out.

As :mod:`.restricted_scans`, with atoms as part of what is proposed (Jain & Neal 2007). Atoms of the launch
state are modes of their law given the records of a part, in value space; the proposal is a Student law about
the mode for the division that the last scan has made, with the curvature there. A merge is proposed in the
same way from the mode for all records. Modes depend on the launch state alone, so that the density of either
direction can be evaluated; how well they are found decides how often a move is accepted, and nothing else.
"""

import math

import numpy as np
import pytensor.gradient as tg
import pytensor.tensor as pt
from numba import types
from pytensor.graph.replace import graph_replace

from pymc_dp.lowering.bits import standard_normal
from pymc_dp.lowering.exponential import SPARE
from pymc_dp.lowering.native import INTEGERS, MATRIX, VECTOR, SourceFunction
from pymc_dp.lowering.nopython import njit
from pymc_dp.lowering.rows import NotScalar
from pymc_dp.step_methods.mixture.conjugacy import Derivatives
from pymc_dp.step_methods.mixture.draws import back
from pymc_dp.step_methods.mixture.labels import record_numbers
from pymc_dp.step_methods.mixture.moments import coefficients, features, n_moments, scales
from pymc_dp.step_methods.mixture.pairs import split_ratio
from pymc_dp.step_methods.mixture.program import MixtureProgram
from pymc_dp.step_methods.mixture.source import compiled, header, numbers, occupation
from pymc_dp.step_methods.mixture.tally import SPLIT, TRIED
from pymc_dp.step_methods.sweeps.source import indented

# Newton steps from the mode of one scan to that of the next, and times that a step is halved.
_STEPS, _HALVINGS = 3, 8
# Draws from the base among which the first atoms of a part are chosen.
_TRIES = 5
# Degrees of freedom of the proposal.
_FREEDOM = 5.0

# hoisted numbers, covariates, records, what was learnt, records of both clusters, part of each, how many,
# which part (2: both), moments by part, values of the atoms; filled: log density, slopes, negative curvature
_CURVED = types.void(
    VECTOR, MATRIX, MATRIX, VECTOR, INTEGERS, INTEGERS, types.int64, types.int64, MATRIX, VECTOR, VECTOR
)
_ARGUMENTS = "c, cov, x, learnt, part, side_of, size, side, sums"


@njit
def newton_direction(out, root, direction, q):
    """Cholesky factor of the curvature, made positive where it is not, and the step to the mode."""
    positive, at = True, 1 + q
    for i in range(q):
        for j in range(i + 1):
            total = out[at]
            at += 1
            for m in range(j):
                total -= root[i, m] * root[j, m]
            if i == j and not total > 0.0:
                positive, total = False, 1.0
            root[i, j] = np.sqrt(total) if i == j else total / root[j, j]
    if not positive:
        at = 1 + q
        for i in range(q):
            for j in range(i + 1):
                root[i, j] = 0.0
                if i == j:
                    root[i, j] = np.sqrt(max(abs(out[at]), 1e-8 + out[1 + i] ** 2))
                at += 1
    for i in range(q):
        direction[i] = out[1 + i]
        for j in range(i):
            direction[i] -= root[i, j] * direction[j]
        direction[i] /= root[i, i]
    back(root, direction, q)


@njit
def student_draw(rng, mode, root, value, freedom, q):
    """Draw from the Student law about a mode."""
    spread = np.sqrt(freedom / (2.0 * rng.standard_gamma(0.5 * freedom)))
    for i in range(q):
        value[i] = spread * standard_normal(rng)
    back(root, value, q)
    for i in range(q):
        value[i] += mode[i]


@njit
def student_logp(mode, root, value, freedom, q):
    """Log density of that draw."""
    total, square = 0.0, 0.0
    for j in range(q):
        z = 0.0
        for i in range(j, q):
            z += root[i, j] * (value[i] - mode[i])
        square += z * z
        total += np.log(root[j, j])
    total += math.lgamma(0.5 * (freedom + q)) - math.lgamma(0.5 * freedom)
    return total - 0.5 * q * np.log(np.pi * freedom) - 0.5 * (freedom + q) * np.log1p(square / freedom)


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


def laplace_scans(program: MixtureProgram, derivatives: Derivatives, n_scans: int) -> SourceFunction:
    """Compile ``n_sweeps`` splits or merges, each ``n_scans`` + 1 passes over the records of two clusters.

    Each pass comes with some Newton steps, which cost a pass too where the log density of a record is no
    polynomial in a few numbers of it.

    Raises
    ------
    NotScalar
        If an atom is an integer, or the curvature has no scalar form.
    """
    q, size = program.width, n_moments(program) if program.degree else 0
    curved, ascend = _functions(program, derivatives)
    kept = range(size) if program.degree else ()

    def values_of(side: str, slot: str) -> list[str]:
        store = program.call("store", *numbers("atoms", slot, q), row="")
        return [f"{''.join(f'chosen_values[{side}, {j}], ' for j in range(q))}= {store}"]

    first_atoms = [
        "for side in range(2):",
        "    i = second if side else first",
        *indented(record_numbers(program), 4),
        *(f"    anchors[side, {j}] = m{j}" for j in kept),
        *([] if program.degree else [f"    v = {features(program)}"]),
        f"    for trial in range({_TRIES}):",
        f"        {''.join(f'tries[trial, {j}], ' for j in range(q))}= "
        f"{program.call('base_draw', rng=True, row='')}",
        f"        logs[trial] = {_own(program, 'tries', 'trial')}",
        f"    trial = max(pick(rng, logs, {_TRIES}), 0)",
        f"    {''.join(f'values[side, {j}], ' for j in range(q))}= "
        f"{program.call('store', *numbers('tries', 'trial', q), row='')}",
        *(f"    sums[side, {j}] = anchors[side, {j}]" for j in kept),
        *(f"sums[2, {j}] = anchors[0, {j}] + anchors[1, {j}]" for j in kept),
        *(f"values[2, {j}] = values[0, {j}]" for j in range(q)),
        # the parts are the two records alone before the first scan
        "side_of[0], side_of[1] = 0, 1",
        "for r in range(2, size):",
        "    side_of[r] = -1",
    ]
    gather = [
        "for r in range(2, size):",
        "    i = part[r]",
        *indented(record_numbers(program), 4),
        *(f"    moment[r, {j}] = m{j}" for j in kept),
        *(f"    sums[2, {j}] += m{j}" for j in kept),
    ]
    if program.degree:
        prepare = [
            "for side in range(2):",
            *indented(coefficients(program, "own", numbers("natural", "side", q), 1, "coef"), 4),
            *(f"    density[side, {j}] = coef[0, {j}]" for j in kept),
            *(f"shift{j} = density[1, {j}] - density[0, {j}]" for j in kept),
        ]
        odds = [f"    odds = weight + {' + '.join(f'shift{j} * moment[r, {j}]' for j in kept)}"]
    else:
        prepare = []
        odds = [
            "    i = part[r]",
            f"    v = {features(program)}",
            f"    odds = weight + {_own(program, 'natural', '1')} - {_own(program, 'natural', '0')}",
        ]
    scan = [
        "for side in range(2):",
        f"    {''.join(f'natural[side, {j}], ' for j in range(q))}= "
        f"{program.call('load', *numbers('values', 'side', q), row='')}",
        *prepare,
        "n_other, chosen = 1, 0.0",
        *(f"sums[{s}, {j}] = anchors[{s}, {j}]" for s in range(2) for j in kept),
        "for r in range(2, size):",
        *odds,
        "    if not abs(odds) < np.inf:",
        "        odds = 700.0 if odds > 0.0 else -700.0",
        f"    if splits or scan < {n_scans}:",
        "        goes = random(rng) * (1.0 + np.exp(-odds)) < 1.0",
        "    else:",
        "        goes = labels[part[r]] == g",
        "    side_of[r] = 1 if goes else 0",
        f"    if scan == {n_scans}:",
        "        to_other[r] = goes",
        "        chosen += min(odds, 0.0) if goes else -max(odds, 0.0)",
        "        chosen -= np.log1p(np.exp(-abs(odds)))",
        "    n_other += goes",
        *(f"    sums[side_of[r], {j}] += moment[r, {j}]" for j in kept),
    ]
    lines = [
        *header("laplace_scans", program),
        f"    alpha, d = {program.call('urn', row='')}",
        *occupation(),
        *(indented(scales(program), 4) if program.degree else []),
        f"    values, chosen_values = np.empty((3, {q})), np.empty((3, {q}))",
        f"    natural, tries = np.empty((2, {q})), np.empty(({_TRIES}, {q}))",
        f"    logs = np.empty({_TRIES + SPARE})",
        f"    sums, anchors = np.zeros((3, {size})), np.zeros((2, {size}))",
        f"    coef, density = np.empty((1, {size})), np.empty((2, {size}))",
        f"    roots, out = np.zeros((3, {q}, {q})), np.empty({1 + q + q * (q + 1) // 2})",
        "    part, side_of = np.empty(n, np.int64), np.zeros(n, np.int64)",
        f"    to_other, moment = np.zeros(n, np.bool_), np.empty((n, {size}))",
        "    for _ in range(n_sweeps if n > 1 else 0):",
        *indented(choose_two(2), 8),
        *indented(first_atoms, 8),
        *indented(gather, 8),
        "        weight, chosen, n_other = 0.0, 0.0, 1",
        f"        for scan in range({n_scans + 2}):",
        "            for side in range(3):",
        f"                ascend({_ARGUMENTS}, values[side], roots[side])",
        f"            if scan == {n_scans + 1}:",
        "                break",
        "            if scan > 0:",
        "                of_other = rng.standard_gamma(n_other - d)",
        "                weight = np.log(of_other / rng.standard_gamma(size - n_other - d))",
        *indented(scan, 12),
        "        total = -chosen",
        "        if splits:",
        *indented(values_of("2", "h"), 12),
        "        else:",
        *indented(values_of("0", "h"), 12),
        *indented(values_of("1", "g"), 12),
        "        for side in range(3):",
        "            if splits == (side < 2):",
        f"                student_draw(rng, values[side], roots[side], chosen_values[side], {_FREEDOM}, {q})",
        f"            curved({_ARGUMENTS}, chosen_values[side], out)",
        f"            part_of_total = out[0] - student_logp(values[side], roots[side], chosen_values[side], "
        f"{_FREEDOM}, {q})",
        "            total += part_of_total if side < 2 else -part_of_total",
        *indented(decide(2), 8),
        "        if splits:",
        *indented([_loaded(program, "h", "0"), _loaded(program, "g", "1")], 12),
        "        else:",
        *indented([_loaded(program, "h", "2")], 12),
    ]
    used = ["urn", "features", "own", "base_draw", "load", "store"]
    further = {
        "split_ratio": split_ratio,
        "student_draw": student_draw,
        "student_logp": student_logp,
        "curved": curved.dispatcher,
        "ascend": ascend.dispatcher,
    }
    keys = [curved.cache_key, ascend.cache_key]
    return compiled("laplace_scans", lines, program, used, more_keys=keys, **further)


def _own(program: MixtureProgram, array: str, row: str) -> str:
    """Log density of the record with numbers v under the atoms in a row of an array."""
    v = [f"v[{j}]" for j in range(program.n_features)]
    return f"{program.call('own', *v, *numbers(array, row, program.width))}[0]"


def _loaded(program: MixtureProgram, slot: str, side: str) -> str:
    targets = "".join(f"atoms[{slot}, {j}], " for j in range(program.width))
    return f"{targets}= {program.call('load', *numbers('chosen_values', side, program.width), row='')}"


def _functions(program: MixtureProgram, derivatives: Derivatives) -> tuple[SourceFunction, SourceFunction]:
    """Log density of the atoms of a part with its derivatives in value space, and the way to its mode."""
    _add_curvature(program, derivatives)
    q = program.width
    outputs = 1 + q + q * (q + 1) // 2
    values = [f"value[{j}]" for j in range(q)]
    hoisted = [f"    c{k} = c[{k}]" for k in range(program.n_constants)]
    lines = [
        f"def curved({_ARGUMENTS}, value, out):",
        *hoisted,
        f"    r = {program.call('base_curved', *values, row='')}",
        *(f"    out[{o}] = r[{o}]" for o in range(outputs)),
    ]
    if program.degree:
        size = n_moments(program)
        lines += [
            *indented(scales(program), 4),
            f"    coef = np.empty(({outputs}, {size}))",
            *indented(coefficients(program, "own_curved", values, outputs, "coef"), 4),
            f"    for o in range({outputs}):",
            f"        for j in range({size}):",
            "            out[o] += coef[o, j] * sums[side, j]",
        ]
    else:
        v = [f"v[{j}]" for j in range(program.n_features)]
        lines += [
            "    for s in range(size):",
            "        if side == 2 or side_of[s] == side:",
            "            i = part[s]",
            f"            v = {features(program)}",
            f"            r = {program.call('own_curved', *v, *values)}",
            *(f"            out[{o}] += r[{o}]" for o in range(outputs)),
        ]
    used = ["base_curved", "own_curved", "features"]
    functions = {name: program.functions[name] for name in used}
    keys = [program.keys[name] for name in used]
    curved = SourceFunction("curved", "\n".join(lines) + "\n", functions, _CURVED, keys)
    lines = [
        f"def ascend({_ARGUMENTS}, value, root):",
        f"    now, then = np.empty({outputs}), np.empty({outputs})",
        f"    direction, moved = np.empty({q}), np.empty({q})",
        f"    curved({_ARGUMENTS}, value, now)",
        f"    for _ in range({_STEPS}):",
        f"        newton_direction(now, root, direction, {q})",
        "        better, share = False, 1.0",
        f"        for _ in range({_HALVINGS}):",
        *(f"            moved[{j}] = value[{j}] + share * direction[{j}]" for j in range(q)),
        f"            curved({_ARGUMENTS}, moved, then)",
        # written so that what is no number is no improvement
        "            if then[0] >= now[0]:",
        "                better = True",
        "                break",
        "            share *= 0.5",
        "        if not better:",
        "            break",
        *(f"        value[{j}] = moved[{j}]" for j in range(q)),
        f"        for o in range({outputs}):",
        "            now[o] = then[o]",
        f"    newton_direction(now, root, direction, {q})",
    ]
    functions = {"curved": curved.dispatcher, "newton_direction": newton_direction}
    signature = types.void(*_CURVED.args[:-1], MATRIX)
    ascend = SourceFunction("ascend", "\n".join(lines) + "\n", functions, signature, [curved.cache_key])
    return curved, ascend


def _add_curvature(program: MixtureProgram, derivatives: Derivatives) -> None:
    """Add the functions ``own_curved(C, v, values)`` and ``base_curved(C, values)`` to the program."""
    program.values.check_numbers()
    for atom, _ in program.each_atom():
        if not atom.dtype.startswith("float"):
            raise NotScalar(f"{atom.name} is an integer, which has no mode to move from")
    q = range(program.width)
    values = [pt.dscalar(f"at value {k}") for k in q]
    to_tensor = {v: pt.scalar_from_tensor(t) for v, t in zip(program.values.inputs, values, strict=True)}
    natural = graph_replace(program.natural_graphs, to_tensor, strict=False)
    volume = graph_replace([program.values.volume(list(q))], to_tensor, strict=False)[0]
    at = {a: pt.cast(b, "float64") for a, b in zip(derivatives.at, natural, strict=True)}
    own, base = graph_replace([derivatives.own, derivatives.base], at, strict=False)
    back_to_inputs = {t: pt.tensor_from_scalar(v) for v, t in zip(program.values.inputs, values, strict=True)}
    for name, graph, more in (
        ("own_curved", own, program.record_inputs),
        ("base_curved", base + volume, []),
    ):
        slopes = _slopes(graph, values)
        curvature = [-c for i in q for c in _slopes(slopes[i], values[: i + 1])]
        outputs = graph_replace([graph, *slopes, *curvature], back_to_inputs, strict=False)
        program.add(name, [*more, *program.values.inputs], outputs)


def _slopes(graph, values):  # type: ignore[no-untyped-def]
    return tg.grad(graph, values, disconnected_inputs="ignore", return_disconnected="zero")
