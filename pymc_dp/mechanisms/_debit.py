"""What pays for a release: a ledger, which is debited before any noise is drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pymc_dp.privacy._checks import as_name
from pymc_dp.privacy.guarantee import PrivacyGuarantee
from pymc_dp.privacy.ledger import PrivacyLedger


@dataclass
class Debit:
    """The entry of one release in a ledger; without a ledger nothing is paid."""

    mechanism: str
    ledger: PrivacyLedger | None
    name: str | None
    entry: int | None = None

    @classmethod
    def of(cls, mechanism: str, ledger: Any, name: Any) -> Debit:
        """Check the ledger and the name of a release."""
        if ledger is not None and not isinstance(ledger, PrivacyLedger):
            raise TypeError(f"ledger must be a dp.PrivacyLedger, got {type(ledger).__name__}.")
        return cls(mechanism, ledger, None if name is None else as_name("name", name))

    def pay(self, guarantee: PrivacyGuarantee | None) -> None:
        """Debit the release."""
        if self.ledger is None:
            return
        if guarantee is None:
            raise ValueError(
                "ledger cannot be debited, since the guarantee of this release is not known: give "
                "sensitivity= or bounds=. Nothing was debited."
            )
        reservation = self.ledger.reserve(guarantee, likelihood=self.name or "release", step=self.mechanism)
        self.entry = reservation.entry
        reservation.claim()

    def after_refusal(self) -> str:
        """Return what to add to the message where a release fails after it was paid for."""
        return "" if self.entry is None else f" Nothing was released; entry {self.entry} of the ledger stays."
