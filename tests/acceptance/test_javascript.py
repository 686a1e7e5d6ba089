"""The JavaScript SDK's client (`@a2a-js/sdk`) on real processes; the scenarios are in js/scenarios.mjs."""

import pytest

from tests.acceptance import javascript
from tests.acceptance.clients import BINDINGS
from tests.acceptance.conftest import SERVICES


@pytest.fixture(scope="session")
def scripts(tmp_path_factory):
    """The scripts with the packages that they need."""
    if reason := javascript.missing():
        pytest.skip(reason)
    return javascript.prepare(tmp_path_factory.mktemp("javascript"))


@pytest.mark.parametrize("name", javascript.SCENARIOS)
@pytest.mark.parametrize(
    ("binding", "version"),
    [(binding, version) for binding in BINDINGS for version in ("1.0", "0.3") if (binding, version) != ("GRPC", "0.3")],
)  # 0.3's gRPC reaches the default agent alone
@pytest.mark.parametrize("place", ["embedded", pytest.param("uvicorn", marks=SERVICES)], indirect=True)
def test_javascript(scripts, place, binding, version, name):
    """CASES 1, 34, 42, 51, 60, 66, as a client of another maker sees them."""
    javascript.play(
        scripts,
        name,
        A2A_HERE=place.here.url,
        A2A_ELSEWHERE=place.elsewhere.url,
        A2A_BINDING=binding,
        A2A_VERSION=version,
        ACCEPTANCE_GATES=str(place.site.gates),
    )
