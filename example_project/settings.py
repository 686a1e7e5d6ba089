"""
Settings of the example site, each variable part from the environment or from a file `.env` beside manage.py.

Without any of them the site runs for development: SQLite, no Redis, no Celery, DEBUG on, localhost only.
"""

from pathlib import Path

import environ

BASE_DIR = Path(__file__).resolve().parent.parent

env = environ.Env()
if (BASE_DIR / ".env").is_file():
    env.read_env(BASE_DIR / ".env")  # what is set in the environment wins

# As in startproject; DEBUG=False needs SECRET_KEY and ALLOWED_HOSTS, and never runs with a key that everybody knows.
DEBUG = env.bool("DEBUG", default=True)
SECRET_KEY = env.str("SECRET_KEY", default="django-insecure-example") if DEBUG else env.str("SECRET_KEY")
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=[])

# The address by which clients reach the site. Without it cards use the address of the request.
A2A_BASE_URL = env.str("A2A_BASE_URL", default="").rstrip("/")
BEHIND_TLS = A2A_BASE_URL.startswith("https://")
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = BEHIND_TLS
CSRF_TRUSTED_ORIGINS = ["/".join(A2A_BASE_URL.split("/")[:3])] if BEHIND_TLS else []

INSTALLED_APPS = [
    "daphne",  # first, so that `runserver` serves ASGI, and with it streams
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "channels",
    "rest_framework",
    "a2a_django",
    "example_project.support",
]

# Adds the agent that the protocol's public conformance tools test.
A2A_TCK = env.bool("A2A_TCK", default=False)
if A2A_TCK:
    INSTALLED_APPS.append("example_project.tck")

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "example_project.urls"
ASGI_APPLICATION = "example_project.asgi.application"
WSGI_APPLICATION = "example_project.wsgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

DATABASE_URL = env.str("DATABASE_URL", default="")
DATABASE = (
    env.db_url_config(DATABASE_URL)
    if DATABASE_URL
    else {"ENGINE": "django.db.backends.sqlite3", "NAME": BASE_DIR / "db.sqlite3"}
)
match DATABASE["ENGINE"]:
    case "django.db.backends.sqlite3":
        # Readers don't wait for the writer, and writers queue instead of failing with "database is locked".
        DATABASE["OPTIONS"] = {
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        }
    case "django.db.backends.postgresql":
        # Opening a connection costs more than most requests. One pool for each process, which looks whether one still
        # is a connection before it lends it, and soon asks a server again that was away.
        # Statements that come again are prepared in the server, which then need not plan them each time. Behind a
        # PgBouncer that pools transactions leave `prepare_threshold` and `options` out.
        # A machine that is frozen or lost in a transaction keeps its rows locked until the server ends the session,
        # which has to be sooner than others lose their leases over it (A2A["LEASE_SECONDS"]).
        pool = {"min_size": 2, "max_size": env.int("DATABASE_POOL_SIZE", default=20)}
        pool |= {"timeout": 10, "reconnect_timeout": 5}
        DATABASE["CONN_HEALTH_CHECKS"] = True
        DATABASE["OPTIONS"] = {
            "pool": pool,
            "server_side_binding": True,
            "prepare_threshold": 3,
            "options": "-c idle_in_transaction_session_timeout=10s",
        }
    case "django.db.backends.mysql":
        import pymysql

        pymysql.install_as_MySQLdb()
        DATABASE["OPTIONS"] = {"charset": "utf8mb4", "isolation_level": "read committed"}
DATABASES = {"default": DATABASE}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]

LANGUAGE_CODE = "en-us"
TIME_ZONE = "UTC"
USE_I18N = True
USE_TZ = True

STATIC_URL = "static/"
STATIC_ROOT = BASE_DIR / "staticfiles"

# Tells readers in one process what another one wrote. One process, the default, needs none.
REDIS_URL = env.str("REDIS_URL", default="")
if REDIS_URL:
    CHANNEL_LAYERS = {
        "default": {
            "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
            "CONFIG": {"hosts": [REDIS_URL]},
        }
    }

CELERY_BROKER_URL = env.str("CELERY_BROKER_URL", default="")
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True

A2A = {
    "BASE_URL": A2A_BASE_URL,
    "GRPC_URL": env.str("A2A_GRPC_URL", default=""),
    "EXECUTION": env.str("A2A_EXECUTION", default="") or ("celery" if CELERY_BROKER_URL else "inprocess"),
    "STREAMING": env.bool("A2A_STREAMING", default=True),
    "ENCRYPTION_KEYS": env.list("A2A_ENCRYPTION_KEYS", default=[]),
}
