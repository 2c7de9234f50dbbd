//! OAuth 2.0 without HTTP: what the endpoints decide.
//!
//! RFC 6749 with the advice of RFC 9700: no implicit and no password grant, exact redirect
//! addresses, PKCE with SHA-256, the issuer in answers (RFC 9207), and codes and refresh tokens
//! that work only once, where a second use reveals a theft. Device codes follow RFC 8628,
//! revocation RFC 7009, metadata RFC 8414.

mod authorize;
mod client;
mod device;
mod fault;
mod metadata;
mod params;
mod revoke;
mod token;

pub use crate::tokens::Tokens;
pub use authorize::{Request, Wrong};
pub use device::{Asking, Device, DeviceError};
pub use fault::{Code, Fault};
pub use params::Params;
