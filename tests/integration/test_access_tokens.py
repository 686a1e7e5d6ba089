"""Access tokens as staff have them: in the admin, and by `manage.py a2a_token`."""

import re
from datetime import timedelta

import pytest
from django.contrib.auth.models import Permission, User
from django.core import serializers
from django.core.management import CommandError, call_command
from django.test import Client as DjangoClient
from django.urls import reverse
from django.utils import timezone

from a2a_django import authentication
from a2a_django.models import AccessToken
from a2a_django.models.access_token import FORMAT

pytestmark = pytest.mark.django_db

TEXT = re.compile(r"a2a_\w{8}_\w{43}")


@pytest.fixture
def client():
    """Django's own, not one of A2A."""
    return DjangoClient()


@pytest.fixture(autouse=True)
def _unnoted(monkeypatch):
    """Nothing is written in other threads, which don't see this test's transaction."""
    monkeypatch.setattr(authentication.database.log, "submit", lambda function: None)


@pytest.fixture
def staff(client, make_user):
    """staff("add", "change"): logs in a staff member who may do that with access tokens."""

    def log_in(*actions):
        user = make_user("staff", is_staff=True)
        names = [f"{action}_accesstoken" for action in actions]
        user.user_permissions.set(Permission.objects.filter(codename__in=names))
        client.force_login(user)
        return user

    return log_in


def add(client, **data):
    return client.post(reverse("admin:a2a_django_accesstoken_add"), {"name": "CI", **data})


def found(text):
    """Whom a call with the token is by."""
    token = authentication._find(text)
    return token and token.user


# --- the admin


def test_a_token_is_shown_once(client, staff):
    user = staff("add", "view")
    page = add(client, scopes=["read", "send"])
    (text,) = TEXT.findall(page.content.decode())
    assert page.status_code == 200
    assert "no-store" in page.headers["Cache-Control"]
    assert found(text) == user

    token = AccessToken.objects.get()
    assert token.scopes == ["read", "send"]
    for url in ("admin:a2a_django_accesstoken_changelist", "admin:index"):
        assert text not in client.get(reverse(url)).content.decode()
    page = client.get(reverse("admin:a2a_django_accesstoken_change", args=[token.pk])).content.decode()
    assert token.prefix in page
    assert text.rpartition("_")[2] not in page
    assert token.digest not in page
    assert text not in serializers.serialize("json", AccessToken.objects.all()) + str(dict(client.session))


def test_staff_make_tokens_for_themselves(client, staff, make_user):
    """Else whoever may add one could call, and see, as a superuser."""
    user = staff("add")
    boss = make_user("boss", is_superuser=True)
    assert 'name="user"' not in client.get(reverse("admin:a2a_django_accesstoken_add")).content.decode()
    add(client, user=boss.pk)
    assert AccessToken.objects.get().user == user


def test_staff_who_may_make_them_for_others(client, staff, make_user):
    staff("add")
    User.objects.get().user_permissions.add(Permission.objects.get(codename="make_accesstoken_for_others"))
    ann = make_user("ann")
    assert TEXT.search(add(client, user=ann.pk).content.decode())
    assert AccessToken.objects.get().user == ann


def test_what_a_token_is_good_for_is_not_changed(client, staff, make_user, make_token):
    staff("change")
    make_token(make_user("ann"), scopes=["read"])
    token = AccessToken.objects.get()
    data = {"name": "New", "scopes": ["read", "send"], "user": "1", "digest": "x", "prefix": "x"}
    assert client.post(reverse("admin:a2a_django_accesstoken_change", args=[token.pk]), data).status_code == 302
    changed = AccessToken.objects.get()
    assert (changed.name, changed.scopes, changed.user, changed.digest) == ("New", ["read"], token.user, token.digest)


def test_tokens_are_revoked_after_a_question(client, staff, make_user, make_token):
    staff("change", "view")
    text = make_token(make_user("ann"))
    url, token = reverse("admin:a2a_django_accesstoken_changelist"), AccessToken.objects.get()
    asked = client.post(url, {"action": "revoke", "_selected_action": token.pk})
    assert token.prefix in asked.content.decode()
    assert found(text)
    client.post(url, {"action": "revoke", "_selected_action": token.pk, "confirmed": "yes"})
    assert not found(text)


def test_viewers_revoke_nothing(client, staff, make_user, make_token):
    staff("view")
    text = make_token(make_user("ann"))
    data = {"action": "revoke", "_selected_action": AccessToken.objects.get().pk, "confirmed": "yes"}
    client.post(reverse("admin:a2a_django_accesstoken_changelist"), data)
    assert found(text)


# --- the command


def run(capsys, *arguments):
    call_command("a2a_token", *arguments)
    return capsys.readouterr().out


def test_the_command_prints_the_text_alone(capsys, make_user, make_agent, make_tenant):
    ann = make_user("ann")
    make_agent(slug="echo"), make_agent(slug="desk"), make_tenant("acme")
    limits = ["--agent", "echo", "--agent", "desk", "--tenant", "acme", "--scope", "read", "--expires", "30d"]
    text = run(capsys, "create", "--user", "ann", "--name", "CI", *limits).strip()

    assert FORMAT.fullmatch(text)
    assert found(text) == ann
    token = AccessToken.objects.get()
    assert {agent.slug for agent in token.agents.all()} == {"echo", "desk"}
    assert (token.name, token.tenant.slug, token.scopes) == ("CI", "acme", ["read"])
    assert timedelta(days=29.9) < token.expires_at - timezone.now() < timedelta(days=30)


def test_the_command_lists_and_revokes(capsys, make_user, make_token):
    texts = [make_token(make_user(name), name=f"of {name}") for name in ("ann", "bob")]
    listed = run(capsys, "list")
    assert all(text[:12] in listed and text not in listed for text in texts)
    assert [name in run(capsys, "list", "--user", "ann") for name in ("of ann", "of bob")] == [True, False]

    with pytest.raises(CommandError, match="a2a_nobody00"):
        run(capsys, "revoke", texts[0][:12], "a2a_nobody00")
    assert found(texts[0])
    assert run(capsys, "revoke", texts[0][:12]) == "1 revoked\n"
    assert [bool(found(text)) for text in texts] == [False, True]
    assert "revoked" in run(capsys, "list", "--user", "ann")


@pytest.mark.parametrize(
    "wrong",
    [
        *(["--user", "nobody"], ["--agent", "nobody"], ["--tenant", "nobody"]),
        *(["--scope", "write"], ["--expires", "soon"], ["--expires", "0d"]),
    ],
)
def test_the_command_makes_nothing_of_what_is_wrong(make_user, wrong):
    make_user("ann")
    with pytest.raises(CommandError):
        call_command("a2a_token", "create", "--user", "ann", "--name", "CI", *wrong)
    assert not AccessToken.objects.exists()
