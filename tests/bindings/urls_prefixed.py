"""A site that has the agents below a language prefix, and another app beside them."""

from django.conf.urls.i18n import i18n_patterns
from django.http import HttpResponse
from django.urls import include, path

from a2a_django.urls import discovery_urls

urlpatterns = [
    path("", include(discovery_urls)),
    path("other/", lambda request: HttpResponse("other")),
    *i18n_patterns(path("", include("a2a_django.urls"))),
]
