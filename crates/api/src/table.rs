//! The table of everything that is served, one line each: the operations, from which the router,
//! the checks of credentials and scopes, and the OpenAPI document are made, and in [`listed`] the
//! addresses that are not operations. It is excluded from formatting, so that each address stays on
//! one line.

mod listed;

pub(crate) use listed::{TRIGGERS, documents, oauth, uploads, webhooks};

use crate::http::call::{Call, Input, Query, Who};
use crate::http::error::Error;
use crate::http::operation::{Base, Handler, Line, Needs, Operation};
use crate::http::reply::Answer;
use crate::routes::{
    accounts, api_keys, budgets, catalogues, changes, custom_domains, deliveries, drives, egress,
    executions, image_shares, images, integrations, invitations, jobs, logs, metrics, model_usage,
    policies, previews, prices, quotas, requests, resources, sandboxes, schedules, seal_keys,
    secrets, service_accounts, snapshots, users, volume_templates, volumes, workspaces,
};
use control::builds::Buildable;
use control::engine::{Managed, Paging};
use http::Method;
use std::future::Future;
use types::Scope;
use types::Scope as S;
use types::Verb::{
    Accept, Create, Decline, Delete, Get, Invite, Leave, List, Remove, Share, Update, Upsert, Write,
};
use types::kinds::{
    Agent, Application, CustomDomain, Drive, EgressGateway, EgressIp, Function,
    IntegrationConnection, Job, Model, Policy, Preview, PreviewToken, Sandbox, Schedule, Secret,
    Volume, VolumeTemplate, Vpc,
};

const GET: Method = Method::GET;
const POST: Method = Method::POST;
const PUT: Method = Method::PUT;
const DELETE: Method = Method::DELETE;

#[derive(Default)]
struct Table(Vec<Operation>);

impl Table {
    /// Adds an operation that needs the given scopes; an empty list means that it needs `admin`.
    fn add<W, Q, B, A, F, R>(
        &mut self,
        method: Method,
        path: &'static str,
        id: &str,
        summary: &str,
        scopes: &'static [Scope],
        handler: F,
    ) where
        W: Who,
        Q: Query,
        B: Input,
        A: Answer,
        F: Fn(Call<W, Q, B>) -> R + Copy + Send + Sync + 'static,
        R: Future<Output = Result<A, Error>> + Send + 'static,
    {
        let needs = Needs::all_of(scopes);
        self.put(Base::Management, method, path, (id, summary), needs, Handler::of(handler));
    }

    /// Adds an operation with its own base and needs.
    fn put(
        &mut self,
        base: Base,
        method: Method,
        path: &'static str,
        words: (&str, &str),
        needs: Needs,
        handler: Handler,
    ) {
        let line = Line { method, base, path, id: words.0.into(), summary: words.1.into(), needs };
        self.0.push(Operation::new(line, handler));
    }

    /// Adds the read operations of a kind, which are the same for nearly all kinds.
    fn reads<K: Managed>(&mut self, words: &Words) {
        let Words { path, item, noun, what, list, get, .. } = *words;
        let (id, lists) = (format!("List{}", several(noun)), format!("Lists {}", several(what)));
        match K::PAGING {
            Paging::Pages(_) => self.add(GET, path, &id, &lists, list, resources::list::<K>),
            Paging::Bare => self.add(GET, path, &id, &lists, list, resources::list_bare::<K>),
        }
        let (id, reads) = (format!("Get{noun}"), format!("Reads one {what}"));
        self.add(GET, item, &id, &reads, get, resources::get::<K>);
    }

    /// Adds all five operations of a kind.
    fn kind<K: Managed>(&mut self, item: &'static str, noun: &'static str, what: &'static str) {
        let words = Words::of::<K>(item, noun, what);
        self.reads::<K>(&words);
        let (id, makes) = (format!("Create{noun}"), format!("Makes one {what}"));
        self.add(POST, words.path, &id, &makes, words.create, resources::create::<K>);
        let (id, replaces) = (format!("Update{noun}"), format!("Replaces one {what}"));
        self.add(PUT, item, &id, &replaces, words.update, resources::replace::<K>);
        self.removes::<K>(&words);
    }

    /// Like [`Table::kind`], for kinds that can also be built from uploaded sources.
    fn built<K: Buildable>(&mut self, item: &'static str, noun: &'static str, what: &'static str) {
        let words = Words::of::<K>(item, noun, what);
        self.reads::<K>(&words);
        let (id, makes) = (format!("Create{noun}"), format!("Makes one {what}"));
        self.add(POST, words.path, &id, &makes, words.create, resources::create_or_build::<K>);
        let (id, replaces) = (format!("Update{noun}"), format!("Replaces one {what}"));
        self.add(PUT, item, &id, &replaces, words.update, resources::replace_or_build::<K>);
        self.removes::<K>(&words);
    }

    fn removes<K: Managed>(&mut self, words: &Words) {
        let Words { item, noun, what, delete, .. } = *words;
        let (id, removes) = (format!("Delete{noun}"), format!("Removes one {what}"));
        self.add(DELETE, item, &id, &removes, delete, resources::remove::<K>);
    }
}

/// Names, paths and scopes of the operations of a kind.
#[derive(Clone, Copy)]
struct Words {
    path: &'static str,
    item: &'static str,
    noun: &'static str,
    what: &'static str,
    list: &'static [Scope],
    get: &'static [Scope],
    create: &'static [Scope],
    update: &'static [Scope],
    delete: &'static [Scope],
}

impl Words {
    /// Returns the words for a kind: the collection is above the item, and the scopes are those of
    /// the kind.
    fn of<K: Managed>(item: &'static str, noun: &'static str, what: &'static str) -> Self {
        let scopes = |verb| K::NAME.scope(verb).alone();
        Self {
            path: item.rsplit_once('/').map_or(item, |(path, _)| path),
            item,
            noun,
            what,
            list: scopes(List),
            get: scopes(Get),
            create: scopes(Create),
            update: scopes(Update),
            delete: scopes(Delete),
        }
    }
}

/// Returns the plural of a name.
fn several(what: &str) -> String {
    let (one, of) = what.find(" of ").map_or((what, ""), |at| what.split_at(at));
    match one.strip_suffix('y') {
        Some(stem) => format!("{stem}ies{of}"),
        None if one.ends_with('x') => format!("{one}es{of}"),
        None => format!("{one}s{of}"),
    }
}

/// Returns all operations.
pub(crate) fn operations() -> Vec<Operation> {
    let mut table = Table::default();
    workloads(&mut table);
    sandboxes_and_below(&mut table);
    storage(&mut table);
    network(&mut table);
    integrations_and_policies(&mut table);
    images_and_shares(&mut table);
    people(&mut table);
    keys(&mut table);
    catalogue(&mut table);
    watching_and_billing(&mut table);
    table.0
}

#[rustfmt::skip]
fn workloads(t: &mut Table) {
    t.built::<Agent>("/agents/{agentName}", "Agent", "agent");
    t.add(GET, "/agents/{agentName}/revisions", "ListAgentRevisions", "Lists the revisions of an agent", &[S::Agents(List)], resources::revisions::<Agent>);
    t.built::<Application>("/applications/{applicationName}", "Application", "application");
    t.add(GET, "/applications/{applicationName}/revisions", "ListApplicationRevisions", "Lists the revisions of an application", &[S::Applications(List)], resources::application_revisions);
    t.add(POST, "/applications/{applicationName}/customdomains", "CreateApplicationCustomDomain", "Registers a domain for one application", &[S::CustomDomains(Create)], custom_domains::create_for_application);
    t.built::<Function>("/functions/{functionName}", "Function", "MCP server");
    t.add(GET, "/functions/{functionName}/revisions", "ListFunctionRevisions", "Lists the revisions of an MCP server", &[S::Functions(Get)], resources::revisions::<Function>);
    t.kind::<Model>("/models/{modelName}", "Model", "model API");
    t.add(GET, "/models/{modelName}/revisions", "ListModelRevisions", "Lists the revisions of a model API", &[S::Models(List)], resources::revisions::<Model>);
    t.add(GET, "/models/{modelName}/usage", "GetModelUsage", "Reads what one model API used", &[S::Models(Get)], model_usage::of_model);
    t.add(GET, "/usage/models", "ListModelUsage", "Reads what all model APIs of the workspace used", &[S::Models(List)], model_usage::of_all);
    t.built::<Job>("/jobs/{jobId}", "Job", "job");
    t.add(GET, "/jobs/{jobId}/revisions", "ListJobRevisions", "Lists the revisions of a job", &[S::Jobs(List)], resources::revisions::<Job>);
    t.add(GET, "/jobs/{jobId}/executions", "ListJobExecutions", "Lists the executions of a job", &[S::Jobs(List)], executions::list);
    t.add(POST, "/jobs/{jobId}/executions", "CreateJobExecution", "Starts an execution of a job", &[S::Jobs(Create)], jobs::execute);
    t.put(Base::Inference, POST, "/{workspace}/jobs/{jobId}/executions", ("CreateJobExecutionByAddress", "Starts an execution of a job, by its inference address"), Needs::Scopes(&[S::Jobs(Create)]), Handler::of(jobs::execute));
    t.add(GET, "/jobs/{jobId}/executions/{executionId}", "GetJobExecution", "Reads one execution", &[S::Jobs(Get)], executions::get);
    t.add(DELETE, "/jobs/{jobId}/executions/{executionId}", "DeleteJobExecution", "Cancels one execution", &[S::Jobs(Delete)], executions::cancel);
    t.add(GET, "/jobs/{jobId}/executions/{executionId}/tasks", "ListJobExecutionTasks", "Lists the tasks of an execution", &[S::Jobs(Get)], executions::tasks);
    t.add(GET, "/jobs/{jobId}/deliveries", "ListJobDeliveries", "Lists the callbacks of a job, newest first", &[S::Jobs(List)], deliveries::of_job);
}

#[rustfmt::skip]
fn sandboxes_and_below(t: &mut Table) {
    let words = Words::of::<Sandbox>("/sandboxes/{sandboxName}", "Sandbox", "sandbox");
    t.reads::<Sandbox>(&words);
    t.add(POST, words.path, "CreateSandbox", "Makes one sandbox", words.create, sandboxes::create);
    t.add(PUT, words.item, "UpdateSandbox", "Replaces one sandbox", words.update, sandboxes::replace);
    t.add(DELETE, words.item, "DeleteSandbox", "Removes one sandbox and what belongs to it", words.delete, resources::remove::<Sandbox>);
    t.add(GET, "/sandboxes/by-external-id/{externalId}", "GetSandboxByExternalId", "Finds the newest sandbox with the caller's id", words.get, resources::by_external_id::<Sandbox>);
    t.add(POST, "/sandboxes/{sandboxName}/fork", "ForkSandbox", "Clones a sandbox", words.create, sandboxes::fork);
    t.add(GET, "/sandboxes/{sandboxName}/snapshots", "ListSandboxSnapshots", "Lists the snapshots of a sandbox", words.list, snapshots::list_of_sandbox);
    t.add(POST, "/sandboxes/{sandboxName}/snapshots", "CreateSandboxSnapshot", "Takes a snapshot", words.update, snapshots::create_of_sandbox);
    t.add(DELETE, "/sandboxes/{sandboxName}/snapshots/{snapshotId}", "DeleteSandboxSnapshot", "Removes a snapshot", words.delete, snapshots::remove_of_sandbox);
    t.add(POST, "/sandboxes/{sandboxName}/snapshots/{snapshotId}/restore", "RestoreSandboxSnapshot", "Sets a sandbox back to one of its snapshots", words.update, snapshots::restore);
    t.add(POST, "/sandboxes/{sandboxName}/archive", "ArchiveSandbox", "Keeps the files of a sandbox and gives back the rest", words.update, sandboxes::archive);
    t.add(POST, "/sandboxes/{sandboxName}/unarchive", "UnarchiveSandbox", "Brings an archived sandbox back", words.update, sandboxes::unarchive);
    t.add(GET, "/snapshots", "ListSnapshots", "Lists snapshots of all sandboxes", words.list, snapshots::list);
    t.add(POST, "/snapshots", "CreateSnapshot", "Takes a snapshot of a sandbox", words.update, snapshots::create);
    t.add(GET, "/snapshots/{snapshotName}", "GetSnapshot", "Reads one snapshot", words.get, snapshots::get);
    t.add(DELETE, "/snapshots/{snapshotName}", "DeleteSnapshot", "Removes one snapshot", words.delete, snapshots::remove);
    t.add(POST, "/snapshots/{snapshotName}/fork", "ForkSnapshot", "Makes a sandbox or an application of a snapshot", words.create, snapshots::fork);
    let (schedules_path, schedule_path) = ("/sandboxes/{sandboxName}/schedules", "/sandboxes/{sandboxName}/schedules/{scheduleId}");
    t.add(GET, schedules_path, "ListSandboxSchedules", "Lists the schedules of a sandbox", words.get, schedules::list);
    t.add(POST, schedules_path, "CreateSandboxSchedule", "Makes one schedule of a sandbox", words.create, resources::create::<Schedule>);
    t.add(GET, schedule_path, "GetSandboxSchedule", "Reads one schedule of a sandbox", words.get, resources::get::<Schedule>);
    t.add(PUT, schedule_path, "UpdateSandboxSchedule", "Replaces one schedule of a sandbox", words.update, resources::replace::<Schedule>);
    t.add(DELETE, schedule_path, "DeleteSandboxSchedule", "Removes one schedule of a sandbox", words.delete, resources::remove::<Schedule>);
    t.add(GET, "/sandboxes/{sandboxName}/schedule-executions", "ListSandboxScheduleExecutions", "Lists what schedules did, newest first", words.get, schedules::executions);
    t.add(GET, "/schedules", "ListSchedules", "Lists the schedules of all sandboxes", words.get, schedules::list_all);
    t.add(GET, "/schedules/metrics", "GetSandboxScheduleMetrics", "Says how often schedules started something", words.get, schedules::metrics);
    t.add(GET, "/schedule-executions", "ListScheduleExecutions", "Lists what schedules of all sandboxes did, newest first", words.get, schedules::all_executions);
    let previews = Words::of::<Preview>("/sandboxes/{sandboxName}/previews/{previewName}", "SandboxPreview", "preview of a sandbox");
    t.reads::<Preview>(&Words { list: previews.get, ..previews });
    t.add(POST, previews.path, "CreateSandboxPreview", "Makes one preview of a sandbox", words.create, previews::create);
    t.add(PUT, previews.item, "UpdateSandboxPreview", "Replaces one preview of a sandbox", words.update, resources::replace::<Preview>);
    t.add(DELETE, previews.item, "DeleteSandboxPreview", "Removes one preview of a sandbox", words.delete, resources::remove::<Preview>);
    let tokens = "/sandboxes/{sandboxName}/previews/{previewName}/tokens";
    t.add(GET, tokens, "ListSandboxPreviewTokens", "Lists the tokens of a preview", words.get, resources::list_bare::<PreviewToken>);
    t.add(POST, tokens, "CreateSandboxPreviewToken", "Makes a token for a preview", words.update, resources::create::<PreviewToken>);
    t.add(DELETE, "/sandboxes/{sandboxName}/previews/{previewName}/tokens/{tokenName}", "DeleteSandboxPreviewToken", "Revokes a token of a preview", words.delete, previews::revoke_token);
}

#[rustfmt::skip]
fn storage(t: &mut Table) {
    let volumes_words = Words::of::<Volume>("/volumes/{volumeName}", "Volume", "volume");
    t.reads::<Volume>(&volumes_words);
    t.add(POST, volumes_words.path, "CreateVolume", "Makes one volume", volumes_words.create, volumes::create);
    t.add(PUT, volumes_words.item, "UpdateVolume", "Replaces one volume", volumes_words.update, volumes::replace);
    t.add(DELETE, volumes_words.item, "DeleteVolume", "Removes one volume", volumes_words.delete, resources::remove::<Volume>);
    t.add(GET, "/volumes/by-external-id/{externalId}", "GetVolumeByExternalId", "Finds a volume by the caller's id", &[S::Volumes(Get)], resources::by_external_id::<Volume>);
    let drives_words = Words::of::<Drive>("/drives/{driveName}", "Drive", "drive");
    t.reads::<Drive>(&drives_words);
    t.add(POST, drives_words.path, "CreateDrive", "Makes one drive", drives_words.create, drives::create);
    t.add(PUT, drives_words.item, "UpdateDrive", "Replaces one drive", drives_words.create, resources::replace::<Drive>);
    t.add(DELETE, drives_words.item, "DeleteDrive", "Removes one drive", drives_words.delete, drives::remove);
    t.add(DELETE, "/drives/{driveName}/folders", "DeleteDriveFolder", "Removes a folder of a drive", drives_words.delete, drives::remove_folder);
    t.add(GET, "/drives/by-external-id/{externalId}", "GetDriveByExternalId", "Finds a drive by the caller's id", &[S::Drives(Get)], resources::by_external_id::<Drive>);
    t.put(Base::Management, GET, "/drives/jwks.json", ("GetDriveJWKS", "Public keys that verify drive tokens"), Needs::Nothing, Handler::of(drives::jwks));
    t.add(POST, "/drives/{driveName}/access-token", "CreateDriveAccessToken", "Issues a short-lived token for a drive", &[S::Drives(Get)], drives::access_token);
    let templates = Words::of::<VolumeTemplate>("/volume_templates/{volumeTemplateName}", "VolumeTemplate", "volume template");
    t.reads::<VolumeTemplate>(&templates);
    t.add(POST, templates.path, "CreateVolumeTemplate", "Makes one volume template", templates.create, volume_templates::create);
    t.add(PUT, templates.item, "UpdateVolumeTemplate", "Makes or replaces one volume template", &[S::VolumeTemplates(Upsert)], volume_templates::upsert);
    t.add(DELETE, templates.item, "DeleteVolumeTemplate", "Removes one volume template", templates.delete, resources::remove::<VolumeTemplate>);
    t.add(DELETE, "/volume_templates/{volumeTemplateName}/versions/{versionName}", "DeleteVolumeTemplateVersion", "Removes one version of a template", templates.delete, volume_templates::remove_version);
}

#[rustfmt::skip]
fn network(t: &mut Table) {
    t.kind::<CustomDomain>("/customdomains/{domainName}", "CustomDomain", "custom domain");
    t.add(GET, "/customdomains/{domainName}/share", "ListCustomDomainShares", "Lists the workspaces that share a domain", &[S::CustomDomains(Get)], custom_domains::shares);
    t.add(POST, "/customdomains/{domainName}/share", "ShareCustomDomain", "Shares a verified domain within the account", &[S::CustomDomains(Update)], custom_domains::share);
    t.add(DELETE, "/customdomains/{domainName}/share/{targetWorkspace}", "UnshareCustomDomain", "Takes a share of a domain back", &[S::CustomDomains(Update)], custom_domains::unshare);
    t.add(POST, "/customdomains/{domainName}/verify", "VerifyCustomDomain", "Verifies a domain by its DNS records", &[S::CustomDomains(Update)], custom_domains::verify);
    let (vpc, gateway, ip) = ("/vpcs/{vpcName}", "/vpcs/{vpcName}/egressgateways/{gatewayName}", "/vpcs/{vpcName}/egressgateways/{gatewayName}/ips/{ipName}");
    t.add(GET, "/vpcs", "ListVPCs", "Lists VPCs", &[], resources::list_bare::<Vpc>);
    t.add(POST, "/vpcs", "CreateVPC", "Makes one VPC", &[], resources::create::<Vpc>);
    t.add(GET, vpc, "GetVPC", "Reads one VPC", &[], resources::get::<Vpc>);
    t.add(DELETE, vpc, "DeleteVPC", "Removes one VPC", &[], resources::remove::<Vpc>);
    t.add(GET, "/vpcs/{vpcName}/egressgateways", "ListEgressGateways", "Lists the egress gateways of a VPC", &[], resources::list_bare::<EgressGateway>);
    t.add(POST, "/vpcs/{vpcName}/egressgateways", "CreateEgressGateway", "Makes one egress gateway", &[], resources::create::<EgressGateway>);
    t.add(GET, gateway, "GetEgressGateway", "Reads one egress gateway", &[], resources::get::<EgressGateway>);
    t.add(DELETE, gateway, "DeleteEgressGateway", "Removes one egress gateway", &[], resources::remove::<EgressGateway>);
    t.add(GET, "/vpcs/{vpcName}/egressgateways/{gatewayName}/ips", "ListEgressIPs", "Lists the addresses of a gateway", &[], resources::list_bare::<EgressIp>);
    t.add(POST, "/vpcs/{vpcName}/egressgateways/{gatewayName}/ips", "CreateEgressIP", "Allocates an address", &[], resources::create::<EgressIp>);
    t.add(GET, ip, "GetEgressIP", "Reads one address", &[], resources::get::<EgressIp>);
    t.add(DELETE, ip, "DeleteEgressIP", "Releases one address", &[], resources::remove::<EgressIp>);
    t.add(GET, "/egressgateways", "ListAllEgressGateways", "Lists the egress gateways of all VPCs", &[S::EgressGateways(List)], resources::everywhere::<EgressGateway>);
    t.add(GET, "/egressgateways/usage", "GetEgressGatewayUsage", "Says which sandboxes use which gateway", &[S::EgressGateways(List), S::Sandboxes(List)], egress::usage);
    t.add(GET, "/egressips", "ListAllEgressIPs", "Lists the addresses of all gateways", &[S::EgressIps(List)], resources::everywhere::<EgressIp>);
    t.add(GET, "/publicIps", "ListPublicIps", "Lists the shared outgoing addresses per region", &[], catalogues::public_ips);
}

#[rustfmt::skip]
fn integrations_and_policies(t: &mut Table) {
    t.kind::<IntegrationConnection>("/integrations/connections/{connectionName}", "IntegrationConnection", "integration connection");
    t.add(GET, "/integrations/connections/{connectionName}/endpointConfigurations", "GetIntegrationConnectionModelEndpointConfigurations", "Lists the endpoints that a connection's provider serves", &[S::Integrations(List)], integrations::endpoints);
    t.add(GET, "/integrations/connections/{connectionName}/models", "ListIntegrationConnectionModels", "Lists the models that a connection reaches", &[S::Integrations(List)], integrations::models);
    t.add(GET, "/integrations/connections/{connectionName}/models/{modelId}", "GetIntegrationConnectionModel", "Reads one model that a connection reaches", &[S::Integrations(Get)], integrations::model);
    t.add(GET, "/integrations/{integrationName}", "GetIntegration", "Reads what is known of a provider", &[S::Integrations(List)], integrations::get);
    t.add(GET, "/secrets", "ListSecrets", "Lists the secrets of the workspace, without their values", &[S::Integrations(List)], resources::list_bare::<Secret>);
    t.add(POST, "/secrets", "UpsertSecret", "Makes a secret, or gives it a new value", &[S::Integrations(Update)], secrets::upsert);
    t.add(DELETE, "/secrets", "DeleteSecretByQuery", "Removes the secret that the query names", &[S::Integrations(Delete)], secrets::remove_by_query);
    t.add(DELETE, "/secrets/{secretName}", "DeleteSecret", "Removes one secret", &[S::Integrations(Delete)], resources::remove::<Secret>);
    t.kind::<Policy>("/policies/{policyName}", "Policy", "policy");
    t.add(GET, "/policies/{policyName}/usages", "GetPolicyUsages", "Names the resources under a policy",
        &[S::Policies(Get), S::Agents(List), S::Functions(List), S::Models(List), S::Sandboxes(List), S::Jobs(List)], policies::usages);
}

#[rustfmt::skip]
fn images_and_shares(t: &mut Table) {
    t.add(GET, "/images", "ListImages", "Lists the repositories of the workspace registry", &[S::Images(List)], images::list);
    t.add(POST, "/images", "CreateImage", "Builds or registers an image without deploying it", &[S::Images(Create)], images::create);
    t.add(DELETE, "/images", "CleanupImages", "Removes the images that nothing uses", &[S::Images(Delete)], images::clean_up);
    t.add(GET, "/images/{resourceType}/{imageName}", "GetImage", "Reads one repository", &[S::Images(Get)], images::get);
    t.add(GET, "/images/{resourceType}/{imageName}/tags", "ListImageTags", "Lists the tags of a repository", &[S::Images(Get)], images::tags);
    t.add(DELETE, "/images/{resourceType}/{imageName}", "DeleteImage", "Removes one repository, or one tag of it", &[S::Images(Delete)], images::remove);
    t.add(DELETE, "/images/{resourceType}/{imageName}/tags/{tagName}", "DeleteImageTag", "Removes one tag", &[S::Images(Delete)], images::remove_tag);
    t.add(GET, "/images/{resourceType}/{imageName}/share", "ListImageShares", "Lists the workspaces that share an image", &[S::Images(Get)], image_shares::list);
    t.add(POST, "/images/{resourceType}/{imageName}/share", "ShareImage", "Shares an image with another workspace", &[S::Images(Share)], image_shares::share);
    t.add(DELETE, "/images/{resourceType}/{imageName}/share/{targetWorkspace}", "UnshareImage", "Takes a share of an image back", &[S::Images(Share)], image_shares::unshare);
    t.add(GET, "/pending-image-shares", "ListPendingImageShares", "Lists shares that wait for acceptance", &[S::Images(Share)], image_shares::pending);
    t.add(POST, "/pending-image-shares/{pendingShareId}/accept", "AcceptImageShare", "Accepts a share", &[S::Images(Share)], image_shares::accept);
    t.add(POST, "/pending-image-shares/{pendingShareId}/decline", "DeclineImageShare", "Declines a share", &[S::Images(Share)], image_shares::decline);
}

#[rustfmt::skip]
fn people(t: &mut Table) {
    t.put(Base::Management, GET, "/accounts", ("ListAccounts", "Lists the accounts that the caller can see"), Needs::Bearer, Handler::of(accounts::list));
    t.add(GET, "/workspaces", "ListWorkspaces", "Lists the workspaces that the caller can reach", &[S::Workspaces(List)], workspaces::list);
    t.add(POST, "/workspaces", "CreateWorkspace", "Makes a workspace", &[S::Workspaces(Create)], workspaces::create);
    t.add(POST, "/workspaces/availability", "CheckWorkspaceAvailability", "Says whether a workspace name is free", &[], workspaces::availability);
    t.add(GET, "/workspaces/{workspaceName}", "GetWorkspace", "Reads a workspace", &[S::Workspaces(Get)], workspaces::get);
    t.add(PUT, "/workspaces/{workspaceName}", "UpdateWorkspace", "Changes display name, labels and settings of a workspace", &[S::Workspaces(Update)], workspaces::update);
    t.add(DELETE, "/workspaces/{workspaceName}", "DeleteWorkspace", "Removes a workspace and everything in it", &[S::Workspaces(Delete)], workspaces::remove);
    t.add(DELETE, "/workspaces/{workspaceName}/leave", "LeaveWorkspace", "Leaves a workspace", &[S::Workspaces(Leave)], workspaces::leave);
    t.add(GET, "/users", "ListWorkspaceUsers", "Lists members and invited people", &[S::Workspaces(List)], users::list);
    t.add(POST, "/users", "InviteWorkspaceUser", "Invites a person by e-mail address", &[S::Workspaces(Invite)], users::invite);
    t.add(PUT, "/users/{subOrEmail}", "UpdateWorkspaceUserRole", "Changes the role of a member", &[S::Workspaces(Update)], users::change_role);
    t.add(DELETE, "/users/{subOrEmail}", "RemoveWorkspaceUser", "Removes a member, or takes an invitation back", &[S::Workspaces(Remove)], users::remove);
    t.add(GET, "/invitations", "ListInvitations", "Lists the caller's own invitations", &[S::Invitations(List)], invitations::list);
    t.add(POST, "/invitations/{invitationId}/accept", "AcceptInvitation", "Accepts an invitation", &[S::Workspaces(Accept)], invitations::accept);
    t.add(POST, "/invitations/{invitationId}/decline", "DeclineInvitation", "Declines an invitation", &[S::Workspaces(Decline)], invitations::decline);
}

#[rustfmt::skip]
fn keys(t: &mut Table) {
    t.add(GET, "/service_accounts", "GetWorkspaceServiceAccounts", "Lists service accounts", &[S::Workspaces(Get)], service_accounts::list);
    t.add(POST, "/service_accounts", "CreateWorkspaceServiceAccount", "Makes a service account; its secret is shown once", &[S::Workspaces(Update)], service_accounts::create);
    t.add(PUT, "/service_accounts/{clientId}", "UpdateWorkspaceServiceAccount", "Renames a service account", &[S::Workspaces(Update)], service_accounts::update);
    t.add(DELETE, "/service_accounts/{clientId}", "DeleteWorkspaceServiceAccount", "Removes a service account with its keys and tokens", &[S::Workspaces(Update)], service_accounts::remove);
    t.add(GET, "/service_accounts/{clientId}/api_keys", "ListApiKeysForServiceAccount", "Lists the keys of a service account", &[S::ApiKey(List)], api_keys::list_of_service_account);
    t.add(POST, "/service_accounts/{clientId}/api_keys", "CreateApiKeyForServiceAccount", "Makes a key for a service account; its value is shown once", &[S::ApiKey(Write)], api_keys::create_for_service_account);
    t.add(DELETE, "/service_accounts/{clientId}/api_keys/{apiKeyId}", "DeleteApiKeyForServiceAccount", "Revokes a key of a service account", &[S::ApiKey(Write)], api_keys::revoke_of_service_account);
    t.add(GET, "/api_keys", "ListApiKeys", "Lists the caller's own keys", &[S::ApiKey(List)], api_keys::list_own);
    t.add(POST, "/api_keys", "CreateApiKey", "Makes a key of one's own; its value is shown once", &[S::ApiKey(Write)], api_keys::create_own);
    t.add(POST, "/seal_keys/rotate", "RotateSealKeys", "Seals every stored secret with a new key; for administrators of the account of the first start", &[], seal_keys::rotate);
    t.add(DELETE, "/api_keys/{apiKeyId}", "DeleteApiKey", "Revokes a key of one's own", &[S::ApiKey(Write)], api_keys::revoke_own);
}

#[rustfmt::skip]
fn catalogue(t: &mut Table) {
    t.put(Base::Management, GET, "/changelog", ("GetChangelog", "News of this server's releases"), Needs::Nothing, Handler::of(catalogues::changelog));
    t.add(GET, "/configuration", "GetConfiguration", "Regions, countries and continents", &[S::Configurations(List)], catalogues::configuration);
    t.add(GET, "/locations", "ListLocations", "Regions with their flavors and status", &[S::Locations(List)], catalogues::locations);
    t.add(GET, "/features", "getWorkspaceFeatures", "Feature flags that are on", &[S::FeatureFlags(List)], catalogues::features);
    t.add(GET, "/features/{featureKey}", "testFeatureFlag", "Evaluates one feature flag", &[S::FeatureFlags(Get)], catalogues::feature);
    t.add(GET, "/templates", "ListTemplates", "Lists code templates", &[S::Templates(List)], catalogues::templates);
    t.add(GET, "/templates/{templateName}", "GetTemplate", "Reads one code template", &[S::Templates(Get)], catalogues::template);
    t.add(GET, "/mcp/hub", "ListMCPHubDefinitions", "Lists prebuilt MCP servers", &[S::McpHub(List)], catalogues::mcp_hub);
    t.add(GET, "/sandbox/hub", "ListSandboxHubDefinitions", "Lists prebuilt sandbox images", &[S::SandboxHub(List)], catalogues::sandbox_hub);
    t.add(GET, "/quotas", "ListQuotas", "Says how many objects of each kind there may be and are", &[S::Workspaces(Get)], quotas::list);
}

#[rustfmt::skip]
fn watching_and_billing(t: &mut Table) {
    t.put(Base::Management, GET, "/changes", ("StreamChanges", "Streams the changes of the workspace as server-sent events"), Needs::Bearer, Handler::of(changes::stream));
    t.put(Base::Management, GET, "/observability/logs", ("GetLogs", "Logs of a workload and of its build"), Needs::Bearer, Handler::of(logs::get));
    t.put(Base::Management, GET, "/observability/requests", ("GetRequests", "Requests to agents, MCP servers and applications: how many, how many failed, how long they took"), Needs::Bearer, Handler::of(requests::get));
    t.put(Base::Management, POST, "/mcp", ("CallManagementTools", "Management tools over MCP"), Needs::Bearer, Handler::of(crate::mcp::serve));
    t.put(Base::Management, GET, "/accounts/{accountId}/metrics", ("GetAccountMetrics", "Cost and usage of an account"), Needs::Bearer, Handler::of(metrics::query));
    t.put(Base::Management, GET, "/accounts/{accountId}/metrics/enums/group-by", ("ListAccountMetricsGroupBy", "The dimensions that metrics can be grouped by"), Needs::Bearer, Handler::of(metrics::group_by));
    t.put(Base::Management, GET, "/accounts/{accountId}/metrics/enums/resource-types", ("ListAccountMetricsResourceTypes", "The resource types that a window has metrics of"), Needs::Bearer, Handler::of(metrics::resource_types));
    t.add(GET, "/accounts/{accountId}/prices", "GetAccountPrices", "What a unit of each billing dimension costs, and from when on; for administrators of the account", &[], prices::get);
    t.add(PUT, "/accounts/{accountId}/prices", "UpdateAccountPrices", "Replaces the prices that have not begun; for administrators of the account", &[], prices::replace);
    t.add(GET, "/accounts/{accountId}/budgets", "ListAccountBudgets", "Lists the budgets of an account; for its administrators", &[], budgets::list);
    t.add(GET, "/accounts/{accountId}/budgets/{budgetName}", "GetAccountBudget", "Reads one budget; for administrators of the account", &[], budgets::get);
    t.add(PUT, "/accounts/{accountId}/budgets/{budgetName}", "UpdateAccountBudget", "Makes or replaces one budget; for administrators of the account", &[], budgets::put);
    t.add(DELETE, "/accounts/{accountId}/budgets/{budgetName}", "DeleteAccountBudget", "Removes one budget; for administrators of the account", &[], budgets::remove);
}
