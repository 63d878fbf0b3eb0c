"""Privacy guarantees, their composition, and the noise that a guarantee needs."""

from pymc_dp.privacy.accountant import ComposedGuarantee, compose, compose_disjoint
from pymc_dp.privacy.guarantee import PrivacyGuarantee

__all__ = ["ComposedGuarantee", "PrivacyGuarantee", "compose", "compose_disjoint"]
