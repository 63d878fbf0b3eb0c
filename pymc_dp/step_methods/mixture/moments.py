"""Source for sums over the records of a slot, and for the log density of a record under every slot.

Where the log density is a polynomial in a few numbers v of the record, both are products of the same
*moments*: 1, u, u^2 and the products of two, with u = (v - middle) / spread. The coefficients of any function
of the same degree follow from its values at a lattice of points, one pass over the lattice for each slot
instead of one over the records.
"""

from itertools import combinations

from pymc_dp.step_methods.mixture.program import MixtureProgram
from pymc_dp.step_methods.mixture.source import numbers


def moments(program: MixtureProgram, u: list[str]) -> list[str]:
    """The moments of numbers u, as expressions."""
    if program.degree == 1:
        return ["1.0", *u]
    return ["1.0", *u, *(f"{a} * {a}" for a in u), *(f"{a} * {b}" for a, b in combinations(u, 2))]


def n_moments(program: MixtureProgram) -> int:
    """How many moments there are."""
    return len(moments(program, ["u"] * program.n_features))


def features(program: MixtureProgram, row: str = "i") -> str:
    """Call of the function that gives the numbers of a record."""
    return program.call("features", *numbers("x", row, program.n_columns_of_record), row=row)


def middle_and_spread(program: MixtureProgram) -> list[str]:
    """Source that sets about the mean and the standard deviation of every number, over all records."""
    r = program.n_features
    lines = [f"first = {features(program, '0')}", f"for j in range(1, {1 + 2 * r}):", "    learnt[j] = 0.0"]
    lines += ["for i in range(n):", f"    v = {features(program)}"]
    for j in range(r):
        lines += [
            f"    learnt[{1 + j}] += v[{j}] - first[{j}]",
            f"    learnt[{1 + r + j}] += (v[{j}] - first[{j}]) ** 2",
        ]
    for j in range(r):
        lines += [
            f"learnt[{1 + j}] /= n",
            f"square = learnt[{1 + r + j}] / n - learnt[{1 + j}] ** 2",
            f"learnt[{1 + r + j}] = np.sqrt(square) if square > 0.0 else 1.0",
            f"learnt[{1 + j}] += first[{j}]",
        ]
    return lines


def scales(program: MixtureProgram) -> list[str]:
    """Source that reads what :func:`middle_and_spread` has set."""
    r = program.n_features
    return [
        *(f"middle{j}, spread{j} = learnt[{1 + j}], learnt[{1 + r + j}]" for j in range(r)),
        *(f"per_unit{j} = 1.0 / spread{j}" for j in range(r)),
    ]


def standardised(program: MixtureProgram) -> list[str]:
    """Source of the moments ``m0, m1, ...`` of record i."""
    r = program.n_features
    names = [f"u{j}" for j in range(r)]
    return [
        f"v = {features(program)}",
        *(f"u{j} = (v[{j}] - middle{j}) * per_unit{j}" for j in range(r)),
        *(f"m{j} = {what}" for j, what in enumerate(moments(program, names))),
    ]


def sums_of_moments(program: MixtureProgram) -> list[str]:
    """Source that adds the moments of the records of each slot up."""
    size = n_moments(program)
    return [
        *scales(program),
        f"moment = np.zeros((n_slots, {size}))",
        "for i in range(n):",
        "    h = labels[i]",
        *("    " + line for line in standardised(program)),
        *(f"    moment[h, {j}] += m{j}" for j in range(size)),
    ]


def coefficients(program: MixtureProgram, name: str, atoms: list[str], outputs: int, out: str) -> list[str]:
    """Source of the coefficients of a function's outputs, ``out[output, moment]``, for one slot."""
    r = program.n_features

    def at(*moved: tuple[int, str]) -> str:
        by = dict(moved)
        where = [f"middle{j}{f' {by[j]} spread{j}' if j in by else ''}" for j in range(r)]
        return program.call(name, *where, *atoms, row="")

    lines = [f"p = {at()}", *(f"{out}[{o}, 0] = p[{o}]" for o in range(outputs))]
    for j in range(r):
        lines += [f"q{j} = {at((j, '+'))}"]
        if program.degree == 1:
            lines += [f"{out}[{o}, {1 + j}] = q{j}[{o}] - p[{o}]" for o in range(outputs)]
            continue
        lines += [f"q = {at((j, '-'))}"]
        for o in range(outputs):
            lines += [
                f"{out}[{o}, {1 + j}] = 0.5 * (q{j}[{o}] - q[{o}])",
                f"{out}[{o}, {1 + r + j}] = 0.5 * (q{j}[{o}] + q[{o}]) - p[{o}]",
            ]
    if program.degree == 2:
        for m, (j, k) in enumerate(combinations(range(r), 2)):
            lines += [f"q = {at((j, '+'), (k, '+'))}"]
            lines += [
                f"{out}[{o}, {1 + 2 * r + m}] = q[{o}] - q{j}[{o}] - q{k}[{o}] + p[{o}]"
                for o in range(outputs)
            ]
    return lines


def add_sums(program: MixtureProgram, name: str, atoms: list[str], outputs: int, target: str) -> list[str]:
    """Source that adds a function's outputs, summed over the records of slot h, to ``target[h, output]``.

    Without polynomial form, the function is called for every record; ``atoms`` then refer to slot h.
    """
    if program.degree:
        size = n_moments(program)
        return [
            f"coef = np.empty(({outputs}, {size}))",
            "for h in range(n_slots):",
            "    if counts[h] > 0:",
            *("        " + line for line in coefficients(program, name, atoms, outputs, "coef")),
            f"        for o in range({outputs}):",
            f"            for j in range({size}):",
            f"                {target}[h, o] += coef[o, j] * moment[h, j]",
        ]
    v = [f"v[{j}]" for j in range(program.n_features)]
    return [
        "for i in range(n):",
        "    h = labels[i]",
        f"    v = {features(program)}",
        f"    r = {program.call(name, *v, *atoms)}",
        *(f"    {target}[h, {o}] += r[{o}]" for o in range(outputs)),
    ]
