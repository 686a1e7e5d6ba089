"""The app of the example's support desk."""

from django.apps import AppConfig


class SupportConfig(AppConfig):
    """Customers, their tickets, and the agents that know them."""

    name = "example_project.support"
    verbose_name = "Support desk"
