"""Privacy guarantees, their composition, and the noise that a guarantee needs."""

from pymc_dp.privacy.accountant import ComposedGuarantee, compose, compose_disjoint
from pymc_dp.privacy.guarantee import PrivacyGuarantee
from pymc_dp.privacy.renyi_guarantee import RenyiGuarantee

__all__ = ["ComposedGuarantee", "PrivacyGuarantee", "RenyiGuarantee", "compose", "compose_disjoint"]
