"""The app of the agent that public conformance tools drive; installed with A2A_TCK=1 only."""

from django.apps import AppConfig


class TckConfig(AppConfig):
    """Found by the name, so that `agents.py` is imported."""

    name = "example_project.tck"
    label = "tck"
