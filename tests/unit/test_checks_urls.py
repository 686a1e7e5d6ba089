"""Paths that both the site and A2A want."""

import importlib
import types

import pytest
from django.conf.urls.i18n import i18n_patterns
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpResponse
from django.urls import get_script_prefix, include, path, re_path, set_script_prefix

from a2a_django import urls
from a2a_django.checks.urls import check_urls


def other(request, **kwargs):
    return HttpResponse()


OURS = path("", include("a2a_django.urls"))
DISCOVERY = path("", include(urls.discovery_urls))


@pytest.fixture
def found(settings):
    """found(*patterns): the messages for a site with these URL patterns."""

    def run(*patterns):
        settings.ROOT_URLCONF = types.ModuleType("urls")
        settings.ROOT_URLCONF.urlpatterns = list(patterns)
        return [(message.id, message.msg) for message in check_urls(None)]

    return run


@pytest.mark.parametrize(
    "patterns",
    [
        [path("", other), path("admin/", other), OURS, path("static/<path:rest>", other), re_path("^.*$", other)],
        [path("", other)],  # it has agents, and serves none
        [path("a2a", other), path("a2a/<int:pk>/", other), OURS],  # A2A would answer 404; agents have other names
        [DISCOVERY, path("agents/", include("a2a_django.urls")), path("a2a/", other)],
        i18n_patterns(OURS, path("b2b/", other)),
    ],
)
def test_a_site_where_all_have_their_place(found, patterns):
    assert found(*patterns) == []


@pytest.mark.parametrize(
    ("pattern", "paths"),
    [
        (path(".well-known/<path:rest>", other), "/.well-known/agent-card.json (and 1 more)"),
        (path("a2a/jwks.json", other), "/a2a/jwks.json"),
        (path("a2a/<slug:agent>", other), "/a2a/some-agent"),
        (path("a2a/<slug:agent>/<slug:tenant>/tasks", other), "/a2a/some-agent/some-tenant/tasks"),
        (re_path("^a2a/[^/]+/message:send$", other), "/a2a/some-agent/message:send"),
        (path("a2a/", include([path("<slug:agent>/tasks/<str:task>", other)])), "/a2a/some-agent/tasks/some-task-id"),
    ],
)
def test_a_pattern_before_ours_that_takes_its_paths(found, pattern, paths):
    [(id_, message)] = found(pattern, OURS)
    assert id_ == "a2a.W015"
    assert message.startswith(f"{paths} ")
    assert "test_checks_urls.other" in message
    assert "a2a.W015" not in dict(found(OURS, pattern))


def test_a_pattern_that_takes_all_is_named_once(found):
    [(id_, message)] = found(re_path("^.*$", other), OURS)
    assert id_ == "a2a.W015"
    assert " more) should be answered by a2a_django" in message


def test_below_a_script_name(found):
    before = get_script_prefix()
    set_script_prefix("/agents/")
    try:
        assert [id_ for id_, _ in found(path("a2a/jwks.json", other), OURS)] == ["a2a.W015"]
        assert found(OURS) == []
    finally:
        set_script_prefix(before)


@pytest.mark.parametrize(
    ("pattern", "example"),
    [
        (path("a2a/console/", other), "/a2a/console/"),
        (path("a2a/<int:pk>/edit/", other), "/a2a/some-pk/edit/"),
        (path(".well-known/agent-card.json", other), "/.well-known/agent-card.json"),
        (path("", include([path("a2a/console/", other), path("b2b/", other)])), "/a2a/console/"),
        (path("a2a/", include([path("x/", other), path("y/", other)])), "/a2a/x/ (and 1 more)"),
    ],
)
def test_a_pattern_behind_ours_that_is_never_asked(found, pattern, example):
    [(id_, message)] = found(OURS, path("b2b/", other), pattern)
    assert id_ == "a2a.W016"
    assert message.startswith(f"a2a_django answers {example}:")
    assert "a2a.W016" not in dict(found(pattern, OURS))


def test_patterns_below_a_prefix(found):
    [(_, message)] = found(path("api/", include([OURS, path("a2a/console/", other)])), path("a2a/console/", other))
    assert message.startswith("a2a_django answers /api/a2a/console/:")


@pytest.fixture
def reread(settings):
    """reread(a2a): reads the URLs again with the A2A dict."""

    def run(a2a):
        settings.A2A = a2a
        importlib.reload(urls)

    yield run
    run({})


@pytest.mark.parametrize("name", ["PATH", "AGENT_CARD_PATH"])
def test_a_path_of_the_wrong_type_does_not_end_the_checks(reread, name):
    """check_settings tells of it, in tests/unit/test_checks.py."""
    reread({name: 5})


def test_settings_that_are_no_dict_end_them_with_what_to_do(reread):
    with pytest.raises(ImproperlyConfigured, match=r"write A2A = \{\}"):
        reread(({"STREAMING": False},))
