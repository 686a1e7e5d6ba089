"""An independent fold of the log: what the Event rows say must be what GetTask and the Artifact rows say."""

import json
from typing import Any

from tests.acceptance.processes import until
from tests.acceptance.sites import Site


def fold(bodies: list[str]) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
    """Status and artifacts that the events in `bodies` bring about (A2A 4.2)."""
    status, artifacts = None, {}
    for body in bodies:
        ((kind, data),) = json.loads(body).items()
        if kind == "task":
            status = data["status"]
            artifacts |= {artifact["artifactId"]: artifact for artifact in data.get("artifacts", [])}
        elif kind == "statusUpdate":
            status = data["status"]
        elif kind == "artifactUpdate":
            _merge(artifacts, data)
        else:
            assert kind == "message"
    return status, list(artifacts.values())


def _merge(artifacts: dict[str, Any], update: dict[str, Any]) -> None:
    artifact = update["artifact"]
    known = artifacts.get(artifact["artifactId"])
    if known is None or not update.get("append"):
        artifacts[artifact["artifactId"]] = artifact
        return
    known["parts"] += artifact["parts"]
    if "metadata" in artifact:
        known["metadata"] = known.get("metadata", {}) | artifact["metadata"]


def check_all(site: Site, known: set[str]) -> int:
    """Checks every task that is not `known`, as soon as its turns have ended; how many there were."""
    until(lambda: not [row for row in site.unfinished() if row[0] not in known], "all turns end", 20)
    tasks = [task for task in site.tasks() if task not in known]
    for task in tasks:
        check(site, task)
    return len(tasks)


def check(site: Site, task: str) -> None:
    """Log, rows and GetTask of `task` say the same; where the site purges its log, the latter two."""
    events = site.database.rows(
        "SELECT sequence, kind, body FROM a2a_django_event WHERE task_id = ? ORDER BY sequence", task
    )
    ((last, folded, stored, visible, lease),) = site.database.rows(
        "SELECT last_sequence, folded_sequence, status, visible, lease FROM a2a_django_task WHERE id = ?", task
    )
    assert lease == "", "a lease was left behind"
    rows = site.database.rows("SELECT body FROM a2a_django_artifact WHERE task_id = ? ORDER BY id", task)
    if site.keeps_events or events:
        assert [sequence for sequence, _, _ in events] == list(range(1, last + 1)), "a hole in the log"
        status, artifacts = fold([body for _, _, body in events])
        assert [json.loads(body) for (body,) in rows] == fold([body for _, _, body in events[:folded]])[1]
    else:
        assert folded == last, "events were purged that no row holds"
        status, artifacts = json.loads(stored), [json.loads(body) for (body,) in rows]
    code, shown = site.get_task(task)
    if not visible:
        assert code == 404
        return
    assert code == 200, shown
    assert status == json.loads(stored) == shown["status"]
    assert shown.get("artifacts", []) == artifacts
    history = [message["messageId"] for message in shown["history"]]
    assert len(history) == len(set(history)), "a message stands twice in the history"
