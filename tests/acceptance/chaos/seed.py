"""Run as a module: migrates the chaos database, makes agents and users, and has it write down what happens to rows."""

import django

django.setup()

from django.contrib.auth.models import User  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.db import connection  # noqa: E402

from a2a_django.models import Agent  # noqa: E402

AGENTS = [
    {"slug": "sturdy", "executor": "chaos", "restartable": True},
    {"slug": "fragile", "executor": "chaos"},
    {"slug": "blocking", "executor": "chaos-blocking", "restartable": True},
]
WITNESS = """
CREATE TABLE chaos_history (
    id bigserial PRIMARY KEY,
    at double precision NOT NULL DEFAULT extract(epoch FROM clock_timestamp()),
    process text NOT NULL DEFAULT split_part(current_setting('application_name'), ' ', 1),
    what text NOT NULL,
    key text NOT NULL,
    before text NOT NULL,
    after text NOT NULL,
    until double precision
);
CREATE TABLE chaos_bystander (at timestamptz NOT NULL);
INSERT INTO chaos_bystander VALUES (now());
CREATE FUNCTION chaos_note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO chaos_history (what, key, before, after, until)
    VALUES (TG_ARGV[0], NEW.id::text, to_jsonb(OLD) ->> TG_ARGV[1], to_jsonb(NEW) ->> TG_ARGV[1],
        extract(epoch FROM (to_jsonb(OLD) ->> 'lease_expires')::timestamptz));
    RETURN NULL;
END
$$;
"""
WATCHED = [("turn", "state"), ("turn", "attempt"), ("task", "state"), ("task", "lease")]


def main() -> None:
    call_command("migrate", verbosity=0)
    for fields in AGENTS:
        Agent.objects.create(name=fields["slug"].title(), description="Obeys a script.", **fields)
    for name in ("ann", "bob"):
        User.objects.create_user(name, password="secret")
    with connection.cursor() as cursor:
        cursor.execute(WITNESS)
        for table, column in WATCHED:
            cursor.execute(
                f"CREATE TRIGGER chaos_{table}_{column} AFTER UPDATE ON a2a_django_{table} FOR EACH ROW"
                f" WHEN (OLD.{column} IS DISTINCT FROM NEW.{column})"
                f" EXECUTE FUNCTION chaos_note('{table} {column}', '{column}')"
            )


if __name__ == "__main__":
    main()
