"""Signals that sites connect to."""

from django.dispatch import Signal

task_state_changed = Signal()
"""A task that clients see has another state; sender: the model Task.

`task_id`, `before` (a TaskState's value, empty for a task that has just become visible), `after` and `sequence`, the
number of the event that says so. It is sent when that is committed, by the process that has written it (a web process,
a worker or a command), in a thread that does nothing else: in order, at most once, and nobody waits for receivers. They
must not rely on it where work may not be lost: a process that dies first sends nothing.
"""
