//! Requests that cannot be fulfilled as they are: the caller has to ask for something else.

use types::{ApiVersion, KindName};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    #[error("`path` {0}")]
    DriveFolder(String),
    #[error("the drive `{drive}` {why}")]
    DriveOnOtherMachine { drive: String, why: String },
    #[error("the image is shared; take the shares back first")]
    ImageShared,
    #[error("the image is deployed as `{reference}`; remove what runs it first")]
    ImageDeployed { reference: String },
    #[error("the tag `{tag}` is deployed; remove what runs it first")]
    TagDeployed { tag: String },
    #[error("the image is shared by `{owner}`; only that workspace can share it on")]
    ImageOfOther { owner: String },
    #[error("the image is shared by `{owner}`; only that workspace can change it")]
    ImageKeptElsewhere { owner: String },
    #[error("a repository has at most {max} tags; delete some first")]
    ManyTags { max: usize },
    #[error("one `{above}` has at most {max} `{kind}` objects below it; delete some first")]
    ManyBelow { kind: KindName, above: KindName, max: i64 },
    #[error("the image cannot be had: {why}")]
    ImageNotHad { why: String },
    #[error("the image is shared by `{owner}`; only that workspace can build it")]
    ImageBuiltByOther { owner: String },
    #[error("only verified domains of previews can be shared; verify the domain first")]
    DomainUnverified,
    /// Not a conflict: clients that create something take one to mean that its name is taken.
    #[error("the volume `{volume}` is attached to {holder}; delete that first")]
    VolumeAttached { volume: String, holder: String },
    #[error("the volume `{volume}` is in another region than the {kind}")]
    VolumeElsewhere { volume: String, kind: KindName },
    #[error("the volume `{volume}` {why}")]
    VolumeOnOtherMachine { volume: String, why: String },
    #[error(
        "`spec.size` is {size_mb} and must be at least {needs_mb}: what the template holds needs that much"
    )]
    TemplateLarger { size_mb: u32, needs_mb: u32 },
    #[error(
        "`spec.template`: the volume template `{template}` has no version `{version}` that is ready"
    )]
    NoTemplateVersion { template: String, version: String },
    #[error("the volume template `{template}` is kept by another machine of this installation")]
    TemplateOnOtherMachine { template: String },
    #[error(
        "`spec.template`: the volume template `{template}` has no content yet; upload a version"
    )]
    EmptyTemplate { template: String },
    #[error(
        "`version` must have 1 to {max} letters, digits, `.`, `_` or `-`, begin with a letter or a digit, and not be `latest`"
    )]
    TemplateVersionName { max: usize },
    #[error("the sandbox {why}")]
    SandboxOnOtherMachine { why: String },
    #[error("the snapshot {why}")]
    SnapshotOnOtherMachine { why: String },
    /// Not a conflict, as below: a fork takes snapshots too.
    #[error("the snapshot cannot be taken: {why}")]
    SnapshotFiles { why: String },
    /// Not a conflict, as below.
    #[error("the machine does not have the files of the snapshot any more; delete it")]
    SnapshotLost,
    /// Not a conflict: clients that fork take one to mean that the name of the fork is taken.
    #[error(
        "the snapshot was taken over another image: `{image}`, as it was then; what begins with it needs that one"
    )]
    SnapshotImage { image: String },
    #[error("a sandbox has at most {max} schedules; delete one first")]
    ManySchedules { max: i64 },
    #[error(
        "`spec.network.egress.gateway`: there is no single gateway `{name}`; name the VPC that has it in `spec.vpc`"
    )]
    GatewayUnknown { name: String },
    #[error(
        "`spec.network.egress.gateway`: the gateway `{name}` is in the region `{region}`, and the sandbox is not"
    )]
    GatewayElsewhere { name: String, region: String },
    #[error(
        "`spec.network.egress.gateway`: the gateway `{name}` has no address; allocate one first, with POST to its `ips`"
    )]
    GatewayWithoutAddress { name: String },
    #[error("the VPC `{name}` belongs to the workspace and stays")]
    DefaultVpc { name: &'static str },
    #[error("the only version of a template cannot be removed; remove the template")]
    LastTemplateVersion,
    #[error("the job is disabled; set `spec.enabled` to true first")]
    JobDisabled,
    #[error("the {kind} is disabled; set `spec.enabled` to true first")]
    Disabled { kind: &'static str },
    #[error("the trigger is disabled; set its `enabled` to true first")]
    TriggerDisabled,
    #[error("`memory` must not be more than the {limit} MB of the job")]
    MemoryAboveJob { limit: i64 },
    #[error("`workspace`: the account has no workspace `{name}`")]
    BudgetWorkspace { name: String },
    #[error("`offset` must be at least 0")]
    Offset,
    #[error("`limit` must be at least 1")]
    PageSize,
    #[error("`q` must have 2 to 200 characters")]
    SearchText,
    #[error("`externalId` has at most {max} characters")]
    ExternalId { max: usize },
    #[error("`status` must list statuses out of {known}, separated by commas")]
    Status { known: String },
    #[error(transparent)]
    Cursor(#[from] BadCursor),
    #[error(
        "there are more than {limit} objects: ask for pages with the version header `{version}`"
    )]
    LongList { limit: i64, version: ApiVersion },
    #[error(
        "the objects have more than {limit} bytes in all: ask for pages with the version header \
         `{version}`"
    )]
    LargeList { limit: usize, version: ApiVersion },
    #[error(
        "so many objects from the end have more than {limit} bytes in all: ask for fewer (`limit`)"
    )]
    LargeEnd { limit: usize },
}

/// Why a cursor is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadCursor {
    #[error(
        "`cursor` is not one that this list gave out for the same query; start again without it"
    )]
    Foreign,
    #[error("`cursor` is older than 24 hours; start again without it")]
    Expired,
    /// The cursor bears our signature, so only another release can have written this form.
    #[error("`cursor` is not of this release; start again")]
    OtherRelease,
}
