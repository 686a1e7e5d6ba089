"""Signing keys as staff handle them: `manage.py a2a_keys` and the admin; never is a private half shown."""

import os
import subprocess
import sys
from io import StringIO

import pytest
from cryptography.fernet import Fernet
from django.contrib.auth.models import Permission, User
from django.core.management import CommandError, call_command
from django.test import Client as DjangoClient
from django.urls import reverse

from a2a_django import keys
from a2a_django.agents import signatures
from a2a_django.models import PushConfig, SigningKey

pytestmark = pytest.mark.django_db

LIST = "admin:a2a_django_signingkey_changelist"
ADD = "admin:a2a_django_signingkey_add"


def run(*args):
    """What the command prints, and what it complains of."""
    out, err = StringIO(), StringIO()
    call_command("a2a_keys", *args, stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


@pytest.fixture
def make_key():
    """make_key(algorithm="ES256")"""

    def make(algorithm="ES256"):
        key = keys.generate(algorithm)
        key.save()
        return key

    return make


def secrets_of(key):
    """What must be shown nowhere."""
    pem = key.private_key.reveal()
    return [key.private_key.ciphertext, *pem.splitlines()[1:-1]]


# --- the command


@pytest.mark.parametrize(
    ("options", "algorithm"), [((), "ES256"), (("--alg", "ES256"), "ES256"), (("--alg", "RS256"), "RS256")]
)
def test_generate(options, algorithm):
    out, _ = run("generate", *options)
    key = SigningKey.objects.get()

    assert out.strip() == key.kid
    assert (key.algorithm, key.public_key["alg"], key.state) == (algorithm, algorithm, "signs")
    assert [signing.kid for signing in keys.signing()] == [key.kid]
    assert keys.load(key.private_key).public_key().public_numbers()


def test_an_algorithm_that_there_is_not():
    with pytest.raises(CommandError, match="invalid choice"):
        run("generate", "--alg", "HS256")


def test_list(make_key, a2a):
    a2a(SIGNING_KEYS={"vault": "/nowhere"})
    old, new = make_key(), make_key("RS256")
    secrets = [*secrets_of(old), *secrets_of(new)]
    run("retire", old.kid)
    out, _ = run("list")

    lines = {line.split()[0]: line for line in out.splitlines()}
    assert lines.keys() == {"vault", old.kid, new.kid}
    assert "A2A['SIGNING_KEYS']" in lines["vault"]
    assert "retired, published until" in lines[old.kid]
    assert "RS256" in lines[new.kid]
    assert lines[new.kid].endswith("signs")
    assert not [secret for secret in secrets if secret in out]


def test_retire(make_key):
    key = make_key()
    out, _ = run("retire", key.kid)
    assert "30 days" in out
    assert (keys.signing(), [jwk["kid"] for jwk in keys.published()]) == ([], [key.kid])
    run("retire", key.kid, "--keep", "0")
    assert keys.published() == []


def test_a_key_that_there_is_not():
    with pytest.raises(CommandError, match="a2a_keys list"):
        run("retire", "nonsense")


def test_reencrypt(make_key, make_task, a2a):
    old, new = (Fernet.generate_key().decode() for _ in "ab")
    a2a(ENCRYPTION_KEYS=[old])
    pem = make_key().private_key.reveal()
    PushConfig.objects.create(task=make_task(), config_id="c", url="https://h.example", token="hunter2")
    a2a(ENCRYPTION_KEYS=[new, old])
    out, err = run("reencrypt")
    a2a(ENCRYPTION_KEYS=[new])

    assert (out.strip(), err) == ("2 rows looked through", "")
    assert SigningKey.objects.get().private_key.reveal() == pem
    assert PushConfig.objects.get().token.reveal() == "hunter2"


def test_reencrypt_without_the_old_key(make_key, settings):
    settings.SECRET_KEY = "lost"
    key = make_key()
    settings.SECRET_KEY = "here"
    out, err = StringIO(), StringIO()
    with pytest.raises(CommandError, match="ENCRYPTION_KEYS"):
        call_command("a2a_keys", "reencrypt", stdout=out, stderr=err)
    assert f"SigningKey {key.pk}: private_key" in err.getvalue()
    assert key.private_key.ciphertext not in out.getvalue() + err.getvalue()
    listed, _ = run("list")
    assert f"{key.kid}  ES256" in listed
    assert "can't sign" in listed


# --- without the extra

WITHOUT = """
import sys
sys.modules["jwt"] = None  # as if PyJWT were not there
import django
django.setup()
from django.core.management import CommandError, call_command
from a2a_django import keys
from a2a_django.agents import signatures
from a2a_django.models import PushConfig
call_command("migrate", verbosity=0)
try:
    call_command("a2a_keys", "generate")
except CommandError as error:
    print("command:", error)
keys.generate("ES256").save()
print("signatures:", signatures.of("{}", ""), signatures.of("{}", ""))
print("secret:", PushConfig(token="hunter2").token.reveal())
"""


def test_a_site_without_the_libraries():
    """It works, unsigned; what needs them says how to get them, and the log says so once."""
    environment = os.environ | {
        "DJANGO_SETTINGS_MODULE": "example_project.settings",
        "DATABASE_URL": "sqlite://:memory:",
    }
    done = subprocess.run([sys.executable, "-c", WITHOUT], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "command: Agent cards can't be signed: pip install 'a2a-django[signing]'",
        "signatures: [] []",
        "secret: hunter2",
    ]
    assert done.stderr.count("pip install 'a2a-django[signing]'") == 1


# --- the admin


@pytest.fixture
def staff(client):
    """staff("add", "view", ...): a client logged in as staff who have these permissions on keys."""

    def make(*permissions):
        user = User.objects.create_user("staff", is_staff=True)
        codenames = [f"{name}_signingkey" for name in permissions]
        user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
        client.force_login(user)
        return client

    return make


@pytest.fixture
def client():
    """Django's own, not one of A2A."""
    return DjangoClient()


def page(client, name, *args):
    response = client.get(reverse(name, args=args))
    assert response.status_code == 200
    return response.content.decode()


@pytest.mark.parametrize("algorithm", ["ES256", "RS256"])
def test_staff_make_a_key(admin_client, algorithm):
    html = page(admin_client, ADD)
    assert 'name="algorithm"' in html
    assert "private" not in html
    answer = admin_client.post(reverse(ADD), {"algorithm": algorithm}, follow=True)

    key = SigningKey.objects.get()
    assert key.kid in answer.content.decode()
    assert key.algorithm == key.public_key["alg"] == algorithm
    assert [signing.kid for signing in keys.signing()] == [key.kid]


def test_no_page_shows_a_private_key(admin_client, make_key):
    key = make_key()
    secrets = secrets_of(key)
    pages = [page(admin_client, LIST), page(admin_client, "admin:a2a_django_signingkey_change", key.pk)]
    pages.append(page(admin_client, "admin:a2a_django_signingkey_history", key.pk))

    assert key.public_key["x"] in pages[1]
    assert "signs" in pages[0]
    assert not [secret for secret in secrets for html in pages if secret in html]


def test_staff_retire_keys_after_they_were_asked(admin_client, make_key):
    key, other = make_key(), make_key()
    action = {"action": "retire", "_selected_action": [key.pk]}
    asked = admin_client.post(reverse(LIST), action).content.decode()
    assert "Retire these keys for good?" in asked
    assert key.kid in asked
    assert other.kid not in asked
    assert len(keys.signing()) == 2

    done = admin_client.post(reverse(LIST), action | {"confirmed": "yes"}, follow=True).content.decode()
    assert "1 retired" in done
    assert "retired, published until" in done
    assert [signing.kid for signing in keys.signing()] == [other.kid]


def test_a_key_that_can_not_be_decrypted_is_listed(admin_client, make_key, settings):
    settings.SECRET_KEY = "lost"
    make_key()
    settings.SECRET_KEY = "here"
    admin_client.force_login(User.objects.get(username="admin"))
    html = page(admin_client, LIST)
    assert "can&#x27;t sign" in html
    assert "A2A[&#x27;ENCRYPTION_KEYS&#x27;]" in html


def test_a_key_is_not_changed(admin_client, make_key):
    key = make_key()
    url = reverse("admin:a2a_django_signingkey_change", args=[key.pk])
    assert 'name="_save"' not in admin_client.get(url).content.decode()
    assert admin_client.post(url, {"algorithm": "RS256"}).status_code == 403


def test_staff_need_permissions(staff, make_key):
    key = make_key()
    client = staff("view")
    assert 'value="retire"' not in page(client, LIST)
    assert client.get(reverse(ADD)).status_code == 403
    client.post(reverse(LIST), {"action": "retire", "_selected_action": [key.pk], "confirmed": "yes"})
    assert keys.signing()


def test_staff_who_may_retire_keys(staff, make_key):
    key = make_key()
    client = staff("change")
    assert key.kid in page(client, "admin:a2a_django_signingkey_change", key.pk)
    client.post(reverse(LIST), {"action": "retire", "_selected_action": [key.pk], "confirmed": "yes"})
    assert not keys.signing()


def test_a_key_that_nothing_could_use_is_not_made(admin_client, monkeypatch):
    monkeypatch.setattr(signatures, "INSTALLED", False)
    html = admin_client.post(reverse(ADD), {"algorithm": "ES256"}).content.decode()
    assert "a2a-django[signing]" in html
    assert not SigningKey.objects.exists()
