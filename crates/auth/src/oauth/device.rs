//! Device codes, for programs without a browser: the user signs in with a browser elsewhere. The
//! token endpoint takes the codes back (`token.rs`).

use super::client::{self, Credentials};
use super::token;
use super::{Fault, Params};
use crate::auth::DEVICE_LIFE_S;
use crate::{Auth, ScopeSet, Throttled, clients, secrets};
use serde::Serialize;
use std::fmt;
use store::Tx;
use store::identity::Digest;
use store::identity::devices::{self, Decision};
use store::identity::users::User;
use types::Remote;

/// Polling interval. The published command line asks every three seconds and gives up when it is
/// told to slow down.
const INTERVAL_S: i64 = 3;
/// Letters of user codes, which cannot be misread and spell no words. There are 20 to the power of
/// 8 codes.
const LETTERS: &[u8; 20] = b"BCDFGHJKLMNPQRSTVWXZ";
const USER_CODE_CHARS: usize = 8;

/// The answer to a device that asks for codes.
#[derive(Clone, Serialize)]
pub struct Device {
    pub device_code: String,
    pub user_code: String,
    pub verification_uri: String,
    pub verification_uri_complete: String,
    pub expires_in: i64,
    pub interval: i64,
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Device(…)")
    }
}

/// The request that a person decides on.
#[derive(Debug, Clone)]
pub struct Asking {
    pub client_name: String,
    pub scopes: ScopeSet,
    /// Code as people read it: `BCDF-GHJK`.
    pub user_code: String,
}

#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    #[error("this code is not valid or has expired; start again on your device")]
    Unknown,
    #[error(transparent)]
    Throttled(#[from] Throttled),
    #[error("the store failed")]
    Store(#[from] store::Error),
}

impl Auth {
    /// Starts the flow for a device, which gets a code for itself and one for its user.
    pub async fn begin_device(
        &self,
        from: Remote,
        params: Params,
        authorization: Option<&str>,
    ) -> Result<Device, Fault> {
        let credentials = Credentials::read(&params, authorization)?;
        let scopes = token::scopes(&params)?;
        // Skipped for local callers, as with passwords: behind a proxy on this machine, everybody
        // may seem to come from there.
        if !from.is_local() {
            self.client_devices().attempt(&from.to_string())?;
        }
        let devices_max = self.limits().devices_max;
        let device_code = secrets::new_secret(self.world(), "hd");
        let digest = Digest::of(&device_code);
        let user_code = self
            .store()
            .write(move |tx| {
                let client = client::authenticate(tx, credentials.as_ref())?;
                devices::make_room(tx, devices_max)?;
                let user_code = new_user_code(tx)?;
                let expires_at = tx.world().now().plus_s(DEVICE_LIFE_S);
                let device = devices::Device {
                    digest,
                    user_code: user_code.clone(),
                    client: client.id,
                    scope: scopes.to_string(),
                    decision: Decision::Waiting,
                    interval_s: INTERVAL_S,
                    polled_at: None,
                    expires_at,
                };
                devices::create(tx, &device)?;
                Ok::<_, Fault>(user_code)
            })
            .await?;
        let user_code = readable(&user_code);
        let verification_uri = format!("{}/oauth/device", self.issuer());
        Ok(Device {
            verification_uri_complete: format!("{verification_uri}?user_code={user_code}"),
            device_code,
            user_code,
            verification_uri,
            expires_in: DEVICE_LIFE_S,
            interval: INTERVAL_S,
        })
    }

    /// Finds the device that shows a code. Wrong guesses by one person are limited.
    pub async fn device(&self, user: &User, user_code: &str) -> Result<Asking, DeviceError> {
        let (device, client_name) = self.find_device(user, user_code).await?;
        let scopes = ScopeSet::parse(&device.scope).map_err(|_| DeviceError::Unknown)?;
        Ok(Asking { client_name, scopes, user_code: readable(&device.user_code) })
    }

    /// Records the person's decision.
    pub async fn decide_device(
        &self,
        user: &User,
        user_code: &str,
        agree: bool,
    ) -> Result<(), DeviceError> {
        let (device, _) = self.find_device(user, user_code).await?;
        let decision =
            if agree { Decision::Approved { by: user.id.clone() } } else { Decision::Refused };
        let done =
            self.store().write(move |tx| devices::decide(tx, &device.digest, &decision)).await?;
        if done { Ok(()) } else { Err(DeviceError::Unknown) }
    }

    async fn find_device(
        &self,
        user: &User,
        user_code: &str,
    ) -> Result<(devices::Device, String), DeviceError> {
        self.user_codes().attempt(user.id.as_str())?;
        let wanted = plain(user_code);
        let found = self
            .store()
            .read(move |tx| {
                let now = tx.world().now();
                let open = |device: &devices::Device| {
                    device.expires_at > now && device.decision == Decision::Waiting
                };
                let Some(device) = devices::find_by_user_code(tx, &wanted)?.filter(open) else {
                    return Ok(None);
                };
                let client = clients::find(tx, device.client.as_str())?;
                Ok::<_, store::Error>(client.map(|client| (device, client.name)))
            })
            .await?;
        let found = found.ok_or(DeviceError::Unknown)?;
        // A right code forgives no wrong ones: anybody can get one for a device of their own.
        self.user_codes().take_back(user.id.as_str());
        Ok(found)
    }
}

/// Returns a code that no other device shows at the moment.
fn new_user_code(tx: &mut Tx<'_>) -> Result<String, store::Error> {
    loop {
        let bytes = tx.world().random_bytes::<USER_CODE_CHARS>();
        let code: String =
            bytes.iter().map(|byte| char::from(LETTERS[usize::from(byte % 20)])).collect();
        if devices::find_by_user_code(tx, &code)?.is_none() {
            return Ok(code);
        }
    }
}

fn readable(user_code: &str) -> String {
    let (left, right) = user_code.split_at_checked(USER_CODE_CHARS / 2).unwrap_or((user_code, ""));
    format!("{left}-{right}")
}

/// Returns the code that was meant, however it was typed.
fn plain(user_code: &str) -> String {
    user_code
        .chars()
        .filter(char::is_ascii_alphabetic)
        .map(|letter| letter.to_ascii_uppercase())
        .take(USER_CODE_CHARS + 1)
        .collect()
}
