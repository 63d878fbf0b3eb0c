"""Properties of whatever hypothesis thinks of: the same examples in each run, however long one takes."""

from hypothesis import HealthCheck, Phase, settings

settings.register_profile(
    "pymc_dp", derandomize=True, deadline=None, database=None, max_examples=60, print_blob=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)  # fmt: skip
settings.load_profile("pymc_dp")

# For planted faults: one example that fails will do, and is not made smaller, which takes minutes.
UNTIL_ONE_FAILS = {"phases": [Phase.explicit, Phase.generate], "report_multiple_bugs": False}
