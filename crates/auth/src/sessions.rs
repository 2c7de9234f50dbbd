//! Browser sessions: signing in with a password, and signing out.

use crate::passwords::Crowded;
use crate::{Auth, Error, Throttled, invitations, passwords, people, secrets};
use store::identity::users::{self, Address, User};
use store::identity::workspaces::Workspace;
use store::identity::{Digest, sessions};
use types::Remote;
use types::ids::{InvitationId, UserId};

/// How long a browser stays signed in.
pub const LIFE_S: i64 = 12 * 3600;

#[derive(Debug, thiserror::Error)]
pub enum SignInError {
    #[error("the address or the password is wrong")]
    Wrong,
    #[error(transparent)]
    Throttled(#[from] Throttled),
    #[error(transparent)]
    Crowded(#[from] Crowded),
    #[error("the store failed")]
    Store(#[from] store::Error),
}

/// What a browser keeps after a sign-in.
pub struct SignedIn {
    /// The secret of the session.
    pub session: String,
    /// The text by which the browser is known as one of the account's.
    pub known: String,
}

/// What an invited person fills in to join.
#[derive(Debug, Clone, Default)]
pub struct Joining {
    pub given_name: String,
    pub family_name: String,
}

impl Auth {
    /// Signs in with a password. `known` is what the browser kept from an earlier sign-in.
    pub async fn sign_in(
        &self,
        from: Remote,
        email: &str,
        password: String,
        known: Option<&str>,
    ) -> Result<SignedIn, SignInError> {
        // An invalid address has no account, and must not fill the memory of the throttle.
        let email = people::check_email(email).map_err(|_| SignInError::Wrong)?;
        self.count_guess(from)?;
        let guesser = self.guesser(&email, known);
        let user = match self.sign_ins().attempt(&guesser) {
            Ok(()) => self.check_password(from, &email, password).await,
            Err(throttled) => Err(throttled.into()),
        };
        match &user {
            Ok(_) => {
                self.sign_ins().succeeded(&guesser);
                self.uncount_guess(from);
            }
            Err(SignInError::Crowded(_) | SignInError::Store(_)) => {
                self.sign_ins().take_back(&guesser);
                self.uncount_guess(from);
            }
            Err(SignInError::Wrong | SignInError::Throttled(_)) => {}
        }
        let (user, known) = (user?, self.introduce(&email)?);
        Ok(SignedIn { session: self.open_session(user).await?, known })
    }

    async fn check_password(
        &self,
        from: Remote,
        email: &str,
        password: String,
    ) -> Result<UserId, SignInError> {
        let wanted = email.to_owned();
        let found = self
            .store()
            .read(move |tx| match users::find_by_email(tx, &wanted)? {
                Some(user) => Ok::<_, store::Error>((users::password(tx, &user.id)?, Some(user))),
                None => Ok((None, None)),
            })
            .await?;
        let (stored, user) = found;
        let right = self.passwords().matches(from, password, stored).await?;
        user.filter(|_| right).map(|user| user.id).ok_or(SignInError::Wrong)
    }

    /// Counts a guess of a client before it is made. Local callers are not counted: behind a proxy
    /// on this machine that is not trusted to tell clients apart, everybody seems to come from
    /// there.
    pub(crate) fn count_guess(&self, from: Remote) -> Result<(), Throttled> {
        match from.is_local() {
            true => Ok(()),
            false => self.client_guesses().attempt(&from.to_string()),
        }
    }

    /// Uncounts a guess that was right or was not made.
    pub(crate) fn uncount_guess(&self, from: Remote) {
        self.client_guesses().take_back(&from.to_string());
    }

    /// Starts a session for somebody who has proven who they are. Returns its secret.
    pub(crate) async fn open_session(&self, user: UserId) -> Result<String, store::Error> {
        let secret = secrets::new_secret(self.world(), "hb");
        let (digest, ends) = (Digest::of(&secret), self.world().now().plus_s(LIFE_S));
        self.store().write(move |tx| sessions::create(tx, &digest, &user, ends)).await?;
        Ok(secret)
    }

    /// Returns who is signed in, if anybody.
    pub async fn session(&self, secret: &str) -> Result<Option<User>, store::Error> {
        let digest = Digest::of(secret);
        let find = move |tx: &mut store::Tx<'_>| match sessions::find(tx, &digest)? {
            Some(user) => users::find(tx, &user),
            None => Ok(None),
        };
        self.store().read(find).await
    }

    pub async fn sign_out(&self, secret: &str) -> Result<(), store::Error> {
        let digest = Digest::of(secret);
        self.store().write(move |tx| sessions::delete(tx, &digest)).await
    }

    /// Creates an account for an invited person and signs them in. Also returns the session's
    /// secret.
    pub async fn join(
        &self,
        from: Remote,
        invitation: &InvitationId,
        joining: Joining,
        password: String,
    ) -> Result<(Workspace, String), Error> {
        passwords::check(&password)?;
        self.count_guess(from).map_err(|_| Crowded)?;
        let joined = self.join_by(from, invitation, joining, password).await;
        if matches!(joined, Ok(_) | Err(Error::Crowded(_) | Error::Store(_))) {
            self.uncount_guess(from);
        }
        let (workspace, user) = joined?;
        Ok((workspace, self.open_session(user).await?))
    }

    async fn join_by(
        &self,
        from: Remote,
        invitation: &InvitationId,
        joining: Joining,
        password: String,
    ) -> Result<(Workspace, UserId), Error> {
        // An invitation that is not open must cost no hash, and must not fill the memory of the
        // throttle.
        let wanted = invitation.clone();
        self.store().read(move |tx| invitations::open(tx, &wanted)).await?;
        self.sign_ins().attempt(invitation.as_str()).map_err(|_| Crowded)?;
        let hash = match self.passwords().hash(from, password, self.world()).await {
            Ok(hash) => hash,
            Err(crowded) => {
                self.sign_ins().take_back(invitation.as_str());
                return Err(crowded.into());
            }
        };
        let (id, user) = (invitation.clone(), new_user(self, joining));
        let user_id = user.id.clone();
        let workspace = self.change(move |tx| invitations::join(tx, &id, &user, &hash)).await?;
        self.sign_ins().succeeded(invitation.as_str());
        Ok((workspace, user_id))
    }

    /// Accepts an invitation for the person who is signed in.
    pub async fn accept(&self, user: &User, invitation: &InvitationId) -> Result<Workspace, Error> {
        let (user, id) = (user.clone(), invitation.clone());
        self.change(move |tx| {
            let found = invitations::open(tx, &id)?;
            if found.invitation.email != user.email {
                return Err(Error::not_found("invitation", "for you"));
            }
            invitations::accept_for(tx, &user.id, &found.invitation)?;
            Ok(found.workspace)
        })
        .await
    }

    /// Sets a person's password and ends their sessions and the access of programs. `by` names who does it.
    pub async fn set_password(&self, email: &str, password: String, by: &str) -> Result<(), Error> {
        passwords::check(&password)?;
        let hash = self.passwords().hash(Remote::UNKNOWN, password, self.world()).await?;
        let (email, by) = (email.to_owned(), by.to_owned());
        self.change(move |tx| {
            let user = users::find_by_email(tx, &email)?
                .ok_or_else(|| Error::not_found("user", email.as_str()))?;
            users::set_password(tx, &user.id, &hash, &by)?;
            match user.is_proven() {
                true => users::end_sign_ins(tx, &user.id)?,
                // The keys may belong to somebody who had only claimed the address.
                false => users::end_credentials(tx, &user.id)?,
            }
            Ok(())
        })
        .await
    }
}

/// Makes a person without an address, which comes from the invitation.
fn new_user(auth: &Auth, joining: Joining) -> User {
    User {
        id: UserId::new(auth.world()),
        email: String::new(),
        given_name: joining.given_name,
        family_name: joining.family_name,
        address: Address::Claimed,
        created_at: auth.world().now(),
    }
}
