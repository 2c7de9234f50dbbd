//! Things other than resources that do not exist.

use types::KindName;

const NO_UPLOAD: &str = "no upload is awaited at this address; apply the resource again with `upload=true` to get a new one";

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Absent {
    #[error("the drive has no folder `{folder}`")]
    DriveFolder { folder: String },
    #[error("there is no such account among yours; GET /accounts lists them")]
    Account,
    #[error("you have no workspace `{name}`")]
    Workspace { name: String },
    #[error("this account has no other workspace `{name}`")]
    OtherWorkspace { name: String },
    #[error("there is no such other workspace; name `targetAccountId` for one of another account")]
    ShareTarget,
    #[error("no share of this id waits for this workspace")]
    PendingShare,
    #[error("the image has no tag `{tag}`")]
    ImageTag { tag: String },
    #[error("the image is not shared with `{workspace}`")]
    ImageShare { workspace: String },
    #[error("the domain is not shared with `{workspace}`")]
    DomainShare { workspace: String },
    #[error("the preview has no token of this name or value")]
    PreviewToken,
    #[error("the template has no version `{version}`")]
    TemplateVersion { version: String },
    #[error("there is no {kind} with the external id `{id}`")]
    ExternalId { kind: KindName, id: String },
    #[error("the account has no budget `{name}`")]
    Budget { name: String },
    #[error("the job has no execution `{name}`")]
    Execution { name: String },
    #[error("the execution is gone: its workspace was deleted")]
    ExecutionOfGoneWorkspace,
    #[error("there is no such workload any more")]
    Workload,
    #[error("there is no feature flag of this key")]
    Feature,
    #[error("there is no template of this name; GET /templates lists them")]
    Template,
    #[error("{NO_UPLOAD}")]
    Upload,
    #[error("there is no snapshot `{id}` here")]
    Snapshot { id: String },
    #[error("the connection's provider lists no model of this id")]
    ProviderModel,
    #[error("no integration of this name is known")]
    Integration,
}
