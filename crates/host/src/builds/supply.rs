//! Supplies a build with what it wants from elsewhere: images to begin with, and files for ADD.

use super::drive::Job;
use crate::launching::is_made_here;
use control::machine::{BuildFault, LaunchFault};
use images::build::{Download, Supply};
use images::{Digest, Reference};
use std::path::PathBuf;

impl Job {
    /// Finds an image: the workspace's own, the machine's, or a registry's.
    pub(super) fn supply(&self, name: &str) -> Result<Supply, BuildFault> {
        let machine = &self.shared.machine;
        let images = &machine.0.images;
        let broken = |error: images::Error| BuildFault::Broken(types::chain(&error));
        let reference: Reference = name
            .parse()
            .map_err(|_| BuildFault::Failed(format!("`{name}` is not the name of an image")))?;
        if let Some(digest) = self.own_image(name)? {
            return match images.has(&digest) {
                true => Ok(Supply::Image(digest)),
                false => {
                    Err(BuildFault::Failed(format!("the image `{name}` is not there any more")))
                }
            };
        }
        if let Some(digest) = images.find_public(&reference).map_err(broken)? {
            return Ok(Supply::Image(digest));
        }
        for vendor in &self.shared.settings.sandbox_images {
            if reference.repository() == *vendor {
                return Ok(Supply::StandIn);
            }
            // The vendor's base images have counterparts here.
            let rest = reference.repository();
            let rest = rest.strip_prefix(vendor.as_str()).and_then(|rest| rest.strip_prefix('/'));
            let own = rest.and_then(|rest| format!("blaxel/{rest}").parse().ok());
            if let Some(own) = own
                && let Some(digest) = images.find_public(&own).map_err(broken)?
            {
                return Ok(Supply::Image(digest));
            }
        }
        if let Some(why) = made_here(name, &reference) {
            return Err(BuildFault::Failed(why));
        }
        if reference.host().is_some() {
            machine.0.require_open(&reference).map_err(of_launch)?;
        }
        self.log.line(&format!("pulling {reference}"));
        let workspace = self.order.workspace.as_str().to_owned();
        let (machine, registries) = (machine.clone(), self.registries.clone());
        let pull = async move { machine.pull(&workspace, &reference, registries.as_deref()).await };
        self.wait(pull)?.map(Supply::Image).map_err(of_launch)
    }

    fn own_image(&self, name: &str) -> Result<Option<Digest>, BuildFault> {
        let found = self.wait(self.order.own_images.find(name))?.map_err(of_launch)?;
        Ok(found.and_then(|digest| digest.parse().ok()))
    }

    pub(super) fn download(&self, address: &str, file: PathBuf) -> Result<Download, BuildFault> {
        let max = self.shared.settings.add_bytes_max;
        self.wait(self.shared.fetcher.fetch(address, file, max))?
    }
}

/// Explains where an image comes from that only this machine makes.
fn made_here(name: &str, reference: &Reference) -> Option<String> {
    if !is_made_here(reference) {
        return None;
    }
    // The program's own recipes can always be read.
    let recipe = images::Recipe::of(reference).ok().flatten();
    Some(match recipe {
        Some(recipe) => format!(
            "the image `{name}` is not on the machine of this server yet: whoever runs it makes it with \
             `holm image make {}`",
            recipe.name.repository()
        ),
        None => format!(
            "there is no image `{name}`; `holm image list` on the server's machine shows all"
        ),
    })
}

fn of_launch(fault: LaunchFault) -> BuildFault {
    match fault {
        LaunchFault::OverShare(why) => BuildFault::OverShare(why),
        LaunchFault::Full(why) | LaunchFault::Busy(why) | LaunchFault::Broken(why) => {
            BuildFault::Broken(why)
        }
        LaunchFault::Pull(why) => {
            BuildFault::Failed(format!("the image to begin with cannot be had: {why}"))
        }
        LaunchFault::Image(unknown) => BuildFault::Failed(unknown.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_of_the_project_are_made_and_not_pulled() {
        let made = |name: &str| made_here(name, &name.parse().ok()?);
        for name in ["holm/base", "blaxel/base-image:latest", "docker.io/holm/base"] {
            let why = made(name).unwrap_or_default();
            assert!(why.contains("`holm image make holm/base`"), "{name}: {why}");
        }
        assert!(made("holm/base:3").is_some_and(|why| why.contains("there is no image")));
        for name in ["python:3.12", "ghcr.io/holm/base", "holmes/base"] {
            assert_eq!(made(name), None, "{name}");
        }
    }
}
