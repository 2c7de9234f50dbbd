//! The images of this machine, as these commands open and name them.

use crate::config::{Config, Images};
use crate::error::Error;
use crate::server::setup;
use images::{Reference, Store};
use types::own_image::{IMAGE_TYPES, is_own_image};

pub(super) fn open(config: &Config) -> Result<Store, Error> {
    setup::make_folder(config)?;
    Store::open(&config.images_folder(), Images::settings())
        .map_err(|error| failed("open the image store", &error))
}

pub(super) fn name(text: &str) -> Result<Reference, Error> {
    text.parse().map_err(|error| Error::Usage(format!("`{text}`: {error}")))
}

/// Reads a name for an image that everybody may use.
pub(super) fn public_name(text: &str) -> Result<Reference, Error> {
    match is_own_image(text) {
        true => Err(own(text)),
        false => name(text),
    }
}

/// The error for a name that workloads would take for an image of their own workspace.
pub(super) fn own(name: &str) -> Error {
    let types: Vec<_> = IMAGE_TYPES.iter().map(|of| format!("{of}/")).collect();
    Error::Usage(format!(
        "`{name}`: names in {} mean images of a workspace, which it pushes or builds with `holm deploy`; an image for everybody needs another first part, such as `team/`",
        types.join(", ")
    ))
}

/// Makes an error that lists all its causes.
pub(super) fn failed(act: &str, error: &dyn std::error::Error) -> Error {
    Error::Start { act: act.to_owned(), message: types::chain(error) }
}
