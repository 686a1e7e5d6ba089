"""What hypothesis makes requests of: right ones with all that is allowed in them, and ones with something wrong.

`examples(n)` runs a test with n of them, always the same; HYPOTHESIS_PROFILE=long with twenty times as many, all new.
"""

import base64
import copy
import json
import os

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"


def examples(number):
    """The settings of a test that tries `number` examples."""
    return settings(
        max_examples=number * (20 if LONG else 1),
        derandomize=not LONG,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


# --- right requests, as JSON data

ODD = '\x01\x1f\x7f\x85\xa0\u2028\u2029\ufeff\ufffe\U0001f600"\\/<é'
TEXT = st.text(st.sampled_from(ODD) | st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
NUMBER = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
DATA = st.recursive(
    st.none() | st.booleans() | NUMBER | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
STRUCT = st.dictionaries(TEXT, DATA, max_size=3)
ID = TEXT.filter(bool)


def _spelled(raw, urlsafe, padded):
    text = (base64.urlsafe_b64encode if urlsafe else base64.b64encode)(raw).decode()
    return text if padded else text.rstrip("=")


BASE64 = st.builds(_spelled, st.binary(max_size=9), st.booleans(), st.booleans())
URL = st.text(st.characters(exclude_categories=["Cs", "Cc", "Z"], exclude_characters="\0@[]#?/:\\"), max_size=9).map(
    "https://x.example/{}".format
)
CONTENT = st.one_of(*(st.fixed_dictionaries({name: kind}) for name, kind in (
    ("text", TEXT), ("raw", BASE64), ("url", URL), ("data", DATA),
)))  # fmt: skip
PART = st.builds(
    dict.__or__, CONTENT, st.fixed_dictionaries({}, optional={"metadata": STRUCT, "filename": TEXT, "mediaType": TEXT})
)
MESSAGE = st.fixed_dictionaries(
    {
        "messageId": ID,
        "role": st.sampled_from(["ROLE_USER", "ROLE_AGENT"]),
        "parts": st.lists(PART, min_size=1, max_size=4),
    },
    optional={
        "contextId": TEXT,
        "metadata": STRUCT,
        "extensions": st.lists(TEXT, max_size=3),
        "referenceTaskIds": st.lists(TEXT, max_size=3),
    },
)
CONFIGURATION = st.fixed_dictionaries({}, optional={
    "acceptedOutputModes": st.lists(TEXT, max_size=3),
    "historyLength": st.integers(0, 2**31 - 1),
    "returnImmediately": st.booleans(),
})  # fmt: skip
SEND = st.fixed_dictionaries({"message": MESSAGE}, optional={"configuration": CONFIGURATION, "metadata": STRUCT})


def plain(value):
    """`value` as ProtoJSON writes it: without what is the default anyway, base64 in its one spelling."""
    if not isinstance(value, dict):
        return value
    found = {}
    for name, item in value.items():
        if name in ("metadata", "data"):
            found[name] = item
        elif name == "raw":
            found[name] = standard(item)
        elif isinstance(item, dict):
            found[name] = plain(item)
        elif isinstance(item, list) and name == "parts":
            found[name] = [plain(part) for part in item]
        elif (item not in ("", []) and item is not False) or name == "text":
            found[name] = item
    return found


def standard(text):
    """Base64 in its one spelling."""
    text = text.replace("-", "+").replace("_", "/").rstrip("=")
    return text + "=" * (-len(text) % 4)


# --- requests with something wrong


class Raw(str):
    """JSON text that no Python value has: numbers beyond all bounds, keys that stand twice."""

    __slots__ = ()


def text(value):
    """`value` as JSON text, with every `Raw` as it is, NaN and halves of surrogate pairs."""
    found = {}

    def marked(item):
        if isinstance(item, Raw):
            found[mark := f"@raw{len(found)}@"] = item
            return mark
        if isinstance(item, dict):
            return {name: marked(inner) for name, inner in item.items()}
        return [marked(inner) for inner in item] if isinstance(item, list) else item

    written = json.dumps(marked(value))
    for mark, item in found.items():
        written = written.replace(f'"{mark}"', item)
    return written


NASTY_TEXT = [
    "",
    " ",
    "\0",
    "a\0b",
    "\ud800",
    "\udfff\ud800",
    "\u2028",
    "x" * 300,
    "x" * 3000,
    "null",
    "0",
    "-1",
    "1e400",
]
NASTY_TEXT += [
    "ROLE_USER",
    "TASK_STATE_WORKING",
    "TASK_STATE_UNSPECIFIED",
    "2026-01-31T12:00:00Z",
    "2026-01-31T12:00:00 01:00",
]
NASTY_TEXT += [
    "9999-12-31T23:59:59.999999999Z",
    "0001-01-01T00:00:00Z",
    "https://x.example/a",
    "//x",
    "http://[",
    "aGk",
    "-_8=",
    "!",
]
NASTY_TEXT += [
    "'; DROP TABLE a2a_django_task; --",
    "%s",
    "{}",
    "../..",
    "<script>",
    "é",
    "\U0001f600",
    "\\u0000",
    "9" * 5000,
    "²",
]
NASTY = [None, True, False, 0, 1, -1, 101, 1.5, -0.0, 2**31, -(2**31) - 1, 2**63, 2**64, 10**300, float("nan")]
NASTY += [
    float("inf"),
    float("-inf"),
    [],
    {},
    [None],
    [[]],
    [{}],
    {"": None},
    {"a": {"b": [1, None]}},
    {"\0": 1},
    {"\ud800": 1},
]
NASTY += [
    Raw(item)
    for item in ("1e400", "-1e400", "9" * 5000, "1" + "0" * 400, '{"a":1,"a":2}', "{", "'", "01", "\x00", '"\x01"')
]
NASTY += [Raw("[" * depth + "]" * depth) for depth in (30, 60, 99, 150, 2000)]
NASTY += [Raw('{"a":' * depth + "1" + "}" * depth) for depth in (20, 33, 90)]
VALUE = st.sampled_from([*NASTY, *NASTY_TEXT]).map(copy.deepcopy) | st.sampled_from(NASTY_TEXT) | DATA


def places(value, path=()):
    """The paths of all values within `value`, its own included."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def snake(name):
    """camelCase as the proto spells it."""
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in name)


@st.composite
def spoiled(draw, data):
    """`data` with one to three things changed, as the text of a body."""
    data = copy.deepcopy(data)
    for _ in range(draw(st.integers(1, 3))):
        *path, key = draw(st.sampled_from([path for path in places(data) if path] or [("x",)]))
        holder = data
        for step in path:
            holder = holder[step]
        change = draw(st.sampled_from(["replace", "replace", "replace", "drop", "rename", "add", "both"]))
        if change == "replace" or not isinstance(holder, dict):
            holder[key] = draw(VALUE)
        elif change == "drop":
            holder.pop(key, None)
        elif change == "rename":
            holder[snake(key)] = holder.pop(key, None)
        elif change == "both":
            holder[snake(key)] = draw(VALUE)
        else:
            holder[draw(TEXT | st.sampled_from(["text", "data", "raw", "url", "tenant", "id", "__proto__"]))] = draw(
                VALUE
            )
    return text(data).encode(errors="surrogatepass")


@st.composite
def broken(draw, data):
    """The bytes of `data` as JSON, with some of them changed."""
    raw = bytearray(json.dumps(data).encode())
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(raw)))
        raw[at : at + draw(st.integers(0, 3))] = draw(
            st.binary(max_size=3) | st.sampled_from([b'"', b"{", b",", b"\xef\xbb\xbf"])
        )
    return bytes(raw)
