"""Models that were built for data: what they take as data becomes confidential again."""

from collections.abc import Iterable, Sequence

from pymc.distributions.transforms import Transform
from pymc.model.core import Model
from pymc.model.fgraph import fgraph_from_model, model_free_rv, model_from_fgraph
from pymc.pytensorf import toposort_replace
from pymc.util import get_transformed_name
from pymc.variational.minibatch_rv import MinibatchRandomVariable
from pytensor.graph.basic import Variable

from pymc_dp.query.records import is_release
from pymc_dp.upstream.pymc_private import _default_transform


def unobserve(model: Model, names: str | Variable | Sequence[str | Variable]) -> Model:
    """Return a copy of a model in which some observed variables are unknown.

    The inverse of ``pymc.observe``. A model that another package built for data, such as Bambi from a
    formula, becomes one of confidential records: a mechanism on them, declared in the copy, says what was
    released. The values that the model was built with are left out, except where its priors were made from
    them, and where they are a ``pm.Data``, which stays because it says how many there are.

    Parameters
    ----------
    model : pymc.Model
        It is not changed.
    names : str, variable, or sequence of them
        The observed variables that are confidential.

    Returns
    -------
    pymc.Model
        An ordinary model, which can be printed, changed and sampled.

    Raises
    ------
    TypeError
        `model` is no ``pymc.Model``, or `names` are no names.
    ValueError
        A variable is not in the model, is not observed, was observed in part, is itself a release, or its
        log density is scaled (`total_size`); or the model has starting values.

    See Also
    --------
    pymc.observe : The other way round.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dp as dp
    >>> with pm.Model() as built:
    ...     mu = pm.Normal("mu", 0, 10)
    ...     y = pm.Normal("y", mu, 1, observed=[0.0, 0.0, 0.0])
    >>> with dp.unobserve(built, "y") as model:
    ...     z = dp.LaplaceMechanism("z", model["y"], epsilon=2, bounds=(-5, 5), observed=[1.2, -0.3, 4.0])
    >>> [v.name for v in model.free_RVs], [v.name for v in model.observed_RVs]
    (['mu', 'y'], ['z'])
    """
    if not isinstance(model, Model):
        raise TypeError(
            f"`model` must be a pymc.Model, got {type(model).__name__}. The model behind a Bambi model is "
            "its `backend.model`, once it was built with `build()`."
        )
    asked = [names] if isinstance(names, str | Variable) or not isinstance(names, Iterable) else list(names)
    if not asked:
        raise ValueError("`names` names no variable: give the name of an observed one.")
    variables = dict.fromkeys(_observed(model, name) for name in asked)
    if any(v is not None for v in model.rvs_to_initial_values.values()):
        raise ValueError(
            "`model` has starting values (`initval=`), which PyMC does not copy: build it without them, and "
            "give them to pm.sample (`initvals=`)."
        )
    graph, copies = fgraph_from_model(model)
    replaced = []
    for variable in variables:
        rv, _ = copies[variable].owner.inputs
        op = copies[variable].owner.op
        transform: Transform | None = _default_transform(rv.owner.op, rv)
        value = rv.type() if transform is None else transform.forward(rv, *rv.owner.inputs).type()
        value.name = op.name if transform is None else get_transformed_name(op.name, transform)
        replaced.append((copies[variable], model_free_rv(rv, value, transform, op.name, *op.dims)))
    toposort_replace(graph, tuple(replaced))
    return model_from_fgraph(graph, mutate_fgraph=True)


def _observed(model: Model, named: str | Variable) -> Variable:
    """Return an observed variable by its name, or say why it cannot be made confidential."""
    if not isinstance(named, str | Variable):
        raise TypeError(f"`names` must be names of variables, or variables, got {type(named).__name__}.")
    name = str(named if isinstance(named, str) else named.name)
    found = model.named_vars.get(name)
    candidates = [str(rv.name) for rv in model.observed_RVs if not is_release(rv)]
    if found not in model.observed_RVs or name not in candidates:
        fault = (
            "is not in the model" if found is None
            else "is a release, which is what was published" if found in model.observed_RVs
            else "is not observed"
        )  # fmt: skip
        remedy = f"Name one of {', '.join(candidates)}" if candidates else "There is none that could be"
        raise ValueError(f"`names`: {name!r} {fault}. {remedy}.")
    if name.endswith("_observed") and f"{name.removesuffix('_observed')}_unobserved" in model.named_vars:
        raise ValueError(
            f"`names`: {name!r} was observed in part (values were missing), and its other part is a variable "
            "already. Build the model with a value for every entry: what they are does not matter here."
        )
    if isinstance(found.owner.op, MinibatchRandomVariable):
        raise ValueError(
            f"`names`: the log density of {name!r} is scaled (`total_size`), and is that of no records. "
            "Build the model without it."
        )
    return found
