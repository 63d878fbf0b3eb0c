"""What a chain of the ancillary update has learnt of one block of records."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from pymc_dp.step_methods.updates import redraw
from pymc_dp.step_methods.updates.cycles import Jumps
from pymc_dp.step_methods.updates.state import Learnt


@dataclass
class Walked:
    """What random walks had learnt when trajectories took over, and how well they did."""

    given_records: Learnt
    given_noise: Learnt
    n_updates: int
    n_cycles: int
    draws: np.ndarray
    follows: ClassVar[bool] = False


@dataclass
class Tuned:
    """What a chain has learnt of one block while tuning.

    Attributes
    ----------
    given_records, given_noise, given_effects : Learnt
        What updates propose with; the last are those of the upper level.
    proposals : redraw.Proposals
        What parameters are proposed with together with all records.
    spread : ndarray, shape (3, k)
        Count, means and sums of squares of the parameters since the adaptation last began anew.
    n_updates : int
        Updates given the noise in a cycle, or proposals with all records.
    n_cycles : int
        Cycles of a draw.
    jumps : Jumps
        How far the parameters moved since then.
    recent : list of ndarray
        Parameters of the draws of tuning in this window, for these proposals.
    redrawn : ndarray, shape (2,)
        Sum of their probabilities of acceptance in this window, and their number.
    draws : list of ndarray
        Parameters of the draws of tuning since the adaptation last began anew, where the updates may change.
    begun_at : int
        Draw at which the updates that run began to learn.
    walked : Walked, optional
        What random walks had learnt, where trajectories are tried in their place.
    follows : bool
        Whether trajectories are followed in their place.
    in_turn : bool
        Whether walks still make every other draw.
    """

    given_records: Learnt
    given_noise: Learnt
    given_effects: Learnt
    proposals: redraw.Proposals
    spread: np.ndarray
    n_updates: int
    n_cycles: int
    jumps: Jumps
    recent: list[np.ndarray] = field(default_factory=list)
    redrawn: np.ndarray = field(default_factory=lambda: np.zeros(2))
    draws: list[np.ndarray] = field(default_factory=list)
    begun_at: int = 0
    walked: Walked | None = None
    follows: bool = False
    in_turn: bool = False
