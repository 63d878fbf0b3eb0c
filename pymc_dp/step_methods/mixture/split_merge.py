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

import numpy as np

from pymc_dp.lowering.addresses.bind import Kernel
from pymc_dp.step_methods.mixture import split_kernels
from pymc_dp.step_methods.mixture.bound import bound, part_for
from pymc_dp.step_methods.mixture.counters import FIRST_SPLIT, SPLIT_KINDS
from pymc_dp.step_methods.mixture.neal5 import add_closed
from pymc_dp.step_methods.mixture.program import MixtureProgram

# Fresh records that are tried, for each that would go if all had the same density.
_TRIED = 4.0


def split_merge(program: MixtureProgram, kind: str) -> Kernel:
    """Compile ``n_sweeps`` moves of a kind: each a pass over the labels, and the records of two clusters.

    Of a split of m records, fresh ones cost up to m draws and densities of their releases, released ones 2 m
    densities without the record, kept ones 2 m densities of the kernel; of those before the move, each is
    worked out once in a call.
    """
    if kind == "released":
        add_closed(program)
    at = FIRST_SPLIT + 2 * SPLIT_KINDS.index(kind)
    return bound(
        split_kernels.splits,
        program,
        **{name: part_for(function, program) for name, function in split_kernels.KINDS[kind].items()},
        KEEPS=kind == "fresh",
        TRIED=_TRIED if kind == "fresh" else np.inf,
        SPLITS_ACCEPTED=at,
        SPLITS_PROPOSED=at + 1,
    )
