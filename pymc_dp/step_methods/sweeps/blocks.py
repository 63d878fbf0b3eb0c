"""Source of a fused sweep: blocks of records, of which each is drawn, then summarised, then decided.

Only decisions depend on those before them. Draws wait for the generator, statistics do not, and what one loop
does with the records of a block the processor does with several of them at once. A block stays in the fastest
cache.
"""

from dataclasses import dataclass

from pymc_dp.step_methods.block.central import CentralReleases
from pymc_dp.step_methods.sweeps.source import COUNTS, DECISION, HEADER, indented

# Records of a block.
_BLOCK = 64
# Statistics up to which each has a variable of its own in the generated source: faster, longer to compile.
_IN_REGISTERS = 16


@dataclass
class Blocks:
    """What the source of a sweep is written from.

    Attributes
    ----------
    central : CentralReleases
    d : int
        Statistics of a record.
    temper_at : int
        Where the power of the releases' density stands in the data.
    n_constants, n_columns : int
        Numbers and covariates from outside of the records.
    width : int
        Entries of a record.
    value_of : dict of int to int
        Entries whose value space is not that of the draws, and the result of ``draw`` that is their value.
    weighted : bool
        Whether ``current`` and ``candidate`` give a log weight after the statistics.
    tries : int
        How often a candidate without a law is drawn again where no release decides; 0 if all have one. The
        last result of ``draw`` tells then whether a candidate has.
    """

    central: CentralReleases
    d: int
    temper_at: int
    n_constants: int
    n_columns: int
    width: int
    value_of: dict[int, int]
    weighted: bool
    tries: int

    def source(self) -> str:
        """Source of the signature :data:`~pymc_dp.lowering.native.ROWS`.

        It calls ``draw(rng, ...)`` for the entries of a candidate, ``candidate(...)`` and ``current(...)``
        for statistics and log weight of a candidate and of a record.
        """
        p, d = self.width, self.d
        lines = [
            *HEADER,
            # numbers in registers, which stores to the arrays cannot touch
            *(f"    c{k} = c[{k}]" for k in range(self.n_constants)),
            f"    power = data[{self.temper_at}]",
            *self._releases(),
            f"    work = np.empty({self._rows * _BLOCK})",
        ]
        if self.tries:
            lines += [f"    tries = 1 if prior_only == 0 else {self.tries}"]
        if d:
            lines += [*self._each_block(4), *self._load(8), "        for k in range(m):"]
            lines += [f"            s = {self._state}"]
            lines += [f"            {self._old[j]} += s[{j}]" for j in range(d)]
        lines += ["    for _ in range(n_sweeps):", *self._each_block(8)]
        lines += [*self._draw(12), *self._load(12), *self._summarise(12)]
        lines += ["            for k in range(m):", "                total = 0.0"]
        if self._few:
            lines += [
                f"                new{j} = old{j} + work[{self._at(self._moves + j)}]" for j in range(d)
            ]
        else:
            lines += [
                f"                for j in range({d}):",
                f"                    new[j] = old[j] + work[{self._moves * _BLOCK} + j * {_BLOCK} + k]",
            ]
        lines += [
            "                if prior_only == 0:",
            *indented(self.central.line_by_line() if self._few else self.central.loops(), 20),
            "                    total *= power",
        ]
        if self.weighted:
            lines += [f"                    total += work[{self._at(self._weights)}]"]
        if self.tries:  # whether the candidate has a law, as a log density
            lines += [f"                    total += work[{self._at(self._drawn - 1)}]"]
        lines += [
            f"                wait = work[{self._at(self._waits)}]",
            *indented(DECISION, 16),
            *(f"                    x[start + k, {j}] = work[{self._value(j)}]" for j in range(p)),
        ]
        if self._few:
            lines += [f"                    old{j} = new{j}" for j in range(d)]
        else:
            lines += [f"                    for j in range({d}):", "                        old[j] = new[j]"]
        lines += [*COUNTS, *(f"    totals[{j}] = {self._old[j]} - offset[{j}]" for j in range(d))]
        return "\n".join(lines) + "\n"

    # -- rows of the work array: entries and values of candidates, entries of records, and so on ----------

    @property
    def _drawn(self) -> int:
        return self.width + len(self.value_of) + (self.tries > 0)

    @property
    def _moves(self) -> int:
        return self._drawn + self.width

    @property
    def _weights(self) -> int:
        return self._moves + self.d

    @property
    def _waits(self) -> int:
        return self._weights + self.weighted

    @property
    def _rows(self) -> int:
        return self._waits + 1

    @staticmethod
    def _at(row: int) -> str:
        return f"{row * _BLOCK} + k"

    def _value(self, j: int) -> str:
        return self._at(self.value_of.get(j, j))

    # -- parts of the source ------------------------------------------------------------------------------

    @property
    def _few(self) -> bool:
        return self.d <= _IN_REGISTERS and all(term.n_params is not None for term in self.central.terms)

    @property
    def _old(self) -> list[str]:
        return [f"old{j}" if self._few else f"old[{j}]" for j in range(self.d)]

    def _hoisted(self) -> list[str]:
        columns = [f"cov[{k}, start + k]" for k in range(self.n_columns)]
        return [*(f"c{k}" for k in range(self.n_constants)), *columns]

    @property
    def _state(self) -> str:
        entries = [f"work[{self._at(self._drawn + j)}]" for j in range(self.width)]
        return f"current({', '.join([*self._hoisted(), *entries])})"

    def _releases(self) -> list[str]:
        lines = []
        if self._few:
            for term in self.central.terms:
                lines += [
                    f"    value{j}{''.join(f', param{j}_{i}' for i in range(term.n_params or 0))} = "
                    f"value[{j}]{''.join(f', params[{j}, {i}]' for i in range(term.n_params or 0))}"
                    for j in range(term.start, term.stop)
                ]
        else:
            lines += [f"    old, new = np.zeros({self.d}), np.zeros({self.d})"]
        return lines + [f"    {self._old[j]} = offset[{j}]" for j in range(self.d)]

    @staticmethod
    def _each_block(by: int) -> list[str]:
        return indented(
            [f"for start in range(0, n, {_BLOCK}):", f"    m = min({_BLOCK}, n - start)"],
            by,
        )

    def _load(self, by: int) -> list[str]:
        lines = ["for k in range(m):"]
        lines += [f"    work[{self._at(self._drawn + j)}] = x[start + k, {j}]" for j in range(self.width)]
        return indented(lines, by)

    def _draw(self, by: int) -> list[str]:
        candidate = f"draw({', '.join(['rng', *self._hoisted()])})"
        lines = ["for k in range(m):", f"    y = {candidate}"]
        if self.tries:
            lines = [
                "for k in range(m):",
                "    for _ in range(tries):",
                f"        y = {candidate}",
                f"        if y[{self._drawn - 1}] != 0.0:",
                "            break",
            ]
        lines += [f"    work[{self._at(j)}] = y[{j}]" for j in range(self._drawn - (self.tries > 0))]
        if self.tries:
            at = self._drawn - 1
            lines += [f"    work[{self._at(at)}] = 0.0 if y[{at}] != 0.0 else -np.inf"]
        lines += [f"    work[{self._at(self._waits)}] = standard_exponential(rng)"]
        return indented(lines, by)

    def _summarise(self, by: int) -> list[str]:
        if not self.d and not self.weighted:
            return []
        entries = [f"work[{self._at(j)}]" for j in range(self.width)]
        lines = [
            "for k in range(m):",
            f"    s = {self._state}",
            f"    r = candidate({', '.join([*self._hoisted(), *entries])})",
            *(f"    work[{self._at(self._moves + j)}] = r[{j}] - s[{j}]" for j in range(self.d)),
        ]
        if self.weighted:
            to = f"work[{self._at(self._weights)}]"
            # a record that is impossible where the chain begins moves to anything
            lines += [f"    {to} = r[{self.d}] - s[{self.d}] if s[{self.d}] != -np.inf else 0.0"]
        return indented(lines, by)
