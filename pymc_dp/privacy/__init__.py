"""What a release costs: guarantees, and the noise that a guarantee needs."""

from pymc_dp.privacy.guarantee import PrivacyGuarantee

__all__ = ["PrivacyGuarantee"]
