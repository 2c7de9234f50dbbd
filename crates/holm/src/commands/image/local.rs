//! The images of this machine, as these commands open and name them.

use crate::config::{Config, Images};
use crate::error::Error;
use crate::server::setup;
use images::{Reference, Store};

pub(super) fn open(config: &Config) -> Result<Store, Error> {
    setup::make_folder(config)?;
    Store::open(&config.images_folder(), Images::settings())
        .map_err(|error| failed("open the image store", &error))
}

pub(super) fn name(text: &str) -> Result<Reference, Error> {
    text.parse().map_err(|error| Error::Usage(format!("`{text}`: {error}")))
}

/// Makes an error that lists all its causes.
pub(super) fn failed(act: &str, error: &dyn std::error::Error) -> Error {
    Error::Start { act: act.to_owned(), message: types::chain(error) }
}
