//! Folders of this machine over the S3 protocol: the view of drives that programs have which speak S3
//! and mount nothing.
//!
//! [`Service::handle`] takes a request and answers it. Who has a key and which folder is a bucket is
//! asked of an [`Access`]; this crate knows neither databases nor workspaces. [`folder`] is the only
//! module that touches the files, which sandboxes write at the same time and fill with traps.
//!
//! The way of a request: `route` finds bucket and key, `signature` holds it against the secret of its
//! key, `payload` unwraps and checks its body, `ops` does what it asks for, `error` says what went
//! wrong in the words of S3.

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

pub use access::{Access, Bucket, BucketEntry, Caller, Owner, Refused, Secret, Wait};
pub use body::Body;
pub use error::{Code, Error};
pub use key::{HIDDEN_FOLDER, Key};
pub use service::{Service, Signed};
pub use settings::Settings;
