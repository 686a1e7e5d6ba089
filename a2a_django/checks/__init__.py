"""System checks: what is wrong, and what to do about it; docs/checks.md lists them all."""

from a2a_django.checks import deployment, limits, settings, urls

__all__ = ["deployment", "limits", "settings", "urls"]
