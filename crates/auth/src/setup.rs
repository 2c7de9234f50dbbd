//! The first start: what must be there before anybody can do anything.

use crate::passwords::Passwords;
use crate::workspaces::{NewWorkspace, fresh};
use crate::{Error, Role, Subject, api_keys, people};
use std::fmt;
use store::identity::accounts::Account;
use store::identity::users::{Address, User};
use store::identity::{accounts, members, users, workspaces};
use store::{Store, Tx};
use types::World;
use types::ids::{AccountId, UserId};

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

/// What was made, to be shown once.
pub struct FirstStart {
    pub account: AccountId,
    pub email: String,
    pub password: String,
    pub workspace: String,
    pub api_key: String,
}

impl fmt::Debug for FirstStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FirstStart").field("email", &self.email).finish_non_exhaustive()
    }
}

/// Makes an account, its admin, a workspace and an API key, unless there is an account: then `None`.
/// All of it is one transaction, so a crash leaves all or nothing.
pub async fn first_start(store: &Store, world: &World, wishes: Wishes) -> Result<Option<FirstStart>, Error> {
    if store.read(accounts::any).await? {
        return Ok(None);
    }
    let email = people::check_email(&wishes.email)?;
    let password = world.random_text(20);
    let hash = Passwords::new().hash(password.clone(), world).await?;
    let made = store
        .write(move |tx| {
            if accounts::any(tx)? {
                return Ok(None);
            }
            let (account, api_key) = make(tx, &wishes, &email, &hash)?;
            let (email, password, workspace) = (email.clone(), password.clone(), wishes.workspace.clone());
            Ok(Some(FirstStart { account, email, password, workspace, api_key }))
        })
        .await;
    match made {
        // Another server was faster.
        Err(Error::Store(store::Error::Duplicate { .. })) => Ok(None),
        made => made,
    }
}

fn make(tx: &mut Tx<'_>, wishes: &Wishes, email: &str, hash: &str) -> Result<(AccountId, String), Error> {
    let (world, now) = (tx.world().clone(), tx.world().now());
    let account = Account {
        id: AccountId::new(&world),
        name: wishes.account.clone(),
        plan: wishes.plan.clone(),
        created_at: now,
    };
    let user = User {
        id: UserId::new(&world),
        email: email.to_owned(),
        given_name: String::new(),
        family_name: String::new(),
        address: Address::Proven,
        created_at: now,
    };
    let new = NewWorkspace { name: wishes.workspace.clone(), region: wishes.region.clone(), ..NewWorkspace::default() };
    let workspace = fresh(tx, account.id.clone(), new, email);
    accounts::create(tx, &account)?;
    users::create(tx, &user, Some(hash))?;
    accounts::add_admin(tx, &account.id, &user.id, email)?;
    workspaces::create(tx, &workspace)?;
    members::add(tx, &workspace.id, &user.id, Role::Admin, None, email)?;
    let key = api_keys::NewKey { name: "first".into(), expires_in: None };
    let (_, value) = api_keys::create_for(tx, Subject::User(user.id), key, email)?;
    Ok((account.id, value))
}
