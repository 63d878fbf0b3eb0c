"""A model in which sums over many people are normal, and the people themselves are gone."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.transforms import log
from pymc.model.core import Model
from pymc.model.fgraph import model_deterministic, model_free_rv, model_observed_rv
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.variable import TensorVariable

from pymc_dp.marginals.groups import NotTogether
from pymc_dp.marginals.marginalize import copies_of, model_left, names_of
from pymc_dp.marginals.sum_moments import Moments, moments_of
from pymc_dp.mechanisms.gaussian import GaussianMechanismRV
from pymc_dp.mechanisms.laplace import LaplaceMechanismRV
from pymc_dp.mechanisms.marginals import MvNormalMarginalRV, NormalMarginalRV, call, promise_of
from pymc_dp.propriety import refuse_improper
from pymc_dp.query.lengths import lengths_of
from pymc_dp.query.readings import graph_of
from pymc_dp.query.recordrules import named
from pymc_dp.query.records import RecordBlock, Release, find_record_blocks, parameters_of
from pymc_dp.upstream.pymc_private import printed_name

_log = logging.getLogger("pymc")
_WAY_OUT = "Leave it to RecordImputation, which pm.sample chooses by itself and which is exact."


def approximate_sums(model: Model, names: str | Sequence[str], *, nodes: int | None = None) -> Model:
    r"""Return a model in which sums over confidential records are approximately normal, without the records.

    A sum over n independent people has mean :math:`n\,m(\theta)` and covariance :math:`n\,V(\theta)`, those
    of one person's contribution, and is normal but for terms of order :math:`n^{-1/2}`. The mean and the
    covariance are integrals over the law of one person, clamping included, and are computed in the graph.
    The model that is returned has parameters only, and `pm.sample` moves them by NUTS: a draw costs the
    same whatever the number of people.

    **This is an approximation, which the step methods are not.** How far it is off is computed with
    every draw: see Notes. :class:`RecordImputation` is exact, at a cost that grows with n.

    Parameters
    ----------
    model : pymc.Model
        The model; it is not changed.
    names : str or sequence of str
        The record variables, all that belong to the same people.
    nodes : int, optional
        Points of the integral between two ends of a clamp, in each real number of a record that the law of
        others depends on, and half as many in the others. By default 128 for records of one real number, 48
        for two and 30 for three; whole numbers are summed over. Steep functions of records (a logistic
        regression on a wide covariate) take more.

    Returns
    -------
    pymc.Model
        Releases have the names, values and guarantees that they had. For each release with Laplace noise
        there is a new variable ``<release>_mixing``, of the shape of the release: Laplace noise is normal
        with a variance that is exponential. Two deterministics, named by the first release, say how far
        each draw is off: ``<release>_edgeworth`` and ``<release>_quadrature``.

    Raises
    ------
    TypeError
        An argument is not of the right kind.
    ValueError
        Something else than releases depends on the records; a release is no affine function of sums over
        people, or its noise is neither Gaussian nor Laplace; people have a law that cannot be integrated at
        a few points. The message names the variable, the reason and what to do.

    See Also
    --------
    marginalize : The records integrated out exactly, nearly always of one or two sums.

    Notes
    -----
    The density of the releases is that of the approximation times :math:`1 + e` with
    :math:`e = O(n^{-1/2})`, the first term of Edgeworth's expansion, at the released values given the
    parameters and the mixing variables; the noise is in it, and makes it smaller. Draws of `e` are in the
    posterior as ``<release>_edgeworth``. To this order a posterior mean is off by the posterior covariance
    of its variable and `e`, hence by at most as many of its posterior standard deviations as **the
    posterior standard deviation of** `e`.

    The integrals have an error of their own, which grows where functions are steep. ``<release>_quadrature``
    is the largest difference between means of sums by these points and by half as many again, in standard
    deviations of the sum with its noise; there is none where records have whole numbers only. Well below
    0.05 it does not matter; otherwise raise `nodes`.

    Public rows of people (covariates, groups) may enter the laws and the sums: people with the same rows are
    one group, and each group has points of its own. The cost of a density and its gradient is linear in the
    number of points: groups times pieces times `nodes`, to the power of the numbers in a record. Each real
    number is cut where it is clamped or compared with a constant; kinks elsewhere are refused.

    References
    ----------
    Bernstein and Sheldon (2018), *Differentially private Bayesian inference for exponential families*, for
    normal sums and the mixture of normals. McCullagh (1987), *Tensor methods in statistics*, section 5.4, for
    Edgeworth's expansion of vectors.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dp as dp
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", 0, 1)
    ...     y = pm.Normal("y", mu, 1, shape=100_000)
    ...     z = dp.LaplaceMechanism("z", y.sum(), epsilon=1, bounds=(-2, 2), observed=21_345.0)
    >>> approximate = dp.approximate_sums(model, "y")
    >>> [v.name for v in approximate.free_RVs], [v.name for v in approximate.deterministics]
    (['mu', 'z_mixing'], ['z_edgeworth', 'z_quadrature'])
    >>> print(dp.guarantee(approximate["z"]))
    Pure differential privacy with epsilon = 1, for replace-one neighbours.
    """
    chosen = names_of(model, names)
    if nodes is not None and (isinstance(nodes, bool) or not isinstance(nodes, int) or nodes < 2):
        raise ValueError(f"nodes must be a whole number of at least 2, got {nodes!r}.")
    block = _block(model, chosen)
    _check_alone(model, block)
    refuse_improper(model)
    releases = sorted(block.releases, key=lambda r: [v.name for v in model.observed_RVs].index(r.name))
    for release in releases:
        _check_release(release)
    try:
        moments = moments_of(model, block, releases, nodes)
    except NotTogether as reason:
        raise ValueError(
            f"The sums over {named(block.records)} cannot be taken as normal: {reason}. {_WAY_OUT}"
        ) from None
    _log.info(
        f"{named(r.rv for r in releases)}: sums over {block.n} people ({named(block.records)}) are taken as "
        f"normal, an approximation ({moments.points} points); {releases[0].name}_edgeworth and "
        f"{releases[0].name}_quadrature tell how far it is off."
    )
    return _approximated(model, block, releases, moments)


def _block(model: Model, names: list[str]) -> RecordBlock:
    """Return the records of the same people, which have to be named all together."""
    blocks = find_record_blocks(model)
    known = named(rv for block in blocks for rv in block.records) or "there are none"
    for name in names:
        if not any(name in block.names for block in blocks):
            raise ValueError(
                f"names has {name!r}, which is no confidential record behind an observed release; records "
                f"of this model: {known}."
            )
    found = [block for block in blocks if set(names) & set(block.names)]
    if len(found) > 1:
        raise ValueError(
            f"names has {', '.join(map(repr, names))}, which are records of different people: call "
            "dp.approximate_sums once for each group of people."
        )
    if set(found[0].names) != set(names):
        raise ValueError(
            f"names has {', '.join(map(repr, names))}; the same people have the records "
            f"{named(found[0].records)}, which have to be integrated out together: name them all."
        )
    return found[0]


def _check_alone(model: Model, block: RecordBlock) -> None:
    """Refuse records that anything but their releases depends on, or whose number is not known."""
    if block.count is not None:
        raise ValueError(
            f"How many people there are, {block.count.name}, is a variable: sums over {named(block.records)} "
            f"cannot be taken as normal here. {_WAY_OUT}"
        )
    if block.terms:
        raise ValueError(
            f"{named(block.terms)} depends on {named(block.records)} and is no release, so that these cannot "
            f"be integrated out of their releases alone. {_WAY_OUT}"
        )
    variables = set(model.basic_RVs)
    for what, graphs in (("potential", model.potentials), ("deterministic", model.deterministics)):
        for graph in graphs:
            if set(block.records) & set(ancestors([graph], blockers=variables)):
                raise ValueError(
                    f"The {what} {graph.name} depends on {named(block.records)}, which are to be integrated "
                    "out. Leave it out of the model."
                )


def _check_release(release: Release) -> None:
    op = release.rv.owner.op
    if type(op) not in (GaussianMechanismRV, LaplaceMechanismRV):
        raise ValueError(
            f"{release.name} has noise of {printed_name(op)}: sums are taken as normal under Gaussian and "
            f"Laplace noise that nothing was done to. {_WAY_OUT}"
        )
    if release.query.type.ndim > 1:
        raise ValueError(
            f"{release.name} has {release.query.type.ndim} axes: write its query as a vector "
            "(query.ravel(), observed=z.ravel())."
        )


def _approximated(model: Model, block: RecordBlock, releases: list[Release], moments: Moments) -> Model:
    """Build the model anew, with normal laws of the releases in which the sums are integrated out."""
    graph, memo = graph_of(model)
    copies = copies_of(model, memo)
    variances, mixings = _noise(releases)
    total = moments.covariance + pt.diag(pt.concatenate(variances))
    # their own variables would be copied with the lengths in their queries
    of_release = {r.rv.type(name=r.name): memo[r.rv] for r in releases}
    values = [pt.cast(pt.atleast_1d(v), "float64") for v in of_release]
    lengths = [int(np.prod(lengths_of(r.query))) for r in releases]
    ends = np.cumsum(lengths)
    laws = []
    for k, release in enumerate(releases):
        mean, covariance = _given(moments.mean, total, values[:k], ends[k] - lengths[k], ends[k])
        promise = promise_of(release.rv.owner.op, tuple(block.names))
        if release.query.type.ndim == 0:
            laws.append(call(NormalMarginalRV(**promise), mean[0], pt.sqrt(covariance[0, 0])))
        else:
            laws.append(call(MvNormalMarginalRV(method="cholesky", **promise), mean, covariance))
    errors = {"edgeworth": _edgeworth(moments, total, pt.concatenate(values))}
    if moments.finer is not None:
        errors["quadrature"] = pt.max(pt.abs(moments.finer - moments.mean) / pt.sqrt(pt.diag(total)))
    latent = {}
    for name, mixing in mixings.items():
        mixing.name = name
        latent[mixing] = model_free_rv(mixing, mixing.type(name=f"{name}_{log.name}__"), log, name)
        graph.add_output(latent[mixing], import_missing=True)
    replaced = graph_replace([*laws, *errors.values()], copies | latent | of_release, strict=False)
    for name, error in zip(errors, replaced[len(laws) :], strict=True):
        graph.add_output(model_deterministic(error, f"{releases[0].name}_{name}"), import_missing=True)
    # in reverse order, since the law of a later release depends on the variables of earlier ones
    for law, release in reversed(list(zip(replaced, releases, strict=False))):
        old = memo[release.rv]
        law.name = release.name
        new = model_observed_rv(law, old.owner.inputs[1], release.name, *old.owner.op.dims)
        graph.replace(old, new, import_missing=True)
    return model_left(model, graph, memo, block.records)


def _noise(releases: Sequence[Release]) -> tuple[list[TensorVariable], dict[str, TensorVariable]]:
    """Return the variances of the noise of each release, and the variables in those of Laplace noise."""
    variances, mixings = [], {}
    for release in releases:
        shape = lengths_of(release.query)
        level = pt.as_tensor_variable(parameters_of(release.rv)[1])
        variance = pt.switch(level > 0, level * level, np.nan)
        if isinstance(release.rv.owner.op, LaplaceMechanismRV):
            mixing = pm.Exponential.dist(1.0, shape=shape)
            mixings[f"{release.name}_mixing"] = mixing
            variance = 2.0 * variance * mixing
        variances.append(pt.broadcast_to(variance, shape or (1,)).ravel())
    return variances, mixings


def _given(
    mean: TensorVariable, total: TensorVariable, before: list[TensorVariable], start: int, stop: int
) -> tuple[TensorVariable, TensorVariable]:
    """Return mean and covariance of one release given those before it."""
    own, covariance = mean[start:stop], total[start:stop, start:stop]
    if not before:
        return own, covariance
    root = pt.linalg.cholesky(total[:start, :start], lower=True)
    across = pt.linalg.solve_triangular(root, total[:start, start:stop], lower=True)
    gap = pt.linalg.solve_triangular(root, pt.concatenate(before) - mean[:start], lower=True)
    return own + pt.dot(gap, across), covariance - pt.dot(across.T, across)


def _edgeworth(moments: Moments, total: TensorVariable, released: TensorVariable) -> TensorVariable:
    """Return the first term of Edgeworth's expansion at the releases (McCullagh 1987, section 5.4)."""
    # a root of the covariance, since an inverse takes PyTensor ten seconds more to compile
    root = pt.linalg.cholesky(total, lower=True)
    deviations = pt.linalg.solve_triangular(root, moments.deviations.T, lower=True)
    along = pt.dot(pt.linalg.solve_triangular(root, released - moments.mean, lower=True), deviations)
    squared = pt.sum(deviations * deviations, axis=0)
    return pt.sum(moments.weights * along * (along * along / 6.0 - squared / 2.0))
