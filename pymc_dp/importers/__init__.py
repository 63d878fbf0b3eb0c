"""What other tools published, as releases; what does not state its noise is refused.

Each function reads one public format, from files, frames or arrays, and needs none of the tools. All of them
name what is missing, and state a guarantee only where a sensitivity or a budget is stated.

Examples
--------
Two noisy counts in a table of Tumult Analytics:

>>> import pymc as pm
>>> import pymc_dp as dp
>>> table = {"county": ["A", "B"], "count": [31, 4]}
>>> noise = {"noise_mechanism": "GEOMETRIC", "noise_parameter": 2.0}
>>> counts = dp.importers.tumult(table, "count", noise=noise, axes="county")
>>> with pm.Model(coords=counts.labels) as model:
...     people = pm.Poisson("people", pm.Gamma("rate", 1, 0.1), dims="county")
...     z = dp.DiscreteLaplaceMechanism("z", people, observed=counts.release)
"""

from pymc_dp.importers._census import NoisyMeasurements, census
from pymc_dp.importers._opendp import opendp
from pymc_dp.importers._pipelinedp import pipelinedp
from pymc_dp.importers._tables import ImportedTable
from pymc_dp.importers._tumult import tumult
from pymc_dp.importers._wikimedia import wikimedia

__all__ = ["ImportedTable", "NoisyMeasurements", "census", "opendp", "pipelinedp", "tumult", "wikimedia"]
