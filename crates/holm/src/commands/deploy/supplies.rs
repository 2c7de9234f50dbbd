//! What a build gets beside the files of the folder: its environment, and credentials of
//! registries.

use crate::error::Error;
use crate::project::credentials;
use crate::project::pack::{BUILD_ENVIRONMENT, DOCKER_CONFIG, Sources};
use std::fs;
use std::path::PathBuf;

/// The flags of all commands that build.
#[derive(Debug, clap::Args)]
pub(crate) struct Supplies {
    /// File of NAME=VALUE lines that only the build gets: values of ARG, and secrets of RUN
    #[arg(long, value_name = "FILE")]
    build_env_file: Vec<PathBuf>,
    /// File of registry credentials, as `docker login` writes it
    #[arg(long, value_name = "FILE")]
    docker_config: Option<PathBuf>,
    /// Credentials of one registry, HOST=USER, with the password in HOLM_REGISTRY_PASSWORD;
    /// HOST=USER:PASSWORD can be seen by other users of this machine
    #[arg(long, value_name = "HOST=USER")]
    registry_cred: Vec<String>,
}

impl Supplies {
    /// Returns the credentials of registries, in one text.
    pub(crate) fn docker_config(&self) -> Result<Option<String>, Error> {
        credentials::docker_config(self.docker_config.as_deref(), &self.registry_cred)
    }

    /// Adds what the flags name to the sources of a build.
    pub(crate) fn add_to(&self, sources: &mut Sources) -> Result<(), Error> {
        if let Some(config) = self.docker_config()? {
            sources.added.push((DOCKER_CONFIG, config.into_bytes()));
        }
        let mut environment = Vec::new();
        for file in &self.build_env_file {
            let text =
                fs::read(file).map_err(Error::reading(format!("read {}", file.display())))?;
            environment.extend(text);
            environment.push(b'\n');
        }
        if !environment.is_empty() {
            sources.added.push((BUILD_ENVIRONMENT, environment));
        }
        Ok(())
    }
}
