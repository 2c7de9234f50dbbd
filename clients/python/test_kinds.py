"""Every kind that the generated client knows is created, read, listed, changed and deleted, synchronously and asynchronously."""

import pytest
from support import IMAGE, call, call_async, fresh, status

# Group of calls, singular and plural in their names, name of the path argument, spec to create, and
# spec to change it to.
KINDS = [
    ("agents", "agent", "agents", "agent_name", {"runtime": {"image": IMAGE, "memory": 2048}}, {"runtime": {"image": IMAGE, "memory": 4096}}),
    ("applications", "application", "applications", "application_name", {"image": "app/web:1", "memory": 2048}, {"image": "app/web:2", "memory": 2048}),
    ("functions", "function", "functions", "function_name", {"runtime": {"image": IMAGE, "memory": 2048}}, {"runtime": {"image": IMAGE, "memory": 4096}}),
    ("jobs", "job", "jobs", "job_id", {"runtime": {"image": IMAGE, "memory": 2048}}, {"runtime": {"image": IMAGE, "memory": 4096}}),
    ("models", "model", "models", "model_name", {"runtime": {"type": "openai", "model": "a"}}, {"runtime": {"type": "openai", "model": "b"}}),
    ("policies", "policy", "policies", "policy_name", {"type": "location", "locations": [{"type": "continent", "name": "eu"}]}, {"type": "location", "locations": [{"type": "country", "name": "us"}]}),
    ("compute", "sandbox", "sandboxes", "sandbox_name", {"runtime": {"image": IMAGE, "memory": 2048}}, {"runtime": {"image": IMAGE, "memory": 4096}}),
    ("volumes", "volume", "volumes", "volume_name", {"size": 64}, {"size": 128}),
    ("drives", "drive", "drives", "drive_name", {"region": "local"}, {"region": "local"}),
    ("volume_templates", "volume_template", "volume_templates", "volume_template_name", {"defaultSize": 1024}, {"defaultSize": 2048}),
    ("integrations", "integration_connection", "integration_connections", "connection_name", {"integration": "openai", "secret": {"apiKey": "a"}}, {"integration": "openai", "secret": {"apiKey": "b"}}),
    ("customdomains", "custom_domain", "custom_domains", "domain_name", {"domainType": "previews"}, {"domainType": "previews"}),
    ("vpcs", "vpc", "vp_cs", "vpc_name", {}, None),
]

PAGED = {"agents", "applications", "functions", "jobs", "models", "policies", "compute", "volumes", "drives"}


@pytest.mark.parametrize("half", [call, call_async], ids=["sync", "async"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind[1])
def test_a_kind_is_made_read_listed_changed_and_deleted(kind, half):
    group, noun, plural, argument, spec, change = kind
    name = f"{fresh('d')}.example.org" if noun == "custom_domain" else fresh("kind")
    where = {argument: name}

    def body(display_name, spec):
        return {"metadata": {"name": name, "displayName": display_name}, "spec": spec}

    made = half(f"{group}.create_{noun}", body=body("First", spec))
    assert made.metadata.name == name
    assert status(f"{group}.create_{noun}", body=body("First", spec)) == 409

    read = half(f"{group}.get_{noun}", **where)
    assert read.metadata.display_name == "First"
    listed = half(f"{group}.list_{plural}", **({"q": name} if group in PAGED else {}))
    items = listed.data if group in PAGED else listed
    assert name in [item.metadata.name for item in items]

    if change is not None:
        # The whole object is sent back as the client understood it.
        assert half(f"{group}.update_{noun}", body=read, **where).metadata.name == name
        changed = half(f"{group}.update_{noun}", body=body("Second", change), **where)
        assert changed.metadata.display_name == "Second"

    half(f"{group}.delete_{noun}", **where)
    assert status(f"{group}.get_{noun}", **where) == 404


def test_a_gateway_and_its_addresses_live_inside_their_vpc():
    vpc, gateway, ip = fresh("vpc"), fresh("gateway"), fresh("ip")
    in_vpc, in_gateway = {"vpc_name": vpc}, {"vpc_name": vpc, "gateway_name": gateway}
    call("vpcs.create_vpc", body={"metadata": {"name": vpc}, "spec": {}})
    call("vpcs.create_egress_gateway", body={"metadata": {"name": gateway}, "spec": {"region": "local"}}, **in_vpc)
    call("vpcs.create_egress_ip", body={"metadata": {"name": ip}, "spec": {"ipFamily": "IPv4"}}, **in_gateway)
    assert [each.metadata.name for each in call("vpcs.list_egress_gateways", **in_vpc)] == [gateway]
    assert [each.metadata.name for each in call("vpcs.list_egress_i_ps", **in_gateway)] == [ip]
    call("vpcs.delete_egress_ip", ip_name=ip, **in_gateway)
    call("vpcs.delete_egress_gateway", **in_gateway)
    call("vpcs.delete_vpc", **in_vpc)


def test_revisions_follow_changes():
    for group, noun, _, argument, spec, change in KINDS[:5]:
        name = fresh("rev")
        call(f"{group}.create_{noun}", body={"metadata": {"name": name}, "spec": spec})
        call(f"{group}.update_{noun}", body={"metadata": {"name": name}, "spec": change}, **{argument: name})
        assert len(call(f"{group}.list_{noun}_revisions", **{argument: name})) == 2, noun
        call(f"{group}.delete_{noun}", **{argument: name})
