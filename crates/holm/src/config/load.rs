//! Reads the settings from all places where they can be set.

use super::error::{Error, Wrong};
use super::layers::Layers;
use super::{Config, check};
use std::path::Path;

/// Default locations of the settings file, searched in this order when no path is given.
const PLACES: [&str; 2] = ["holm.toml", "/etc/holm/holm.toml"];

/// Reads the settings: the defaults, then the file (`path`, or the first default location that
/// exists), then the environment, then `flags`.
pub(crate) fn load(
    path: Option<&Path>,
    environment: impl Iterator<Item = (String, String)>,
    flags: &[(&str, String)],
) -> Result<Config, Error> {
    let mut layers = Layers::defaults()?;
    let found = PLACES.iter().map(Path::new).find(|place| place.exists());
    if let Some(file) = path.or(found) {
        let text = std::fs::read_to_string(file)
            .map_err(|source| Error::Unreadable { path: file.into(), source })?;
        layers.lay_file(&file.display().to_string(), &text)?;
    }
    let mut warnings = Vec::new();
    for (name, value) in environment {
        layers.lay_variable(&name, &value)?;
        warnings.extend(layers.almost_read(&name));
    }
    for (key, value) in flags {
        layers.lay_flag(key, value)?;
    }
    let mut config = layers.read()?;
    let named = |wrong: Wrong| layers.wrong_beside(wrong);
    check::check(&config).map_err(named)?;
    config.server.normalise();
    warnings.extend(check::doubts(&config).into_iter().map(|doubt| named(doubt).to_string()));
    config.warnings = warnings;
    Ok(config)
}
