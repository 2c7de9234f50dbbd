//! Tests of what the whole crate promises, on a real store.

/// Runs each test on both databases, each time with a fresh [`Town`].
macro_rules! on_both {
    ($($name:ident),+ $(,)?) => {$(
        mod $name {
            #[tokio::test]
            async fn sqlite() {
                Box::pin(super::$name(crate::tests::Town::on_sqlite().await)).await;
            }

            #[tokio::test]
            async fn postgres() {
                Box::pin(super::$name(crate::tests::Town::on_postgres().await)).await;
            }
        }
    )+};
}

mod devices;
mod identify;
mod manage;
mod oauth;
mod outside;
mod registry;
mod sign_in;

use crate::fixture::{self, Clock};
use crate::setup::{FirstStart, Wishes, first_start};
use crate::{Auth, Error, Identity, Member, people, sessions};
use std::path::Path;
use std::sync::Arc;
use store::identity::users::{self, User};
use store::{Settings, Store, Target, Tx};
use types::{Remote, World};

/// An account with one admin and one workspace, after its first start.
pub(crate) struct Town {
    pub(crate) auth: Auth,
    pub(crate) store: Store,
    pub(crate) world: World,
    pub(crate) clock: Clock,
    pub(crate) first: FirstStart,
    _folder: tempfile::TempDir,
}

impl Town {
    async fn on_sqlite() -> Self {
        Self::on(|folder| Target::Sqlite { file: folder.join("holm.db") }).await
    }

    async fn on_postgres() -> Self {
        Self::on(|_| Target::Postgres { url: testing::postgres() }).await
    }

    async fn on(target: impl FnOnce(&Path) -> Target) -> Self {
        let (clock, world) = fixture::world();
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings {
            connections: 2,
            ..Settings::new(target(folder.path()), folder.path().join("keys"))
        };
        let store = Store::open(settings, world.clone()).await.unwrap();
        let first = first_start(&store, &world, Wishes::default()).await.unwrap().unwrap();
        let auth = Auth::for_test(&store, &world).await;
        Self { auth, store, world, clock, first, _folder: folder }
    }

    pub(crate) async fn admin(&self) -> Arc<Identity> {
        self.auth.identify(&self.first.api_key).await.unwrap()
    }

    pub(crate) async fn admin_member(&self) -> Member {
        self.auth.enter(&self.admin().await, Some(&self.first.workspace)).unwrap()
    }

    pub(crate) async fn change<T: Send + 'static>(
        &self,
        work: impl FnMut(&mut Tx<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        self.auth.change(work).await
    }

    pub(crate) async fn user(&self, email: &str) -> User {
        let email = email.to_owned();
        self.store.read(move |tx| users::find_by_email(tx, &email)).await.unwrap().unwrap()
    }

    /// Invites somebody, who joins. Returns an API key of theirs.
    pub(crate) async fn join(&self, email: &str, role: crate::Role) -> String {
        let (member, address) = (self.admin_member().await, email.to_owned());
        let invitation =
            self.change(move |tx| people::invite(tx, &member, &address, role)).await.unwrap();
        self.auth
            .join(
                Remote::UNKNOWN,
                &invitation.id,
                sessions::Joining::default(),
                "correct horse".into(),
            )
            .await
            .unwrap();
        let subject = crate::Subject::User(self.user(email).await.id);
        let new = crate::api_keys::NewKey::default();
        let made = self
            .change(move |tx| crate::api_keys::create_for(tx, subject.clone(), new.clone(), "test"))
            .await;
        made.unwrap().1
    }

    /// Returns somebody's identity, through a key that is created for this.
    pub(crate) async fn identity(&self, email: &str) -> Arc<Identity> {
        let subject = crate::Subject::User(self.user(email).await.id);
        let new = crate::api_keys::NewKey::default();
        let made = self
            .change(move |tx| crate::api_keys::create_for(tx, subject.clone(), new.clone(), "test"))
            .await;
        self.auth.identify(&made.unwrap().1).await.unwrap()
    }

    pub(crate) async fn member(&self, key: &str) -> Member {
        self.auth.enter(&self.auth.identify(key).await.unwrap(), None).unwrap()
    }
}
