"""A site that has the agents below a path of its own, and a `.well-known` folder with other things in it."""

from django.http import HttpResponse
from django.urls import include, path

from a2a_django.urls import discovery_urls

urlpatterns = [
    path(".well-known/security.txt", lambda request: HttpResponse("Contact: mailto:security@example.com")),
    path("", include(discovery_urls)),
    path("agents/", include("a2a_django.urls")),
    path(".well-known/<path:rest>", lambda request, rest: HttpResponse(rest)),
]
