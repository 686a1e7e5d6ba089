"""What staff type in about an agent, checked before it can make a card that clients refuse."""

import re
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.core.validators import URLValidator

from a2a_django.admin import declared_skills, fields
from a2a_django.models.agent import AnonymousAccess, Visibility, text_plain
from a2a_django.settings import a2a_settings

OUR_BINDINGS = ("JSONRPC", "HTTP+JSON")  # those whose URL this site knows, and which must be http(s)
_LINES = "One per line."
_LISTABLE = re.compile(r"[!-+\--~]+")  # visible ASCII but for the comma


class AgentForm(forms.ModelForm):  # type: ignore[type-arg]
    """An agent's own fields."""

    class Meta:
        help_texts = {
            "slug": "Its place below “a2a/”. Clients keep it, so choose it once.",
            "anonymous_access": "What callers without credentials may do.",
            "streaming": "Callers may have events sent as they come.",
            "push_notifications": "Callers may name webhooks to be told of news.",
        }

    executor = forms.ChoiceField(
        help_text="What does the work: a class registered with @executor in an agents.py of this site, or listed in "
        "A2A['EXECUTORS']."
    )
    default_input_modes = fields.MediaTypesField(
        initial=text_plain, help_text=f"Media types that the agent understands. {_LINES}"
    )
    default_output_modes = fields.MediaTypesField(
        initial=text_plain, help_text=f"Media types that the agent answers in. {_LINES}"
    )
    security_schemes = fields.SecuritySchemesField(
        required=False,
        help_text="JSON, SecurityScheme objects by name, such as "
        "{“bearer”: {“httpAuthSecurityScheme”: {“scheme”: “Bearer”}}}. "
        "Leave empty to have them made from the site's authenticators.",
    )
    security_requirements = fields.SecurityRequirementsField(
        required=False,
        help_text="JSON, of which a caller meets one, such as [{“schemes”: {“bearer”: {“list”: []}}}]. "
        "Empty: any one of the schemes.",
    )
    taken_over = forms.MultipleChoiceField(
        required=False,
        widget=forms.CheckboxSelectMultiple,
        label="take over",
        help_text="Makes them skills below, as the code says now, for you to change.",
    )
    hidden_skills = forms.MultipleChoiceField(
        required=False, widget=forms.CheckboxSelectMultiple, label="hide", help_text="Leaves them out of the card."
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "executor" in self.fields:  # absent for staff who may only look
            self.fields["executor"].choices = fields.executor_choices(self.instance.executor)  # type: ignore[attr-defined]
        for name in {"taken_over", "hidden_skills"} & self.fields.keys():
            self.fields[name].choices = declared_skills.choices(self.instance)  # type: ignore[attr-defined]

    def clean(self) -> dict[str, Any]:
        """Checks what concerns two fields."""
        data = super().clean() or self.cleaned_data
        self._clean_access(data)
        self._clean_provider(data)
        self._clean_requirements(data)
        return data

    def _clean_access(self, data: dict[str, Any]) -> None:
        if data.get("allowed_groups") and data.get("anonymous_access") != AnonymousAccess.DENIED:
            self.add_error("anonymous_access", "An agent for some groups only must deny callers without credentials.")

    def _clean_provider(self, data: dict[str, Any]) -> None:
        pair = ("provider_organization", "provider_url")
        given = [name for name in pair if data.get(name)]
        missing = [name for name in pair if not data.get(name) and name not in self.errors]
        if given and missing:
            self.add_error(missing[0], "A card names its provider by organization and URL: fill in both or neither.")

    def _clean_requirements(self, data: dict[str, Any]) -> None:
        """Requirements of schemes that are written here must be among them; others are known at run time only."""
        schemes = data.get("security_schemes")
        if schemes and "security_requirements" in data:
            used = {name for item in data["security_requirements"] for name in item.get("schemes") or ()}
            if unknown := sorted(used - set(schemes)):
                self.add_error("security_requirements", f"No such security scheme: {', '.join(unknown)}.")


class SkillForm(forms.ModelForm):  # type: ignore[type-arg]
    """One skill of an agent."""

    tags = fields.TagsField(help_text="Keywords, separated by commas; the protocol wants at least one.")
    examples = fields.StringListField(required=False, help_text=f"What somebody may ask. {_LINES}")
    input_modes = fields.MediaTypesField(required=False, help_text=f"{_LINES} Empty: as the agent.")
    output_modes = fields.MediaTypesField(required=False, help_text=f"{_LINES} Empty: as the agent.")
    security_requirements = fields.SecurityRequirementsField(
        required=False, help_text="JSON, besides what the agent requires. Usually empty."
    )

    def clean(self) -> dict[str, Any]:
        """Groups where they are asked for."""
        data = super().clean() or self.cleaned_data
        if data.get("visibility") == Visibility.GROUPS and not data.get("groups"):
            self.add_error("groups", "Choose the groups whose members see it.")
        return data


class ExtensionForm(forms.ModelForm):  # type: ignore[type-arg]
    """One protocol extension of an agent."""

    params = fields.StrictJSONField(required=False, widget=forms.Textarea(attrs={"rows": 2, "cols": 30}))

    def clean_uri(self) -> str:
        """An URI that callers can name among others in a header."""
        uri: str = self.cleaned_data["uri"]
        if not _LISTABLE.fullmatch(uri):
            raise ValidationError("No caller can ask for it: a URI has no spaces, no commas and ASCII letters only.")
        return uri


class InterfaceForm(forms.ModelForm):  # type: ignore[type-arg]
    """One interface that the card names instead of those of this site."""

    def clean(self) -> dict[str, Any]:
        """An URL where ours can't be meant, and one that clients of the binding can call."""
        data = super().clean() or self.cleaned_data
        binding, url = data.get("protocol_binding"), data.get("url")
        ours = (*OUR_BINDINGS, "GRPC") if a2a_settings.GRPC_URL else OUR_BINDINGS
        if binding and binding not in ours and not url and "url" not in self.errors:
            self.add_error("url", f"This site does not serve {binding}: give its URL.")
        if binding in OUR_BINDINGS and url:
            self._check_url(url)
        return data

    def _check_url(self, url: str) -> None:
        try:
            URLValidator(["http", "https"])(url)
        except ValidationError:
            self.add_error("url", "Must be a whole URL, https://… or http://…, or empty for this site's own.")
