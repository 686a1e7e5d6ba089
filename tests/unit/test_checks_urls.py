"""Paths that both the site and A2A want."""

import types

import pytest
from django.http import HttpResponse
from django.urls import include, path, re_path

from a2a_django.checks.urls import check_urls


def other(request, **kwargs):
    return HttpResponse()


OURS = path("", include("a2a_django.urls"))


@pytest.fixture
def found(settings):
    """found(*patterns): the messages for a site with these URL patterns."""

    def run(*patterns):
        settings.ROOT_URLCONF = types.ModuleType("urls")
        settings.ROOT_URLCONF.urlpatterns = list(patterns)
        return [(message.id, message.msg) for message in check_urls(None)]

    return run


def test_a_site_where_all_have_their_place(found):
    assert found(path("", other), path("admin/", other), OURS, path("static/", other)) == []
    assert found(path("", other)) == []  # it has agents, and serves none


@pytest.mark.parametrize(
    ("pattern", "paths"),
    [
        (path(".well-known/<path:rest>", other), ["/.well-known/agent-card.json"]),
        (path("a2a/jwks.json", other), ["/a2a/jwks.json"]),
        (
            re_path("^.*$", other),
            [
                "/.well-known/agent-card.json",
                "/a2a/some-agent/.well-known/agent-card.json",
                "/a2a/some-agent",
                "/a2a/jwks.json",
            ],
        ),
    ],
)
def test_a_pattern_before_ours_that_takes_its_paths(found, pattern, paths):
    messages = found(pattern, OURS)
    assert [id_ for id_, _ in messages] == ["a2a.W015"] * len(paths)
    assert [message.split()[0] for _, message in messages] == paths
    assert all("test_checks_urls.other" in message for _, message in messages)
    assert "a2a.W015" not in dict(found(OURS, pattern))


def test_a_pattern_behind_ours_that_is_never_asked(found):
    [(id_, message)] = found(OURS, path("a2a/console/", other), path("b2b/", other))
    assert (id_, "'a2a/console/' is never asked" in message) == ("a2a.W016", True)
    assert found(path("a2a/console/", other), OURS) == []
