"""What every mechanism shares: the query, the bounds, the declaration in a model.

A mechanism is one file with two classes. The *operation* (a PyTensor random variable with the
mix-in :class:`MechanismOp`) draws a release and carries the guarantee; the *distribution* (a
:class:`Mechanism`) checks its arguments, turns a budget into noise, and has the log density.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.distribution import Distribution
from pymc.distributions.shape_utils import convert_dims, convert_shape, convert_size
from pymc.model.core import Model
from pymc.pytensorf import rvs_in_graph
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.variable import TensorVariable

from pymc_dp.mechanisms._arguments import RefusesUnknown, unexpected
from pymc_dp.mechanisms._checks import (
    as_query,
    check_observed,
    check_static_shape,
    checked_sensitivity,
    length_of,
    names_of_records,
    tell_of_far_values,
    tell_of_low_sensitivity,
)
from pymc_dp.mechanisms._debit import Debit
from pymc_dp.mechanisms._numbers import check_neighbours, check_number_of_records, resizable_lengths
from pymc_dp.mechanisms._postprocessed import refuse_processed
from pymc_dp.mechanisms._releases import as_declared, declared_by, draw_release, evaluate, refuse_internal
from pymc_dp.privacy._checks import positive
from pymc_dp.privacy.bounds import hashable_bounds, parse_bounds
from pymc_dp.privacy.entropy import draw_securely
from pymc_dp.privacy.guarantee import PrivacyGuarantee
from pymc_dp.privacy.ledger import PrivacyLedger
from pymc_dp.privacy.release import Release
from pymc_dp.query.choices import tell_of_choices
from pymc_dp.query.clamping import clamp_query
from pymc_dp.upstream.pymc_private import _truncated

MECHANISM_PROPS = ("guarantee", "bounds", "records", "lengths", "why_none")


class MechanismOp:
    """Mix-in of a random variable operation whose draws are privatized releases.

    Parameter 0 of the operation is the query, already clamped. Subclasses append
    :data:`MECHANISM_PROPS` to their ``__props__``, so that these attributes survive cloning,
    ``pm.do`` and pickling.

    Attributes
    ----------
    guarantee : PrivacyGuarantee or None
        The guarantee of the whole release for each person; None when it is not known.
    bounds : tuple or None
        ``(lo, hi)`` that the records' contributions (or rows) were clamped to, as floats or
        nested tuples of floats.
    records : tuple of str or None
        Names of the confidential variables behind the query, where the user gave them.
    lengths : tuple of int or None
        Lengths that the noise level was worked out for, where resizable data can change them; see
        :func:`pymc_dp.mechanisms._numbers.resizable_lengths`.
    additive_noise : bool
        Whether the release is the query plus symmetric noise that is independent of it and has its mode at 0.
    family : str or None
        The law of additive noise, for the masses of :mod:`pymc_dp.lowering.functions.interval_mass`.
    suppressed : float or None
        What stands for an entry that was not published; None where all are.
    cells : tuple of float or None
        Ascending edges, one more than there are cells, where the law of a row's release depends on
        the (clamped) record only through the cell that it falls in. The last cell is closed at the
        top; values beyond the edges count in the first and the last cell.
    of_records : bool
        Whether the query depends on records that are variables of a model; False where they are
        integrated out and the query is a parameter.
    noise_parameters : bool
        Whether the parameters after the query are known settings of the noise; where not, they may be
        computed from records.
    records_in_parameters : bool
        Whether the declaration itself puts records among the parameters, which the density reads anew
        whenever it reads a query that is no sum, and not otherwise.
    released_parameter : int or None
        Which parameter is the released value, where the query is evaluated at it when it is declared.
    conditional_draws : mapping
        From the operation class of a record's prior to the random variable operation that draws
        the record given its own release, where that law is closed.
    record_marginals : mapping
        From the operation class of a record's prior to the
        :class:`~pymc_dp.mechanisms.marginals.RecordMarginal` that integrates it out of its own release.
    why_unknown : str
        Why there may be no guarantee, for messages.
    why_none : str or None
        Why this operation has none, where `why_unknown` does not tell.
    """

    why_unknown: ClassVar[str] = (
        "its noise level was given without sensitivity= or bounds=, one of which has to be added, or is "
        "itself random"
    )
    additive_noise: ClassVar[bool] = False
    family: ClassVar[str | None] = None
    suppressed: float | None = None
    of_records: ClassVar[bool] = True
    noise_parameters: ClassVar[bool] = True
    records_in_parameters: ClassVar[bool] = False
    released_parameter: ClassVar[int | None] = None
    cells: tuple[float, ...] | None = None
    conditional_draws: ClassVar[Mapping[type, RandomVariable]] = MappingProxyType({})
    record_marginals: ClassVar[Mapping[type, Any]] = MappingProxyType({})

    def __init__(
        self,
        name: str | None = None,
        *,
        guarantee: PrivacyGuarantee | None = None,
        bounds: tuple | None = None,
        records: tuple[str, ...] | None = None,
        lengths: tuple[int, ...] | None = None,
        why_none: str | None = None,
        **kwargs: Any,
    ) -> None:
        self.guarantee = guarantee
        self.bounds = bounds
        self.records = records
        self.lengths = lengths
        self.why_none = why_none
        super().__init__(name, **kwargs)  # type: ignore[call-arg]

    @property
    def unprocessed(self) -> MechanismOp:
        """The operation that draws the release before anything was done to it after the noise."""
        return self

    def secure_draw(
        self, generator: np.random.Generator, query: np.ndarray, *params: np.ndarray
    ) -> np.ndarray:
        """Draw one release of confidential data; mechanisms with an exact sampler override it.

        Parameters
        ----------
        generator : numpy.random.Generator
            Over the operating system's entropy; the only source of randomness.
        query : ndarray
            The clamped query.
        *params : ndarray
            The operation's other parameters.

        Returns
        -------
        ndarray
        """
        return np.asarray(self.rng_fn(generator, query, *params, size=None))  # type: ignore[attr-defined]


@_truncated.register(MechanismOp)
def _no_short_cut(op: MechanismOp, *args: Any) -> Any:
    """Let PyMC truncate in its general way: its special case for normal laws would drop the mechanism."""
    raise NotImplementedError(f"{op} has no truncated version of its own")


@dataclass(frozen=True)
class PreparedQuery:
    """A query ready for noise, with bounds of one record's change of it, where they are known."""

    query: TensorVariable
    sensitivity: float | None
    width: np.ndarray | None
    bounds: tuple | None
    lengths: tuple[int, ...] | None = None
    neighbours: str = "replace-one"


class Mechanism(RefusesUnknown, Distribution):
    """Base of the mechanisms: a PyMC distribution over releases of a query.

    Subclasses define ``rv_op`` (an operation with :class:`MechanismOp`), ``dist``, ``logp`` and
    ``support_point``; ``dist`` calls :meth:`_prepare`, works out noise and guarantee, and ends
    with :meth:`_release`.

    Attributes
    ----------
    unpublished : frozenset of str
        Arguments of ``dist`` that no published file can hold, such as functions: they are given beside it.
    """

    unpublished: ClassVar[frozenset[str]] = frozenset()

    def __new__(  # type: ignore[misc]  # PyMC's distributions construct tensors
        cls,
        name: str,
        query: Any,
        *args: Any,
        observed: Any = None,
        dims: Any = None,
        total_size: Any = None,
        **kwargs: Any,
    ) -> TensorVariable:
        """Check the declaration against the model, then register it as PyMC does."""
        if total_size is not None:
            raise ValueError(
                "total_size cannot be given to a mechanism: a release is one observation, and "
                "scaling its log density would pretend to less noise than there is."
            )
        query = as_query(query)
        refuse_internal(cls, kwargs)
        refuse_processed(cls, observed)
        if isinstance(observed, Release):
            kwargs, observed = declared_by(cls, observed, kwargs), observed.value
        expected = cls._release_shape(query, **kwargs)
        if observed is not None:
            processing = kwargs.get("processing")
            observed = check_observed(observed, expected, processing is not None and processing.suppresses)
            if not rvs_in_graph([query]):
                raise ValueError(
                    "query depends on no random variable of the model, so the observed release "
                    "would say nothing about any record: pass an expression of the records, such "
                    "as dp.record_sum(y)."
                )
        if dims is not None:
            lengths = Model.get_context().dim_lengths
            shape = tuple(length_of(lengths[d]) if d in lengths else None for d in convert_dims(dims))
            check_static_shape("dims", shape, expected)
        rv = super().__new__(cls, name, query, *args, observed=observed, dims=dims, **kwargs)
        tell_of_far_values(name, query, rv, observed)
        return rv

    @classmethod
    def release(
        cls, query: Any, *, ledger: PrivacyLedger | None = None, name: str | None = None, **noise: Any
    ) -> Release:
        """Draw one release from confidential data, with noise that nobody can predict.

        The random bits are the operating system's; no seed has any influence on them. Every call draws anew
        and spends anew: a ledger is debited before the noise is drawn.

        Parameters
        ----------
        query : array_like
            The query as for the distribution, but of data: an array, or an expression of one such as
            ``dp.record_sum(array)``.
        ledger : PrivacyLedger, optional
            The budget that pays for the release.
        name : str, optional
            What is released, in words for people; it is published, and stands in the ledger.
        **noise
            The noise level and settings, as for the distribution.

        Returns
        -------
        Release
            The noisy value, the parameters that an analyst needs, and the guarantee. It may be published: it
            holds nothing else of the data.

        Raises
        ------
        TypeError, ValueError
            As for the distribution; or `query` depends on random variables or is not finite; or a setting,
            which is published, is computed from arrays; or there is a ledger, and the guarantee is not known.
        BudgetExceededError
            The release does not fit into what is left of the ledger's budget. Nothing is debited.

        Warns
        -----
        UserWarning
            The guarantee is not known, because the sensitivity of the query is not.
        """
        return draw_release(cls, query, noise, Debit.of(cls.__name__, ledger, name))

    @classmethod
    def _check_release(cls, op: MechanismOp) -> None:
        """Refuse, before anything is paid, what cannot be released of confidential data."""

    @classmethod
    def _draw_release(
        cls, op: MechanismOp, query: TensorVariable, params: list[np.ndarray]
    ) -> tuple[np.ndarray, list[np.ndarray], PrivacyGuarantee | None, dict[str, Any]]:
        """Draw a release of data; return it, its parameters and guarantee, and what else is published."""
        known = evaluate(query)
        value = draw_securely(lambda generator: op.secure_draw(generator, known, *params))
        return value, params, op.guarantee, {}

    @classmethod
    def _declaration(cls, op: MechanismOp, params: list[np.ndarray]) -> dict[str, Any]:
        """Return the keyword arguments that declare an operation again.

        They are the parameters after the query, by the names that the log density gives them, and those
        properties of the operation, such as its bounds, that ``dist`` has an argument for.
        """
        names = list(inspect.signature(cls.logp).parameters)[2:]  # type: ignore[attr-defined]
        levels = {name: as_declared(param) for name, param in zip(names, params, strict=True)}
        known_to_dist = inspect.signature(cls.dist).parameters
        props = {k: getattr(op, k) for k in op.__props__ if k in known_to_dist}  # type: ignore[attr-defined]
        if "neighbours" in known_to_dist and op.guarantee is not None:
            props["neighbours"] = (
                op.guarantee.neighbours if op.guarantee.neighbours != "replace-one" else None
            )
        return levels | {k: v for k, v in props.items() if v is not None}

    @classmethod
    def _release_shape(cls, query: TensorVariable, **settings: Any) -> tuple[int | None, ...]:
        """Return the static shape of a release of `query`, None where a length is not known.

        `settings` are the other keyword arguments of the declaration, not checked yet.
        """
        return query.type.shape

    @classmethod
    def _prepare(
        cls, query: Any, *, sensitivity: Any, bounds: Any, order: int, neighbours: str = "replace-one"
    ) -> PreparedQuery:
        """Check and clamp the query; find its sensitivity in the norm of that order (1 or 2)."""
        query = as_query(query)
        check_neighbours(neighbours, query, sensitivity if bounds is None else None)
        sensitivity = None if sensitivity is None else positive("sensitivity", sensitivity)
        if bounds is None:
            tell_of_low_sensitivity(query, sensitivity, order, neighbours)
            return PreparedQuery(query, sensitivity, None, None, neighbours=neighbours)
        clamped, width = clamp_query(query, ends := parse_bounds(bounds), neighbours)
        implied = float(np.linalg.norm(np.ravel(width), order))
        tell_of_choices(query, implied, order, neighbours)
        # a larger change that the user states need not be divided among entries as the bounds say
        split = np.asarray(width, dtype=float) if sensitivity is None else None
        sensitivity = checked_sensitivity(sensitivity, implied, f"the query by {implied:g} (L{order})")
        query = as_query(clamped)
        lengths = resizable_lengths(query)
        return PreparedQuery(query, sensitivity, split, hashable_bounds(*ends), lengths, neighbours)

    @classmethod
    def _release(
        cls,
        prepared: PreparedQuery,
        params: list[TensorVariable],
        guarantee: PrivacyGuarantee | None,
        /,
        *,
        op_class: type | None = None,
        props: Mapping[str, Any] = MappingProxyType({}),
        expected: tuple[int | None, ...] | None = None,
        records: Any = None,
        shape: Any = None,
        size: Any = None,
        rng: Any = None,
        return_next_rng: bool = False,
        promised: PrivacyGuarantee | None = None,
        granularity: Any = None,
        changes: Any = None,
        n_records: Any = None,
        **kwargs: Any,
    ) -> TensorVariable | tuple[TensorVariable, TensorVariable]:
        """Build the random variable.

        `promised` is the guarantee that a published release states; if it does not follow from the noise
        level, the guarantee that does takes its place. `op_class` is the operation where it is not that of
        the class, `props` its static settings, and `expected` the shape of the release where it is not that
        of the query. `granularity`, `changes` and `n_records` are what a published release states of its
        grid, of one person's changes and of its number of records; the density does not need the first two.
        """
        if "neighbours" in kwargs:
            raise TypeError(
                f"{cls.__name__} takes no neighbours=: its guarantee is for replace-one neighbours, among "
                "data with as many people. Sums and counts with Laplace or Gaussian noise, discrete or not, "
                "and dp.PerturbedHistogram can hide how many there are."
            )
        if kwargs:
            raise unexpected(cls, kwargs)
        check_number_of_records(n_records, prepared.query)
        expected = cls._release_shape(prepared.query) if expected is None else expected
        if shape is not None and size is not None:
            raise ValueError("Give shape or size, not both; a mechanism needs neither.")
        given = convert_shape(shape) if size is None else convert_size(size)
        if given is not None:
            # The noise has the query's own shape, whatever `shape` says: repeated draws of one query would
            # spend the budget several times.
            check_static_shape(
                "shape" if size is None else "size", tuple(length_of(n) for n in given), expected
            )
        if guarantee is not None:
            promised = replace(guarantee, neighbours=prepared.neighbours).settled(promised)
        op = (op_class or type(cls.rv_op))(
            guarantee=promised,
            bounds=prepared.bounds,
            records=names_of_records(records),
            **{"lengths": prepared.lengths, **props},
        )
        next_rng, rv = op(
            prepared.query,
            *params,
            rng=pt.random.shared_rng(seed=None) if rng is None else rng,
            return_next_rng=True,
        )
        return (next_rng, rv) if return_next_rng else rv
