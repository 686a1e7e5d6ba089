"""Another AUTH_USER_MODEL, which takes a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_site_with_a_user_model_of_its_own(tmp_path):
    settings = {"DJANGO_SETTINGS_MODULE": "tests.custom_user.settings", "DATABASE_URL": f"sqlite:///{tmp_path}/db"}
    command = [sys.executable, "-m", "tests.custom_user.story"]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | settings, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.stdout == "done\n", done.stderr
