"""What Django or the site's middleware refuse before a view is asked, in the words of our bindings (A2A 11.6).

`routing` needs it in asgi.py, before Django is set up: no model may be imported here.
"""

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.urls import Resolver404, ResolverMatch, resolve

from a2a_django.protocol import errors


class Restating:
    """A view below whose paths every error is in the words of its binding."""

    def error_text(self, error: errors.A2AError) -> str:
        """The JSON text of an error."""
        raise NotImplementedError


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


def _view(request: HttpRequest) -> Restating | None:
    """The view of ours that `request` was for, if it was."""
    match = request.resolver_match or _match(request)
    view = getattr(match.func, "cls", None) if match else None
    return view() if isinstance(view, type) and issubclass(view, Restating) else None


def _match(request: HttpRequest) -> ResolverMatch | None:
    try:
        return resolve(request.path_info, getattr(request, "urlconf", None))
    except Resolver404:
        return None
