//! The documents of an image (index, manifest and configuration), with the members that the store
//! needs.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use crate::digest::Digest;
use crate::error::Error;

pub(crate) const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub(crate) const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(crate) const OCI_CONFIG: &str = "application/vnd.oci.image.config.v1+json";
pub(crate) const DOCKER_INDEX: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
pub(crate) const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";

/// Annotation with the name of an image inside a layout: a tag alone, or the full name.
pub(crate) const NAME_ANNOTATION: &str = "org.opencontainers.image.ref.name";
/// Annotation with the full name, as containerd and Docker write it.
pub(crate) const FULL_NAME_ANNOTATION: &str = "io.containerd.image.name";

/// An index may list further indexes, one for each platform. More levels than this are a loop or an
/// attack.
pub(crate) const INDEX_DEPTH_MAX: usize = 3;

/// Refuses an index with more levels of others than [`INDEX_DEPTH_MAX`].
pub(crate) fn too_deep() -> Error {
    Error::Limit { what: "indexes in each other", max: INDEX_DEPTH_MAX as u64 }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptor {
    pub(crate) media_type: String,
    pub(crate) digest: Digest,
    pub(crate) size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) platform: Option<Platform>,
    #[serde(
        default,
        deserialize_with = "null_is_empty",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub(crate) annotations: BTreeMap<String, String>,
}

impl Descriptor {
    pub(crate) fn new(media_type: &str, digest: Digest, size: u64) -> Self {
        Self {
            media_type: media_type.into(),
            digest,
            size,
            platform: None,
            annotations: BTreeMap::new(),
        }
    }

    /// Replaces Docker's media type with the matching one of OCI.
    pub(crate) fn into_oci(mut self) -> Self {
        self.media_type = match self.media_type.as_str() {
            "application/vnd.docker.image.rootfs.diff.tar.gzip" => {
                "application/vnd.oci.image.layer.v1.tar+gzip".to_owned()
            }
            "application/vnd.docker.image.rootfs.diff.tar" => {
                "application/vnd.oci.image.layer.v1.tar".to_owned()
            }
            _ => self.media_type,
        };
        self
    }

    pub(crate) fn is_index(&self) -> bool {
        matches!(self.media_type.as_str(), OCI_INDEX | DOCKER_INDEX)
    }
}

/// The platform that an image is for, in Go's terms.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Platform {
    pub os: String,
    pub architecture: String,
}

impl Platform {
    /// Returns the platform that this program was built for.
    pub fn here() -> Self {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        Self { os: "linux".into(), architecture: architecture.into() }
    }
}

impl std::fmt::Display for Platform {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Index {
    pub(crate) schema_version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) media_type: Option<String>,
    pub(crate) manifests: Vec<Descriptor>,
}

impl Index {
    pub(crate) fn new(manifests: Vec<Descriptor>) -> Self {
        Self { schema_version: 2, media_type: Some(OCI_INDEX.into()), manifests }
    }

    /// Chooses the entry for a platform. An entry without a platform fits any, but an exact match
    /// comes first.
    pub(crate) fn choose(&self, platform: &Platform) -> Result<&Descriptor, Error> {
        let named = self.manifests.iter().find(|entry| entry.platform.as_ref() == Some(platform));
        named
            .or_else(|| self.manifests.iter().find(|entry| entry.platform.is_none()))
            .ok_or_else(|| Error::NoPlatform(platform.to_string()))
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Manifest {
    pub(crate) schema_version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) media_type: Option<String>,
    pub(crate) config: Descriptor,
    pub(crate) layers: Vec<Descriptor>,
}

impl Manifest {
    pub(crate) fn new(config: Descriptor, layers: Vec<Descriptor>) -> Self {
        Self { schema_version: 2, media_type: Some(OCI_MANIFEST.into()), config, layers }
    }
}

/// The stored configuration of an image.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Setup {
    #[serde(default)]
    pub(crate) architecture: String,
    #[serde(default)]
    pub(crate) os: String,
    #[serde(default, deserialize_with = "null_is_empty")]
    pub(crate) config: Process,
    pub(crate) rootfs: RootFs,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RootFs {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    #[serde(default, deserialize_with = "null_is_empty")]
    pub(crate) diff_ids: Vec<Digest>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct Process {
    #[serde(deserialize_with = "null_is_empty")]
    env: Vec<String>,
    #[serde(deserialize_with = "null_is_empty")]
    working_dir: String,
    #[serde(deserialize_with = "null_is_empty")]
    entrypoint: Vec<String>,
    #[serde(deserialize_with = "null_is_empty")]
    cmd: Vec<String>,
    #[serde(deserialize_with = "null_is_empty")]
    user: String,
    #[serde(deserialize_with = "null_is_empty")]
    exposed_ports: BTreeMap<String, serde_json::Value>,
}

/// How the image's program is run unless something else is specified.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    pub env: BTreeMap<String, String>,
    pub workdir: String,
    pub entrypoint: Vec<String>,
    pub cmd: Vec<String>,
    pub user: String,
    /// Ports as the image writes them: `80`, `53/udp`.
    pub exposed: Vec<String>,
}

impl From<Process> for Config {
    fn from(process: Process) -> Self {
        let pair = |entry: String| match entry.split_once('=') {
            Some((name, value)) => (name.to_owned(), value.to_owned()),
            None => (entry, String::new()),
        };
        Self {
            env: process.env.into_iter().map(pair).collect(),
            workdir: process.working_dir,
            entrypoint: process.entrypoint,
            cmd: process.cmd,
            user: process.user,
            exposed: process.exposed_ports.into_keys().collect(),
        }
    }
}

impl From<Config> for Process {
    fn from(config: Config) -> Self {
        Self {
            env: config.env.into_iter().map(|(name, value)| format!("{name}={value}")).collect(),
            working_dir: config.workdir,
            entrypoint: config.entrypoint,
            cmd: config.cmd,
            user: config.user,
            exposed_ports: config
                .exposed
                .into_iter()
                .map(|port| (port, serde_json::json!({})))
                .collect(),
        }
    }
}

impl Setup {
    pub(crate) fn new(platform: Platform, config: Config, diff_ids: Vec<Digest>) -> Self {
        Self {
            architecture: platform.architecture,
            os: platform.os,
            config: config.into(),
            rootfs: RootFs { kind: "layers".into(), diff_ids },
        }
    }
}

/// Reads `null` as empty, because that is how Go writes an empty list.
fn null_is_empty<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    input: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(input)?.unwrap_or_default())
}

pub(crate) fn read<'a, T: Deserialize<'a>>(
    what: &'static str,
    bytes: &'a [u8],
) -> Result<T, Error> {
    serde_json::from_slice(bytes).map_err(|error| Error::malformed(what, error))
}

pub(crate) fn write<T: Serialize>(what: &'static str, value: &T) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(value).map_err(|error| Error::malformed(what, error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(platform: Option<Platform>, content: &[u8]) -> Descriptor {
        Descriptor { platform, ..Descriptor::new(OCI_MANIFEST, Digest::of(content), 1) }
    }

    #[test]
    fn the_entry_for_this_machine_is_chosen() {
        let other = Platform { os: "linux".into(), architecture: "s390x".into() };
        let index = Index::new(vec![
            entry(Some(other.clone()), b"1"),
            entry(None, b"2"),
            entry(Some(Platform::here()), b"3"),
        ]);
        assert_eq!(index.choose(&Platform::here()).unwrap().digest, Digest::of(b"3"));
        let only_other = Index::new(vec![entry(Some(other), b"1")]);
        assert!(matches!(only_other.choose(&Platform::here()), Err(Error::NoPlatform(_))));
    }

    #[test]
    fn lists_that_are_null_are_empty() {
        let text = br#"{"config":{"Env":null,"Cmd":null,"ExposedPorts":null,"User":null},"rootfs":{"type":"layers","diff_ids":null}}"#;
        let setup: Setup = read("configuration", text).unwrap();
        assert_eq!(Config::from(setup.config), Config::default());
        assert!(
            read::<Setup>("configuration", br#"{"config":null,"rootfs":{"type":"layers"}}"#)
                .is_ok()
        );
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read::<Manifest>("manifest", &bytes);
            let _ = read::<Index>("index", &bytes);
            let _ = read::<Setup>("configuration", &bytes);
        }

        #[test]
        fn a_configuration_reads_back(env in proptest::collection::btree_map("[A-Z]{1,4}", "[ -~]{0,9}", 0..4),
                                      cmd in proptest::collection::vec("[ -~]{0,9}", 0..4), user in "[a-z0-9:]{0,5}") {
            let config = Config { env, cmd, user, exposed: vec!["80/tcp".into()], ..Config::default() };
            let setup = Setup::new(Platform::here(), config.clone(), vec![Digest::of(b"")]);
            let bytes = write("configuration", &setup).map_err(|error| TestCaseError::fail(error.to_string()))?;
            let found: Setup = read("configuration", &bytes).map_err(|error| TestCaseError::fail(error.to_string()))?;
            prop_assert_eq!(Config::from(found.config), config);
        }
    }
}
