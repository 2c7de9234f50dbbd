//! Reads the settings from all places where they can be set.

use super::error::{Error, Wrong};
use super::layers::Layers;
use super::{Config, check};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::Path;

/// Default locations of the settings file, searched in this order when no path is given.
const PLACES: [&str; 2] = ["holm.toml", "/etc/holm/holm.toml"];

/// Reads the settings: the defaults, then the file (`path`, or the first default location that
/// exists), then the environment, then `flags`.
pub(crate) fn load(
    path: Option<&Path>,
    environment: impl Iterator<Item = (String, OsString)>,
    flags: &[(&str, String)],
) -> Result<Config, Error> {
    let mut layers = Layers::defaults()?;
    let found = PLACES.iter().map(Path::new).find(|place| is_there(place));
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

/// Returns false only if there is nothing of this name. A file that cannot be read, or a link that
/// leads nowhere, is not passed over: a server without its settings would begin anew.
fn is_there(place: &Path) -> bool {
    !matches!(place.symlink_metadata(), Err(error) if error.kind() == ErrorKind::NotFound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_settings_file_that_is_a_link_to_nowhere_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("holm.toml");
        assert!(!is_there(&place));
        std::os::unix::fs::symlink(folder.path().join("gone"), &place).unwrap();
        assert!(is_there(&place));
        let error = load(Some(&place), std::iter::empty(), &[]).unwrap_err();
        assert!(error.to_string().contains("cannot read the settings file"), "{error}");
    }
}
