"""The samplers that the suites run: a new one is one more row.

Each entry makes the steps of a model from nothing but the model in context. Numbers of cycles are small, so
that the cycles of a step are tested as well as what happens between its draws.
"""

import numpy as np

import pymc_dp as dp
from pymc_dp.step_methods.mixture.counters import SPLIT_KINDS


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


class Splitting(dp.PrivateNeal5):
    """Joint sweeps with splits and merges of one kind, which the step would choose by itself."""

    split: str

    def _shares(self, m):
        splits = tuple(8 * (kind == self.split) for kind in SPLIT_KINDS)
        return super()._shares(m)._replace(conditional=0.0, splits=splits)


class SplittingFresh(Splitting):
    split = "fresh"


class SplittingReleased(Splitting):
    split = "released"


class SplittingKept(Splitting):
    split = "kept"


def fresh_splits():
    return [SplittingFresh(n_cycles=1), dp.AtomUpdate()]


def released_splits():
    return [SplittingReleased(n_cycles=1), dp.AtomUpdate()]


def kept_splits():
    return [SplittingKept(n_cycles=2), dp.AtomUpdate()]


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
SAMPLERS = {
    "joint": joint, "conditional": conditional, "slice": by_slices, "auto": auto, "kept splits": kept_splits,
}  # fmt: skip
LOCAL_SAMPLERS = {
    "joint of 2": joint_of_two, "joint of 5": joint_of_five, "auto of 2": auto_of_two,
    "fresh splits": fresh_splits,
}  # fmt: skip
# of normal records behind Laplace or Gaussian noise, and of discrete ones; the last of normal ones only
CLOSED_SAMPLERS = {"closed": closed, "auto closed": auto_closed}
NORMAL_SAMPLERS = {"released splits": released_splits}
ALL_SAMPLERS = SAMPLERS | LOCAL_SAMPLERS | CLOSED_SAMPLERS | NORMAL_SAMPLERS

# of known records; those of a conjugate base, and of any
CONJUGATE_SAMPLERS = {"neal 2": neal2, "neal 3": neal3}
KNOWN_SAMPLERS = {
    "neal 8": neal8, "neal 8 of 1": neal8_of_one, "split-merge": with_splits, "splits": splits,
    "split-merge of neal 8": with_splits_of_neal8,
}  # fmt: skip
ALL_KNOWN = CONJUGATE_SAMPLERS | KNOWN_SAMPLERS
