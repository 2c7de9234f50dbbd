//! Mounting drives: what is asked is checked, and there is no service of drives yet that could be
//! reached.

use crate::http::{Answer, Error, Request};
use crate::route::PathArgument;
use serde::Deserialize;
use serde_json::json;

const NAME_CHARS_MAX: usize = 128;
const PATH_CHARS_MAX: usize = 512;

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Ask {
    drive_name: String,
    mount_path: String,
    drive_path: Option<String>,
    uid_map: Option<String>,
    gid_map: Option<String>,
}

pub(crate) fn list() -> Result<Answer, Error> {
    Answer::json(&json!({"mounts": []}))
}

pub(crate) async fn mount(mut request: Request) -> Result<Answer, Error> {
    let ask: Ask = request.json().await?;
    ask.check().map_err(Error::BadRequest)?;
    Err(Error::Internal(format!(
        "drive {} cannot be mounted: no drive service is reachable",
        ask.drive_name
    )))
}

pub(crate) fn unmount(path: &PathArgument) -> Result<Answer, Error> {
    Err(Error::NotFound(format!(
        "no drive is mounted at /{}",
        String::from_utf8_lossy(path.0.trim_ascii()).trim_start_matches('/')
    )))
}

impl Ask {
    fn check(&self) -> Result<(), String> {
        let letter = |c: char| c.is_ascii_alphanumeric();
        let named = self.drive_name.starts_with(letter)
            && self.drive_name.chars().all(|c| letter(c) || c == '_' || c == '-')
            && self.drive_name.len() <= NAME_CHARS_MAX;
        if !named {
            return Err(format!(
                "`driveName` is 1 to {NAME_CHARS_MAX} letters, digits, `-` and `_`, a letter or digit first"
            ));
        }
        check_path("mountPath", &self.mount_path)?;
        check_path(
            "drivePath",
            self.drive_path.as_deref().filter(|path| !path.is_empty()).unwrap_or("/"),
        )?;
        for (name, map) in [("uidMap", &self.uid_map), ("gidMap", &self.gid_map)] {
            let number = map.as_deref().filter(|number| !number.is_empty());
            if number.is_some_and(|number| {
                !number.bytes().all(|b| b.is_ascii_digit()) || number.parse::<u32>().is_err()
            }) {
                return Err(format!("`{name}` is not the number of a user or group"));
            }
        }
        Ok(())
    }
}

fn check_path(name: &str, path: &str) -> Result<(), String> {
    let inside = !path.split('/').any(|part| part == "..");
    if path.starts_with('/') && inside && path.len() <= PATH_CHARS_MAX && !path.contains('\0') {
        return Ok(());
    }
    Err(format!("`{name}` is an absolute path of up to {PATH_CHARS_MAX} characters without `..`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_could_be_mounted_passes() {
        let check = |value: serde_json::Value| {
            serde_json::from_value::<Ask>(value).unwrap().check().is_ok()
        };
        assert!(check(
            json!({"driveName": "data-1", "mountPath": "/mnt/data", "uidMap": "1000", "gidMap": ""})
        ));
        for (name, path) in
            [("", "/a"), ("-a", "/a"), ("a b", "/a"), ("a", ""), ("a", "a"), ("a", "/a/../b")]
        {
            assert!(!check(json!({"driveName": name, "mountPath": path})), "{name} {path}");
        }
        assert!(!check(json!({"driveName": "a".repeat(129), "mountPath": "/a"})));
        assert!(!check(json!({"driveName": "a", "mountPath": format!("/{}", "a".repeat(512))})));
        assert!(!check(json!({"driveName": "a", "mountPath": "/a", "uidMap": "-1"})));
        assert!(!check(json!({"driveName": "a", "mountPath": "/a", "drivePath": "../a"})));
    }
}
