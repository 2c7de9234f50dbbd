//! What each noun does beyond what the engine does for all kinds. Handlers read, decide, write and
//! answer.

pub(crate) mod accounts;
pub(crate) mod api_keys;
pub(crate) mod budgets;
pub(crate) mod catalogues;
pub(crate) mod changes;
pub(crate) mod custom_domains;
pub(crate) mod deliveries;
pub(crate) mod drives;
pub(crate) mod egress;
pub(crate) mod executions;
pub(crate) mod image_shares;
pub(crate) mod images;
pub(crate) mod integrations;
pub(crate) mod invitations;
pub(crate) mod jobs;
pub(crate) mod logs;
pub(crate) mod metrics;
pub(crate) mod policies;
pub(crate) mod previews;
pub(crate) mod prices;
pub(crate) mod quotas;
pub(crate) mod resources;
pub(crate) mod sandboxes;
pub(crate) mod schedules;
pub(crate) mod seal_keys;
pub(crate) mod secrets;
pub(crate) mod service_accounts;
pub(crate) mod snapshots;
pub(crate) mod triggers;
pub(crate) mod uploads;
pub(crate) mod users;
pub(crate) mod volume_templates;
pub(crate) mod webhooks;
pub(crate) mod workspaces;
