"""What the generated source of every mixture kernel has in common."""

from collections.abc import Sequence
from typing import Any

from pymc_dp.lowering.native import MIXTURE, SourceFunction
from pymc_dp.lowering.urn import weight_of_new_cluster
from pymc_dp.step_methods.mixture import slots
from pymc_dp.step_methods.mixture.program import MixtureProgram


def header(name: str, program: MixtureProgram) -> list[str]:
    """Signature, and the hoisted numbers in registers."""
    return [
        f"def {name}(n_sweeps, rng, theta, data, c, cov, value, params, offset, x, totals, labels, atoms, "
        "counts, learnt, tally):",
        "    n, n_slots = x.shape[0], atoms.shape[0]",
        *(f"    c{k} = c[{k}]" for k in range(program.n_constants)),
    ]


def occupation() -> list[str]:
    """Source of the permutation of the slots."""
    return [
        "    slots, where = np.empty(n_slots, np.int64), np.empty(n_slots, np.int64)",
        "    k = occupied_first(counts, slots, where)",
    ]


# Record i, in slot h, leaves its slot; k becomes the number of slots that the others occupy.
LEAVE = [
    "h = labels[i]",
    "counts[h] -= 1",
    "alone = counts[h] == 0",
    "if alone:",
    "    k -= 1",
    "    swap(slots, where, where[h], k)",
]


def join(slot: str) -> list[str]:
    """Source with which record i enters a slot, which may have been free."""
    return [
        f"if counts[{slot}] == 0:",
        f"    swap(slots, where, where[{slot}], k)",
        "    k += 1",
        f"counts[{slot}] += 1",
        f"labels[i] = {slot}",
    ]


def whether_inside(program: MixtureProgram, drawn: list[str]) -> list[str]:
    """Source that sets ``defined``: whether the kernel has a law for the atoms that record i would have.

    Where it has none, the record's own atoms take their place: the move is refused, and draws from no law
    need not come to an end. Atoms of occupied slots are inside, for their own records.
    """
    if not program.may_fail:
        return []
    asked = "g == h" if program.by_record else "g >= 0"
    own = numbers("atoms", "h", program.width)
    return [
        f"defined = {asked} or {program.call('inside', *drawn)}[0] > 0.0",
        "if not defined:",
        f"    {''.join(f'{a}, ' for a in drawn)} = {', '.join(own)},",
    ]


def refused(program: MixtureProgram) -> list[str]:
    """Source that refuses a move to atoms for which the kernel has no law."""
    return ["if not defined:", "    total = -np.inf"] if program.may_fail else []


def numbers(array: str, row: str, width: int) -> list[str]:
    """Entries of a row of an array, as arguments."""
    return [f"{array}[{row}, {j}]" for j in range(width)]


def compiled(
    name: str,
    lines: list[str],
    program: MixtureProgram,
    used: list[str],
    more_keys: Sequence[str | None] = (),
    **further: Any,
) -> SourceFunction:
    """Compile a kernel that calls some of the mixture's functions."""
    helpers = {
        f: getattr(slots, f)
        for f in ("occupied_first", "swap", "free_slot", "exponentials", "weighted", "pick")
    }
    helpers["weight_of_new_cluster"] = weight_of_new_cluster
    central = program.program.central
    used = [*used, *(["inside"] if program.may_fail else [])]
    return SourceFunction(
        name,
        "\n".join(lines) + "\n",
        {**central.functions, **helpers, **further, **{f: program.functions[f] for f in used}},
        MIXTURE,
        [*central.keys, *(program.keys[f] for f in used), *more_keys],
    )
