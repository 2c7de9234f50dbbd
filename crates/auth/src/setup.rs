//! The first start: creating what must exist before anybody can do anything.

use crate::passwords::Passwords;
use crate::workspaces::{NewWorkspace, fresh};
use crate::{Error, Role, Subject, api_keys, people, secrets};
use serde::{Deserialize, Serialize};
use std::fmt;
use store::identity::accounts::Account;
use store::identity::users::{Address, User};
use store::identity::{self, Digest, accounts, members, users, workspaces};
use store::{Store, Tx};
use types::ids::{AccountId, UserId};
use types::{Remote, World};

/// What the operator may choose.
#[derive(Debug, Clone)]
pub struct Wishes {
    pub email: String,
    pub workspace: String,
    pub account: String,
    pub plan: String,
    pub region: Option<String>,
}

impl Default for Wishes {
    fn default() -> Self {
        Self {
            email: "admin@holm.local".into(),
            workspace: "main".into(),
            account: "Main".into(),
            plan: "self-hosted".into(),
            region: None,
        }
    }
}

/// What the first start creates, to be shown once. Written as JSON, it is the content of the file
/// that the first start leaves for programs, in this order.
#[derive(Clone, Serialize, Deserialize)]
pub struct FirstStart {
    pub account: AccountId,
    pub workspace: String,
    pub email: String,
    pub password: String,
    pub api_key: String,
}

impl fmt::Debug for FirstStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FirstStart").field("email", &self.email).finish_non_exhaustive()
    }
}

/// Everything that the first start will create. It is generated before anything is created, so that
/// it can be put in a safe place first.
#[derive(Clone)]
pub struct Plan {
    pub first: FirstStart,
    wishes: Wishes,
    hash: String,
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan").field("first", &self.first).finish_non_exhaustive()
    }
}

/// Plans an account, its admin, a workspace and an API key. Returns `None` if there is an account
/// already.
pub async fn plan(store: &Store, world: &World, wishes: Wishes) -> Result<Option<Plan>, Error> {
    if store.read(accounts::any).await? {
        return Ok(None);
    }
    let email = people::check_email(&wishes.email)?;
    let password = world.random_text(20);
    let hash = Passwords::new().hash(Remote::UNKNOWN, password.clone(), world).await?;
    let (account, workspace) = (AccountId::new(world), wishes.workspace.clone());
    let api_key = secrets::new_api_key(world);
    Ok(Some(Plan {
        first: FirstStart { account, email, password, workspace, api_key },
        wishes,
        hash,
    }))
}

/// Creates what was planned in one transaction, so that a crash leaves all or nothing. Returns
/// `false` if another server was faster.
pub async fn carry_out(store: &Store, plan: &Plan) -> Result<bool, Error> {
    let plan = plan.clone();
    let made = store
        .write(move |tx| {
            if accounts::any(tx)? {
                return Ok(false);
            }
            make(tx, &plan)?;
            Ok(true)
        })
        .await;
    match made {
        Err(Error::Store(store::Error::Duplicate { .. })) => Ok(false),
        made => made,
    }
}

/// Plans and creates at once, for callers who keep the result only in memory.
pub async fn first_start(
    store: &Store,
    world: &World,
    wishes: Wishes,
) -> Result<Option<FirstStart>, Error> {
    let Some(plan) = plan(store, world, wishes).await? else { return Ok(None) };
    Ok(carry_out(store, &plan).await?.then_some(plan.first))
}

/// Returns true if this server knows an API key: if a start was interrupted, what it planned may
/// have been created or not.
pub async fn knows_key(store: &Store, value: &str) -> Result<bool, Error> {
    let digest = Digest::of(value);
    Ok(store.read(move |tx| identity::api_keys::find_by_digest(tx, &digest)).await?.is_some())
}

fn make(tx: &mut Tx<'_>, plan: &Plan) -> Result<(), Error> {
    let Plan { first, wishes, hash } = plan;
    let (world, now, email) = (tx.world().clone(), tx.world().now(), &first.email);
    let account = Account {
        id: first.account.clone(),
        name: wishes.account.clone(),
        plan: wishes.plan.clone(),
        created_at: now,
    };
    let user = User {
        id: UserId::new(&world),
        email: email.clone(),
        given_name: String::new(),
        family_name: String::new(),
        address: Address::Proven,
        created_at: now,
    };
    let new = NewWorkspace {
        name: wishes.workspace.clone(),
        region: wishes.region.clone(),
        ..NewWorkspace::default()
    };
    let workspace = fresh(tx, account.id.clone(), new, email);
    accounts::create(tx, &account)?;
    users::create(tx, &user, Some(hash))?;
    accounts::add_admin(tx, &account.id, &user.id, email)?;
    workspaces::create(tx, &workspace)?;
    members::add(tx, &workspace.id, &user.id, Role::Admin, None, email)?;
    let key = api_keys::NewKey { name: "first".into(), expires_in: None, models: None };
    api_keys::create_with(tx, Subject::User(user.id), key, email, &first.api_key)?;
    Ok(())
}
