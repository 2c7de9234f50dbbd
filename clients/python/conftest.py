"""Points the published client at the server under test, as docs/clients.md says."""

import os
from pathlib import Path

import pytest
from blaxel.core import SandboxAPIError, SyncSandboxInstance, settings
from blaxel.core.client import client

type(settings).base_url = os.environ["BL_API_URL"]
type(settings).run_url = os.environ["BL_RUN_URL"]
# The credentials were created with the vendor's address when the package was imported.
settings.auth.base_url = os.environ["BL_API_URL"]
client.with_base_url(os.environ["BL_API_URL"])


@pytest.fixture(scope="session")
def served():
    """Builds an image of the workspace that runs `served.py`, as `bl push` does, and returns its reference."""
    from support import call, fresh, packed, send, until, upload

    name = fresh("served")
    program = Path(__file__).with_name("served.py").read_text()
    dockerfile = 'FROM holm/base\nCOPY served.py /srv/served.py\nCMD ["python3", "/srv/served.py"]\n'
    answer = send("POST", "/images", params={"upload": "true"}, json={"name": name, "resourceType": "agent"})
    upload(answer, packed({"Dockerfile": dockerfile, "served.py": program}))
    where = {"resource_type": "agent", "image_name": name}

    def look():
        made = call("images.get_image", **where)
        assert made.metadata.status != "FAILED", made.to_dict()
        return made.metadata.status == "BUILT" and made

    made = until("the image is built", look, 180)
    yield f"agent/{name}:{made.spec['tags'][0]['name']}"
    call("images.delete_image", **where)


@pytest.fixture
def boxes():
    """Collects names of sandboxes that are deleted after the test."""
    names = []
    yield names
    for name in names:
        try:
            SyncSandboxInstance.delete(name)
        except SandboxAPIError as error:
            assert error.status_code == 404
