//! OAuth scopes: what a token may do. One variant each, so that a misspelt scope does not compile.

macro_rules! scopes {
    ($($variant:ident = $name:literal),+ $(,)?) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Scope { $($variant),+ }

        impl Scope {
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            pub fn parse(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|scope| scope.name() == name)
            }
        }
    };
}

scopes! {
    Admin = "admin",
    AgentsCreate = "agents:create", AgentsDelete = "agents:delete", AgentsGet = "agents:get",
    AgentsList = "agents:list", AgentsUpdate = "agents:update",
    ApiKeyList = "apiKey:list", ApiKeyWrite = "apiKey:write",
    ApplicationsCreate = "applications:create", ApplicationsDelete = "applications:delete",
    ApplicationsGet = "applications:get", ApplicationsList = "applications:list",
    ApplicationsUpdate = "applications:update",
    ConfigurationsList = "configurations:list",
    CustomDomainsCreate = "customdomains:create", CustomDomainsDelete = "customdomains:delete",
    CustomDomainsGet = "customdomains:get", CustomDomainsList = "customdomains:list",
    CustomDomainsUpdate = "customdomains:update",
    DrivesCreate = "drives:create", DrivesDelete = "drives:delete", DrivesGet = "drives:get",
    DrivesList = "drives:list",
    EgressGatewaysList = "egressgateways:list", EgressIpsList = "egressips:list",
    FeatureFlagsGet = "featureFlags:get", FeatureFlagsList = "featureFlags:list",
    FunctionsCreate = "functions:create", FunctionsDelete = "functions:delete", FunctionsGet = "functions:get",
    FunctionsList = "functions:list", FunctionsUpdate = "functions:update",
    ImagesCreate = "images:create", ImagesDelete = "images:delete", ImagesGet = "images:get",
    ImagesList = "images:list", ImagesShare = "images:share",
    IntegrationsCreate = "integrations:create", IntegrationsDelete = "integrations:delete",
    IntegrationsGet = "integrations:get", IntegrationsList = "integrations:list",
    IntegrationsUpdate = "integrations:update",
    InvitationsList = "invitations:list",
    JobsCreate = "jobs:create", JobsDelete = "jobs:delete", JobsGet = "jobs:get", JobsList = "jobs:list",
    JobsUpdate = "jobs:update",
    LocationsList = "locations:list",
    McpHubList = "mcphub:list",
    ModelsCreate = "models:create", ModelsDelete = "models:delete", ModelsGet = "models:get",
    ModelsList = "models:list", ModelsUpdate = "models:update",
    PoliciesCreate = "policies:create", PoliciesDelete = "policies:delete", PoliciesGet = "policies:get",
    PoliciesList = "policies:list", PoliciesUpdate = "policies:update",
    SandboxesControl = "sandboxes:control", SandboxesCreate = "sandboxes:create",
    SandboxesDelete = "sandboxes:delete", SandboxesGet = "sandboxes:get", SandboxesList = "sandboxes:list",
    SandboxesUpdate = "sandboxes:update",
    SandboxHubList = "sandboxhub:list",
    TemplatesGet = "templates:get", TemplatesList = "templates:list",
    VolumeTemplatesCreate = "volumeTemplates:create", VolumeTemplatesDelete = "volumeTemplates:delete",
    VolumeTemplatesGet = "volumeTemplates:get", VolumeTemplatesList = "volumeTemplates:list",
    VolumeTemplatesUpsert = "volumeTemplates:upsert",
    VolumesCreate = "volumes:create", VolumesDelete = "volumes:delete", VolumesGet = "volumes:get",
    VolumesList = "volumes:list", VolumesUpdate = "volumes:update",
    WorkspacesAccept = "workspaces:accept", WorkspacesCreate = "workspaces:create",
    WorkspacesDecline = "workspaces:decline", WorkspacesDelete = "workspaces:delete",
    WorkspacesGet = "workspaces:get", WorkspacesInvite = "workspaces:invite", WorkspacesLeave = "workspaces:leave",
    WorkspacesList = "workspaces:list", WorkspacesRemove = "workspaces:remove",
    WorkspacesUpdate = "workspaces:update",
}
