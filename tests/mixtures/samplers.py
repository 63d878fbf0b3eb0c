"""The samplers that the suites run: a new one is one more row.

Each entry makes the steps of a model from nothing but the model in context. Numbers of cycles are small, so
that the cycles of a step are tested as well as what happens between its draws.
"""

import numpy as np

import pymc_dp as dp


def joint():
    return [dp.PrivateNeal5(moves="joint", n_cycles=1), dp.AtomUpdate()]


def joint_of_two():
    return [dp.PrivateNeal5(moves="joint", n_auxiliary=2, n_cycles=2), dp.AtomUpdate()]


def joint_of_five():
    return [dp.PrivateNeal5(moves="joint", n_auxiliary=5, n_cycles=1), dp.AtomUpdate()]


def closed():
    """Records integrated out of the decision."""
    return [dp.PrivateNeal5(moves="joint", n_auxiliary=np.inf, n_cycles=2), dp.AtomUpdate()]


def auto_closed():
    return [dp.PrivateNeal5(n_auxiliary=np.inf, n_cycles=1)]


def conditional():
    return [dp.PrivateNeal5(moves="conditional", n_cycles=2), dp.AtomUpdate()]


def auto():
    """Both sweeps, splits and merges of local releases; no update of atoms but the step's own."""
    return [dp.PrivateNeal5(n_cycles=2)]


def auto_of_two():
    """The same from draw to draw."""
    return [dp.PrivateNeal5(n_auxiliary=2, n_cycles=1), dp.AtomUpdate(n_updates=2)]


def by_slices():
    return [dp.PrivateSlice(n_cycles=2), dp.AtomUpdate()]


def neal2():
    return [dp.Neal2(n_cycles=1), dp.AtomUpdate()]


def neal3():
    return [dp.Neal3(n_cycles=2), dp.AtomUpdate()]


def neal8():
    return [dp.Neal8(n_cycles=2), dp.AtomUpdate()]


def neal8_of_one():
    return [dp.Neal8(n_auxiliary=1, n_cycles=1), dp.AtomUpdate(n_updates=2)]


def with_splits():
    return [dp.SplitMerge(n_cycles=2)]


def with_splits_of_neal8():
    return [dp.SplitMerge(n_scans=2, sweeps="neal8", n_moves=2, n_cycles=1), dp.AtomUpdate()]


def splits():
    """Splits and merges only."""
    return [dp.SplitMerge(n_scans=1, sweeps="none", n_moves=3, n_cycles=2), dp.AtomUpdate()]


# of releases of any kind, and those that only know releases of each record by itself
SAMPLERS = {"joint": joint, "conditional": conditional, "slice": by_slices, "auto": auto}
LOCAL_SAMPLERS = {"joint of 2": joint_of_two, "joint of 5": joint_of_five, "auto of 2": auto_of_two}
# of normal records behind Laplace or Gaussian noise, and of discrete ones
CLOSED_SAMPLERS = {"closed": closed, "auto closed": auto_closed}
ALL_SAMPLERS = SAMPLERS | LOCAL_SAMPLERS | CLOSED_SAMPLERS

# of known records; those of a conjugate base, and of any
CONJUGATE_SAMPLERS = {"neal 2": neal2, "neal 3": neal3}
KNOWN_SAMPLERS = {
    "neal 8": neal8, "neal 8 of 1": neal8_of_one, "split-merge": with_splits, "splits": splits,
    "split-merge of neal 8": with_splits_of_neal8,
}  # fmt: skip
ALL_KNOWN = CONJUGATE_SAMPLERS | KNOWN_SAMPLERS
