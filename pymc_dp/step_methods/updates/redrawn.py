"""Log densities for parameters that are proposed with all records, which are drawn anew from their law."""

import numpy as np
import pytensor.tensor as pt

from pymc_dp.lowering.addresses.native import CONDITIONAL, NativeFunction
from pymc_dp.step_methods.updates.conditionals import Conditionals


class RedrawnConditionals(Conditionals):
    """Conditionals of parameters whose records are no function of noise, and of both together."""

    def with_records(self) -> tuple[NativeFunction, NativeFunction]:
        """Log density of parameters and records without the law of the latter; and that of parameters alone.

        The second is minus infinity where the records have no law. Both take the records and their sums.
        """
        records, state = set(self.program.block.records), self.program.state
        conditions = [
            c
            for rv in self.program.block.records
            for c in self._conditions(rv, self.moving | records)
            if not self._depends([c], records)
        ]
        prior = self._sum([rv for rv in self._factors(self.moving | self.tied) if rv in self.moving], state)
        possible = self._where(conditions, prior, state)
        central = [r.rv for r in self._separable()]
        factors = [
            f for f in self._factors(self.moving | records | self.tied) if f not in {*records, *central}
        ]
        graph = self._sum(factors, state) + self.program.temper * self._central_logp(state)
        # a record that floating point rounds to an end of its support has no density there
        graph = pt.switch(pt.all(pt.isfinite(self.program.x)), graph, -np.inf)
        given = [self.program.x, self.totals]
        return (
            self.program.native("with records", given, [graph], CONDITIONAL),
            self.program.native("of parameters", given, [possible], CONDITIONAL),
        )

    def may_lack_a_law(self) -> list[str]:
        """Names of the records that may have no law given other records."""
        records = set(self.program.block.records)
        return [str(rv.name) for rv in self.program.block.records if self._conditions(rv, records)]
