"""Imports point one way only, and stand at the top of the module (DESIGN 3)."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import a2a_django

ROOMS = [
    *("settings", "signals", "accidents", "audit", "encryption", "protocol", "draining", "models", "reencryption"),
    *("keys", "database", "statements", "doorbell", "webhooks", "entries", "snapshots", "batches", "chunks"),
    *("event_log", "agents", "authentication", "throttling", "operations", "bindings", "urls", "routing", "admin"),
    *("checks", "apps", "management", "migrations", "__init__"),
]


def wrong_imports(package):
    """Each import in `package` that points to a later room or stands in a function, as "file:line what"."""
    for file in sorted(package.rglob("*.py")):
        here = file.relative_to(package).with_suffix("").parts
        tree = ast.parse(file.read_text())
        late = {inner for outer in ast.walk(tree) if _is_late(outer, here) for inner in ast.walk(outer)}
        for node in ast.walk(tree):
            if not isinstance(node, ast.Import | ast.ImportFrom):
                continue
            if node in late:
                yield f"{file.relative_to(package)}:{node.lineno} imports inside a function"
            for room in _rooms(node, package.name, here):
                if ROOMS.index(room) > ROOMS.index(here[0]):
                    yield f"{file.relative_to(package)}:{node.lineno} imports {room}"


def _is_late(node, here):
    in_ready = here == ("apps",) and getattr(node, "name", "") == "ready"
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and not in_ready


def _rooms(node, package, here):
    """The rooms of `package` that an import statement in module `here` names."""
    if isinstance(node, ast.Import):
        names = [alias.name.split(".") for alias in node.names]
    else:
        above = [package, *here][: -node.level] if node.level else []
        start = above + (node.module.split(".") if node.module else [])
        names = [[*start, alias.name] for alias in node.names]
    own = [[*name, "__init__"] for name in names if name[0] == package]
    return [name[1] if name[1] in ROOMS else "__init__" for name in own if name[1] != here[0]]


def test_the_imports_of_the_package_point_one_way():
    assert list(wrong_imports(Path(a2a_django.__file__).parent)) == []


def test_every_module_has_a_room():
    package = Path(a2a_django.__file__).parent
    modules = {file.stem for file in package.glob("*.py")} | {file.parent.name for file in package.glob("*/*.py")}
    assert modules <= set(ROOMS)


WRONG = {
    "models/task.py": "from a2a_django import event_log",
    "protocol/codec.py": "from a2a_django.models import Task",
    "protocol/errors.py": "import a2a_django.agents.runner as runner",
    "doorbell.py": "import json, a2a_django.webhooks.outbox",
    "webhooks/outbox.py": "from ..event_log import append",
    "event_log.py": "from . import agents",
    "snapshots.py": "from a2a_django import executor",
    "agents/runner.py": "if TYPE_CHECKING:\n    from a2a_django.operations import sending",
    "operations/__init__.py": "from a2a_django.bindings.caller import caller",
    "bindings/rest.py": "try:\n    from a2a_django import urls\nexcept ImportError:\n    pass",
    "database.py": "def run():\n    from a2a_django import settings",
    "accidents.py": "async def place():\n    import traceback",
    "apps.py": "class A:\n    def other(self):\n        import json",
}
RIGHT = {
    "models/task.py": "if TYPE_CHECKING:\n    from a2a_django.models import caller\nfrom a2a_django import settings",
    "agents/runner.py": "from a2a_django.agents import claims\nfrom . import leases\nfrom ..models import Task",
    "apps.py": "class A:\n    def ready(self):\n        from a2a_django import checks",
    "__init__.py": "from a2a_django.agents.registry import executor",
    "urls.py": "import django.urls\nfrom a2a_django.bindings import rest",
}


@pytest.mark.parametrize(("file", "source", "wrong"), [
    *((file, source, 1) for file, source in WRONG.items()),
    *((file, source, 0) for file, source in RIGHT.items()),
])  # fmt: skip
def test_a_wrong_import_is_found(tmp_path, file, source, wrong):
    module = tmp_path / "a2a_django" / file
    module.parent.mkdir(parents=True)
    module.write_text(source + "\n")
    found = list(wrong_imports(tmp_path / "a2a_django"))
    assert len(found) == wrong
    assert all(line.startswith(file) for line in found)


def test_asgi_py_is_imported_before_django_is_set_up():
    """As in the README: `with_streaming` stands among the imports, `get_asgi_application()` is called after them."""
    settings = {"DJANGO_SETTINGS_MODULE": "example_project.settings"}
    command = [sys.executable, "-c", "import example_project.asgi"]
    done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
