//! Drives in sandboxes, in the terms of the sandbox API.

use crate::parts::limits::FILE_NAME_MAX;
use crate::parts::{mount_place, names};
use serde::{Deserialize, Serialize};

const NAME_CHARS_MAX: usize = 128;
const PATH_BYTES_MAX: usize = 512;
/// What [`names::is_absolute_path`] asks for, with the limit of paths of drives.
const PATH_RULE: &str = "must be an absolute path of at most 512 bytes without `..` and control \
    characters, each name in it of at most 255 bytes";
const _: () = assert!(PATH_BYTES_MAX == 512 && FILE_NAME_MAX == 255);

/// A request to mount a drive.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DriveOrder {
    pub drive_name: String,
    pub mount_path: String,
    /// Path within the drive; the whole drive if absent or `/`.
    pub drive_path: Option<String>,
    pub read_only: Option<bool>,
    pub uid_map: Option<String>,
    pub gid_map: Option<String>,
}

/// A drive that is mounted in a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MountedDrive {
    pub drive_name: String,
    pub mount_path: String,
    pub drive_path: String,
    pub read_only: bool,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid_map: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub gid_map: String,
}

/// Why a drive was not attached or detached. The texts are for the caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DriveRefusal {
    /// The request is not valid.
    #[error("{0}")]
    Bad(String),
    /// Something else is mounted at that path.
    #[error("{0}")]
    Busy(String),
    /// The machine or the database has no room left.
    #[error("{0}")]
    Full(String),
    /// The database cannot be asked at the moment.
    #[error("{0}")]
    Away(String),
    #[error("{0}")]
    Failed(String),
}

impl DriveOrder {
    pub fn check(&self) -> Result<(), String> {
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
        check_path("drivePath", self.path_of_drive())?;
        for (name, map) in [("uidMap", &self.uid_map), ("gidMap", &self.gid_map)] {
            let number = map.as_deref().filter(|number| !number.is_empty());
            match number.map(|number| (number.bytes().all(|b| b.is_ascii_digit()), number.parse()))
            {
                None | Some((true, Ok(0_u32))) => {}
                Some((true, Ok(_))) => {
                    return Err(format!(
                        "`{name}` can be 0 only: files of a drive have the same owners in all sandboxes"
                    ));
                }
                Some(_) => return Err(format!("`{name}` is not the number of a user or group")),
            }
        }
        Ok(())
    }

    fn path_of_drive(&self) -> &str {
        self.drive_path.as_deref().filter(|path| !path.is_empty()).unwrap_or("/")
    }

    /// Returns the folder of the drive in normalized spelling; empty for the whole drive.
    pub fn folder(&self) -> String {
        mount_place(self.path_of_drive())
    }
}

fn check_path(name: &str, path: &str) -> Result<(), String> {
    let fits = path.len() <= PATH_BYTES_MAX && names::is_absolute_path(path);
    if fits { Ok(()) } else { Err(format!("`{name}` {PATH_RULE}")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn only_what_could_be_mounted_passes() {
        let check = |value: serde_json::Value| {
            serde_json::from_value::<DriveOrder>(value).unwrap().check().is_ok()
        };
        assert!(check(
            json!({"driveName": "data-1", "mountPath": "/mnt/data", "uidMap": "0", "gidMap": ""})
        ));
        for (name, path) in
            [("", "/a"), ("-a", "/a"), ("a b", "/a"), ("a", ""), ("a", "a"), ("a", "/a/../b")]
        {
            assert!(!check(json!({"driveName": name, "mountPath": path})), "{name} {path}");
        }
        assert!(!check(json!({"driveName": "a".repeat(129), "mountPath": "/a"})));
        assert!(!check(json!({"driveName": "a", "mountPath": format!("/{}", "a".repeat(512))})));
        for path in ["a".to_owned(), "/a".repeat(257)] {
            let order =
                DriveOrder { drive_name: "a".into(), mount_path: path, ..DriveOrder::default() };
            let refused = order.check().unwrap_err();
            assert!(refused.contains("at most 512 bytes"), "{refused}");
        }
        for wrong in ["-1", "x", "1000", "99999999999"] {
            assert!(!check(json!({"driveName": "a", "mountPath": "/a", "uidMap": wrong})));
        }
        assert!(!check(json!({"driveName": "a", "mountPath": "/a", "drivePath": "../a"})));
    }

    proptest! {
        #[test]
        fn a_folder_is_plain(path in "[/.a-z\\PC]{0,20}") {
            let order = DriveOrder {
                drive_name: "a".into(),
                mount_path: "/a".into(),
                drive_path: Some(path),
                ..DriveOrder::default()
            };
            if order.check().is_ok() {
                let folder = order.folder();
                let plain = |step: &str| !["", ".", ".."].contains(&step);
                prop_assert!(folder.is_empty() || folder[1..].split('/').all(plain), "{folder}");
            }
        }
    }
}
