//! People besides the first one, and requests by them.

use super::{Answer, Cloud};
use auth::api_keys::NewKey;
use auth::oauth::Params;
use auth::{Grant, Identity, Subject};
use http::Method;
use serde_json::{Value, json};
use store::Tx;
use store::identity::accounts::{self, Account};
use store::identity::users::{self, Address, User};
use types::Remote;
use types::ids::{AccountId, UserId};

/// A person with a key of their own.
pub struct Guest<'c> {
    cloud: &'c Cloud,
    pub email: &'static str,
    pub id: UserId,
    key: String,
}

impl Cloud {
    /// Creates a person who does not belong to any workspace yet.
    pub async fn guest(&self, email: &'static str) -> Guest<'_> {
        let work = move |tx: &mut Tx<'_>| {
            let user = User {
                id: UserId::new(tx.world()),
                email: email.into(),
                given_name: String::new(),
                family_name: String::new(),
                address: Address::Proven,
                created_at: tx.world().now(),
            };
            users::create(tx, &user, None)?;
            let identity = Identity {
                subject: Subject::User(user.id.clone()),
                name: email.into(),
                grant: Grant::Key,
                key: None,
                memberships: Vec::new(),
                models: None,
                administers: Vec::new(),
            };
            let (_, key) = auth::api_keys::create(tx, &identity, NewKey::default())?;
            Ok::<_, auth::Error>((user.id, key))
        };
        let (id, key) = self.store.write(work).await.expect("a person");
        Guest { cloud: self, email, id, key }
    }

    /// Creates an admin of the first workspace who administers no account.
    pub async fn admin_of_main(&self, email: &'static str) -> Guest<'_> {
        let guest = self.guest(email).await;
        self.post("/v0/users", json!({"email": email, "role": "admin"})).await.ok();
        let received = guest.get("/v0/invitations").await.ok();
        let path = format!(
            "/v0/invitations/{}/accept",
            received[0]["invitationId"].as_str().expect("an id")
        );
        guest.call(Method::POST, &path, None).await.ok();
        guest
    }

    /// Returns a token of the first person with these scopes, for a device.
    pub async fn limited_token(&self, scope: &str) -> String {
        let form = |pairs: &[(&str, &str)]| {
            let text = form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
            Params::from_form(text.as_bytes()).expect("parameters")
        };
        let asked = form(&[("client_id", "holm"), ("scope", scope)]);
        let device = self.auth.begin_device(Remote::UNKNOWN, asked, None).await.expect("a device");
        let email = self.first.email.clone();
        let user = self.store.read(move |tx| users::find_by_email(tx, &email)).await;
        let user = user.expect("the store").expect("the first person");
        self.auth.decide_device(&user, &device.user_code, true).await.expect("a decision");
        let poll = form(&[
            ("grant_type", "urn:ietf:params:oauth:grant-type:device_code"),
            ("client_id", "holm"),
            ("device_code", &device.device_code),
        ]);
        self.auth.token(poll, None).await.expect("a token").access_token
    }

    /// Creates a person with an account of their own; also returns its id.
    pub async fn stranger(&self, email: &'static str) -> (Guest<'_>, String) {
        let guest = self.guest(email).await;
        let user = guest.id.clone();
        let work = move |tx: &mut Tx<'_>| {
            let now = tx.world().now();
            let account = Account {
                id: AccountId::new(tx.world()),
                name: email.into(),
                plan: "free".into(),
                created_at: now,
            };
            accounts::create(tx, &account)?;
            accounts::add_admin(tx, &account.id, &user, email)?;
            Ok::<_, store::Error>(account.id.to_string())
        };
        let account = self.store.write(work).await.expect("an account");
        self.auth.forget();
        (guest, account)
    }
}

impl<'c> Guest<'c> {
    pub fn cloud(&self) -> &'c Cloud {
        self.cloud
    }

    pub fn key(&self) -> &str {
        &self.key
    }

    pub async fn call(&self, method: Method, path: &str, body: Option<Value>) -> Answer {
        let bearer = format!("Bearer {}", self.key);
        self.cloud.call_with(method, path, &[("authorization", bearer.as_str())], body).await
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.call(Method::GET, path, None).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        self.call(Method::POST, path, Some(body)).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        self.call(Method::DELETE, path, None).await
    }
}
