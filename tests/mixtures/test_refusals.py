"""Mixtures that the samplers would get wrong are refused before sampling, each for its own reason."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_dp as dp

N, H = 4, 6


def labels(name="labels", **kwargs):
    return dp.ChineseRestaurantProcess(
        name, **{"concentration": 1, "shape": N, "max_components": H, **kwargs}
    )


def means(name="mu", shape=H):
    return pm.Normal(name, 0, 2, shape=shape)


def normal(mu, name="y"):
    return pm.Normal(name, mu, 1)


def released(y, name="z", scale=1.0):
    dp.LaplaceMechanism(name, y, scale=scale, observed=np.zeros(y.type.shape))


def two_kernels():
    c, mu = labels(), means()
    released(normal(mu[c], "x") + normal(mu[c]))


def public_kernel():
    c, mu = labels(), means()
    released(normal(mu[c]))
    pm.Normal("w", mu[c], 1, observed=np.zeros(N))


def used_by(mu_of):
    """A law of the records with something wrong in its mean."""

    def declare():
        c = labels()
        released(normal(mu_of(means(), c)))

    return declare


def outside(more):
    """A sound mixture and something more that depends on it."""

    def declare():
        c, mu = labels(), means()
        released(normal(mu[c]))
        more(mu, c)

    return declare


def row_per_record():
    c, mu = labels(max_components=N), means(shape=N)
    released(normal(mu[c] + mu))


def atoms_with(law):
    def declare():
        c = labels()
        released(normal(law()[c]))

    return declare


def concentration_of_atoms():
    mu = means()
    released(normal(mu[labels(concentration=pt.exp(mu[0]))]))


def noise_of_atoms():
    c, mu = labels(), means()
    released(normal(mu[c]), scale=pt.exp(mu[c]))


def query_of_labels():
    c, mu = labels(), means()
    released(normal(mu[c]) + c)


def atoms_shared_by_labels():
    mu = means()
    released(normal(mu[labels("c")] + mu[labels("d")]))


def kernel(law):
    def declare():
        c, mu = labels(), means()
        released(law(mu[c]))

    return declare


def kernel_of_two_numbers():
    """Known records, of which one is real and one is a count."""
    labels = dp.ChineseRestaurantProcess("labels", 1.0, shape=N, max_components=N)
    mu, rate = pm.Normal("mu", shape=N), pm.Gamma("rate", 1, 1, shape=N)

    def logp(record, mu, rate):
        return pm.logp(pm.Normal.dist(mu, 1), record[..., 0]) + pm.logp(pm.Poisson.dist(rate), record[..., 1])

    def random(mu, rate, rng=None, size=None):
        return np.concatenate([rng.normal(mu, 1), rng.poisson(rate)], axis=-1)

    pm.CustomDist(
        "y", mu[labels][:, None], rate[labels][:, None], logp=logp, random=random, observed=np.ones((N, 2))
    )


def unused_labels():
    labels()
    released(pm.Normal("y", pm.Normal("m"), 1, shape=N))


def auxiliaries_of_a_sum():
    c, mu = labels(), means()
    dp.LaplaceMechanism("z", dp.record_sum(normal(mu[c])), scale=1.0, observed=1.0)
    return dp.PrivateNeal5(n_auxiliary=2)


def all_auxiliaries(declare):
    """Infinitely many, of releases whose law is not known without the record."""

    def step():
        declare()
        return dp.PrivateNeal5(n_auxiliary=np.inf)

    return step


def sum_and_record():
    c, mu = labels(), means()
    y = normal(mu[c])
    released(y)
    dp.LaplaceMechanism("total", dp.record_sum(y), scale=1.0, observed=1.0)


def two_noises():
    c, mu = labels(), means()
    y = normal(mu[c])
    released(y)
    dp.GaussianMechanism("other", y, sigma=1.0, observed=np.zeros(N))


def clamped_counts():
    c, mu = labels(), means()
    y = pm.Poisson("y", pt.exp(mu[c]))
    dp.DiscreteLaplaceMechanism("z", y, epsilon=1.0, bounds=(0, 9), observed=np.zeros(N, int))


def pairs():
    c, mu = labels(), means()
    y = pm.Bernoulli("y", logit_p=mu[c][:, None], shape=(N, 2))
    dp.LaplaceMechanism("z", y, scale=1.0, observed=np.zeros((N, 2)))


def clamped_twice():
    c, mu = labels(), means()
    low = dp.clamp(normal(mu[c]), -2.0, 1.0)
    dp.LaplaceMechanism("z", low, epsilon=1, bounds=(1.5, 3.5), observed=np.zeros(N))


def squares():
    c, mu = labels(), means()
    released(normal(mu[c]) ** 2)


def step(make):
    """A sound mixture with a step that is not."""

    def declare():
        c, mu = labels(), means()
        released(normal(mu[c]))
        return make(c, mu)

    return declare


def matrix_per_slot():
    c = labels()
    w = pm.Wishart("w", 4, np.eye(2), shape=(H, 2, 2))
    released(pm.MvNormal("y", means(shape=(H, 2))[c], w[c]))


def two_columns_of_atoms():
    c = labels()
    released(normal(pm.Normal("mu", shape=(H, 2))[c], "y"))
    return dp.AtomUpdate(vars=[pm.Normal("other")])


ORDERED = pm.distributions.transforms.ordered

CASES = {
    "two kernels": (two_kernels, ValueError, "labels are used by x, y, and one kernel is supported"),
    "a public kernel": (public_kernel, ValueError, "labels are used by w, y"),
    "labels in arithmetic": (
        used_by(lambda mu, c: mu[c] + c),
        ValueError,
        "otherwise than as the first index",
    ),
    "labels shifted": (
        used_by(lambda mu, c: mu[(c + 1) % H]),
        ValueError,
        "otherwise than as the first index",
    ),
    "labels of others": (used_by(lambda mu, c: mu[c[::-1]]), ValueError, "otherwise than as the first index"),
    "labels compared": (
        used_by(lambda mu, c: mu[c] * pt.eq(c, 0)),
        ValueError,
        "otherwise than as the first",
    ),
    "atoms of others": (used_by(lambda mu, c: mu[c][::-1]), NotImplementedError, "slice of the record axis"),
    "atoms of all": (
        used_by(lambda mu, c: mu[c] - mu[c].mean()),
        NotImplementedError,
        "mu is not read row by",
    ),
    "atoms centred": (
        used_by(lambda mu, c: (mu - mu.mean())[c]),
        NotImplementedError,
        "mu is not read row by",
    ),
    "atoms added up": (used_by(lambda mu, c: pt.cumsum(mu)[c]), NotImplementedError, "no scalar form"),
    "a number per slot": (
        used_by(lambda mu, c: (mu + np.arange(H))[c]),
        NotImplementedError,
        "a row of its own for every slot",
    ),
    "a law per slot": (
        atoms_with(lambda: pm.Normal("mu", np.arange(H), 1, shape=H)),
        NotImplementedError,
        "a row of its own for every slot",
    ),
    "ordered atoms": (
        atoms_with(lambda: pm.Normal("mu", shape=H, transform=ORDERED, initval=np.arange(H))),
        NotImplementedError,
        "mu has a transform over several entries",
    ),
    "atoms of one vector": (
        atoms_with(lambda: pm.MvNormal("mu", np.zeros(H), np.eye(H))),
        ValueError,
        "pick no atoms",
    ),
    "atoms of one walk": (
        atoms_with(lambda: pm.GaussianRandomWalk("mu", init_dist=pm.Normal.dist(), steps=H - 1)),
        ValueError,
        "pick no atoms",
    ),
    "too many atoms": (
        atoms_with(lambda: means(shape=H + 1)),
        ValueError,
        r"mu has shape \(7,\)\. .*shape=\(6, ...\), or the labels with max_components=7",
    ),
    "no atoms": (atoms_with(lambda: pt.as_tensor(np.arange(float(H)))), ValueError, "pick no atoms"),
    "atoms of which one has too few": (
        atoms_with(lambda: means(shape=H + 1) + pm.Normal("nu", shape=3)[:1]),
        ValueError,
        r"mu has shape \(7,\); nu has shape \(3,\)\. .* declare them with shape=\(6, ...\)\.",
    ),
    "atoms elsewhere": (
        outside(lambda mu, c: pm.Normal("w", mu[0], 1, observed=0.0)),
        ValueError,
        "The law of w depends on the atoms mu otherwise than through the labels",
    ),
    "atoms by row": (row_per_record, ValueError, "The law of y depends on the atoms mu otherwise"),
    "potential on atoms": (
        outside(lambda mu, c: pm.Potential("p", -pt.sum(mu))),
        ValueError,
        "potential p depends on the atoms mu",
    ),
    "potential on labels": (
        outside(lambda mu, c: pm.Potential("p", -pt.sum(pt.eq(c, 0)))),
        ValueError,
        "potential p depends on the labels",
    ),
    "potential on a record's atoms": (
        outside(lambda mu, c: pm.Potential("p", -pt.sum(mu[c] ** 2))),
        ValueError,
        "potential p depends on the labels",
    ),
    "concentration of atoms": (
        concentration_of_atoms,
        ValueError,
        "The law of labels depends on the atoms mu",
    ),
    "noise of atoms": (noise_of_atoms, ValueError, "labels are used by y, z"),
    "query of labels": (query_of_labels, ValueError, "labels are used by y, z"),
    "atoms shared by labels": (atoms_shared_by_labels, ValueError, "depends on the atoms mu otherwise"),
    "kernel of a mixture": (
        kernel(lambda m: pm.NormalMixture("y", [0.5, 0.5], pt.stack([m, -m], axis=1), 1)),
        NotImplementedError,
        r"y has a law that is made from others \(.*Mixture\). Declare these as records",
    ),
    "censored kernel": (
        kernel(lambda m: pm.Censored("y", pm.Normal.dist(m, 1), lower=0, upper=None)),
        NotImplementedError,
        r"y has a law that is made from others \(.*\). Declare these as records",
    ),
    "kernel of many numbers": (
        kernel(lambda m: pm.MvNormal("y", m[:, None] * np.ones(11), np.eye(11))),
        NotImplementedError,
        "y is multivariate normal, of more than 10 numbers.*of up to 10 numbers",
    ),
    "another kernel of vectors": (
        kernel(lambda m: pm.MvStudentT("y", 4, mu=m[:, None] * np.ones(2), scale=np.eye(2))),
        NotImplementedError,
        "y has a law .* that is neither univariate nor multivariate normal",
    ),
    "an end of atoms": (
        kernel(lambda m: pm.Uniform("y", -1, pt.exp(m))),
        NotImplementedError,
        "y lies between ends that are atoms; give it default_transform=None",
    ),
    "no covariance": (
        kernel(lambda m: pm.MvNormal("y", m[:, None] * np.ones(2), np.array([[1.0, 2.0], [2.0, 1.0]]))),
        ValueError,
        "The covariance of y is not positive definite: give a symmetric matrix",
    ),
    "atoms that are weights": (
        atoms_with(lambda: pm.Dirichlet("mu", np.ones(2), shape=(H, 2))),
        NotImplementedError,
        "the probabilities mu move by their law given the records only, .*pm.Categorical",
    ),
    "a mean per slot": (
        atoms_with(lambda: pm.MvNormal("mu", np.zeros((H, 2)) + np.arange(H)[:, None], np.eye(2))),
        NotImplementedError,
        "a row of its own for every slot",
    ),
    "a matrix per slot": (
        matrix_per_slot,
        NotImplementedError,
        "w has a transform over several entries.*make a covariance of each slot from atoms such as standard",
    ),
    "kernel by its density": (
        kernel(lambda m: pm.CustomDist("y", m, logp=lambda value, m: -abs(value - m))),
        ValueError,
        "y was built from a log density alone.*give its CustomDist random=",
    ),
    "a kernel of several numbers without its signature": (
        kernel_of_two_numbers,
        NotImplementedError,
        r"A pm.CustomDist of several numbers for each record needs signature=, such as '\(k\),\(\)->\(k\)'",
    ),
    "unused labels": (unused_labels, ValueError, "Nothing depends on the labels"),
    "auxiliary records of a sum": (auxiliaries_of_a_sum, ValueError, "`n_auxiliary` must be 1, got 2"),
    "no auxiliary record": (
        step(lambda c, mu: dp.PrivateNeal5(n_auxiliary=0)),
        ValueError,
        "`n_auxiliary` must be a positive integer, got 0",
    ),
    "all auxiliaries of a Laplace kernel": (
        all_auxiliaries(kernel(lambda m: pm.Laplace("y", m, 1))),
        ValueError,
        "`n_auxiliary` must be finite here.*z is no release of normal records with Laplace or Gaussian noise",
    ),
    "all auxiliaries of squares": (all_auxiliaries(squares), ValueError, "z is no release of the record"),
    "all auxiliaries of clamps apart": (
        all_auxiliaries(clamped_twice),
        ValueError,
        "the clamps of z leave a single value",
    ),
    "all auxiliaries of two releases": (
        all_auxiliaries(sum_and_record),
        ValueError,
        "it takes releases of each record by itself",
    ),
    "all auxiliaries of two noises": (
        all_auxiliaries(two_noises),
        ValueError,
        "one release of normal records",
    ),
    "all auxiliaries of clamped counts": (
        all_auxiliaries(clamped_counts),
        ValueError,
        "y has no known largest value, so that its release has to be the record itself, unclamped",
    ),
    "all auxiliaries of pairs": (all_auxiliaries(pairs), ValueError, "y has several numbers per record"),
    "unknown moves": (
        step(lambda c, mu: dp.PrivateNeal5(moves="neal8")),
        ValueError,
        "`moves` must be 'auto', 'joint' or 'conditional', got 'neal8'",
    ),
    "no cycles": (
        step(lambda c, mu: dp.PrivateNeal5(n_cycles=0)),
        ValueError,
        "`n_cycles` must be a positive",
    ),
    "slices, no cycles": (
        step(lambda c, mu: dp.PrivateSlice(n_cycles=0.5)),
        ValueError,
        "`n_cycles` must be",
    ),
    "labels alone": (
        step(lambda c, mu: dp.PrivateNeal5(vars=[c])),
        ValueError,
        "have to move together; `vars` leaves out y",
    ),
    "no updates": (
        step(lambda c, mu: dp.AtomUpdate(n_updates=0)),
        ValueError,
        "`n_updates` must be a positive",
    ),
}


def nothing_is_drawn(*args, **kwargs):
    raise AssertionError("sampling started")


# refused when the vectorised moves of their records are compiled already, which takes most of a minute
COSTLY = (
    "kernel of a mixture",
    "censored kernel",
    "kernel of many numbers",
    "another kernel of vectors",
    "a matrix per slot",
)


@pytest.mark.parametrize(
    ("declare", "error", "message"),
    [
        pytest.param(*case, id=name, marks=pytest.mark.statistical if name in COSTLY else ())
        for name, case in CASES.items()
    ],
)
@pytest.mark.filterwarnings("ignore:Numba will use object mode")
def test_refused_before_sampling(declare, error, message, monkeypatch):
    for kind in (dp.PrivateNeal5, dp.PrivateSlice, dp.AtomUpdate, dp.RecordImputation):
        monkeypatch.setattr(kind, "step", nothing_is_drawn)
    with pm.Model(), pytest.raises(error, match=f"(?s){message}") as caught:
        declare()
        pm.sample(draws=1, tune=0, chains=1, cores=1, progressbar=False)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("make", [dp.PrivateNeal5, dp.PrivateSlice, dp.AtomUpdate])
def test_steps_without_a_mixture(make):
    """Labels of public records, whose atoms AtomUpdate takes, or none."""
    with pm.Model():
        released(pm.Normal("y", pm.Normal("m"), 1, shape=N))
        with pytest.raises(ValueError, match="found no mixture"):
            make()
    if make is dp.AtomUpdate:
        return
    with pm.Model():
        c, mu = labels(), means()
        pm.Normal("y", mu[c], 1, observed=np.zeros(N))
        with pytest.raises(ValueError, match="found no mixture of confidential records"):
            make()


def released_with_noise(y, b):
    dp.LaplaceMechanism("z", y, scale=1.0, observed=np.arange(6.0))
    dp.RandomizedResponse("r", b, epsilon=1, observed=[0, 1, 0, 1, 0, 1])


def columns_of_one_law():
    labels = dp.ChineseRestaurantProcess("labels", concentration=1, shape=6, max_components=6)
    mu = pm.Normal("mu", 0, 2, shape=(6, 2))
    dp.LaplaceMechanism("z", pm.Normal("y", mu[labels], 1), scale=1.0, observed=np.ones((6, 2)))


def a_given_number_of_components():
    labels = pm.Categorical("labels", pm.Dirichlet("w", np.ones(3)), shape=6)
    mu, p = pm.Normal("mu", 0, 2, shape=3), pm.Beta("p", 1, 1, shape=3)
    released_with_noise(pm.Normal("y", mu[labels], 1), pm.Bernoulli("b", p[labels]))


def labels_of_their_own():
    one, two = (
        dp.ChineseRestaurantProcess(name, concentration=1, shape=6, max_components=6)
        for name in ("one", "two")
    )
    mu, p = pm.Normal("mu", 0, 2, shape=6), pm.Beta("p", 1, 1, shape=6)
    released_with_noise(pm.Normal("y", mu[one], 1), pm.Bernoulli("b", p[two]))


@pytest.mark.compiles(1)
@pytest.mark.parametrize("declare", [columns_of_one_law, a_given_number_of_components, labels_of_their_own])
def test_what_is_offered_for_two_kernels(declare):
    with pm.Model():
        declare()
        idata = pm.sample(
            10, tune=10, chains=1, random_seed=1, progressbar=False, quiet=True,
            compute_convergence_checks=False,
        )  # fmt: skip
    assert all(len(np.unique(draws)) > 1 for draws in idata.posterior["mu"].values.reshape((10, -1)).T)
