"""The keys that sign agent cards: staff make and retire them."""

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from a2a_django import keys
from a2a_django.admin import task_page
from a2a_django.agents import signatures
from a2a_django.models import SigningKey
from a2a_django.models.signing_key import KEPT, SigningKeyQuerySet


class SigningKeyForm(forms.ModelForm):  # type: ignore[type-arg]
    """Which algorithm; all else is made."""

    def clean(self) -> dict[str, Any] | None:
        """Refuses to make what nothing could use."""
        if not signatures.INSTALLED:
            raise ValidationError(signatures.NOT_INSTALLED)
        return super().clean()


@admin.register(SigningKey)
class SigningKeyAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """A key is made, retired and deleted, never changed; its private half is on no page."""

    form = SigningKeyForm
    list_display = ["kid", "algorithm", "state", "created_at"]
    list_filter = ["algorithm"]
    actions = ["retire"]
    fields = ["kid", "algorithm", "state", "created_at", "jwk"]

    class Media:
        css = {"all": ["a2a_django/admin.css"]}

    def has_change_permission(self, request: HttpRequest, obj: SigningKey | None = None) -> bool:
        """The permission is for the actions; a key's own page is read."""
        return obj is None and super().has_change_permission(request)

    def has_view_permission(self, request: HttpRequest, obj: SigningKey | None = None) -> bool:
        """Who may retire keys sees them."""
        return super().has_view_permission(request) or super().has_change_permission(request)

    def get_fields(self, request: HttpRequest, obj: SigningKey | None = None) -> Any:
        """Of a new one, only how it is to sign."""
        return self.fields if obj else ["algorithm"]

    def save_form(self, request: HttpRequest, form: Any, change: bool) -> SigningKey:
        """A new key."""
        return keys.generate(super().save_form(request, form, change).algorithm)

    @admin.display(description="state")
    def state(self, key: SigningKey) -> str:
        """What it is good for."""
        return key.state

    @admin.display(description="public key")
    def jwk(self, key: SigningKey) -> SafeString:
        """What clients read of it in jwks.json."""
        return format_html('<pre class="a2a-code">{}</pre>', task_page.pretty_data(key.public_key))

    @admin.action(description="Retire selected signing keys", permissions=["change"])
    def retire(self, request: HttpRequest, queryset: SigningKeyQuerySet) -> HttpResponse | None:
        """Asks first, since there is no way back."""
        if "confirmed" in request.POST:
            messages.success(request, f"{queryset.retire()} retired. What they signed holds for {KEPT.days} more days.")
            return None
        context = {
            **self.admin_site.each_context(request),
            "title": "Retire signing keys",
            "question": f"Retire these keys for good? What they signed will hold for {KEPT.days} more days.",
            "action": "retire",
            "objects": queryset,
            "opts": self.opts,
        }
        return TemplateResponse(request, "a2a_django/admin/confirm.html", context)
