"""The likelihood of confidential rows: declared in a model, held outside of its graph."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.distribution import SymbolicRandomVariable
from pymc.model.core import Model
from pytensor.graph.basic import Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.graph.utils import MissingInputError
from pytensor.tensor.random.type import RandomGeneratorType
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.functions.sentinel import Sentinel
from pymc_dp.privacy._checks import positive
from pymc_dp.private.atoms import check_atoms
from pymc_dp.private.redaction import sealed
from pymc_dp.private.rows import ConfidentialRows
from pymc_dp.private.tables import as_tables, columns_of
from pymc_dp.query.lengths import lengths_of, with_lengths_of_rows
from pymc_dp.query.rowlocal import leaves_of

__all__ = ["ConfidentialLikelihood", "RowTerm", "confidential_terms"]


@dataclass(frozen=True, eq=False)
class RowTerm:
    """The parts of a confidential likelihood; none of them shows a number of its rows.

    Attributes
    ----------
    name : str
    rows : ConfidentialRows
        The columns of the data, followed by those of the covariates.
    law : TensorVariable
        Distribution of the rows, as a graph with inputs of its own.
    parameters : tuple of TensorVariable
        The inputs of `law` that stand for the model's variables.
    value : TensorVariable
        The input that stands for the data, shape (n,) or (n, k).
    covariates : tuple of TensorVariable
        The inputs that stand for the covariates.
    clip, clip_gradient, temper : float
    coordinates : TensorVariable or None
        Coordinates in which the distance of the clip is measured, if these are not the values that PyMC
        samples.
    """

    name: str
    rows: ConfidentialRows
    law: TensorVariable
    parameters: tuple[TensorVariable, ...]
    value: TensorVariable
    covariates: tuple[TensorVariable, ...]
    clip: float
    clip_gradient: float | None
    temper: float
    coordinates: TensorVariable | None = None

    def __repr__(self) -> str:
        return f"<likelihood '{self.name}' of {self.rows!r}>"


class ConfidentialLikelihood:
    r"""Likelihood of rows that nobody but the private steps may see.

    The rows, one for each person, are held outside of the model: they are in no graph, result, log, message,
    representation or pickle. The model only gets a potential of value 0 that depends on the parameters, so
    that no other sampler can treat them as if they had no data. They are sampled by
    :class:`~pymc_dp.PenaltyMetropolis` and its relatives, which read the rows through sums with noise.

    Parameters
    ----------
    name : str
        Name of the potential.
    dist : distribution, or callable
        ``pm.X.dist(...)``: the law of one row given the parameters, rows being independent. With
        `covariates`, a function of these that returns such a law: it gets them by name, as tensors with one
        row for each person, and is written as in any PyMC model.
    data : array_like, shape (n,) or (n, k)
        The rows.
    clip : float
        Bound :math:`L` of a row's change of log likelihood per unit of distance: from :math:`\theta` to
        :math:`\theta'` it is clipped to :math:`\pm L \|\theta - \theta'\|_2`, the distance being that of the
        values which PyMC samples (logarithms of positive parameters, and so on). Where rows exceed it, draws
        no longer follow the posterior, and no convergence diagnostic shows it.
    clip_gradient : float, optional
        Bound of the Euclidean norm of a row's gradient, in the same space; for
        :class:`~pymc_dp.PrivateHMC`.
    temper : float, default 1
        Power to which the likelihood is raised, after clipping.
    coordinates : TensorVariable, optional
        Functions of the parameters that define the distance: a row's change is then clipped to :math:`L`
        times the Euclidean length of their change. With ``mean / sd`` of normal rows, `clip` is in standard
        deviations of a row's change under the model, in every direction. The coordinates must depend on all
        parameters: a move that changes none of the coordinates, or after which one of them is NaN, is
        refused.
    covariates : mapping of str to array_like of shape (n,) or (n, k), optional
        What else is known of each row, confidential or not: `dist` is called with one tensor for each
        covariate. The lengths of these tensors are public: ``x.shape[0]`` is n, also in steps that work on
        batches.

    Returns
    -------
    TensorVariable
        The potential.

    Raises
    ------
    TypeError
        If it is made outside of a model context, `dist` is no distribution, or an array holds no numbers.
    ValueError
        If rows have missing values or different lengths, or are not independent given the parameters; if
        `dist` has no parameter, mixes an atom with a density at the same place, or has atoms at places that
        depend on a parameter; or if a number is out of range.

    Notes
    -----
    Moves that take parameters out of the domain of the law (a negative standard deviation, say) are refused,
    if that can be told without the rows. Where the support of a row depends on parameters, rows that fall out
    of it are clipped like any others.

    A law that is given by its log density alone, ``pm.CustomDist.dist(..., logp=f)``, cannot be drawn. Its
    values of positive probability are recognised by an equation (``pt.eq(value, c)``) or by an inequality
    that holds up to infinity (``value >= c``). Others (numbers that are rounded, or within 1e-9 of some
    place) are not, and must be where no parameter moves them. With ``random=`` beside ``logp=`` all are
    looked for in draws.

    Data sets are neighbours if one row is replaced (n is public). A change that is infinite counts as the
    bound, one that is not a number as 0, so that no single row can veto a draw. The space of the distance
    matters: a parameter with the law ``HalfNormal`` is sampled, and clipped, on the scale of its logarithm.

    Whether the rows can be declared at all is not private: missing values, entries that are not whole numbers
    where the law has no others, or a table of another length are refused. The message quotes no entry, but
    the refusal itself tells something of the rows, for which nothing is debited. Like the table, it is for
    the custodian's eyes only.

    The model has no log density: ``model.compile_logp`` and ``model.point_logps`` raise, because this term
    would be missing from them. ``pm.compute_log_likelihood`` covers observed variables only, so that this
    term is missing from its result, and from information criteria computed from that.

    References
    ----------
    Räisä, "Differentially private Markov chain Monte Carlo" (2021), section 3.1; Yıldırım and Ermiş, "Exact
    MCMC with differentially private moves" (2019).

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_dp as dp
    >>> rng = np.random.default_rng(1)
    >>> age, smokes = rng.normal(50, 9, 200), rng.integers(0, 2, 200)
    >>> with pm.Model():
    ...     beta = pm.Normal("beta", 0, 1, shape=2)
    ...     dp.ConfidentialLikelihood(
    ...         "smokes",
    ...         lambda age: pm.Bernoulli.dist(logit_p=beta[0] + beta[1] * (age - 50) / 10),
    ...         data=smokes,
    ...         covariates={"age": age},
    ...         clip=2,
    ...     )
    smokes
    """

    def __new__(
        cls,
        name: str,
        dist: Any,
        data: Any,
        *,
        clip: float,
        clip_gradient: float | None = None,
        temper: float = 1.0,
        covariates: Mapping[str, Any] | None = None,
        coordinates: Any = None,
    ) -> Any:
        """Add the potential to the model around it."""
        try:
            model = Model.get_context(error_if_none=False)
            if model is None:
                raise TypeError(
                    f"No model around ConfidentialLikelihood '{name}': declare it within `with model:`."
                )
            numbers = {"clip": positive("clip", clip), "temper": positive("temper", temper)}
            if clip_gradient is not None:
                clip_gradient = positive("clip_gradient", clip_gradient)
            table, given = sealed(as_tables, data, covariates)
        finally:
            del data, covariates  # so that tracebacks of later errors show no rows in this frame
        for key, other in given.items():
            if len(other) != len(table):
                raise ValueError(
                    f"covariates['{key}'] has {len(other)} rows, data has {len(table)}: give one for each."
                )
        inputs = {key: pt.tensor(key, dtype=v.dtype, shape=v.shape) for key, v in given.items()}
        law = _law(name, dist, inputs)
        # the number of rows is public, and mixtures and censored laws take it from laws that they replace
        (law,) = with_lengths_of_rows([law], set(inputs.values()))
        if not law.type.dtype.startswith("float") and not table.whole:
            raise ValueError(
                f"data of '{name}' are not all whole numbers, and {law.owner.op} gives no others."
            )
        value = pt.TensorType(law.type.dtype, table.shape)(name)
        parameters = _parameters(name, law, model)
        roots = [pt.TensorType(v.type.dtype, lengths_of(v))(f"{name}_{k}") for k, v in enumerate(parameters)]
        (free,) = graph_replace([law], dict(zip(parameters, roots)), strict=False)
        _check_arguments(name, free, set(inputs.values()))
        check_atoms(name, law, inputs.values(), model)
        if coordinates is not None:
            coordinates = _coordinates(name, coordinates, parameters, model)
            (coordinates,) = graph_replace([coordinates], dict(zip(parameters, roots)), strict=False)
        rows = sealed(lambda *tables: ConfidentialRows(columns_of(tables)), table, *given.values())
        term = RowTerm(
            model.name_for(name), rows, free, tuple(roots), value, tuple(inputs.values()),
            clip_gradient=clip_gradient, coordinates=coordinates, **numbers,
        )  # fmt: skip
        from pymc_dp.private.density import check_rows

        check_rows(term)
        for rv in parameters:
            rv.tag.pymc_dp_confidential = name  # type: ignore[attr-defined]
        names = ", ".join(str(v.name) for v in parameters)
        message = (
            f"{names}: the rows behind '{name}' are confidential, and only a private step may sample what "
            "depends on them. To any other sampler or optimiser, or in a log density, they would look as if "
            "there were no data. Use "
            "step=[dp.PenaltyMetropolis(ledger=..., draws=..., tune=..., chains=...)]; other variables keep "
            "the steps that they have."
        )
        zero = Sentinel(term.rows._token, message, term)(*parameters)
        return pm.Potential(name, zero)


def confidential_terms(model: Model) -> list[tuple[RowTerm, list[Variable]]]:
    """Return a model's confidential likelihoods, each with the variables that stand for its parameters."""
    found = []
    for potential in model.potentials:
        for v in ancestors([potential], blockers=model.basic_RVs):
            if v.owner is not None and isinstance(v.owner.op, Sentinel):
                found.append((v.owner.op.term, list(v.owner.inputs)))
    return found


def refuse_shared_transforms(step: str, likelihood: str, values: Sequence[Variable], model: Model) -> None:
    """Refuse values that also move parameters of another likelihood, whose rows the step would ignore.

    Raises
    ------
    ValueError
    """
    for term, inputs in confidential_terms(model):
        natural = model.replace_rvs_by_values([pt.as_tensor(v) for v in inputs])
        moved = sorted(str(v.name) for v in set(values) & set(ancestors(natural)))
        if term.name != likelihood and moved:
            raise ValueError(
                f"{step}: parameters of '{term.name}' move with {', '.join(moved)}, which is in their "
                f"transforms, so that a move would need the rows of '{term.name}' as well as those of "
                f"'{likelihood}'. Give these parameters default_transform=None, or put both tables into one, "
                "with a covariate that says which."
            )


def _law(name: str, dist: Any, inputs: dict[str, TensorVariable]) -> TensorVariable:
    """Return the distribution of a row, as a random variable."""
    if isinstance(dist, Callable) and not isinstance(dist, Variable | type):  # type: ignore[arg-type]
        try:
            inspect.signature(dist).bind(**inputs)
        except TypeError as error:
            raise TypeError(
                f"dist of '{name}' is called with the covariates by name, {sorted(inputs)}: {error}."
            ) from None
        try:
            dist = dist(**inputs)
        except MissingInputError:  # a function that makes a law reads covariates that it is not given
            raise _not_given(name, inputs) from None
    elif inputs:
        raise TypeError(
            f"dist of '{name}' must be a function of the covariates {sorted(inputs)} that returns a "
            "distribution, such as `lambda x: pm.Normal.dist(alpha + x @ beta, 1)`."
        )
    op = dist.owner.op if isinstance(dist, Variable) and dist.owner is not None else None
    if not hasattr(op, "ndim_supp") or (not hasattr(op, "rng_param") and not hasattr(op, "dist_params")):
        raise TypeError(
            f"dist of '{name}' must be a distribution, pm.X.dist(...), got {type(dist).__name__}."
        )
    if dist.name is not None:
        raise TypeError(
            f"dist of '{name}' is the variable {dist.name} of a model: give the law of a row without a name, "
            "pm.X.dist(...)."
        )
    return dist


def _coordinates(name: str, given: Any, parameters: list[Any], model: Model) -> Any:
    """Return the numbers that distances are measured in, as a vector."""
    if not isinstance(given, Variable) or not given.type.dtype.startswith("float"):  # type: ignore[attr-defined]
        raise TypeError(f"coordinates of '{name}' must be numbers that follow from the model's variables.")
    used = set(leaves_of([given], model.basic_RVs)) & set(model.basic_RVs)
    unseen = [str(v.name) for v in parameters if v not in used]
    if used and unseen:
        raise ValueError(
            f"coordinates of '{name}' leave out {', '.join(unseen)}: moves of it would have no length. Give "
            "numbers from which every parameter of the likelihood follows."
        )
    others = sorted(str(v.name) for v in used - set(parameters))
    if others or not used:
        raise ValueError(
            f"coordinates of '{name}' depend on {', '.join(others) or 'no variable of the model'}: they are "
            f"functions of {', '.join(str(v.name) for v in parameters)} only."
        )
    return pt.as_tensor(given).ravel()


def _check_arguments(name: str, law: Any, inputs: Collection[Variable]) -> None:
    """Refuse a log density that reads variables behind the law's back: nobody would look for them there."""
    given, value = set(ancestors([law])), law.type()
    unseen = {
        str(v.name or "a random variable")
        for v in ancestors([pm.logp(law, value, warn_rvs=False)], blockers=[value])
        if v not in given and (v in inputs or hasattr(getattr(v.owner, "op", None), "ndim_supp"))
    }
    if unseen:
        raise _not_given(name, unseen)


def _not_given(name: str, unseen: Collection[str]) -> ValueError:
    return ValueError(
        f"dist of '{name}' has a function that reads {', '.join(sorted(unseen))} from around it: give the "
        "law all that its functions read, as in pm.CustomDist.dist(mu, x, logp=f) with f(value, mu, x)."
    )


def _parts(law: Any) -> set[Variable]:
    """Inputs of a mixture or a censored law, which may be such laws themselves: nothing is drawn of them."""
    if law.owner is None or not isinstance(law.owner.op, SymbolicRandomVariable):
        return set()
    return set(law.owner.inputs).union(*map(_parts, law.owner.inputs))


def _parameters(name: str, law: Any, model: Model) -> list[Any]:
    """Free variables of the model behind a law."""
    leaves = leaves_of([law], model.basic_RVs)
    parameters = [rv for rv in model.free_RVs if rv in leaves]
    observed = [str(rv.name) for rv in model.observed_RVs if rv in leaves]
    if observed:
        raise ValueError(f"'{name}' depends on {', '.join(observed)}, which is observed: pass its values.")
    parts = _parts(law)
    others = [
        v for v in ancestors([law], blockers=model.basic_RVs)
        if v.owner is not None and v is not law and v not in leaves and hasattr(v.owner.op, "ndim_supp")
        and not isinstance(v.type, RandomGeneratorType) and v not in parts
    ]  # fmt: skip
    if others:
        raise ValueError(
            f"dist of '{name}' depends on a random variable that is not in the model: name it in the model."
        )
    if not parameters:
        raise ValueError(f"dist of '{name}' has no free variable of the model as a parameter.")
    whole = [str(v.name) for v in parameters if not v.type.dtype.startswith("float")]
    if whole:
        raise ValueError(
            f"'{name}' depends on {', '.join(whole)}, which takes whole numbers only: private steps move "
            "continuous parameters. Sum it out of dist, as pm.Mixture does."
        )
    return parameters
