"""Access tokens: staff make them for themselves, or for others if they may, and revoke them."""

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from a2a_django.models import AccessToken, Scope
from a2a_django.models.access_token import AccessTokenQuerySet


class AccessTokenForm(forms.ModelForm):  # type: ignore[type-arg]
    """What a token is good for."""

    scopes = forms.MultipleChoiceField(
        choices=Scope.choices, required=False, widget=forms.CheckboxSelectMultiple, help_text="None: all of them."
    )


@admin.register(AccessToken)
class AccessTokenAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """The text of a token is on the page that says it was made, and nowhere else ever."""

    form = AccessTokenForm
    list_display = ["name", "prefix", "user", "state", "expires_at", "last_used_at", "created_at"]
    list_filter = ["revoked_at", "expires_at"]
    list_select_related = ["user"]
    search_fields = ["name", "=prefix"]
    raw_id_fields = ["user"]
    filter_horizontal = ["agents"]
    actions = ["revoke"]
    record = ("prefix", "state", "revoked_at", "last_used_at", "created_at")

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        """Whose it is can be chosen by those who may make tokens for others."""
        chosen = ["user"] if obj or self._for_others(request) else []
        return [*chosen, "name", "tenant", "agents", "scopes", "expires_at", *(self.record if obj else ())]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """A token that is given out stays as it is, but for its name and how long it is good."""
        return ("user", "tenant", "agents", "scopes", *self.record) if obj else ()

    def _for_others(self, request: HttpRequest) -> bool:
        return request.user.has_perm("a2a_django.make_accesstoken_for_others")

    def save_model(self, request: HttpRequest, obj: AccessToken, form: Any, change: bool) -> None:
        """Gives a new token its text."""
        if not change:
            if not self._for_others(request):
                obj.user = request.user  # type: ignore[assignment]
            request.a2a_text = obj.renew()  # type: ignore[attr-defined]
        super().save_model(request, obj, form, change)

    def response_add(
        self, request: HttpRequest, obj: AccessToken, post_url_continue: str | None = None
    ) -> HttpResponse:
        """The page with the text; it is in no cache (no page of the admin is), no message and no session."""
        context = {**self.admin_site.each_context(request), "title": "Access token", "opts": self.opts, "token": obj}
        context["text"] = request.a2a_text  # type: ignore[attr-defined]
        return TemplateResponse(request, "a2a_django/admin/access_token_made.html", context)

    @admin.action(description="Revoke selected access tokens", permissions=["change"])
    def revoke(self, request: HttpRequest, queryset: AccessTokenQuerySet) -> HttpResponse | None:
        """Asks, then makes them worthless."""
        if request.POST.get("confirmed"):
            self.message_user(request, f"{queryset.revoke()} access tokens were revoked.", messages.SUCCESS)
            return None
        context = {**self.admin_site.each_context(request), "title": "Revoke access tokens", "opts": self.opts}
        context |= {"tokens": queryset, "checkbox": ACTION_CHECKBOX_NAME}
        return TemplateResponse(request, "a2a_django/admin/access_token_revoke.html", context)
