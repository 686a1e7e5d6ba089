"""A site that gives out OAuth tokens itself, as django-oauth-toolkit's documentation has it."""

from django.urls import include, path

urlpatterns = [
    path("o/", include("oauth2_provider.urls", namespace="oauth2_provider")),
    path("", include("a2a_django.urls")),
]
