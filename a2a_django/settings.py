"""Every setting of the `A2A` dict: its name, its default, why.

`a2a_settings.NAME` reads `settings.A2A["NAME"]` at each access, so `override_settings` works.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string


class A2ASettings:
    """The list of settings; an attribute that the site's `A2A` dict does not name has the value here."""

    # --- where things are
    PATH: str = "a2a/"
    """Below which path the agents stand, relative to where the site includes `a2a_django.urls`.

    What is not found below it gets a JSON 404. So set it to "" only where that include has a path of its own.
    """
    BASE_URL: str = ""
    """`https://agents.example.com`, put before the paths in agent cards.

    These paths begin with the script name (SCRIPT_NAME, root_path, FORCE_SCRIPT_NAME) where Django has one, so name
    here only what Django doesn't know: a prefix that the proxy takes away. Empty takes scheme and host of the request,
    which needs ALLOWED_HOSTS and, behind a proxy, SECURE_PROXY_SSL_HEADER and USE_X_FORWARDED_HOST.
    """
    AGENT_CARD_PATH: str = ".well-known/agent-card.json"
    """Path of an agent's card, below the site for the default agent and below each agent's own URL."""
    AGENT_CARD_MAX_AGE: int = 300
    """Seconds for which clients may keep a public agent card (A2A 8.6.1)."""

    # --- which bindings answer
    ENABLE_HTTP_JSON: bool = True
    ENABLE_JSONRPC: bool = True
    ENABLE_V0_3: bool = True
    """Whether clients of A2A 0.3 are served too, on every binding that is enabled."""
    GRPC_URL: str = ""
    """`agents.example.com:443`, where `manage.py a2a_grpc` can be reached; empty leaves gRPC out of the cards."""
    STREAMING: bool = True
    """False on a site served by WSGI: no agent streams, and the cards say so."""

    # --- who may call
    AUTHENTICATION_CLASSES: Sequence[str] = (
        "a2a_django.authentication.AccessTokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    )
    """DRF authenticators of all bindings; the site's REST_FRAMEWORK settings are not looked at.

    Cards declare them; with `a2a_django.authentication.security_scheme` a site says how, where it can't be guessed.
    """
    OAUTH_SCOPE_PREFIX: str = "a2a:"
    """What stands before read, send, cancel and push in the scopes of OAuth tokens, which others give out."""
    PERMISSION_CLASSES: Sequence[str] = ()
    """DRF permissions, besides what each agent itself demands of anonymous callers."""
    THROTTLE_CLASSES: Sequence[str] = ("a2a_django.throttling.CredentialThrottle",)
    """DRF throttles of all bindings, asked before the tenant is known."""
    CARD_PERMISSION_CLASSES: Sequence[str] = ()
    """DRF permissions of the public agent card; empty leaves it open to all, as discovery expects."""
    TENANT_HEADER: str = "X-A2A-Tenant"
    """Header that names the tenant where neither path nor body does; empty turns it off."""

    # --- how much; what a tenant's own row says goes before these
    THROTTLE_RATE: str | None = None
    """`"120/min"` (or s, hour, day): calls by one access token, user or anonymous address; None any number."""
    TENANT_THROTTLE_RATE: str | None = None
    """Calls within one tenant, by all its callers together."""
    FAILURE_THROTTLE_RATE: str | None = "30/min"
    """Calls from one address whose credentials may be wrong: then all its calls are refused for the rest of the time.

    Each process counts by itself.
    """
    THROTTLE_CACHE: str = "default"
    """Which of the site's CACHES counts calls; those of all processes only if it is shared, like Redis."""
    NUM_PROXIES: int | None = None
    """How many reverse proxies put the address before them into X-Forwarded-For.

    None takes those for proxies that have private addresses, as nginx on this machine has. Wrong credentials from
    addresses that are private themselves, or that no proxy has told, are not counted then.
    """
    RUNNING_TASKS: int | None = None
    """How many tasks of one tenant, or of one user outside of tenants, may run or wait to run; None any number."""
    OPEN_STREAMS: int | None = None
    """How many streams of one tenant, or of one user outside of tenants, may be open in each process."""

    # --- secrets
    ENCRYPTION_KEYS: Sequence[str] = ()
    """Fernet keys for what is kept encrypted: webhook tokens and credentials, private keys.

    The first encrypts, all decrypt; put a new one first and run `manage.py a2a_keys reencrypt`. Empty takes a key made
    from SECRET_KEY, which then must not be lost either.
    """
    SIGNING_KEYS: Mapping[str, str] = {}
    """Keys that sign agent cards, besides those in the database: PEM text, or the file that has it, by key id.

    A public key signs nothing; it is published for what its private half has signed.
    """

    # --- hooks, named and shaped as the a2a-sdk's parameters; dotted paths or objects
    CONTEXT_BUILDER: Any = None
    """`f(request, call_context) -> call_context | None`, sync or async, before anything is stored.

    What it puts into `call_context.state` as JSON reaches the executor; `"a2a_activated_extensions"` is a set of URIs.
    """
    OWNER_RESOLVER: Any = None
    """`f(call_context) -> str`: whose tasks the caller sees; default the user's primary key."""
    ID_GENERATOR: Any = None
    """An `a2a.server.id_generator.IDGenerator` (instance or class) for task and context ids."""
    REQUEST_CONTEXT_BUILDER: Any = None
    """An `a2a.server.agent_execution.RequestContextBuilder` (instance or class) used by the runner."""
    CARD_MODIFIER: Any = None
    """`f(card) -> card`, sync, the last word on every public agent card."""

    # --- how executors run
    EXECUTION: str = "inprocess"
    """"inprocess": in this web process; "celery": in Celery workers."""
    EXECUTORS: Sequence[str] = ()
    """Dotted paths of executor classes that staff may choose, besides those registered by name."""
    LEASE_SECONDS: float = 30
    """How long a process may be silent before its running turns count as abandoned."""
    RECOVERY_SECONDS: float = 10
    """How often each process looks for turns that dead processes held, besides `manage.py a2a_recover`."""
    MAX_ATTEMPTS: int = 3
    """How often a turn is tried whose process dies, if its agent is restartable, or whose executor raises Retry."""
    REDISPATCH_SECONDS: float = 60
    """A queued turn that nobody has started for so long is handed on again, then after twice as long, at most 16."""
    SHUTDOWN_SECONDS: float = 20
    """How long a Celery worker that is stopped lets its turns run on; then others run them again, or they fail.

    Whoever stops it must wait for this and CANCEL_TIMEOUT before it is killed.
    """
    CANCEL_TIMEOUT: float = 5
    """Seconds an executor has to obey a cancel before the task is ended without it."""
    IMMEDIATE_WAIT: float = 0.5
    """Seconds for which a returnImmediately send waits for the executor's first event."""
    BLOCKING_TIMEOUT: float | None = None
    """Seconds after which a blocking send answers with the task as it is; None waits for its end."""
    IDEMPOTENCY_SECONDS: float = 600
    """For so long the same message id of the same authenticated caller joins the first send; 0 never."""

    # --- how long things are kept
    TASK_RETENTION: float | None = None
    """Seconds for which an ended task is kept, with all that is part of it; None for ever. Tenants may differ."""
    EVENT_RETENTION: float | None = None
    """Seconds for which the events of an ended task are kept; the task stays as it is, but no stream of it resumes."""
    PURGE_SECONDS: float = 3600
    """How often each process deletes what is older, besides `manage.py a2a_purge`."""

    # --- streams
    HEARTBEAT_SECONDS: float = 15
    """A silent stream sends a comment line this often, so that proxies keep it."""
    STREAM_MAX_SECONDS: float | None = None
    """A stream is closed after this long (the client resumes with Last-Event-ID); None never."""
    STREAM_MAX_BYTES: int | None = 64 * 2**20
    """As STREAM_MAX_SECONDS, after so many bytes: Daphne keeps in memory what a slow reader has not read yet."""
    LOOK_SECONDS: float = 1
    """How often waiting readers look by themselves, in case a ring of the doorbell was lost."""

    # --- bounds
    MAX_BODY_BYTES: int = 10 * 2**20
    """Larger request bodies are refused with 413 (A2A 13.4)."""
    PART_URL_SCHEMES: Sequence[str] = ("http", "https")
    """What a file's URL in a message may begin with; executors fetch it."""
    MAX_NESTING: int = 100
    """Deeper JSON is refused."""
    REQUEST_THREADS: int = 4
    """Threads of this process for requests' database work; each keeps a database connection."""
    REQUEST_WAIT_SECONDS: float | None = 10
    """A request that had to wait longer for one of these threads gets 503: else none would be answered in time."""
    LOG_THREADS: int = 4
    """Threads of this process for the event log; each keeps a database connection."""

    def __getattribute__(self, name: str) -> Any:
        default = object.__getattribute__(self, name)  # AttributeError for a name that is no setting
        if not name.isupper():
            return default
        try:
            return getattr(settings, "A2A", {}).get(name, default)
        except AttributeError:  # never the defaults instead: the site may have meant to be stricter
            raise ImproperlyConfigured("A2A must be a dict: write A2A = {}, every key has a default.") from None

    @classmethod
    def names(cls) -> frozenset[str]:
        """The names of all settings."""
        return frozenset(name for name in vars(cls) if name.isupper())

    def load(self, name: str) -> Any:
        """The object that setting `name` stands for; strings in it are imported (ImportError if wrong)."""
        value = getattr(self, name)
        if isinstance(value, str):
            return import_string(value)
        if isinstance(value, list | tuple):
            return [import_string(item) if isinstance(item, str) else item for item in value]
        return value


a2a_settings = A2ASettings()
