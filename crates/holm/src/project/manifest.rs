//! `blaxel.toml`, the manifest of a project.

use crate::duration::Span;
use crate::error::Error;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub(crate) const FILE: &str = "blaxel.toml";

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Manifest {
    pub(crate) name: Option<String>,
    #[serde(rename = "type")]
    pub(crate) kind: Option<String>,
    /// Folder of the project, if it is not this one.
    pub(crate) directory: Option<String>,
    pub(crate) env: BTreeMap<String, Value>,
    pub(crate) runtime: Map<String, Value>,
    pub(crate) triggers: Vec<Map<String, Value>>,
    pub(crate) policies: Option<Vec<String>>,
    pub(crate) public: Option<bool>,
    pub(crate) region: Option<String>,
    pub(crate) volumes: Option<Vec<Value>>,
    pub(crate) github_runner: Option<Value>,
    pub(crate) port: Option<u16>,
    /// Default size in megabytes of volumes made from a volume template.
    pub(crate) default_size: Option<i64>,
    /// Image in a registry to use instead of sources.
    pub(crate) image: Option<String>,
    pub(crate) entrypoint: Entrypoint,
    /// Further projects in subfolders, by kind and name.
    agent: BTreeMap<String, Package>,
    function: BTreeMap<String, Package>,
    job: BTreeMap<String, Package>,
    sandbox: BTreeMap<String, Package>,
    application: BTreeMap<String, Package>,
    pub(crate) skip_root: bool,
    #[serde(flatten)]
    other: BTreeMap<String, Value>,
}

/// Commands that start the program of a project.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Entrypoint {
    pub(crate) dev: Option<String>,
    pub(crate) prod: Option<String>,
    #[serde(flatten)]
    other: BTreeMap<String, Value>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Package {
    path: Option<String>,
    #[serde(flatten)]
    other: BTreeMap<String, Value>,
}

/// Keys that the server reads from the archive, or that other programs read.
const FOR_OTHERS: [&str; 6] = ["build", "models", "agents", "functions", "protocol", "workspace"];

/// Keys with a text such as `2m` in `blaxel.toml`, which the API takes in seconds.
const SECONDS: [&str; 1] = ["timeout"];

impl Manifest {
    /// Reads the manifest of a folder. Without a file, all values are defaults.
    pub(crate) fn read(folder: &Path) -> Result<Self, Error> {
        let file = folder.join(FILE);
        let text = match fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(source) => {
                return Err(Error::Io { act: format!("read {}", file.display()), source });
            }
        };
        Self::parse(&text)
            .map_err(|message| Error::Document { place: file.display().to_string(), message })
    }

    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut manifest: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        to_seconds("runtime", &mut manifest.runtime)?;
        for trigger in &mut manifest.triggers {
            settle_trigger(trigger)?;
        }
        let values = manifest.env.iter();
        for (name, value) in values {
            if value.is_object() || value.is_array() || value.is_null() {
                return Err(format!("`env.{name}` must be a text, a number or true or false"));
            }
        }
        Ok(manifest)
    }

    /// Returns keys that nobody understands: misspelt, or from a later release. Those of `runtime`
    /// and `triggers` are for the server to understand.
    pub(crate) fn unknown(&self) -> impl Iterator<Item = String> {
        let top = self.other.keys().filter(|name| !FOR_OTHERS.contains(&name.as_str())).cloned();
        let commands = self.entrypoint.other.keys().map(|key| format!("entrypoint.{key}"));
        let packages = self.all_packages().flat_map(|(kind, name, package)| {
            package.other.keys().map(move |key| format!("{kind}.{name}.{key}"))
        });
        top.chain(commands).chain(packages)
    }

    /// Returns the projects in subfolders: kind, name and folder of each.
    pub(crate) fn packages(&self) -> Vec<(&'static str, &str, PathBuf)> {
        let folder =
            |name: &str, package: &Package| PathBuf::from(package.path.as_deref().unwrap_or(name));
        let packages = self.all_packages();
        packages.map(|(kind, name, package)| (kind, name, folder(name, package))).collect()
    }

    fn all_packages(&self) -> impl Iterator<Item = (&'static str, &str, &Package)> {
        let kinds = [
            ("agent", &self.agent),
            ("function", &self.function),
            ("job", &self.job),
            ("sandbox", &self.sandbox),
            ("application", &self.application),
        ];
        kinds.into_iter().flat_map(|(kind, packages)| {
            packages.iter().map(move |(name, package)| (kind, name.as_str(), package))
        })
    }
}

/// Moves the timeout of a trigger into its configuration, where the API expects it.
fn settle_trigger(trigger: &mut Map<String, Value>) -> Result<(), String> {
    let outside = trigger.remove("timeout");
    let wrong = || "`triggers.configuration` must be a table".to_owned();
    let configuration = trigger.entry("configuration").or_insert_with(|| Value::Object(Map::new()));
    let configuration = configuration.as_object_mut().ok_or_else(wrong)?;
    if let Some(timeout) = outside {
        configuration.entry("timeout").or_insert(timeout);
    }
    to_seconds("triggers.configuration", configuration)
}

fn to_seconds(place: &str, members: &mut Map<String, Value>) -> Result<(), String> {
    for name in SECONDS {
        let Some(Value::String(text)) = members.get(name) else { continue };
        let Span(length) = text.parse().map_err(|error| format!("`{place}.{name}`: {error}"))?;
        members.insert(name.to_owned(), length.as_secs().into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn lengths_of_time_become_seconds() {
        let manifest = Manifest::parse(
            r#"
            name = "a"
            type = "agent"
            [runtime]
            memory = 2048
            timeout = "15m"
            [[triggers]]
            type = "http-async"
            timeout = "2m"
            [[triggers]]
            type = "cron"
            configuration = { schedule = "0 * * * *", timeout = 5 }
            "#,
        )
        .unwrap();
        assert_eq!(Value::Object(manifest.runtime), json!({"memory": 2048, "timeout": 900}));
        assert_eq!(manifest.triggers[0]["configuration"], json!({"timeout": 120}));
        assert_eq!(manifest.triggers[1]["configuration"]["timeout"], 5);
        assert!(Manifest::parse("runtime = { timeout = \"soon\" }").is_err());
    }

    #[test]
    fn what_is_not_known_is_named() {
        let text = "nmae = 'a'\nfunctions = ['all']\n[build]\nslim = true\n[entrypoint]\nprdo = 'x'\n\
                    [job.nightly]\npth = 'n'";
        let manifest = Manifest::parse(text).unwrap();
        let unknown: Vec<_> = manifest.unknown().collect();
        assert_eq!(unknown, ["nmae", "entrypoint.prdo", "job.nightly.pth"]);
    }

    #[test]
    fn packages_have_a_folder() {
        let text = "skipRoot = true\n[agent.main]\npath = 'src/main'\n[job.nightly]\n";
        let manifest = Manifest::parse(text).unwrap();
        let expected = [("agent", "main", "src/main".into()), ("job", "nightly", "nightly".into())];
        assert_eq!(manifest.packages(), expected);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[a-z=\"\\[\\] .\n0-9]{0,60}|.*") {
            let _ = Manifest::parse(&text);
        }
    }
}
