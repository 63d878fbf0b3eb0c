"""Every Python block of the README and of the documentation runs.

The blocks of one page run in order and share their names. A block under the comment
``<!-- not run: reason -->`` is skipped. What a page says of the steps that `pm.sample` chooses is compared
with those that it chose for the models of the page.
"""

import math
import re
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
import pytest
from pymc.sampling import mcmc

import pymc_dp as dp
from pymc_dp.hooks import swept_with_parameters
from pymc_dp.mechanisms.wavelet import butucea_sensitivity, haar_sensitivity
from tests.steps import assigned, by_variable

pytestmark = pytest.mark.compiles(1)

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>[\w{}-]*)[^\n]*\n(?P<code>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
SKIPPED = re.compile(r"<!-- not run: .+ -->\s*\Z")
LANGUAGES = {"", "python", "bash", "sh", "text", "json", "{toctree}"}


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, its text, and the line of the page it starts at."""

    language: str
    code: str
    line: int


def blocks_of(page):
    text = page.read_text(encoding="utf-8")
    blocks = []
    for match in FENCE.finditer(text):
        if SKIPPED.search(text[: match.start()]):
            continue
        line = text.count("\n", 0, match.start("code"))
        blocks.append(Block(match["language"], match["code"], line))
    return blocks


def python_blocks(page):
    return [block for block in blocks_of(page) if block.language == "python"]


def run(block, page, names):
    """Run one block; line numbers in a traceback are those of the page."""
    exec(compile("\n" * block.line + block.code, str(page), "exec"), names)


def readme(names):
    assert names["release"].parameters["scale"] == pytest.approx(10)  # "here of scale 10"
    (bound,) = dp.acceptance_report(names["idata"], names["model"]).bounds
    assert bound.bound == pytest.approx(math.exp(-1))  # "the lower bound exp(-epsilon)"


def count_the_cost(names):
    alone = [1, 1, 0.1]
    total = dp.guarantee(names["model"])
    assert total.delta == pytest.approx(2e-6) and total.epsilon < 0.9 * sum(alone)  # "and mostly less"
    assert 0 <= names["study"].epsilon_left < 1e-6 and len(names["study"].entries()) == 2
    total_of_rho(names["survey"])


def total_of_rho(survey):
    """Check the converted total by Canonne, Kamath and Steinke's bounds of many orders; what else fits."""
    excess = np.exp(np.linspace(-4, 6, 100_001))
    order = 1 + excess
    bounds = 0.4 * order + np.log(excess / order) - (np.log(1e-6) + np.log(order)) / excess
    assert survey.epsilon == pytest.approx(bounds.min(), rel=1e-6) and round(survey.epsilon, 3) == 4.604
    assert survey.epsilon_left == 0 and len(survey.entries()) == 2
    assert sum(cost.rho for cost in survey.spent) == pytest.approx(4 * 0.1)

    def fits(*guarantees):
        try:
            dp.PrivacyLedger(epsilon=survey.epsilon, delta=1e-6).reserve(guarantees, likelihood="x")
        except dp.BudgetExceededError:
            return False
        return True

    promise = {"neighbours": "add-remove"}
    gaussian = [dp.PrivacyGuarantee(np.inf, mu=np.sqrt(2 * rho), **promise) for rho in (0.1125, 0.1126)]
    pure = [dp.PrivacyGuarantee(epsilon, **promise) for epsilon in (2.3, 2.31)]
    discrete = [dp.PrivacyGuarantee(np.inf, rho=rho, **promise) for rho in (0.1, 0.1001)]
    for fitting, too_much in (gaussian, pure, discrete):
        assert fits(fitting) and not fits(too_much)
    assert round(pure[0].to_zcdp().rho, 3) == 2.645


def densities(names):
    ratios = [butucea_sensitivity(level) / haar_sensitivity(level) for level in (0, 2, 4, 6)]
    assert [float(f"{r:.2g}") for r in ratios] == [20, 9.3, 7.3, 6.6]


def import_releases(names):
    assert names["release"].guarantee == dp.PrivacyGuarantee(0.5, neighbours="add-remove")
    given = {"threshold": 90, "where": {"country_code": "FR"}, "rho": 0.015, "sensitivity": 10**0.5}
    views = dp.importers.wikimedia(names["table"], names["keys"], **given)
    assert views.release == names["views"].release and round(views.release.parameters["sigma"], 1) == 18.3
    with pytest.raises(ValueError, match="contradicts the noise"):  # "10 would be refused beside it"
        dp.importers.wikimedia(names["table"], names["keys"], sigma=10, **given)
    blocks = python_blocks(ROOT / "docs/how-to/import-releases.md")
    lengths = [sum(map(bool, block.code.splitlines())) for block in blocks]
    assert len(lengths) == 5 and max(lengths) <= 15


def queries(names):
    """How far one person changes sums by district: of incomes, and of these less 100."""
    ends = np.array([0.0, 200.0])
    for middle, l1, l2 in ((0, 400, 283), (100, 200, 200)):
        added = [(x - middle) * np.eye(4)[d] for x in ends for d in range(2)]
        changes = np.array([a - b for a in added for b in added])
        assert abs(changes).sum(axis=1).max() == l1
        assert np.sqrt((changes**2).sum(axis=1)).max() == pytest.approx(l2, abs=0.5)
        for order in (1, 2):  # a person who comes or goes
            assert np.linalg.norm(added, order, axis=1).max() == 200 - middle
    hidden, member = {"rho": 0.1, "neighbours": "add-remove"}, names["member"]
    amounts = dp.record_sum(names["from_middle"][:, None] * member)
    dp.GaussianMechanism.release(amounts, sensitivity=100, **hidden)
    dp.DiscreteGaussianMechanism.release(dp.record_sum(member), sensitivity=1, **hidden)
    true = names["member"].T @ names["income"] / names["member"].sum(0)
    means = names["means"]
    assert (abs(means.mean(("chain", "draw")) - true) < 4 * means.std(("chain", "draw"))).all()


def private_mcmc_budget(names):
    spent, half = names["dp"].accounting.epsilon(names["run"], 1e-6), 4 / 2
    assert spent < half  # "Twice the noise costs less than half of epsilon"
    ledger = names["ledger"]
    assert ledger.epsilon_left > ledger.epsilon - ledger.epsilon_spent  # "what is left is more than"
    assert [entry.claimed for entry in ledger.entries()] == [2] and "refusal" not in names
    assert names["rho"] == pytest.approx(0.0334, rel=0.01)  # fewer than 5 effective draws, so printed


def publish_and_analyse(names):
    sd = math.sqrt(2) * names["total"].parameters["scale"]
    assert round(sd, -1) == 340 and sd / 400 < 1  # "about 340 mmHg, which is less than 1 mmHg for the mean"


def private_draws(names):
    assert np.sqrt(1.5) < names["clip"]  # "with `clip` above that, no row is ever clipped"
    assert np.abs(names["x"]).max(axis=0).tolist() == [1, 0.5, 0.5]
    # the posterior has standard deviations of .02 and .04, and few effective draws
    assert np.abs(names["mean"].values - names["fit"].params).max() < 0.25
    assert names["ledger"].epsilon_left < 0.1


def randomized_response(names):
    shares, k, q, p = {3 / 4: 3, 5 / 6: 5}, 5, 0.4, 0.7  # the rows of the table
    for p_truth, odds in {**shares, p: p / (1 - p)}.items():
        release = dp.RandomizedResponse.dist(0, p_truth=p_truth, n_categories=2)
        assert dp.guarantee(release).epsilon == pytest.approx(math.log(odds))
    release = dp.RandomizedResponse.dist(0, p_truth=1 - q + q / k, n_categories=k)
    assert dp.guarantee(release).epsilon == pytest.approx(math.log(1 + k * (1 - q) / q))
    assert math.log(3) == pytest.approx(1.10, abs=0.005) and math.log(5) == pytest.approx(1.61, abs=0.005)
    share, p = names["share"], names["p"].mean(-1)
    assert abs(share.mean().item() - names["has"].mean()) < 4 * share.std().item()
    assert p.std() > share.std().item()  # "which is less certain"
    drawn, chance = names["records"]["truth"].mean(("chain", "draw")).values, names["chance"]
    errors = (drawn - chance) / np.sqrt(np.maximum(chance * (1 - chance), 1e-3) / 1000)
    assert abs(errors.mean()) < 0.5 and errors.std() < 1.3
    effect = names["fit"].posterior["effect"]  # of two truths on an outcome
    z = (effect.mean(("chain", "draw")) - [2.0, -1.0, 0.5]) / effect.std(("chain", "draw"))
    assert abs(z).max() < 4 and (effect.std(("chain", "draw")) < 0.4).all()
    assert dp.guarantee(names["together"]).epsilon == pytest.approx(1 + math.log(5))
    assert dp.guarantee(names["together"]["said first"]).epsilon == pytest.approx(math.log(5))
    device, y, f, q, r, t = names["device"], 0.2, 0.1, 0.3, 0.4, 0.6
    assert dp.guarantee(names["unequal"]).epsilon == pytest.approx(math.log(4))
    estimate = names["idata"].posterior["b"]
    assert (abs(estimate.mean(("chain", "draw")) - [-1.0, 0.6, 0.5]) < 4 * estimate.std()).all()
    # the rows of the second table: who is forced to say what, and who was asked what
    np.testing.assert_allclose(device(y, f), (1 - y - f) * np.eye(2) + [[f, y], [f, y]])
    for asked, other in ((t, device((1 - t) * r, (1 - t) * (1 - r))), (1 - q, device(q * r, q * (1 - r)))):
        np.testing.assert_allclose(other, asked * np.eye(2) + (1 - asked) * np.array([1 - r, r]))
    np.testing.assert_allclose(device((1 - t) / 2, (1 - t) / 2), t * np.eye(2) + (1 - t) / 2)
    assert device(1 - 0.75, 0) == [[0.75, 0.25], [0, 1]]
    of_each = (names["again"][name].values.reshape(-1, names["m"]) for name in ("said first", "income"))
    larger = [names["gap"](*pair) > names["seen"] for pair in zip(*of_each, strict=True)]
    assert 0.01 < np.mean(larger) < 0.99  # the model is right
    with pytest.raises(ValueError, match="answer 0 is never given where the truth is 1"):
        dp.guarantee(names["mangat"])


# Numbers that a page states in its text.
STATED = {
    "README.md": readme,
    "docs/how-to/count-the-cost.md": count_the_cost,
    "docs/how-to/densities.md": densities,
    "docs/how-to/import-releases.md": import_releases,
    "docs/how-to/private-mcmc-budget.md": private_mcmc_budget,
    "docs/how-to/queries.md": queries,
    "docs/how-to/randomized-response.md": randomized_response,
    "docs/tutorials/private-draws.md": private_draws,
    "docs/tutorials/publish-and-analyse.md": publish_and_analyse,
}


RECORDS_AND_PARAMETER = {"mu": "AncillaryUpdate", "y": "AncillaryUpdate"}
RECORDS_AND_NUTS = {"mu": "NUTS", "y": "RecordImputation"}
MIXTURE = {"labels": "PrivateNeal5", "y": "PrivateNeal5", "mu": "AtomUpdate", "sigma2": "AtomUpdate"}
SHARES_AND_COUNTS = {"p": "TableImputation", "c": "TableImputation"}
ANSWERS_AS_RECORDS = {"b": "AncillaryUpdate", "truth": "AncillaryUpdate"}
KNOWN = {"labels": "SplitMerge", "mu": "AtomUpdate", "sigma2": "AtomUpdate"}

# Of each page that says which steps run: the words, which call of pm.sample on the page they are about (or
# which model of the page, or one in its place), and what it gave to whom.
REGRESSION_AND_NUTS = {
    "intercept": "NUTS",
    "slope": "NUTS",
    "x": "RecordImputation",
    "y": "RecordImputation",
}
STEPS_STATED = {
    "README.md": [
        (
            "`AncillaryUpdate`, which sweeps over the records, and moves `mu` together",
            0,
            RECORDS_AND_PARAMETER,
        ),
        ("For NUTS on the parameters, give the records their step", 1, RECORDS_AND_NUTS),
    ],
    "docs/how-to/choose-steps.md": [
        ("# AncillaryUpdate, which moves mu and y together", 0, RECORDS_AND_PARAMETER),
        ("# RecordImputation for y, and PyMC's own choice for all parameters: NUTS", 1, RECORDS_AND_NUTS),
        (
            "NUTS can also be given some parameters, and `AncillaryUpdate` others",
            2,
            {**RECORDS_AND_PARAMETER, "sigma": "NUTS"},
        ),
        ("# NUTS moves p given the counts", 3, {"p": "NUTS", "c": "TableImputation"}),
        ("# the counts given p, then p given the counts", 4, SHARES_AND_COUNTS),
        ("Naming the variable is enough", 8, {"mu": "NUTS", "y": "NUTS"}),
    ],
    "docs/how-to/counts.md": [
        ("differentiable, so NUTS takes the probabilities", 0, {"p": "NUTS"}),
        ("a hierarchy or a regression behind them", 1, {"level": "NUTS", "region": "NUTS"}),
        (
            "`CollapsedUpdate` moves the probabilities with the categories integrated out",
            3,
            {"p": "CollapsedUpdate", "category": "RecordImputation"},
        ),
    ],
    "docs/how-to/tables.md": [
        (
            "{class}`~pymc_dp.TableImputation` moves the counts.",
            0,
            {"c": "TableImputation"},
        ),
        ("The line that `pm.sample` prints is `TableImputation: [p, c]`", 2, SHARES_AND_COUNTS),
        ("rates of `pm.Poisson` counts", "with_margin", {"rate": "TableImputation", "c": "TableImputation"}),
    ],
    "docs/how-to/unknown-number.md": [
        (
            "`AncillaryUpdate` takes `people` and `mean` above",
            0,
            {"people": "AncillaryUpdate", "mean": "AncillaryUpdate", "income": "AncillaryUpdate"},
        ),
    ],
    "docs/tutorials/nuts.md": [
        ("Name the step for the records, and PyMC gives the rest to its own", 0, REGRESSION_AND_NUTS),
        ("That is a compound of two steps", 1, REGRESSION_AND_NUTS),
        (
            "give `AncillaryUpdate` some parameters, and NUTS the others",
            2,
            {**REGRESSION_AND_NUTS, "slope": "AncillaryUpdate"},
        ),
    ],
    "docs/how-to/deconvolution.md": [
        (
            "integrates them out, and NUTS samples what is left",
            lambda: normal_values_integrated_out(),
            {"middle": "NUTS", "spread": "NUTS"},
        ),
    ],
    "docs/how-to/known-records.md": [
        ("{class}`~pymc_dp.SplitMerge` for the labels, {class}`~pymc_dp.AtomUpdate` for the atoms", 0, KNOWN),
        (
            "For the model with its records `pm.sample` chooses {class}`~pymc_dp.PrivateNeal5`",
            "noisy",
            MIXTURE,
        ),
        ("NUTS moves `alpha` given the labels", "random_concentration", {**KNOWN, "alpha": "NUTS"}),
    ],
    "docs/how-to/marginalize.md": [
        ("`pm.sample` then moves the parameters with NUTS alone", 0, {"mu": "NUTS", "sigma": "NUTS"}),
    ],
    "docs/how-to/randomized-response.md": [
        ("NUTS then moves the coefficients alone", 0, {"b": "NUTS"}),
        ("`pm.sample(model=model)` draws from the same posterior", lambda: answers(), ANSWERS_AS_RECORDS),
    ],
    "docs/how-to/read-acceptance.md": [
        (
            "{doc}`AncillaryUpdate <choose-steps>` on, which is the default where it applies",
            lambda: normal_records(),
            RECORDS_AND_PARAMETER,
        ),
    ],
    "docs/tutorials/first-posterior.md": [
        (
            "`AncillaryUpdate` imputes them, and moves `mu` together with them",
            0,
            RECORDS_AND_PARAMETER,
        ),
        ("NUTS for the parameter is to be had, too", 0, RECORDS_AND_PARAMETER),
    ],
    "docs/tutorials/mixtures.md": [
        (
            "{class}`~pymc_dp.PrivateNeal5` for labels and records and {class}`~pymc_dp.AtomUpdate` for the",
            0,
            MIXTURE,
        ),
        (
            "{class}`~pymc_dp.PrivateSlice` draws the weights",
            2,
            {**MIXTURE, "labels": "PrivateSlice", "y": "PrivateSlice"},
        ),
        (
            "the concentration is learnt along, and NUTS moves it given the labels",
            "random_concentration",
            {**MIXTURE, "alpha": "NUTS"},
        ),
    ],
}


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if python_blocks(page)],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_python_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names, calls, assign = {"__name__": "__main__"}, [], mcmc.assign_step_methods

    def recorded(model, step=None, methods=None):
        steps = assign(model, step, methods)
        calls.append(by_variable(model, steps[0], swept_with_parameters(model, steps[1])))
        return steps

    monkeypatch.setattr(mcmc, "assign_step_methods", recorded)
    try:
        for block in python_blocks(page):
            run(block, page, names)
        STATED.get(str(page.relative_to(ROOT)), lambda names: None)(names)
        for words, call, steps in STEPS_STATED.get(str(page.relative_to(ROOT)), ()):
            if not callable(call):
                found = calls[call] if isinstance(call, int) else assigned(names[call])
                assert found == steps, words
    finally:
        plt.close("all")


def test_figures_say_what_they_show():
    """The documentation runs these programs, and whoever does not see a figure is told what is on it."""
    draws = re.compile(r"\.plot_\w+\(|plt\.subplots\(")
    told = re.compile(r"<!-- (hidden )?figure: [^>]{40,} -->\s*\Z")
    found = 0
    for page in (ROOT / "docs").rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        for match in FENCE.finditer(text):
            if match["language"] == "python" and draws.search(match["code"]):
                found += 1
                assert told.search(text[: match.start()]), f"{page.name}: {match['code'][-60:]}"
    assert found >= 10


# pages that tell of figures, of attacks and of what is inside, not of what a reader's model gets
NOT_OF_A_MODEL = {
    f"docs/explanation/{name}.md"
    for name in (
        "architecture",
        "comparison",
        "convergence",
        "exactness",
        "performance",
        "releases",
        "reproduced",
        "trust",
    )
} | {
    "docs/how-to/many-fits.md",
    "docs/how-to/many-people.md",
}  # of NUTS, which moves every variable or does not


def test_what_is_said_of_steps_is_compared():
    """Every page that names a step is among those whose models are asked, with words that it holds."""
    steps = re.compile(
        r"NUTS|RecordImputation|TableImputation|PrivateNeal5|PrivateSlice|SplitMerge|\w+Update\b"
    )
    naming = {str(page.relative_to(ROOT)) for page in PAGES if steps.search(page.read_text(encoding="utf-8"))}
    assert naming - NOT_OF_A_MODEL == set(STEPS_STATED)
    for page, stated in STEPS_STATED.items():
        text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
        for words, call, found in stated:
            assert words in text, f"{page} does not say: {words}"
            assert not callable(call) or assigned(call()) == found, words


def normal_records():
    with pm.Model() as model:
        y = pm.Normal("y", pm.Normal("mu", 0, 2), 1, shape=6)
        dp.LaplaceMechanism("z", dp.record_sum(y), scale=2.0, observed=3.0)
    return model


def normal_values_integrated_out():
    with pm.Model() as model:
        distance = pm.Normal("distance", pm.Normal("middle", 3, 3), pm.HalfNormal("spread", 3), shape=6)
        dp.GaussianMechanism("measured", distance, sigma=0.5, observed=np.arange(6.0))
    return dp.marginalize(model, "distance")


def reports():
    with pm.Model() as model:
        c = pm.Bernoulli("c", pm.Beta("p", 1, 1), shape=6)
        dp.RandomizedResponse("z", c, epsilon=1, observed=[0, 1, 1, 0, 1, 1])
    return model


def answers():
    with pm.Model() as model:
        truth = pm.Bernoulli("truth", logit_p=np.linspace(-1, 1, 6) * pm.Normal("b"), shape=6)
        dp.RandomizedResponse("answer", truth, p_truth=5 / 6, observed=[0, 1, 1, 0, 1, 1])
    return model


def many_tables():
    with pm.Model() as model:
        c = pm.Categorical("c", pm.Dirichlet("p", np.ones((20, 3)))[np.arange(6)], shape=6)
        counts = dp.record_sum(pm.math.eq(c[:, None], np.arange(3)))
        dp.LaplaceMechanism("z", counts, scale=2.0, observed=np.full(3, 2.0))
    return model


def many_people():
    with pm.Model() as model:
        y = pm.Categorical("y", pm.Dirichlet("p", np.ones(3)), shape=5000)
        query = dp.record_sum(pm.math.eq(y[:, None], np.arange(3)))
        dp.LaplaceMechanism("z", query, scale=2.0, observed=np.full(3, 1667.0))
    return model


def mixture(known):
    with pm.Model() as model:
        labels = dp.ChineseRestaurantProcess("labels", concentration=1, shape=6, max_components=6)
        law = pm.Normal.dist(pm.Normal("mu", 0, 3, shape=6)[labels], pm.HalfNormal("sd"))
        z = np.linspace(-3, 3, 6)
        if known:
            model.register_rv(law, "y", observed=z)
        else:
            dp.LaplaceMechanism("z", model.register_rv(law, "y"), epsilon=20, bounds=(-10, 10), observed=z)
    return model


def counts_at_two_levels():
    with pm.Model() as model:
        c = pm.Multinomial("c", 20, pm.Dirichlet("p", np.ones(3)))
        dp.DiscreteGaussianMechanism("cells", c, sigma=2, observed=[7, 7, 6])
        dp.DiscreteGaussianMechanism("part", c[:2].sum(), sigma=1, observed=13)
    return model


# Who moves what in models of the table of step methods; "nothing" is a step that no model may get by itself.
CHOSEN_FOR = {
    "`RecordImputation`": (reports, {"c"}),
    "`AncillaryUpdate`": (normal_records, {"mu", "y"}),
    "`CollapsedUpdate`": (reports, {"p"}),
    "`ConjugateUpdate`": (many_tables, {"p", "c"}),
    "`PrivateNeal5`": (lambda: mixture(False), {"labels", "y"}),
    "`PrivateSlice`": None,
    "`SplitMerge`": (lambda: mixture(True), {"labels"}),
    "`TabulatedImputation`": (many_people, {"p", "y"}),
    "`TableImputation`": (counts_at_two_levels, {"p", "c"}),
    "`Neal2`, `Neal3`, `Neal8`": None,
    "`AtomUpdate`": (lambda: mixture(True), {"mu"}),
    "NUTS": (lambda: mixture(True), {"sd"}),
}


def test_table_of_step_methods():
    """Each step of the table in the how-to is chosen by itself where the table says so."""
    text = (ROOT / "docs/how-to/choose-steps.md").read_text(encoding="utf-8")
    rows = [
        [c.strip() for c in row.strip("|").split("|")] for row in text.splitlines() if row.startswith("| ")
    ]
    header, *rows = rows
    assert header == ["step", "moves", "chosen by itself for"]
    assert {step for step, *_ in rows} == set(CHOSEN_FOR)
    for step, _, chosen_for in rows:
        assert (CHOSEN_FOR[step] is None) == chosen_for.startswith("nothing;")
        if CHOSEN_FOR[step] is not None:
            build, variables = CHOSEN_FOR[step]
            found = assigned(build())
            assert {name for name, kind in found.items() if kind == step.strip("`")} == variables, step


def test_no_code_escapes():
    """All fences have a form that is found above, and Python in them is called so."""
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]:
        text = page.read_text(encoding="utf-8")
        # other forms: tildes, more than three backquotes, directives with colons, in quotations
        assert not re.search(r"^[ >]*(~~~|````|:::)|^ *>[ >]*```", text, re.MULTILINE), page
        fences = FENCE.findall(text)
        assert 2 * len(fences) == len(re.findall(r"^\s*```", text, re.MULTILINE)), page
        assert {language for _, language, _ in fences} <= LANGUAGES, page
        for _, language, code in fences:
            assert language == "python" or not re.search(r"^(>>>|import |from \w+ import)", code, re.M), page
            assert language != "python" or ">>>" not in code, (
                page
            )  # its output would be compared with nothing


def test_readme_opens_with_the_two_commands():
    shell = [block for block in blocks_of(ROOT / "README.md") if block.language in {"bash", "sh"}]
    commands = [line.partition("#")[0].strip() for line in shell[0].code.splitlines()]
    assert [command for command in commands if command] == ["make demo", "make test"]
