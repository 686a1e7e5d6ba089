"""Secrets: encrypted in the database and in fixtures, shown by nothing but `reveal()` (CASES 69)."""

import logging
import pickle

import pytest
from cryptography.fernet import Fernet
from django.core import serializers
from django.core.exceptions import FieldError, ImproperlyConfigured
from django.core.management import call_command
from django.db import connection
from django.db.models import Q

from a2a_django.encryption import DecryptionError, Secret
from a2a_django.models import PushConfig
from a2a_django.models.fields import EncryptedField
from a2a_django.reencryption import reencrypt

TEXT = "hunter2 — Prüfung \U0001f600 \0"
OLD, NEW = (Fernet.generate_key().decode() for _ in "ab")


@pytest.fixture
def use(settings):
    """use(key, ...): these are the site's keys."""

    def put(*keys):
        settings.A2A = {**settings.A2A, "ENCRYPTION_KEYS": keys}

    return put


@pytest.fixture
def make_config(db, make_task):
    """make_config(**fields): a push config with a token."""
    task = make_task()

    def make(**fields):
        number = PushConfig.objects.count()
        return PushConfig.objects.create(
            **{"task": task, "config_id": str(number), "url": "https://h.example", "token": TEXT} | fields
        )

    return make


def stored():
    """What stands in the database, column by column."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT token, credentials FROM a2a_django_pushconfig ORDER BY id")
        return cursor.fetchall()


# --- a secret


def test_only_reveal_gives_the_text(caplog):
    secret = Secret.of(TEXT)
    assert secret.reveal() == TEXT
    with caplog.at_level(logging.INFO):
        logging.getLogger("test").info("%s %r", secret, [secret])
    for shown in (str(secret), repr(secret), f"{secret}", f"{[secret]}", caplog.text):
        assert "hunter2" not in shown
        assert secret.ciphertext not in shown
    assert "hunter2" not in secret.ciphertext
    assert b"hunter2" not in pickle.dumps(secret)


def test_no_text_is_no_secret(settings):
    nothing = Secret.of("")
    settings.SECRET_KEY = "another"
    assert (bool(nothing), nothing.reveal(), str(nothing), nothing.ciphertext) == (False, "", "", "")
    assert nothing.readable


def test_the_same_text_is_encrypted_in_another_way_each_time():
    assert Secret.of(TEXT).ciphertext != Secret.of(TEXT).ciphertext


# --- keys


def test_the_first_key_encrypts_and_all_decrypt(use):
    use(OLD)
    old = Secret.of(TEXT)
    use(NEW, OLD)
    new = Secret.of(TEXT)
    assert (old.reveal(), new.reveal()) == (TEXT, TEXT)
    use(NEW)
    assert (old.readable, new.readable) == (False, True)


def test_a_site_without_keys_begins_with_its_secret_key(use, settings):
    """And goes on with its own key when it has one."""
    settings.SECRET_KEY = "one"
    secret = Secret.of(TEXT)
    use(NEW)
    assert secret.reveal() == TEXT
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "two", ["one"]
    assert secret.reveal() == TEXT
    settings.SECRET_KEY_FALLBACKS = []
    assert not secret.readable


@pytest.mark.parametrize("keys", [["secret-of-mine"], [NEW, "secret-of-mine"], [5]])
def test_a_key_that_is_none(use, keys):
    """The error doesn't show it."""
    use(*keys)
    with pytest.raises(ImproperlyConfigured) as error:
        Secret.of(TEXT)
    assert "ENCRYPTION_KEYS" in str(error.value)
    assert "secret-of-mine" not in str(error.value)


@pytest.mark.parametrize("ciphertext", ["gAAAAA", "not base64 at all", "x", "ü"])
def test_what_is_no_ciphertext_is_not_passed_on(ciphertext):
    with pytest.raises(DecryptionError) as error:
        Secret(ciphertext).reveal()
    assert "ENCRYPTION_KEYS" in str(error.value)
    assert ciphertext not in str(error.value).split()
    assert error.value.__cause__ is None
    assert not Secret(ciphertext).readable


# --- the column


def test_the_database_holds_no_text(make_config):
    config = make_config(credentials="hunter3")
    ((token, credentials),) = stored()
    assert "hunter" not in token + credentials
    loaded = PushConfig.objects.get()
    assert (loaded.token.reveal(), loaded.credentials.reveal()) == (TEXT, "hunter3")
    assert "hunter" not in repr(loaded) + repr(loaded.__dict__) + repr(config.__dict__)


def test_no_text_needs_no_encryption(make_config):
    make_config(token="")
    assert list(stored()) == [("", "")]


def test_all_ways_of_writing_encrypt(make_config):
    config = make_config(token="")
    config.token = "by save"
    config.save()
    assert PushConfig.objects.get().token.reveal() == "by save"
    PushConfig.objects.update(token="by update")
    assert PushConfig.objects.get().token.reveal() == "by update"
    PushConfig.objects.update_or_create(pk=config.pk, defaults={"token": "by update_or_create"})
    assert PushConfig.objects.get().token.reveal() == "by update_or_create"
    config.token = "by bulk_update"
    PushConfig.objects.bulk_update([config], ["token"])
    assert PushConfig.objects.get().token.reveal() == "by bulk_update"
    more = PushConfig(task=config.task, config_id="more", url=config.url, token="by bulk_create")
    PushConfig.objects.bulk_create([more])
    assert PushConfig.objects.get(config_id="more").token.reveal() == "by bulk_create"
    assert not [column for row in stored() for column in row if "by " in column]


def test_all_ways_of_reading_give_secrets(make_config):
    make_config()
    assert PushConfig.objects.values_list("token", flat=True).get().reveal() == TEXT
    assert PushConfig.objects.values("token").get()["token"].reveal() == TEXT
    assert PushConfig.objects.only("url").get().token.reveal() == TEXT
    config = PushConfig.objects.defer("token").get()
    config.refresh_from_db()
    assert config.token.reveal() == TEXT


@pytest.mark.parametrize("lookup", ["", "__exact", "__in", "__contains", "__iexact", "__gt", "__regex", "__startswith"])
def test_nothing_is_looked_up_by_value(db, lookup):
    value = [TEXT] if lookup == "__in" else TEXT
    for condition in (Q(**{f"token{lookup}": value}), ~Q(**{f"credentials{lookup}": value})):
        with pytest.raises(FieldError, match="encrypted") as error:
            PushConfig.objects.filter(condition)
        assert "hunter2" not in str(error.value)
    assert not PushConfig.objects.filter(token__isnull=True)


def test_the_migration_says_no_more_than_the_model():
    _, path, args, kwargs = PushConfig._meta.get_field("token").deconstruct()
    assert (path, args, kwargs) == ("a2a_django.models.fields.EncryptedField", [], {"blank": True})
    assert not EncryptedField(**kwargs).editable


# --- without the key


@pytest.fixture
def unreadable(make_config, settings):
    """A config whose token nobody can read any more."""
    settings.SECRET_KEY = "lost"
    config = make_config()
    settings.SECRET_KEY = "here"
    return config


def test_rows_without_their_key_can_be_listed_changed_and_deleted(unreadable):
    (before,) = stored()
    config = PushConfig.objects.get()
    assert (bool(config.token), config.token.readable, str(config.token)) == (True, False, "********")
    config.url = "https://elsewhere.example"
    config.credentials = "new"
    config.save()
    config.refresh_from_db()
    assert stored()[0][0] == before[0]  # what can't be read isn't lost either
    assert config.credentials.reveal() == "new"
    with pytest.raises(DecryptionError):
        config.token.reveal()
    config.delete()


# --- fixtures


@pytest.mark.parametrize("kind", ["json", "jsonl", "xml"])
def test_secrets_survive_fixtures_which_do_not_show_them(make_config, tmp_path, kind):
    """CASES 69: a dump is at rest, too."""
    config = make_config(credentials="")
    file = tmp_path / f"dump.{kind}"
    call_command("dumpdata", "a2a_django", format=kind, output=str(file))
    assert "hunter2" not in file.read_text()
    config.task.delete()
    call_command("loaddata", str(file), verbosity=0)

    assert PushConfig.objects.get().token.reveal() == TEXT
    assert not PushConfig.objects.get().credentials
    assert "hunter2" not in stored()[0][0]


def test_a_dump_needs_no_key(unreadable):
    before = stored()
    text = serializers.serialize("json", PushConfig.objects.all())
    PushConfig.objects.all().delete()
    (loaded,) = serializers.deserialize("json", text)
    loaded.save()
    assert stored() == before


def test_a_fixture_may_hold_plain_text(make_config):
    config = make_config()
    fields = serializers.serialize("python", [config])[0]["fields"] | {"config_id": "plain", "token": "by hand"}
    (loaded,) = serializers.deserialize("python", [{"model": "a2a_django.pushconfig", "pk": None, "fields": fields}])
    loaded.save()
    assert PushConfig.objects.get(config_id="plain").token.reveal() == "by hand"
    assert "by hand" not in str(stored())


def test_nobody_passes_a_ciphertext_off_as_a_text(make_config):
    """Only what comes from a fixture is taken for encrypted."""
    config = make_config(token=f"encrypted:{Secret.of('of somebody else').ciphertext}")
    config.refresh_from_db()
    assert config.token.reveal().startswith("encrypted:")


# --- rotation


def test_reencrypt(make_config, use, monkeypatch):
    monkeypatch.setattr("a2a_django.reencryption.BATCH", 2)
    use(OLD)
    for _ in range(5):
        make_config(credentials="")
    use(NEW, OLD)
    assert reencrypt() == (5, [])
    use(NEW)
    assert {config.token.reveal() for config in PushConfig.objects.all()} == {TEXT}
    assert {column for _, column in stored()} == {""}


def test_reencrypt_names_what_it_can_not_read(unreadable, make_config, use):
    config = make_config(credentials="too")
    use(NEW)
    (before, _) = stored()
    assert reencrypt() == (2, [f"PushConfig {unreadable.pk}: token"])
    (after, other) = stored()
    assert after == before
    config.refresh_from_db()
    assert Fernet(NEW).decrypt(other[0]).decode() == TEXT
    assert Fernet(NEW).decrypt(other[1]).decode() == "too"
