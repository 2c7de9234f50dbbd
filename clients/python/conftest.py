"""Points the published client at the server under test, as docs/clients.md tells users to."""

import os

from blaxel.core import settings
from blaxel.core.client import client

type(settings).base_url = os.environ["BL_API_URL"]
type(settings).run_url = os.environ["BL_RUN_URL"]
# The credentials were made with the vendor's address when the package was imported.
settings.auth.base_url = os.environ["BL_API_URL"]
client.with_base_url(os.environ["BL_API_URL"])
