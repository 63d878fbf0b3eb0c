"""Types that a user's checker reads: the package says that it has them, and they tell right from wrong."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = """
import pymc_dp as dp

ledger = dp.PrivacyLedger(epsilon=1.0, delta=0.0)
reveal_type(ledger)
reveal_type(dp.guarantee)
dp.PrivacyLedger(epsilon="one", delta=0.0)  # wrong type
dp.PrivacyLedger(epsilom=1.0, delta=0.0)  # wrong name
dp.sample_in_block()  # no such function
"""


def test_a_users_checker_sees_the_types(tmp_path):
    assert (ROOT / "pymc_dp/py.typed").is_file()
    # A copy of the package is found beside the program, not in a search path of the project's settings.
    (tmp_path / "pymc_dp").symlink_to(ROOT / "pymc_dp")
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--ignore-missing-imports", "--follow-imports=silent"]
    command += ["--config-file=", "--cache-dir", str(tmp_path / "cache"), "program.py"]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True).stdout
    lines = {int(number): text for number, text in re.findall(r"^program.py:(\d+): (.*)$", said, re.M)}
    assert "pymc_dp.privacy.ledger.PrivacyLedger" in lines[5], said
    assert "-> pymc_dp.privacy.guarantee.PrivacyGuarantee" in lines[6], said
    wrong = {int(number) for number in re.findall(r"^program.py:(\d+): error:", said, re.M)}
    assert wrong == {7, 8, 9}, said
