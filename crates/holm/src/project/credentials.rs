//! Credentials for registries, in the format that `docker login` writes.

use crate::error::Error;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::path::Path;

const PASSWORD: &str = "HOLM_REGISTRY_PASSWORD";

/// Returns the file with the credentials from flags added, or `None` if neither is given.
pub(crate) fn docker_config(
    file: Option<&Path>,
    given: &[String],
) -> Result<Option<String>, Error> {
    if file.is_none() && given.is_empty() {
        return Ok(None);
    }
    let mut config = json!({});
    if let Some(file) = file {
        let text = std::fs::read_to_string(file)
            .map_err(Error::reading(format!("read {}", file.display())))?;
        // The parser's message may quote the file, which contains credentials.
        config = serde_json::from_str(&text).map_err(|_| Error::Document {
            place: file.display().to_string(),
            message: "is not what `docker login` writes".into(),
        })?;
    }
    let password = std::env::var(PASSWORD).ok().filter(|password| !password.is_empty());
    for credential in given {
        let (host, auth) = read(credential, password.as_deref())?;
        config["auths"][host] = json!({"auth": STANDARD.encode(auth)});
    }
    Ok(Some(Value::to_string(&config)))
}

/// Parses `HOST=USER:PASSWORD`, or `HOST=USER` with the password in the environment.
fn read(text: &str, password: Option<&str>) -> Result<(String, String), Error> {
    let parts = text.split_once('=').filter(|(host, user)| !host.is_empty() && !user.is_empty());
    // The text may contain a secret, so it is not repeated.
    let wrong = || Error::Usage("--registry-cred must be HOST=USER:PASSWORD or HOST=USER".into());
    let (host, user) = parts.ok_or_else(wrong)?;
    if user.contains(':') {
        return Ok((host.to_owned(), user.to_owned()));
    }
    let lacking =
        || Error::NoCredentials(format!("the password for {host} is missing: set {PASSWORD}"));
    Ok((host.to_owned(), format!("{user}:{}", password.ok_or_else(lacking)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_may_be_in_a_variable() {
        let pair = |host: &str, auth: &str| (host.to_owned(), auth.to_owned());
        assert_eq!(read("ghcr.io=me:p=w", None).unwrap(), pair("ghcr.io", "me:p=w"));
        assert_eq!(read("ghcr.io=me", Some("pw")).unwrap(), pair("ghcr.io", "me:pw"));
        assert!(read("ghcr.io=me", None).unwrap_err().to_string().contains(PASSWORD));
        assert!(!read("s3cret", None).unwrap_err().to_string().contains("s3cret"));
    }

    #[test]
    fn what_flags_say_is_added_to_the_file() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("config.json");
        std::fs::write(&file, r#"{"auths": {"a": {"auth": "x"}}}"#).unwrap();
        let text = docker_config(Some(&file), &["b=me:pw".to_owned()]).unwrap().unwrap();
        let config: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(config, json!({"auths": {"a": {"auth": "x"}, "b": {"auth": "bWU6cHc="}}}));
        assert_eq!(docker_config(None, &[]).unwrap(), None);
    }
}
