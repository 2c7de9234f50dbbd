"""Workspaces, people, service accounts, keys, catalogues, and who the client is."""

import base64
import json
import os
import subprocess
import sys
from pathlib import Path

from blaxel.core.client import models
from support import call, fresh, status

# A process has one identity, so this runs in another process.
LISTING = """
import conftest, json
from support import status
from blaxel.core import SyncSandboxInstance
try:
    print(json.dumps([200, len(SyncSandboxInstance.list()) >= 0]))
except Exception as error:
    print(json.dumps([getattr(error, "status_code", 0), str(error)]))
"""


def listing_as(**environment):
    kept = {name: value for name, value in os.environ.items() if name not in ("BL_API_KEY", "BL_CLIENT_CREDENTIALS")}
    done = subprocess.run(
        [sys.executable, "-c", LISTING], cwd=Path(__file__).parent, env=kept | environment, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def test_a_workspace_is_made_read_changed_and_deleted():
    name = fresh("space")
    call("workspaces.create_workspace", body=models.Workspace.from_dict({"name": name, "displayName": "Space"}))
    assert name in [workspace.name for workspace in call("workspaces.list_workspaces")]
    call("workspaces.update_workspace", workspace_name=name, body=models.Workspace.from_dict({"name": name, "displayName": "Room"}))
    assert call("workspaces.get_workspace", workspace_name=name).display_name == "Room"
    call("workspaces.delete_workspace", workspace_name=name)
    assert name not in [workspace.name for workspace in call("workspaces.list_workspaces")]


def test_a_person_is_invited_gets_another_role_and_is_removed():
    email = f"{fresh('person')}@example.org"
    call("workspaces.invite_workspace_user", body=models.InviteWorkspaceUserBody(email=email))
    call("workspaces.update_workspace_user_role", sub_or_email=email, body=models.UpdateWorkspaceUserRoleBody(role="admin"))
    assert email in [user.email for user in call("workspaces.list_workspace_users")]
    call("workspaces.remove_workspace_user", sub_or_email=email)
    assert email not in [user.email for user in call("workspaces.list_workspace_users")]


def test_a_service_account_works_by_its_client_credentials_and_by_its_keys_until_they_are_removed():
    body = models.CreateWorkspaceServiceAccountBody(name=fresh("robot"))
    account = call("service_accounts.create_workspace_service_account", body=body)
    where = {"client_id": account.client_id}
    pair = base64.b64encode(f"{account.client_id}:{account.client_secret}".encode()).decode()
    assert listing_as(BL_CLIENT_CREDENTIALS=pair) == [200, True]

    body = models.CreateApiKeyForServiceAccountBody(name="ci", expires_in="30d")
    key = call("service_accounts.create_api_key_for_service_account", body=body, **where)
    assert listing_as(BL_API_KEY=key.api_key) == [200, True]
    assert [each.id for each in call("service_accounts.list_api_keys_for_service_account", **where)] == [key.id]
    call("service_accounts.delete_api_key_for_service_account", api_key_id=key.id, **where)
    assert listing_as(BL_API_KEY=key.api_key)[0] != 200
    assert listing_as(BL_API_KEY="hk_wrong")[0] != 200
    call("service_accounts.delete_workspace_service_account", **where)


def test_catalogues_answer():
    assert [region.name for region in call("configurations.get_configuration").regions] == ["local"]
    assert [location.region for location in call("locations.list_locations")] == ["local"]
    assert call("templates.list_templates") == []
    # Those whose image is on the machine.
    servers = {definition.name for definition in call("mcphub.list_mcp_hub_definitions")}
    assert servers <= {"fetch", "time", "sequentialthinking", "postgres"}
    offered = {definition.image for definition in call("sandboxhub.list_sandbox_hub_definitions")}
    assert offered >= {"blaxel/base-image:latest", "blaxel/jupyter-server:latest"}
    # This client cannot parse an empty array; builds of other tests leave images.
    images = call("images.list_images")
    assert images is None or all(image.metadata.workspace == "main" for image in images.data)
    assert status("images.get_image", resource_type="agent", image_name="none") == 404


def test_the_example_of_the_guide_works():
    guide = Path(os.environ["HOLM_GUIDE"]).read_text()
    program = guide.split("```python\n")[1].split("```")[0].replace("http://127.0.0.1:8700", os.environ["BL_RUN_URL"])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "box" in done.stdout.split()


def test_a_secret_of_the_workspace_is_written_listed_and_deleted():
    name = fresh("secret")
    for value in ("one", "two"):
        call("secrets.upsert_secret", body=models.Secret.from_dict({"name": name, "value": value}))
    listed = [secret for secret in call("secrets.list_secrets") if secret.name == name]
    assert len(listed) == 1 and not listed[0].value
    call("secrets.delete_secret", secret_name=name)
    assert name not in [secret.name for secret in call("secrets.list_secrets")]
