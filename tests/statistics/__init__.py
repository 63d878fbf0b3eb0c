"""Statistical tests: exact answers, simulation-based calibration, joint distribution tests."""
