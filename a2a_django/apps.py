"""The app: finds executors and registers Celery jobs when Django is ready."""

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules


class A2ADjangoConfig(AppConfig):
    """Label `a2a_django`, which is what migrations and permissions are named by."""

    name = "a2a_django"
    label = "a2a_django"
    verbose_name = "A2A agents"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from a2a_django import checks  # noqa: F401
        from a2a_django.agents import dispatch, recovery, retention  # noqa: F401  (Celery discovers only tasks.py by itself)

        autodiscover_modules("agents")
