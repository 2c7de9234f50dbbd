//! What a machine and the first program of an instance say to each other beside the work that an
//! instance may be for.
//!
//! A program that is to be replaced by the one that the server has:
//!
//! ```text
//! caller ── POST /upgrade ──▶ program ── answer with WANTS_HEADER ──▶ gateway ── tells the machine
//!                             program ◀── PUT PROGRAM_PATH, with the secret of the instance ── machine
//! ```
//!
//! So the program comes over the way on which the instance is served, and nothing in it needs a way
//! out. Whatever runs in the instance could dial the same socket, so the machine shows a secret.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// In an answer: the program waits for a newer one. The gateway takes it out.
pub const WANTS_HEADER: &str = "x-holm-wants";
/// Its value.
pub const WANTS_PROGRAM: &str = "guest-program";
/// Where the machine puts the program.
pub const PROGRAM_PATH: &str = "/upgrade/program";
/// Where the machine learns why the program failed that the image starts by itself. The answer is a
/// text, or empty when it did not fail within [`START_WATCH`].
pub const START_PATH: &str = "/machine/start";
/// So soon after its start a program of the image is watched for its failure.
pub const START_WATCH: Duration = Duration::from_secs(60);
/// Bytes of the text.
pub const START_FAILURE_BYTES_MAX: usize = 4 << 10;
/// The header that carries the secret of the instance.
pub const SECRET_HEADER: &str = "x-holm-machine";
/// Where the machine says how programs that start from now on get out: a PUT of [`ProxySettings`].
pub const PROXY_PATH: &str = "/machine/proxy";

/// Where images have their certificates, by what they are made of. Paths from the root.
pub const BUNDLES: [&str; 6] = [
    "etc/ssl/certs/ca-certificates.crt",
    "etc/pki/tls/certs/ca-bundle.crt",
    "etc/ssl/ca-bundle.pem",
    "etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "etc/ssl/cert.pem",
    "usr/lib/ssl/cert.pem",
];

/// How programs of an instance find the proxy, and whom they have to trust for it. The default takes
/// back what was said before.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProxySettings {
    /// Variables that every program gets, whatever else sets them.
    pub environment: BTreeMap<String, String>,
    /// The certificate of the proxy's authority, as PEM. Empty: there is none to trust.
    pub authority: String,
    /// Certificates that programs trust besides, as PEM, for an image that has none of its own.
    pub roots: Option<String>,
    /// All of them for Java, as the file of a key store in base64, for an image that has Java.
    pub java: Option<String>,
}

/// The variables hold a credential.
impl fmt::Debug for ProxySettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxySettings").finish_non_exhaustive()
    }
}
