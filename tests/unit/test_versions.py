"""A2A-Version and A2A-Extensions (A2A 3.2.6, 3.6)."""

import pytest

from a2a_django.protocol import errors, versions


@pytest.mark.parametrize("asked", ["1.0", "1.0.3", " 1.0 ", "1.0.0", "\t1.0", "1.0,1.0"])
def test_patch_and_space_make_no_difference(asked):
    """CASES 34"""
    assert versions.negotiate(asked) == "1.0"


@pytest.mark.parametrize(
    "asked", ["1.7", "99.0", "abc", "1", "1.0, 1.1", "1.0, 0.3", "1.0.x", "1.0.3.1", "v1.0", "1.0\n2", "10"]
)
def test_another_version_is_refused_with_those_there_are(asked):
    """CASES 34"""
    with pytest.raises(errors.VersionNotSupportedError) as caught:
        versions.negotiate(asked)
    assert caught.value.data == {"supportedVersions": "1.0, 0.3"}
    assert "1.0" in caught.value.message


@pytest.mark.parametrize("asked", [None, "", "  ", "0.3", "0.3.1"])
def test_no_version_means_0_3(asked, settings):
    """CASES 32, 34"""
    assert versions.negotiate(asked, "0.3") == versions.negotiate(asked, None) == "0.3"
    with pytest.raises(errors.VersionNotSupportedError, match=r"0\.3"):
        versions.negotiate(asked)
    settings.A2A = {"ENABLE_V0_3": False}
    for spoken in ("1.0", "0.3", None):
        with pytest.raises(errors.VersionNotSupportedError) as caught:
            versions.negotiate(asked, spoken)
        assert caught.value.data == {"supportedVersions": "1.0"}


@pytest.mark.parametrize("asked", ["1.0", "1.0.3"])
def test_a_path_of_another_version(asked):
    with pytest.raises(errors.VersionNotSupportedError, match=r"A2A-Version: 0\.3"):
        versions.negotiate(asked, "0.3")
    assert versions.negotiate(asked, None) == "1.0"


def test_the_answer_does_not_repeat_a_long_header():
    with pytest.raises(errors.VersionNotSupportedError) as caught:
        versions.negotiate("9" * 1000)
    assert len(caught.value.message) < 200


@pytest.mark.parametrize(("headers", "uris"), [
    ([], []),
    ([""], []),
    (["https://a"], ["https://a"]),
    (["https://a, https://b ,https://a,,"], ["https://a", "https://b"]),
    (["https://a", " https://b "], ["https://a", "https://b"]),
])  # fmt: skip
def test_extensions_are_split_and_trimmed(headers, uris):
    """CASES 35"""
    assert versions.extensions(headers) == frozenset(uris)


def test_required_extensions():
    """CASES 35"""
    offers = {"urn:b": True, "urn:a": True, "urn:c": False}
    versions.require({"urn:a", "urn:b", "urn:x"}, offers)
    versions.require(set(), {"urn:c": False})
    with pytest.raises(errors.ExtensionSupportRequiredError, match="A2A-Extensions: urn:a,urn:b") as caught:
        versions.require({"urn:c"}, offers)
    assert caught.value.data == {"requiredExtensions": "urn:a,urn:b"}


@pytest.mark.parametrize(("given", "uris"), [
    (None, []),
    ("", []),
    ("urn:a", ["urn:a"]),
    ({"urn:a", "urn:b"}, ["urn:a", "urn:b"]),
    (frozenset(["urn:a"]), ["urn:a"]),
    (["urn:b", "urn:a", "urn:a"], ["urn:a", "urn:b"]),
    (("urn:a", 5), ["5", "urn:a"]),
    ({"urn:a": 1}.keys(), ["urn:a"]),
    (5, ["5"]),
])  # fmt: skip
def test_what_is_put_into_the_state_as_activated(given, uris):
    assert versions.activated({versions.ACTIVATED: given}) == frozenset(uris)
    assert versions.activated({}) == frozenset()


def test_the_answer_names_activated_extensions_in_order():
    """CASES 35; a 0.3 client knows another header."""
    assert versions.tell(frozenset(), "1.0") == versions.tell(frozenset(), "0.3") == {}
    assert versions.tell({"urn:b", "urn:a"}, "1.0") == {"A2A-Extensions": "urn:a,urn:b"}
    assert versions.tell({"urn:b"}, "0.3") == {"A2A-Extensions": "urn:b", "X-A2A-Extensions": "urn:b"}
