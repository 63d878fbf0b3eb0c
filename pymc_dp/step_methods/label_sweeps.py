"""Neal's algorithms 2, 3 and 8: labels of mixtures whose records are known."""

from collections.abc import Sequence
from typing import Any

from pymc.model.core import Model
from pytensor.graph.basic import Variable

from pymc_dp.step_methods.mixture.label_step import SweepStep
from pymc_dp.step_methods.record_step import check_positive


class Neal2(SweepStep):
    """Labels of a mixture given the atoms of their clusters, with a conjugate base.

    A record joins an old cluster in proportion to its size and to the record's density there, and opens a new
    one in proportion to the concentration and to the record's density with the atoms integrated out; atoms of
    a new cluster are drawn given the record. The base has to be conjugate, whichever way the model writes it.

    Parameters
    ----------
    vars : list of variables, optional
        Labels; all whose records are known if left out.
    n_cycles : int, optional
        Sweeps per draw, with an update of the atoms after each; by default more for fewer records.
    model : pymc.Model, optional
        Taken from the context if left out.
    rng : optional
        Seed or generator; PyMC sets one per chain.

    Raises
    ------
    ValueError
        If the model has no such mixture, its atoms do not integrate out, an argument is out of range, or,
        while sampling, all ``max_components`` slots are occupied and a new cluster needs one.
    NotImplementedError
        If the kernel or the law of the atoms has no scalar form.

    Notes
    -----
    A sweep costs O(number of clusters) per record, one density for each cluster. ``sample_stats`` get
    ``n_clusters`` and ``labels_moved`` (share of records that changed their cluster).

    References
    ----------
    Neal (2000), "Markov chain sampling methods for Dirichlet process mixture models", algorithm 2.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dp as dp
    >>> with pm.Model():
    ...     labels = dp.ChineseRestaurantProcess("labels", concentration=1, shape=4, max_components=4)
    ...     mu = pm.Normal("mu", 0, 3, shape=4)
    ...     y = pm.Normal("y", mu[labels], 1, observed=[-4.0, -3.1, 2.2, 3.0])
    ...     step = dp.Neal2()
    >>> [v.name for v in step.vars]
    ['labels']
    """

    name = "neal2"
    _sweep = "neal2"


class Neal3(SweepStep):
    r"""Labels of a mixture with the atoms of all clusters integrated out, which needs a conjugate base.

    Weights of old clusters have the density of the record given the other records there. So a record may
    leave for another cluster whatever the atoms happen to be, and sweeps mix better than those of
    :class:`Neal2`, most of all where clusters are small. Atoms are drawn afterwards.

    The base may be an inverse gamma law of variances that is cut off from below, which is that of noisy
    records: behind Gaussian noise of standard deviation :math:`\eta`, normal records of variance
    :math:`\sigma^2` have the variance :math:`\tau^2 = \sigma^2 + \eta^2 \ge \eta^2`. With
    ``pm.Truncated("tau2", pm.InverseGamma.dist(a, b), lower=eta**2, shape=H)`` and means of variance ``tau2
    / lam``, a cluster has the usual marginal density times :math:`P(a_n, b_n / \eta^2) / P(a, b / \eta^2)`,
    P being the regularised lower incomplete gamma function. This is not a normal inverse gamma law of
    :math:`(\mu, \sigma^2)`, and it needs releases that are not clamped and have one noise level.

    Parameters
    ----------
    vars : list of variables, optional
        Labels; all whose records are known if left out.
    n_cycles : int, optional
        Sweeps per draw, with an update of the atoms after each; by default more for fewer records.
    model : pymc.Model, optional
        Taken from the context if left out.
    rng : optional
        Seed or generator; PyMC sets one per chain.

    Raises
    ------
    ValueError
        If the model has no such mixture, its atoms do not integrate out, an argument is out of range, or,
        while sampling, all ``max_components`` slots are occupied and a new cluster needs one.
    NotImplementedError
        If the kernel or the law of the atoms has no scalar form.

    Notes
    -----
    A sweep costs O(number of clusters) per record, one normaliser for each cluster: two to four times as much
    as one of :class:`Neal2`, and about ten times with a base that is cut off. ``sample_stats`` get
    ``n_clusters`` and ``labels_moved`` (share of records that changed their cluster).

    References
    ----------
    Neal (2000), "Markov chain sampling methods for Dirichlet process mixture models", algorithm 3; Beraha,
    Favaro & Rao, "MCMC for Bayesian nonparametric mixture modeling under differential privacy", equation 11.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dp as dp
    >>> with pm.Model():
    ...     labels = dp.ChineseRestaurantProcess("labels", concentration=1, shape=4, max_components=4)
    ...     mu = pm.Normal("mu", 0, 3, shape=4)
    ...     y = pm.Normal("y", mu[labels], 1, observed=[-4.0, -3.1, 2.2, 3.0])
    ...     step = dp.Neal3()
    >>> [v.name for v in step.vars]
    ['labels']
    """

    name = "neal3"
    _sweep = "collapsed"


class Neal8(SweepStep):
    """Labels of a mixture given atoms, those of some empty clusters among them.

    Any base will do, conjugate or not: a record may also join one of `n_auxiliary` empty clusters, which
    share the weight of a new one. They are slots of the labels that are free, at most as many as there are;
    so their atoms are those of the model.

    Parameters
    ----------
    vars : list of variables, optional
        Labels; all whose records are known if left out.
    n_auxiliary : int, default 3
        Empty clusters that a record may join. More of them cost a density each, and help where the base is
        much wider than a cluster.
    n_cycles : int, optional
        Sweeps per draw, with an update of the atoms after each; by default more for fewer records.
    model : pymc.Model, optional
        Taken from the context if left out.
    rng : optional
        Seed or generator; PyMC sets one per chain.

    Raises
    ------
    ValueError
        If the model has no such mixture, an argument is out of range, or, while sampling, all
        ``max_components`` slots are occupied and a new cluster needs one.
    NotImplementedError
        If the kernel or the law of the atoms has no scalar form.

    Notes
    -----
    A sweep costs O(number of clusters + `n_auxiliary`) per record, one density for each. ``sample_stats`` get
    ``n_clusters`` and ``labels_moved`` (share of records that changed their cluster).

    References
    ----------
    Neal (2000), "Markov chain sampling methods for Dirichlet process mixture models", algorithm 8.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dp as dp
    >>> with pm.Model():
    ...     labels = dp.ChineseRestaurantProcess("labels", concentration=1, shape=4, max_components=4)
    ...     mu = pm.Normal("mu", 0, 3, shape=4)
    ...     y = pm.Normal("y", mu[labels], 1, observed=[-4.0, -3.1, 2.2, 3.0])
    ...     step = dp.Neal8()
    >>> [v.name for v in step.vars]
    ['labels']
    """

    name = "neal8"
    _sweep = "neal8"

    def __init__(
        self,
        vars: Sequence[Variable] | None = None,
        *,
        n_auxiliary: int = 3,
        n_cycles: int | None = None,
        model: Model | None = None,
        rng: Any = None,
        initial_point: dict[str, Any] | None = None,
        compile_kwargs: dict | None = None,
        blocked: bool = True,
    ):
        check_positive("n_auxiliary", n_auxiliary)
        self.n_auxiliary = n_auxiliary
        super().__init__(vars, n_cycles=n_cycles, model=model, rng=rng, initial_point=initial_point)
