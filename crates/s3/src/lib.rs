//! Serves folders of this machine over the S3 protocol: this is how programs that speak S3, and
//! mount nothing, see drives.
//!
//! [`Service::handle`] takes a request and returns the answer. It asks an [`Access`] who owns a key
//! and which folder belongs to a bucket; this crate knows neither databases nor workspaces.
//! [`folder`] is the only module that touches the files. Sandboxes write these files at the same
//! time, so nothing in them can be trusted.
//!
//! The course of a request: `route` finds bucket and key, `signature` checks it against the secret
//! of its key, `payload` unwraps and checks its body, `ops` does what it asks for, and `error`
//! reports failures with S3's own codes.

mod access;
mod body;
mod checksum;
mod conditions;
mod crc;
mod date;
mod error;
mod folder;
mod headers;
mod key;
mod ops;
mod payload;
mod range;
mod route;
mod service;
mod settings;
mod signature;
mod tidy;
mod xml;

pub use access::{Access, Bucket, BucketEntry, Caller, Owner, Refused, Secret};
pub use body::Body;
pub use error::{Code, Error};
pub use key::Key;
pub use service::{Service, Signed};
pub use settings::Settings;
