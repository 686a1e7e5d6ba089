"""A small support desk whose agents speak A2A: the example of a2a-django."""

# Celery's shared tasks, those of a2a_django among them, are bound to this app as soon as Django loads.
from example_project.celery import app as celery_app

__all__ = ["celery_app"]
