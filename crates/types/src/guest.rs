//! What a machine and the first program of an instance tell each other, apart from the work that
//! the instance may exist for.
//!
//! Replacing the program by the version that the server has:
//!
//! ```text
//! caller ── POST /upgrade ──▶ program ── answer with WANTS_HEADER ──▶ gateway ── tells the machine
//!                             program ◀── PUT PROGRAM_PATH, with the secret of the instance ── machine
//! ```
//!
//! So the new program arrives over the same connection on which the instance is served, and the
//! instance needs no way out. Since anything that runs in the instance could dial the same socket,
//! the machine shows a secret.

use crate::work::Orders;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Variable with the number of the descriptor on which the program takes requests.
pub const LISTENER_VARIABLE: &str = "HOLM_GUEST_FD";
/// Variable with the number of the descriptor from which the program reads its [`Settings`].
pub const SETTINGS_VARIABLE: &str = "HOLM_GUEST_CONFIG_FD";

/// Headers of every answer of the sandbox API, whether the program or the gateway gives it. Names
/// in lower case.
pub const ANSWER_HEADERS: [(&str, &str); 7] = [
    ("access-control-allow-origin", "*"),
    ("access-control-allow-methods", "GET, POST, PUT, DELETE, HEAD, OPTIONS"),
    ("access-control-allow-headers", "Content-Type, Authorization"),
    ("cache-control", "no-cache, no-store, must-revalidate"),
    ("pragma", "no-cache"),
    ("expires", "0"),
    ("x-content-type-options", "nosniff"),
];

/// Answer header which says that the program waits for a newer one. The gateway removes it.
pub const WANTS_HEADER: &str = "x-holm-wants";
/// Value of [`WANTS_HEADER`].
pub const WANTS_PROGRAM: &str = "guest-program";
/// Path to which the machine uploads the program.
pub const PROGRAM_PATH: &str = "/upgrade/program";
/// Path at which the machine asks why the program that the image starts by itself failed. The
/// answer is a text, empty if it did not fail within [`START_WATCH`].
pub const START_PATH: &str = "/machine/start";
/// How long after its start a program of the image is watched for failure.
pub const START_WATCH: Duration = Duration::from_secs(60);
/// Longest such text, in bytes.
pub const START_FAILURE_BYTES_MAX: usize = 4 << 10;
/// Header with the secret of the instance.
pub const SECRET_HEADER: &str = "x-holm-machine";
/// Path to which the machine PUTs the [`ProxySettings`] of programs that start from now on.
pub const PROXY_PATH: &str = "/machine/proxy";

/// Folder in which the program keeps the parts of unfinished uploads, at the top of the volume or
/// drive that a file is for. A drive may be mounted from any of its folders, so it may be in any.
pub const UPLOADS_FOLDER: &str = ".holm-uploads";

/// Where images keep their certificates, depending on the distribution. Paths from the root.
pub const BUNDLES: [&str; 6] = [
    "etc/ssl/certs/ca-certificates.crt",
    "etc/pki/tls/certs/ca-bundle.crt",
    "etc/ssl/ca-bundle.pem",
    "etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "etc/ssl/cert.pem",
    "usr/lib/ssl/cert.pem",
];

/// Password of the key store in [`ProxySettings::java`]. The format needs one; it protects nothing.
pub const JAVA_PASSWORD: &str = "changeit";

/// What the program is started with. It comes as JSON over a descriptor, because it contains
/// secrets, which are never on disk. There is no `Debug` for the same reason.
#[derive(Default, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Settings {
    pub env: BTreeMap<String, String>,
    pub workdir: Option<String>,
    /// A user as images name it: `name`, `uid` or `uid:gid`.
    pub user: Option<String>,
    pub disable_keep_alive: bool,
    pub disable_process_logging: bool,
    /// Path of the document that `POST /environment/reload` reads.
    pub metadata: Option<String>,
    /// The program that the image itself starts, with its arguments; may be empty.
    pub start: Vec<String>,
    /// Shown by the machine in [`SECRET_HEADER`].
    pub secret: Option<String>,
    /// Where the environment is written, for programs that do not inherit it.
    pub environment_file: Option<String>,
    /// The only purpose of the instance, if it has just one. Its data follows after a line break.
    pub work: Option<Orders>,
    pub proxy: ProxySettings,
}

/// How programs of an instance find the proxy, and which authority they must trust for it. The
/// default undoes earlier settings.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProxySettings {
    /// Variables that every program gets, overriding any others.
    pub environment: BTreeMap<String, String>,
    /// Certificate of the proxy's authority, as PEM. Empty if there is none to trust.
    pub authority: String,
    /// Further certificates that programs trust, as PEM, for an image that has none of its own.
    pub roots: Option<String>,
    /// All of them for Java, as a key store file in base64, for an image that has Java.
    pub java: Option<String>,
}

/// Prints nothing: the variables hold a credential.
impl fmt::Debug for ProxySettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxySettings").finish_non_exhaustive()
    }
}
