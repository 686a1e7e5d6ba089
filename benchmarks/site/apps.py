"""The app that makes the site under test know the executor."""

from django.apps import AppConfig


class BenchConfig(AppConfig):
    """Has an agents.py, found as in any other app."""

    name = "benchmarks.site"
    label = "bench"
