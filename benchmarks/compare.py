"""Measures us against the peer, A B A B, and prints one JSON object; README.md tells how to read it."""

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import servers
from servers import HERE, SIDES, FailedError, Machine

Run = dict[str, Any]
PACKAGES = ("a2a-sdk", "Django", "djangorestframework", "channels", "daphne", "celery", "psycopg", "redis")
PEER_PACKAGES = ("a2a-sdk", "starlette", "uvicorn", "SQLAlchemy", "aiosqlite", "asyncpg")


@dataclass(frozen=True)
class Probe:
    """One call of client.py; `name` is what its figures are called in the raw runs."""

    name: str
    arguments: tuple[str, ...]
    repeat: int = 1


@dataclass(frozen=True)
class Group:
    """Sides that are measured in turn, in this order, each with its probes."""

    name: str
    sides: dict[str, list[Probe]]


@dataclass(frozen=True)
class Floor:
    """What must hold: `ours / peer` is at least `at_least`, or under it where less is better.

    `ours` and `peer` are (side, probe, figure).
    """

    name: str
    group: str
    ours: tuple[str, str, str]
    peer: tuple[str, str, str]
    at_least: float
    less_is_better: bool = False


def groups(quick: bool) -> list[Group]:
    """What is measured; `quick` measures the same, but for a shorter time."""
    seconds, count, repeat = ("3", "40", 2) if quick else ("8", "100", 5)
    sends = [Probe("send", ("send", "--connections", "16", "--seconds", seconds))]
    streams = [Probe(f"stream-{n}", ("stream", n), repeat) for n in ("500", "2000", "10000")]

    def tokens(streams: str) -> Probe:
        return Probe(f"tokens-{streams}", ("tokens", "--streams", streams, "--count", count, "--ms", "50"))

    return [
        Group("send-sqlite", {"peer-sqlite": sends, "embedded": sends}),
        Group("send-postgres", {"peer-postgres": sends, "celery": sends, "embedded-postgres": sends}),
        Group(
            "stream",
            {
                "peer-memory": [streams[1], tokens("20")],
                "embedded": streams,
                "celery": [*streams, tokens("50")],
            },
        ),
    ]


FLOORS = [
    Floor("send-embedded", "send-sqlite", ("embedded", "send", "requests_per_s"),
          ("peer-sqlite", "send", "requests_per_s"), 1.5),
    Floor("send-celery", "send-postgres", ("celery", "send", "requests_per_s"),
          ("peer-postgres", "send", "requests_per_s"), 1.5),
    Floor("stream-embedded", "stream", ("embedded", "stream-2000", "events_per_s"),
          ("peer-memory", "stream-2000", "events_per_s"), 1.0),
    Floor("stream-celery", "stream", ("celery", "stream-2000", "events_per_s"),
          ("peer-memory", "stream-2000", "events_per_s"), 1.0),
    Floor("linear-embedded", "stream", ("embedded", "stream-10000", "events_per_s"),
          ("embedded", "stream-500", "events_per_s"), 0.75),
    Floor("linear-celery", "stream", ("celery", "stream-10000", "events_per_s"),
          ("celery", "stream-500", "events_per_s"), 0.75),
    Floor("tokens-celery", "stream", ("celery", "tokens-50", "p50_ms"), ("peer-memory", "tokens-20", "p50_ms"), 2.0,
          less_is_better=True),
]  # fmt: skip


# --- measuring


def measure(machine: Machine, group: Group, rounds: int) -> list[Run]:
    """The runs of a group: each side in turn, `rounds` times."""
    runs = []
    for number in range(1, rounds + 1):
        for side, probes in group.sides.items():
            head = {"group": group.name, "round": number, "side": side}
            try:
                with machine.running(side) as url:
                    for probe in (WARM_UP, *probes):
                        for figures in _probe(machine, url, probe):
                            run = {**head, "probe": probe.name, **figures}
                            if probe is not WARM_UP:
                                runs.append(run)
                                tell(run)
            except FailedError as error:
                runs.append({**head, "probe": "", "failed": str(error)})
                tell(runs[-1])
    return runs


WARM_UP = Probe("warm-up", ("send", "--connections", "16", "--seconds", "1.5"))


def _probe(machine: Machine, url: str, probe: Probe) -> list[Run]:
    verb, *rest = probe.arguments
    command = [sys.executable, str(HERE / "client.py"), verb, url, *rest]
    found = []
    for _ in range(probe.repeat):
        before = machine.cpu()
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        except subprocess.TimeoutExpired as error:
            raise FailedError(f"{probe.name} did not end within {error.timeout} s") from error
        if done.returncode:
            raise FailedError(f"{probe.name} broke off: {done.stderr.strip().splitlines()[-1]}")
        figures: Run = json.loads(done.stdout)
        after = machine.cpu()
        if before is not None and after is not None:
            figures["server_cpu_s"] = round(after - before, 2)
        found.append({**figures, "load": round(os.getloadavg()[0], 1)})
    return found


def right(run: Run) -> bool:
    """Whether everything was answered, and as it must be."""
    whole = "chunks" not in run or (run["completed"] and run["events"] == run["chunks"] + 3)
    return "failed" not in run and whole and not run.get("bad") and not run.get("lost")


# --- judging


def judge(floor: Floor, runs: list[Run]) -> dict[str, Any]:
    """The floor with what came out, of the medians of all its runs."""
    ours, peer = (_figures(runs, floor.group, *which) for which in (floor.ours, floor.peer))
    wrong = [run for run in runs if run["group"] == floor.group and run["side"] == floor.ours[0]
             and run["probe"] in ("", floor.ours[1]) and not right(run)]  # fmt: skip
    judged: dict[str, Any] = {
        "name": floor.name,
        "what": f"{' '.join(floor.ours)} {'under' if floor.less_is_better else 'at least'} {floor.at_least} x "
        f"{' '.join(floor.peer)}",
        "ours": statistics.median(ours) if ours else None,
        "peer": statistics.median(peer) if peer else None,
        "ratio": None,
        "floor": floor.at_least,
        "wrong": len(wrong),
        "reached": False,
    }
    if ours and peer:
        ratio = judged["ours"] / judged["peer"]
        kept = ratio < floor.at_least if floor.less_is_better else ratio >= floor.at_least
        judged |= {"ratio": round(ratio, 3), "reached": kept and not wrong}
    return judged


def _figures(runs: list[Run], group: str, side: str, probe: str, figure: str) -> list[float]:
    wanted = (group, side, probe)
    return [run[figure] for run in runs if (run["group"], run["side"], run["probe"]) == wanted and figure in run]


def medians(runs: list[Run]) -> dict[str, dict[str, float]]:
    """The median of each figure of each side and probe, for the eye."""
    found: dict[str, dict[str, list[float]]] = {}
    for run in runs:
        if "failed" not in run:
            figures = found.setdefault(f"{run['side']} {run['probe']}", {})
            for name in ("requests_per_s", "events_per_s", "first_ms", "p50_ms", "p99_ms", "server_cpu_s"):
                if name in run:
                    figures.setdefault(name, []).append(run[name])
    return {key: {name: statistics.median(all_) for name, all_ in value.items()} for key, value in found.items()}


# --- telling


def tell(run: Run) -> None:
    """Progress, on stderr: stdout is for the JSON."""
    print(" ".join(f"{key}={value}" for key, value in run.items()), file=sys.stderr, flush=True)


def environment(services: set[str]) -> dict[str, Any]:
    """What the figures depend on."""
    return {
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "load_before": os.getloadavg(),
        "commit": _git("rev-parse", "HEAD"),
        "changed": bool(_git("status", "--porcelain", "--", "a2a_django", "example_project", "benchmarks")),
        "services": servers.services_found(services),
        "ours": {name: importlib.metadata.version(name) for name in PACKAGES},
        "peer": _peer_versions(),
    }


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=HERE.parent, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _peer_versions() -> dict[str, str]:
    code = f"import importlib.metadata as m, json; print(json.dumps({{n: m.version(n) for n in {PEER_PACKAGES}}}))"
    found: dict[str, str] = json.loads(subprocess.check_output([servers.PEER_PYTHON, "-c", code]))
    return found


# --- the command


def _arguments() -> argparse.Namespace:
    names = [floor.name for floor in FLOORS]
    parser = argparse.ArgumentParser(prog="benchmarks/run", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two short rounds: a first look, not a result")
    parser.add_argument("--rounds", type=int, help="how often each side is measured (3, or 2 with --quick)")
    parser.add_argument("--only", action="append", metavar="NAME", choices=names, help=f"one of {', '.join(names)}")
    parser.add_argument("--serve", metavar="SIDE", choices=SIDES, help=f"start one of {', '.join(SIDES)} and wait")
    return parser.parse_args()


def _chosen(arguments: argparse.Namespace) -> tuple[list[Floor], list[Group]]:
    """The floors that are asked for, and of the groups what these need."""
    floors = [floor for floor in FLOORS if not arguments.only or floor.name in arguments.only]
    chosen = []
    for group in groups(arguments.quick):
        wanted = {which[:2] for floor in floors if floor.group == group.name for which in (floor.ours, floor.peer)}
        sides = {
            side: [probe for probe in probes if not arguments.only or (side, probe.name) in wanted]
            for side, probes in group.sides.items()
        }
        chosen.append(Group(group.name, {side: probes for side, probes in sides.items() if probes}))
    return floors, [group for group in chosen if group.sides]


def serve(side: str) -> None:
    """Runs one side until Ctrl-C, for a profiler."""
    with servers.machine(SIDES[side]) as machine, machine.running(side) as url:
        print(json.dumps({"url": url, "pids": machine.pids}), flush=True)
        while True:
            time.sleep(3600)


def compare(arguments: argparse.Namespace) -> bool:
    """Measures, prints the JSON, and says whether all could be measured."""
    floors, chosen = _chosen(arguments)
    rounds = arguments.rounds or (2 if arguments.quick else 3)
    services = set().union(*(SIDES[side] for group in chosen for side in group.sides))
    about = environment(services)
    with servers.machine(services) as machine:
        runs = [run for group in chosen for run in measure(machine, group, rounds)]
    judged = [judge(floor, runs) for floor in floors]
    result = {"floors": judged, "medians": medians(runs), "environment": about, "rounds": rounds, "runs": runs}
    print(json.dumps({**result, "quick": arguments.quick}, indent=1))
    return not any("failed" in run for run in runs)


def main() -> None:
    """Exit 0: measured, whatever came out; 1: a side could not be measured; 130: interrupted, all is taken down."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it otherwise
    arguments = _arguments()
    action: Callable[[], Any] = lambda: serve(arguments.serve) if arguments.serve else compare(arguments)  # noqa: E731
    try:
        sys.exit(0 if action() else 1)
    except KeyboardInterrupt:
        sys.exit(130)
    except FailedError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
