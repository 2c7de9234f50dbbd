//! All kinds of the command line, with the names and columns that users see.

use super::{Column, Form, Kind, Place, Read, Write};
use types::KindName;

const fn column(heading: &'static str, at: &'static [&'static str]) -> Column {
    Column { heading, at, form: Form::Text }
}

const WORKSPACE: Column = column("WORKSPACE", &["/metadata/workspace"]);
const NAME: Column = column("NAME", &["/metadata/name", "/name"]);
const STATUS: Column = column("STATUS", &["/status", "/metadata/status"]);
const REGION: Column = column("REGION", &["/spec/region", "/region"]);
const IMAGE: Column =
    column("IMAGE", &["/spec/runtime/image", "/spec/image", "/spec/revisions/0/image"]);
const CREATED: Column = Column {
    heading: "CREATED",
    at: &["/metadata/createdAt", "/createdAt", "/created_at"],
    form: Form::Age,
};
const PUBLIC_ADDRESS: Column = column("ADDRESS", &["/spec/publicIp"]);
const ID: Column = column("ID", &["/metadata/id", "/id", "/metadata/name"]);
const DESCRIPTION: Column = column("DESCRIPTION", &["/description"]);
const DISPLAY: Column = column("DISPLAY NAME", &["/metadata/displayName", "/displayName"]);

const URL: Column = column("URL", &["/metadata/url"]);
const REVISION: Column = column("REVISION", &["/spec/revision/active"]);

/// Kinds that answer requests at an address of their own.
const DEPLOYMENT: &[Column] = &[WORKSPACE, NAME, STATUS, REVISION, IMAGE, URL, CREATED];
const WORKLOAD: &[Column] = &[WORKSPACE, NAME, IMAGE, REGION, STATUS, CREATED];
const SNAPSHOT: &[Column] = &[
    ID,
    column("NAME", &["/name"]),
    column("SANDBOX", &["/sandboxName"]),
    STATUS,
    Column { heading: "SIZE", at: &["/sizeBytes"], form: Form::Size },
    CREATED,
];
const CATALOGUE: &[Column] = &[NAME, DISPLAY, DESCRIPTION];

const fn root(
    kind: KindName,
    names: &'static [&'static str],
    document: &'static str,
    columns: &'static [Column],
) -> Kind {
    Kind {
        names,
        document: Some(document),
        place: Place::Root(kind.plural()),
        read: Read::Alone,
        write: Write::Upsert,
        columns,
    }
}

/// A kind that the interface cannot replace.
const fn kept(kind: Kind) -> Kind {
    Kind { write: Write::CreateOnly, ..kind }
}

/// A kind that only the server makes, or that commands of its own make.
const fn shown(
    names: &'static [&'static str],
    path: &'static str,
    columns: &'static [Column],
) -> Kind {
    Kind {
        names,
        document: None,
        place: Place::Root(path),
        read: Read::InList,
        write: Write::Never,
        columns,
    }
}

const fn below(
    names: &'static [&'static str],
    of: &'static [&'static str],
    segment: &'static str,
    columns: &'static [Column],
) -> Kind {
    Kind {
        names,
        document: None,
        place: Place::Below { of, segment, named: None },
        read: Read::InList,
        write: Write::Never,
        columns,
    }
}

/// The same kind, whose objects have addresses of their own.
const fn alone(kind: Kind) -> Kind {
    Kind { read: Read::Alone, ..kind }
}

pub(crate) const KINDS: &[Kind] = &[
    root(KindName::Agent, &["agents", "agent", "ag"], "Agent", DEPLOYMENT),
    root(
        KindName::Application,
        &["applications", "application", "app", "apps"],
        "Application",
        DEPLOYMENT,
    ),
    root(KindName::Function, &["functions", "function", "fn", "mcp"], "Function", DEPLOYMENT),
    root(KindName::Job, &["jobs", "job", "j"], "Job", WORKLOAD),
    root(
        KindName::Model,
        &["models", "model", "ml"],
        "Model",
        &[WORKSPACE, NAME, REGION, STATUS, CREATED],
    ),
    root(KindName::Sandbox, &["sandboxes", "sandbox", "sbx"], "Sandbox", WORKLOAD),
    root(
        KindName::Policy,
        &["policies", "policy", "pol"],
        "Policy",
        &[WORKSPACE, NAME, column("TYPE", &["/spec/type"]), CREATED],
    ),
    root(
        KindName::Volume,
        &["volumes", "volume", "vol"],
        "Volume",
        &[
            WORKSPACE,
            NAME,
            column("SIZE MB", &["/spec/size"]),
            column("ATTACHED TO", &["/state/attachedTo"]),
            REGION,
            STATUS,
            CREATED,
        ],
    ),
    root(
        KindName::Drive,
        &["drives", "drive"],
        "Drive",
        &[WORKSPACE, NAME, REGION, STATUS, CREATED],
    ),
    Kind {
        names: &[
            "connections",
            "connection",
            "integrationconnections",
            "integrationconnection",
            "integration-connection",
            "ic",
        ],
        document: Some("IntegrationConnection"),
        place: Place::Root("integrations/connections"),
        read: Read::Alone,
        write: Write::CreateOnly,
        columns: &[WORKSPACE, NAME, column("INTEGRATION", &["/spec/integration"]), CREATED],
    },
    root(
        KindName::VolumeTemplate,
        &["volumetemplates", "volumetemplate", "volume-templates", "volume-template", "vt"],
        "VolumeTemplate",
        &[
            WORKSPACE,
            NAME,
            column("DEFAULT SIZE MB", &["/spec/defaultSize"]),
            column("LATEST", &["/state/latestVersion"]),
            column("VERSIONS", &["/state/versionCount"]),
            column("STATUS", &["/state/status"]),
            CREATED,
        ],
    ),
    root(
        KindName::CustomDomain,
        &["customdomains", "customdomain", "custom-domain", "cd"],
        "CustomDomain",
        &[WORKSPACE, NAME, column("STATUS", &["/spec/status", "/status"]), REGION, CREATED],
    ),
    kept(root(KindName::Vpc, &["vpcs", "vpc"], "VPC", &[WORKSPACE, NAME, REGION, STATUS, CREATED])),
    alone(shown(
        &["images", "image", "img"],
        "images",
        &[
            WORKSPACE,
            column("TYPE", &["/metadata/resourceType"]),
            NAME,
            Column { heading: "SIZE", at: &["/spec/size"], form: Form::Size },
            Column { heading: "TAGS", at: &["/spec/tags"], form: Form::Count },
            Column { heading: "LATEST", at: &["/spec/tags"], form: Form::Tag },
            Column { heading: "DEPLOYED", at: &["/metadata/lastDeployedAt"], form: Form::Age },
        ],
    )),
    alone(shown(&["templates", "template", "tpl"], "templates", CATALOGUE)),
    shown(&["mcp-hub", "mcphub"], "mcp/hub", CATALOGUE),
    shown(&["sandbox-hub", "sandboxhub"], "sandbox/hub", CATALOGUE),
    shown(
        &["users", "user"],
        "users",
        &[
            column("EMAIL", &["/email"]),
            column("ROLE", &["/role"]),
            column("ACCEPTED", &["/accepted"]),
        ],
    ),
    shown(
        &["service-accounts", "service-account", "serviceaccounts", "serviceaccount", "sa"],
        "service_accounts",
        &[column("CLIENT ID", &["/client_id"]), NAME, DESCRIPTION, CREATED],
    ),
    shown(&["secrets", "secret"], "secrets", &[NAME, CREATED]),
    alone(shown(
        &["workspaces", "workspace", "ws"],
        "workspaces",
        &[NAME, DISPLAY, column("STATUS", &["/status"]), CREATED],
    )),
    shown(
        &["locations", "location"],
        "locations",
        &[
            column("LOCATION", &["/location"]),
            REGION,
            column("CONTINENT", &["/continent"]),
            column("COUNTRY", &["/country"]),
            STATUS,
        ],
    ),
    shown(
        &["all-egressgateways", "all-egress-gateways"],
        "egressgateways",
        &[WORKSPACE, NAME, column("VPC", &["/metadata/vpcName", "/metadata/vpc"]), STATUS, CREATED],
    ),
    shown(
        &["all-egressips", "all-egress-ips"],
        "egressips",
        &[WORKSPACE, NAME, PUBLIC_ADDRESS, STATUS, CREATED],
    ),
    Kind {
        names: &["egressgateways", "egressgateway", "egress-gateway", "eg"],
        document: Some("EgressGateway"),
        place: Place::Below { of: &["vpcs"], segment: "egressgateways", named: Some("vpcName") },
        read: Read::Alone,
        write: Write::CreateOnly,
        columns: &[WORKSPACE, NAME, STATUS, CREATED],
    },
    Kind {
        names: &["ips", "ip", "egressips", "egressip", "egress-ip"],
        document: Some("EgressIP"),
        place: Place::Below { of: &["egressgateways"], segment: "ips", named: Some("gatewayName") },
        read: Read::Alone,
        write: Write::CreateOnly,
        columns: &[WORKSPACE, NAME, PUBLIC_ADDRESS, STATUS, CREATED],
    },
    Kind {
        names: &["previews", "preview"],
        document: Some("Preview"),
        place: Place::Below {
            of: &["sandboxes"],
            segment: "previews",
            named: Some("resourceName"),
        },
        read: Read::Alone,
        write: Write::Upsert,
        columns: &[
            WORKSPACE,
            NAME,
            column("PORT", &["/spec/port"]),
            column("PUBLIC", &["/spec/public"]),
            column("URL", &["/spec/url"]),
            CREATED,
        ],
    },
    Kind {
        names: &["tokens", "token", "previewtokens", "previewtoken", "preview-token"],
        document: Some("PreviewToken"),
        place: Place::Below { of: &["previews"], segment: "tokens", named: Some("previewName") },
        read: Read::InList,
        write: Write::Append,
        columns: &[
            NAME,
            column("EXPIRES", &["/spec/expiresAt"]),
            column("EXPIRED", &["/spec/expired"]),
            column("TOKEN", &["/spec/token"]),
        ],
    },
    alone(below(
        &["schedules", "schedule"],
        &["sandboxes"],
        "schedules",
        &[
            ID,
            column("TYPE", &["/type"]),
            column("VALUE", &["/value"]),
            column("COMMAND", &["/input/command"]),
            CREATED,
        ],
    )),
    below(
        &["schedule-executions", "schedule-execution"],
        &["sandboxes"],
        "schedule-executions",
        &[
            ID,
            column("SCHEDULE", &["/scheduleId"]),
            column("STATUS", &["/statusCode"]),
            column("EXECUTED", &["/executedAt"]),
        ],
    ),
    alone(shown(&["snapshots", "snapshot"], "snapshots", SNAPSHOT)),
    // Snapshots of one sandbox; `sandbox box snapshots` leads here too.
    below(&["sandbox-snapshots"], &["sandboxes"], "snapshots", SNAPSHOT),
    alone(below(
        &["executions", "execution", "exec"],
        &["jobs"],
        "executions",
        &[
            ID,
            STATUS,
            column("TASKS", &["/stats/total"]),
            column("RUNNING", &["/stats/running"]),
            column("SUCCEEDED", &["/stats/success"]),
            column("FAILED", &["/stats/failure"]),
            column("RETRIED", &["/stats/retried"]),
            CREATED,
        ],
    )),
    below(
        &["tasks", "task"],
        &["executions"],
        "tasks",
        &[
            column("TASK", &["/metadata/name"]),
            STATUS,
            column("REASON", &["/conditions/0/message", "/conditions/0/reason"]),
            // When the program started is known at its end; before, when a machine took the task.
            Column {
                heading: "STARTED",
                at: &["/metadata/startedAt", "/metadata/scheduledAt"],
                form: Form::Age,
            },
            Column { heading: "ENDED", at: &["/metadata/completedAt"], form: Form::Age },
        ],
    ),
    below(
        &["revisions", "revision", "rev"],
        &["agents", "applications", "functions", "jobs", "models"],
        "revisions",
        &[
            ID,
            column("ACTIVE", &["/active"]),
            column("CANARY", &["/canary"]),
            column("TRAFFIC", &["/trafficPercent"]),
            STATUS,
            CREATED,
        ],
    ),
    below(
        &["keys", "key", "api-keys", "api_keys"],
        &["service-accounts"],
        "api_keys",
        &[ID, NAME, column("EXPIRES IN", &["/expires_in"]), CREATED],
    ),
];
