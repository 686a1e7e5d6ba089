"""The ASGI application, for daphne and uvicorn: `daphne example_project.asgi:application`."""

import os

from django.core.asgi import get_asgi_application

from a2a_django.routing import with_streaming

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "example_project.settings")

application = with_streaming(get_asgi_application())
