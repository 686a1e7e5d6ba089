"""The JavaScript SDK's client, run by Node.js; what npm installs is kept outside the checkout."""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).parent / "js"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "a2a-django"
NEEDED = 20  # Node.js' major version, by the SDK's package.json
PATIENCE = 60

SCENARIOS = re.findall(r'^scenario\("(.+?)"', (HERE / "scenarios.mjs").read_text(), re.MULTILINE)


def missing() -> str:
    """Why no scenario can be played on this machine; empty if it can."""
    node = shutil.which("node")
    if node is None or shutil.which("npm") is None:
        return f"Node.js {NEEDED} or newer and npm are not installed"
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    major = int(version.removeprefix("v").partition(".")[0])
    return "" if major >= NEEDED else f"Node.js is {version}, the JavaScript SDK needs {NEEDED} or newer"


def prepare(folder: Path) -> Path:
    """A copy of the scripts in `folder` that finds the pinned packages."""
    copy = shutil.copytree(HERE, folder / "js", ignore=shutil.ignore_patterns("node_modules"))
    (copy / "node_modules").symlink_to(_installed() / "node_modules")
    return copy


def _installed() -> Path:
    """Where the packages of this lock file are; made by the first run on this machine."""
    lock = (HERE / "package-lock.json").read_bytes()
    there = CACHE / f"js-{hashlib.sha256(lock).hexdigest()[:12]}"
    if not there.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=CACHE))
        for name in ("package.json", "package-lock.json"):
            shutil.copy(HERE / name, made)
        command = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
        done = subprocess.run(command, cwd=made, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, f"npm could not install the JavaScript SDK:\n{done.stdout}{done.stderr}"
        made.rename(there)
    return there


def play(scripts: Path, name: str, **told: str) -> None:
    """Plays one scenario; fails with what Node.js printed."""
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **told}
    command = ["node", "scenarios.mjs", name]
    done = subprocess.run(
        command, cwd=scripts, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stdout + done.stderr
