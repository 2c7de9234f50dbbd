//! Workspaces, as people create and manage them.

use crate::{Denied, Error, Identity, Member, Role, Subject};
use std::collections::BTreeMap;
use store::Tx;
pub use store::identity::workspaces::{Settings, Workspace};
use store::identity::{members, workspaces};
use types::ids::{AccountId, WorkspaceId};
use types::parts::names::is_dns_label;
use types::wire::{WorkspaceReason, WorkspaceStatus};

/// Most workspaces of one account.
const PER_ACCOUNT_MAX: usize = 1000;
const NAME_MAX: usize = 49;
const DISPLAY_NAME_MAX: usize = 63;

/// Names that occur in addresses where workspaces do, or that callers would take for ours.
const RESERVED: &[&str] = &[
    "account",
    "accounts",
    "admin",
    "agents",
    "api",
    "app",
    "applications",
    "assets",
    "auth",
    "billing",
    "console",
    "dashboard",
    "docs",
    "drives",
    "functions",
    "health",
    "healthz",
    "holm",
    "hub",
    "images",
    "internal",
    "jobs",
    "local",
    "localhost",
    "login",
    "logout",
    "mcp",
    "metrics",
    "models",
    "node",
    "oauth",
    "openapi",
    "previews",
    "public",
    "ready",
    "readyz",
    "registry",
    "root",
    "run",
    "sandboxes",
    "settings",
    "sign-in",
    "static",
    "status",
    "support",
    "system",
    "users",
    "volumes",
    "well-known",
    "workspaces",
    "www",
];

/// Properties of a new workspace.
#[derive(Debug, Clone, Default)]
pub struct NewWorkspace {
    pub name: String,
    pub display_name: Option<String>,
    pub labels: BTreeMap<String, String>,
    pub settings: Settings,
    pub region: Option<String>,
    /// An account that the caller administers; the first one if absent.
    pub account: Option<AccountId>,
}

/// Changes to a workspace; `None` leaves a property as it is.
#[derive(Debug, Clone, Default)]
pub struct Change {
    pub display_name: Option<String>,
    pub labels: Option<BTreeMap<String, String>>,
    pub settings: Option<Settings>,
}

/// Returns the rule that a name breaks with which no workspace can be made, on any server.
pub fn broken_rule(name: &str) -> Option<String> {
    malformed(name).or_else(|| forbidden(name).map(|reason| reason_text(reason).to_owned()))
}

fn malformed(name: &str) -> Option<String> {
    (name.len() > NAME_MAX || !is_dns_label(name)).then(|| {
        format!("must be lower-case letters, digits and hyphens, at most {NAME_MAX} characters")
    })
}

/// Returns why a name is not available, if so. A malformed name is an error.
pub fn refusal(tx: &mut Tx<'_>, name: &str) -> Result<Option<WorkspaceReason>, Error> {
    if let Some(rule) = malformed(name) {
        return Err(Error::invalid("name", rule));
    }
    Ok(match forbidden(name) {
        Some(reason) => Some(reason),
        None if workspaces::is_taken(tx, name)? => Some(WorkspaceReason::Taken),
        None => None,
    })
}

fn forbidden(name: &str) -> Option<WorkspaceReason> {
    let version_like = name
        .strip_prefix('v')
        .is_some_and(|rest| rest.starts_with(|digit: char| digit.is_ascii_digit()));
    if name.contains("blaxel") {
        Some(WorkspaceReason::ForbiddenBlaxel)
    } else if version_like {
        Some(WorkspaceReason::ForbiddenVPrefix)
    } else if RESERVED.contains(&name) {
        Some(WorkspaceReason::ForbiddenReserved)
    } else {
        None
    }
}

/// Explains a reason to people.
pub const fn reason_text(reason: WorkspaceReason) -> &'static str {
    match reason {
        WorkspaceReason::Taken => "is taken",
        WorkspaceReason::ForbiddenReserved => "is reserved",
        WorkspaceReason::ForbiddenBlaxel => "must not contain `blaxel`",
        WorkspaceReason::ForbiddenVPrefix => "must not look like a version: `v` and a digit",
    }
}

/// Creates a workspace; the caller becomes its admin.
pub fn create(tx: &mut Tx<'_>, who: &Identity, new: NewWorkspace) -> Result<Workspace, Error> {
    let user = who.person()?.clone();
    let account = match new.account.as_ref() {
        Some(wanted) if who.administers(wanted) => wanted.clone(),
        Some(_) => return Err(Denied::NotAccountAdmin.into()),
        None => who.administers.first().ok_or(Denied::NoAccount)?.clone(),
    };
    match refusal(tx, &new.name)? {
        None => {}
        Some(WorkspaceReason::Taken) => {
            return Err(Error::Exists(format!("the name `{}` is taken", new.name)));
        }
        Some(reason) => return Err(Error::invalid("name", reason_text(reason))),
    }
    if workspaces::list_of_account(tx, &account)?.len() >= PER_ACCOUNT_MAX {
        return Err(Error::TooMany { what: "workspaces", limit: PER_ACCOUNT_MAX });
    }
    let workspace = fresh(tx, account, new, &who.name);
    check_display_name(&workspace.display_name)?;
    workspaces::create(tx, &workspace)?;
    members::add(tx, &workspace.id, &user, Role::Admin, None, &who.name)?;
    Ok(workspace)
}

pub(crate) fn fresh(tx: &Tx<'_>, account: AccountId, new: NewWorkspace, by: &str) -> Workspace {
    let now = tx.world().now();
    Workspace {
        id: WorkspaceId::new(tx.world()),
        account,
        display_name: new.display_name.unwrap_or_else(|| new.name.clone()),
        name: new.name,
        labels: new.labels,
        settings: new.settings,
        region: new.region,
        status: WorkspaceStatus::Ready,
        version: 1,
        created_at: now,
        updated_at: now,
        created_by: by.to_owned(),
        updated_by: by.to_owned(),
    }
}

fn check_display_name(name: &str) -> Result<(), Error> {
    if name.chars().count() <= DISPLAY_NAME_MAX {
        return Ok(());
    }
    Err(Error::invalid("displayName", format!("must have at most {DISPLAY_NAME_MAX} characters")))
}

/// Lists the workspaces that the caller belongs to.
pub fn list(tx: &mut Tx<'_>, who: &Identity) -> Result<Vec<Workspace>, Error> {
    match &who.subject {
        Subject::User(user) => Ok(workspaces::list_of_user(tx, user)?),
        Subject::ServiceAccount(_) => {
            let ids = who.memberships.iter().map(|membership| &membership.workspace);
            Ok(ids
                .filter_map(|id| workspaces::find_open(tx, id).transpose())
                .collect::<Result<_, _>>()?)
        }
    }
}

pub fn get(tx: &mut Tx<'_>, member: &Member) -> Result<Workspace, Error> {
    let found = workspaces::find_open(tx, &member.workspace)?;
    found.ok_or_else(|| Error::not_found("workspace", member.workspace_name.as_str()))
}

/// Changes a workspace, except for its name. Fails with [`store::Error::Stale`] if somebody else
/// was faster.
pub fn update(tx: &mut Tx<'_>, member: &Member, change: Change) -> Result<Workspace, Error> {
    member.admin()?;
    let mut workspace = get(tx, member)?;
    if let Some(display_name) = change.display_name {
        check_display_name(&display_name)?;
        workspace.display_name = display_name;
    }
    if let Some(labels) = change.labels {
        workspace.labels = labels;
    }
    if let Some(settings) = change.settings {
        workspace.settings = settings;
    }
    workspace.updated_at = tx.world().now();
    workspace.updated_by = member.who.name.clone();
    workspaces::update(tx, &workspace)?;
    workspace.version += 1;
    Ok(workspace)
}

/// Removes the workspace with its members, service accounts and keys. The caller must remove its
/// resources.
pub fn delete(tx: &mut Tx<'_>, member: &Member) -> Result<Workspace, Error> {
    member.admin()?;
    let workspace = get(tx, member)?;
    workspaces::delete(tx, &workspace.id, &member.who.name)?;
    Ok(workspace)
}

/// Takes the workspace away from everybody, because it is deleted in steps. The caller must see to
/// these.
pub fn close(tx: &mut Tx<'_>, member: &Member) -> Result<Workspace, Error> {
    member.admin()?;
    let workspace = get(tx, member)?;
    workspaces::close(tx, &workspace.id, &member.who.name)?;
    Ok(workspace)
}

/// Keeps the member's workspace from being deleted until this transaction ends. Whoever adds
/// something to it calls this before anything else is locked: it may have been deleted since the
/// caller was let in, and what is added after that would stay for ever.
pub fn keep(tx: &mut Tx<'_>, member: &Member) -> Result<(), Denied> {
    match workspaces::keep(tx, &member.workspace)? {
        true => Ok(()),
        false => Err(Denied::NotMember { workspace: member.workspace_name.clone() }),
    }
}

/// Ends the caller's own membership; the last admin cannot leave.
pub fn leave(tx: &mut Tx<'_>, member: &Member) -> Result<Workspace, Error> {
    let user = member.who.person()?;
    let workspace = get(tx, member)?;
    keep_an_admin(tx, &workspace.id, user)?;
    members::remove(tx, &workspace.id, user, &member.who.name)?;
    Ok(workspace)
}

/// Fails if `user` is the only admin. Locks the workspace, so that the result stays true in this
/// transaction.
pub(crate) fn keep_an_admin(
    tx: &mut Tx<'_>,
    workspace: &WorkspaceId,
    user: &types::ids::UserId,
) -> Result<(), Error> {
    workspaces::lock(tx, workspace)?;
    let is_admin = members::role(tx, workspace, user)? == Some(Role::Admin);
    if is_admin && members::count_admins(tx, workspace)? <= 1 {
        Err(Error::LastAdmin)
    } else {
        Ok(())
    }
}
