"""`manage.py a2a_card`: agent cards as files."""

import io
import json

import pytest
from django.core.management import CommandError, call_command

from a2a_django.agents import documents
from a2a_django.models import Agent, AgentSkill

pytestmark = pytest.mark.django_db


@pytest.fixture
def agent(make_agent):
    made = make_agent()
    AgentSkill.objects.create(agent=made, skill_id="talk", name="Talk", description="Sagt “ü”.", tags=["t"])
    return made


@pytest.fixture
def run():
    """run(...): what the command writes, on both its outputs."""

    def call(*arguments):
        out, err = io.StringIO(), io.StringIO()
        call_command("a2a_card", *map(str, arguments), stdout=out, stderr=err, no_color=True)
        return out.getvalue(), err.getvalue()

    return call


@pytest.fixture
def card_file(tmp_path):
    """card_file(data): a file with this JSON, or this text."""

    def write(data):
        file = tmp_path / "card.json"
        file.write_text(data if isinstance(data, str) else json.dumps(data))
        return file

    return write


def test_what_is_exported_is_imported(agent, run, tmp_path):
    file = tmp_path / "card.json"
    run("export", "test", "--output", file)
    assert file.read_text() == run("export", "test")[0]
    assert "“ü”" in file.read_text()
    run("import", "copy", file, "--executor", "tests.executors.Echo")
    assert documents.of(Agent.objects.get(slug="copy")) == documents.of(agent) == json.loads(file.read_text())
    assert Agent.objects.get(slug="copy").executor == "tests.executors.Echo"


def test_publish_and_export_what_was_published(agent, run, make_user):
    with pytest.raises(CommandError, match="never published"):
        run("export", "test", "--published")
    assert run("publish", "test", "--note", "From git", "--user", make_user().username)[0].startswith(
        "test: version 1, "
    )
    published = run("export", "test", "--published")[0]
    Agent.objects.update(name="Other")
    assert run("export", "test", "--published")[0] == published != run("export", "test")[0]
    version = Agent.objects.get().published
    assert (version.note, version.published_by.username) == ("From git", "ann")
    with pytest.raises(CommandError, match="No user is called bob"):
        run("publish", "test", "--user", "bob")


def test_problems_are_listed_by_field(agent, run, card_file):
    run("validate", "test")
    broken = documents.of(agent) | {"name": "", "skills": [{"id": "a"}]}
    for arguments in (("validate", "test", card_file(broken)), ("import", "test", card_file(broken))):
        with pytest.raises(CommandError) as refused:
            run(*arguments)
        lines = str(refused.value).split("\n")
        assert {"name", "skills[0].name", "skills[0].description"} <= {line.partition(": ")[0] for line in lines}
    AgentSkill.objects.all().delete()
    for command in ("validate", "publish"):
        with pytest.raises(CommandError, match=r"^skills: must have at least one element$"):
            run(command, "test")


def test_what_is_not_kept_is_named(site, agent, run, card_file):
    """A card as it is served has what is made for the request."""
    served = site.get("/a2a/test/.well-known/agent-card.json").json()
    served["signatures"] = [{"protected": "x", "signature": "y"}]
    served["skills"][0]["price"] = 5
    for arguments in (("validate", "test", card_file(served)), ("import", "test", card_file(served))):
        fields = {line.partition(" ")[0] for line in run(*arguments)[1].splitlines()}
        assert {"signatures", "skills[0].price", "preferredTransport", "protocolVersion"} <= fields
    assert not {"name", "skills", "signatures[0].protected", "securitySchemes"} & fields


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not JSON"),
        ("[]", "must be an object"),
        ('{"name": "a", "name": "b"}', "twice"),
        ('{"name": "\\u0000"}', "NUL"),
    ],
)
def test_a_file_that_is_no_card(agent, run, card_file, text, words):
    with pytest.raises(CommandError, match=words):
        run("import", "test", card_file(text))
    assert Agent.objects.get().name == "Test"


def test_names_that_there_are_not(agent, run, card_file):
    with pytest.raises(CommandError, match="No agent is called other; there are: test"):
        run("export", "other")
    with pytest.raises(CommandError, match="--executor NAME makes it"):
        run("import", "other", card_file({}))
    with pytest.raises(CommandError, match="can't be read"):
        run("validate", "test", "no-such-file.json")
