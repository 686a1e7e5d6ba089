"""What Django or the site's middleware refuse before a view is asked, in the words of our bindings (A2A 11.6)."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.urls import Resolver404, ResolverMatch, resolve

from a2a_django.protocol import errors


def restate(request: HttpRequest, response: HttpResponseBase) -> None:
    """Gives an error page for a path of ours, as for a forged Host header, the body that our clients read.

    Status and headers stay; what is JSON already is left alone, and so are the site's other paths.
    """
    if response.status_code < 400 or not isinstance(response, HttpResponse) or _is_json(response):
        return
    view = _view(request)
    if view is not None:
        error = errors.of_status(response.status_code, f"The site itself answered: {response.reason_phrase}")
        response.content = view.error_text(error).encode()
        response["Content-Type"] = "application/json"
        response["Content-Length"] = str(len(response.content))
        del response["Content-Encoding"], response["ETag"]


def _is_json(response: HttpResponse) -> bool:
    return response.get("Content-Type", "").startswith("application/json")


def _view(request: HttpRequest) -> Any:
    """The A2AView that `request` was for, if it was for one of ours.

    Known by what it can do: asgi.py imports this before Django is set up, and views need models.
    """
    match = request.resolver_match or _match(request)
    view = getattr(match.func, "cls", None) if match else None
    return view() if view is not None and hasattr(view, "error_text") else None


def _match(request: HttpRequest) -> ResolverMatch | None:
    try:
        return resolve(request.path_info, getattr(request, "urlconf", None))
    except Resolver404:
        return None
