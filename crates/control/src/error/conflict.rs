//! Conflicts of a valid write with what exists.

use types::KindName;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Conflict {
    #[error("{what} was changed meanwhile; read it and try again")]
    Stale { what: String },
    #[error("this `Idempotency-Key` was used for another request; use a new key for a new request")]
    KeyReused,
    #[error(
        "the template has a version `{version}` already, whose content does not change; upload another one"
    )]
    TemplateVersion { version: String },
    #[error("the drive is mounted in the sandbox `{sandbox}`; unmount it there first")]
    DriveMounted { sandbox: String },
    #[error("the volume is attached to {holder}; delete that first")]
    Attached { holder: String },
    #[error(
        "a trigger of another object answers at `{address}` already; choose another `configuration.path`"
    )]
    TriggerAddress { address: String },
    #[error("the gateway is used by the sandbox `{sandbox}`; delete that first")]
    GatewayUsed { sandbox: String },
    #[error("the address is what the sandbox `{sandbox}` leaves with; delete that first")]
    EgressIpUsed { sandbox: String },
    #[error(
        "no {family} address is free: delete one that nothing leaves with, or have whoever runs the server add some to `egress.addresses`"
    )]
    NoEgressAddress { family: &'static str },
    #[error("the workspace has {max} egress addresses, as many as one may have; delete one first")]
    ManyEgressAddresses { max: usize },
    #[error(
        "the VPC `{vpc}` has a gateway `{name}` already, and sandboxes name gateways without their VPC; choose another name"
    )]
    GatewayThere { name: String, vpc: String },
    #[error("the VPC has the sandbox `{sandbox}` in it; delete that first")]
    VpcUsed { sandbox: String },
    #[error(
        "the connection is used by the {kind} `{name}`; take it out of its `spec.integrationConnections` first"
    )]
    ConnectionUsed { kind: KindName, name: String },
    #[error("the model `{model}` leads to it; take it out of its `spec.routing` first")]
    ModelUsed { model: String },
    #[error("the sandbox has a snapshot named `{name}`; choose another name, or delete that first")]
    SnapshotNamed { name: String },
    #[error(
        "snapshots of several sandboxes have the name `{name}`; name the one you mean by its id"
    )]
    SnapshotsNamed { name: String },
    #[error("the snapshot is not ready: {why}")]
    SnapshotNotReady { why: String },
    #[error("the sandbox is {status}; {wants}")]
    SandboxState { status: &'static str, wants: &'static str },
    #[error("the domain was registered anew meanwhile; verify it again")]
    DomainRegisteredAnew,
    /// Deliberately does not say whose domain it is.
    #[error(
        "`{name}` is verified for another workspace, whose TXT record is still there: have it shared or deleted there, or remove that record"
    )]
    DomainInUse { name: String },
    #[error("the domain is shared with `{workspace}` already")]
    DomainShared { workspace: String },
    #[error("the workspace `{workspace}` has a domain of this name")]
    DomainThere { workspace: String },
    #[error("the image is shared with `{workspace}` already")]
    ImageShared { workspace: String },
    #[error("the workspace `{workspace}` has an image of this name")]
    ImageThere { workspace: String },
    #[error(
        "the preview `{preview}` of the sandbox `{sandbox}` has this address; choose another prefix, or send `force=true`"
    )]
    OwnPreviewThere { preview: String, sandbox: String },
    #[error("the address `{address}` is taken; choose another prefix")]
    AddressTaken { address: String },
}
