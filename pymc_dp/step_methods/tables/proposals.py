"""Directions of moves of a table, chosen many in a row, before the first of them is tried.

None depends on the counts, so that choosing need not wait for what was tried before. What it saves is the
wait for memory: the cells of a direction, and the entries of queries that they add to, are anywhere in a
large table, and come while others are chosen.
"""

import numpy as np

from pymc_dp.lowering.addresses.bind import part_of_kernel
from pymc_dp.lowering.functions.bits import random
from pymc_dp.lowering.functions.fetch import fetch
from pymc_dp.step_methods.tables.state import LINE

type Array = np.ndarray
type Generator = np.random.Generator

SINGLE, PAIR, RECTANGLE, COMBINATION = range(4)
# Directions that are chosen in a row, and cells of one, but for combinations: these are chosen when tried.
AHEAD, MOST = 16, 4


@part_of_kernel
def any_of(rng: Generator, begin: int, end: int) -> int:
    """Draw a position from an interval."""
    return begin + int((end - begin) * random(rng))


@part_of_kernel
def rectangle(
    rng: Generator, corners: Array, corner_begins: Array, first: int, ahead: Array, steps: Array
) -> int:  # fmt: skip
    """Choose four corners of a rectangle along two axes of a table; return how many cells move.

    They are put at ``first`` and after.
    """
    at = corner_begins[any_of(rng, 0, corner_begins.size)]
    begin, n_axes = corners[at], corners[at + 1]
    one = any_of(rng, 0, n_axes)
    other = any_of(rng, 0, n_axes - 1)
    if other >= one:
        other += 1
    size = 1
    for axis in range(n_axes):
        size *= corners[at + 2 + axis]
    corner = begin + any_of(rng, 0, size)
    across = 0
    for axis in (one, other):
        length, stride = corners[at + 2 + axis], corners[at + 2 + n_axes + axis]
        now = ((corner - begin) // stride) % length
        shift = stride * (any_of(rng, 0, length) - now)
        if shift == 0:
            return 0
        if axis == one:
            across = shift
        else:
            ahead[first], ahead[first + 1] = corner, corner + across
            ahead[first + 2], ahead[first + 3] = corner + shift, corner + across + shift
    steps[first], steps[first + 1], steps[first + 2], steps[first + 3] = 1.0, -1.0, -1.0, 1.0
    return 4


@part_of_kernel
def shared_out(
    rng: Generator, total: float, class_cells: Array, begin: int, end: int, n: int, moved: Array, steps: Array
) -> int:  # fmt: skip
    """Share what a class moves by out among cells; return how many cells move in all.

    Any division may come, for cells that have an upper end: none alone may have room for the whole.
    """
    first, sign, left = n, np.copysign(1.0, total), abs(total)
    while left > 0.0:
        part = min(1.0 + np.floor(left * random(rng)), left) if left > 1.0 else 1.0
        cell, j = class_cells[any_of(rng, begin, end)], first
        while j < n and moved[j] != cell:
            j += 1
        if j == n:
            moved[n], steps[n] = cell, 0.0
            n += 1
        steps[j] += sign * part
        left -= part
    return n


@part_of_kernel
def combination(
    rng: Generator, sets: Array, begins: Array, classes: Array, values: Array, class_begins: Array,
    class_cells: Array, by_class: Array, moved: Array, steps: Array,
) -> int:  # fmt: skip
    """Combine basis vectors, moving some cells of each class in them; return how many cells move."""
    chosen = any_of(rng, 0, sets.size - 1)
    while True:
        b = any_of(rng, sets[chosen], sets[chosen + 1])
        sign = 1.0 if random(rng) < 0.5 else -1.0
        for j in range(begins[b], begins[b + 1]):
            by_class[classes[j]] += sign * values[j]
        if random(rng) < 0.5:
            break
    n = 0
    for d in range(by_class.size):
        if by_class[d] != 0.0:
            n = shared_out(
                rng, by_class[d], class_cells, class_begins[d], class_begins[d + 1], n, moved, steps
            )
            by_class[d] = 0.0
    return n


@part_of_kernel
def begin_proposals(
    rng: Generator, n: int, shares: Array, singles: Array, members: Array, kinds: Array, places: Array
) -> None:  # fmt: skip
    """Choose kinds of directions, and for one cell or two where in a list to look for the first."""
    for c in range(n):
        u, kind, below = random(rng), 0, 0.0
        while u >= shares[kind]:
            below = shares[kind]
            kind += 1
        kinds[c] = kind
        u = (u - below) / (shares[kind] - below)  # uniform given the kind
        if kind == SINGLE:
            places[c] = min(int(singles.size * u), singles.size - 1)
            fetch(singles, places[c])
        elif kind == PAIR:
            places[c] = 2 * min(int(members.size // 2 * u), members.size // 2 - 1)
            fetch(members, places[c])


@part_of_kernel
def first_cells(
    rng: Generator, n: int, singles: Array, members: Array, group_begins: Array, group_cells: Array,
    corners: Array, corner_begins: Array, kinds: Array, places: Array, sizes: Array, ahead: Array,
    steps: Array,
) -> None:  # fmt: skip
    """Look up the first cell of each direction, and choose where to look for the second of two."""
    for c in range(n):
        kind, first = kinds[c], MOST * c
        sizes[c] = 0
        if kind == SINGLE:
            sizes[c], ahead[first], steps[first] = 1, singles[places[c]], 1.0
        elif kind == PAIR:
            ahead[first], steps[first], steps[first + 1] = members[places[c]], 1.0, -1.0
            group = members[places[c] + 1]
            places[c] = any_of(rng, group_begins[group], group_begins[group + 1])
            fetch(group_cells, places[c])
        elif kind == RECTANGLE:
            sizes[c] = rectangle(rng, corners, corner_begins, first, ahead, steps)


@part_of_kernel
def second_cells(
    n: int, group_cells: Array, kinds: Array, places: Array, sizes: Array, ahead: Array, begins: Array,
    cells: Array,
) -> None:  # fmt: skip
    """Look up the second cell of two, and ask for all that is known of each cell."""
    width = cells.shape[1]
    for c in range(n):
        first = MOST * c
        if kinds[c] == PAIR:
            ahead[first + 1] = group_cells[places[c]]
            sizes[c] = 0 if ahead[first] == ahead[first + 1] else 2
        for i in range(first, first + sizes[c]):
            fetch(begins, ahead[i])
            fetch(cells, ahead[i] * width)
            if width % LINE:
                fetch(cells, ahead[i] * width + width - 1)


@part_of_kernel
def ask_for_rows(n: int, sizes: Array, ahead: Array, begins: Array, at: Array, rows: Array) -> None:
    """Ask for the entries of queries that the cells of each direction add to."""
    width = rows.shape[1]
    for c in range(n):
        for i in range(MOST * c, MOST * c + sizes[c]):
            fetch(at, begins[ahead[i]])
    for c in range(n):
        for i in range(MOST * c, MOST * c + sizes[c]):
            for j in range(begins[ahead[i]], begins[ahead[i] + 1]):
                fetch(rows, at[j] * width)
                if width % LINE:
                    fetch(rows, at[j] * width + width - 1)
