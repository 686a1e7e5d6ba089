"""The wheel, in an empty environment outside the checkout, on a site made by the README's own words."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import httpx
import pytest
from packaging.version import Version

from tests.acceptance.clients import body
from tests.acceptance.processes import CHECKOUT, Process, answers, free_port
from tests.acceptance.sites import HEADERS

NOT_IN_A_BUILD = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "*.egg-info", "*.sqlite3*", "*.log")
AGENT = """
from a2a_django.models import Agent
Agent.objects.create(slug="shout", name="Shout", description="Says it louder", version="1.0.0",
    executor="shout", is_default=True, anonymous_access="shared",   # "denied" (default) | "by_id" | "shared"
    streaming=True, push_notifications=True, extended_card=False)
"""


def run(*command: object, cwd: Path) -> str:
    """The output of a command that has to succeed; it knows nothing of this environment."""
    kept = {key: value for key, value in os.environ.items() if key in ("HOME", "PATH") or key.startswith("PIP_")}
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=kept, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built of a copy, so that no build directory of the checkout gets into it."""
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(CHECKOUT, folder / "source", ignore=NOT_IN_A_BUILD)
    here = ["--no-build-isolation"] if Version(metadata.version("setuptools")) >= Version("77") else []
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", *here, "-w", folder, folder / "source", cwd=folder)
    return next(folder.glob("*.whl"))


def test_the_wheel_holds_the_whole_package_and_nothing_else(wheel):
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    wanted = {
        str(file.relative_to(CHECKOUT))
        for file in (CHECKOUT / "a2a_django").rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert packed == wanted
    for needed in ("templates/a2a_django/", "static/a2a_django/", "migrations/0001_initial.py", "py.typed"):
        assert any(name.startswith(f"a2a_django/{needed}") for name in packed), needed


def test_a_new_site_answers(wheel, tmp_path):
    python, site = tmp_path / "venv/bin/python", tmp_path / "mysite"
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv", cwd=tmp_path)
    pinned = CHECKOUT / "requirements.txt"  # what the cache has
    pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"]
    run(*pip, "install", "-q", "--no-compile", "-c", pinned, wheel, cwd=tmp_path)
    run(python, "-m", "django", "startproject", "mysite", cwd=tmp_path)
    run(python, "manage.py", "startapp", "desk", cwd=site)
    follow_the_readme(site)
    run(python, "manage.py", "check", "--fail-level", "ERROR", cwd=site)
    run(python, "manage.py", "migrate", "--verbosity", "0", cwd=site)
    run(python, "manage.py", "shell", "-c", AGENT, cwd=site)
    location = run(python, "-c", "import a2a_django; print(a2a_django.__file__)", cwd=site)
    assert location.startswith(str(tmp_path)), "this is the checkout, not the wheel"
    port = free_port()
    command = [str(python), "-m", "daphne", "-p", str(port), "mysite.asgi:application"]
    server = Process("new site", command, tmp_path / "daphne.log", {}, cwd=site)
    server.start(lambda _: answers(port))
    try:
        talk(f"http://127.0.0.1:{port}")
    finally:
        server.stop()


def follow_the_readme(site: Path) -> None:
    """Does what the README says under “Add it to your site”."""
    section = (CHECKOUT / "README.md").read_text().split("\n## Add it to your site\n")[1].split("\n## ")[0]
    edits, agents, *options = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    settings, urls, asgi = re.split(r"# (?:urls|asgi)\.py.*\n", edits)
    append(site / "mysite/settings.py", settings + 'INSTALLED_APPS += ["desk"]\n' + "".join(options))
    append(site / "mysite/urls.py", "from django.urls import include\n" + urls)
    append(site / "mysite/asgi.py", asgi)
    (site / "desk/agents.py").write_text(agents)


def append(file: Path, text: str) -> None:
    """Adds lines to a file."""
    file.write_text(f"{file.read_text()}\n{text}")


def talk(url: str) -> None:
    """Card, blocking send, stream and the admin's own files."""
    with httpx.Client(base_url=url, headers=HEADERS, timeout=20, verify=False) as http:
        assert http.get("/.well-known/agent-card.json").json()["name"] == "Shout"
        task = http.post("/a2a/shout/message:send", json=body("hello")).json()["task"]
        assert task["artifacts"][0]["parts"] == [{"text": "HELLO"}]
        streamed = http.post("/a2a/shout/message:stream", json=body("hello")).text
        assert re.findall(r"^id: (\d+)", streamed, re.MULTILINE) == ["1", "2", "3"]
        assert http.get("/admin/login/").status_code == 200
