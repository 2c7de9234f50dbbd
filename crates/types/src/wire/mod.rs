//! Requests and answers other than the kinds of resources.

mod answer;
pub(crate) mod bill;
mod catalog;
mod delivery;
mod domain;
mod execution;
mod identity;
mod image;
mod integration;
mod invitation;
mod log;
mod metrics;
mod model_usage;
mod requests;
mod sandbox;
mod workspace;

pub use answer::{
    CleanedImages, Deleted, DriveAccessToken, EgressGatewayUsage, JsonWebKeys, Message,
    PolicyUsages, PolicyUser, TemplateVersionDeleted,
};
pub use bill::{
    AccountPrices, Budget, BudgetAlert, BudgetCall, BudgetRequest, PriceMap, PriceVersion,
};
pub use catalog::{
    ChangelogEntry, ChangelogResponse, Configuration, Continent, Country, Feature, Features,
    LocationResponse, PrivateLocation, PublicIp, PublicIps, Region, SandboxDefinition, Template,
    TemplateVariable,
};
pub use delivery::Delivery;
pub use domain::{CustomDomainShareRequest, CustomDomainShareTarget};
pub use execution::{
    CreateJobExecutionOutput, CreateJobExecutionRequest, JobExecution, JobExecutionMetadata,
    JobExecutionSpec, JobExecutionStats, JobExecutionStatus, JobExecutionTask,
    JobExecutionTaskCondition, JobExecutionTaskMetadata, JobExecutionTaskSpec,
    JobExecutionTaskStatus, TASKS_MAX,
};
pub use identity::{
    Account, ApiKey, ApiKeyBudget, ApiKeyRequest, Role, ServiceAccount, ServiceAccountRequest,
    ServiceAccountUpdate, UserRoleRequest, UserSource, WorkspaceUser,
};
pub use image::{
    CreateImageAnswer, CreateImageRequest, ImageShareRequest, ImageShareTarget,
    PendingImageShareRender, ShareStatus,
};
pub use integration::{
    Entrypoint, Form, Integration, IntegrationEndpoint, IntegrationEndpointToken,
    IntegrationOrganization, IntegrationRepository, McpDefinition, OAuth,
};
pub use invitation::{
    InviteUserRequest, PendingInvitation, PendingInvitationAccept, PendingInvitationRender,
    PendingInvitationRenderAccount, PendingInvitationRenderInvitedBy,
    PendingInvitationRenderWorkspace, PendingInvitationWorkspaceDetails,
};
pub use log::{LogAnswer, LogLine, LogTime, WorkloadLogs};
pub use metrics::{
    AccountMetrics, AccountMetricsDataEntry, AccountMetricsMeta, AccountMetricsPoint,
    AccountMetricsSummary, EntrySummary, GroupBy, MetricsValues, Resolution,
};
pub use model_usage::{
    ModelUsage, ModelUsageBy, ModelUsageEntry, ModelUsageResolution, ModelUsageSum,
};
pub use requests::{RequestAnswer, RequestCounts, WorkloadRequests};
pub use sandbox::{
    ForkTarget, SandboxErrorBody, SandboxForkRequest, SandboxForkResponse, SandboxRestoreResponse,
    SandboxScheduleExecution, SandboxScheduleExecutionStatus,
    SandboxScheduleExecutionStatusMetrics, SandboxScheduleMetrics, SandboxSnapshotRequest,
};
pub use workspace::{
    GroupWorkspaceMapping, Workspace, WorkspaceAvailability, WorkspaceHipaaInfo,
    WorkspaceHipaaUnsafe, WorkspaceNameRequest, WorkspaceReason, WorkspaceRuntime,
    WorkspaceSandboxSettings, WorkspaceStatus,
};

use serde_json::{Map, Value};

/// An object whose members the interface leaves open.
pub type Free = Map<String, Value>;
