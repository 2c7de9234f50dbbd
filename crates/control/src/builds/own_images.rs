//! What a `FROM` may begin with that needs no registry: the workspace's own images, and those of
//! registries that it was granted before. Each name is looked up when a build comes to it.

use crate::control::Control;
use crate::error::Error;
use crate::machine::{LaunchFault, OwnImages};
use crate::workloads::images::{Usable, usable};
use store::Tx;
use types::ids::WorkspaceId;
use types::own_image::is_own_image;

pub(super) fn of(control: &Control, workspace: &WorkspaceId, name: &str) -> OwnImages {
    let (control, workspace) = (control.clone(), workspace.clone());
    let pushed = pushed_below(&control.settings.public_url, name);
    OwnImages::new(move |name| {
        let name = in_spec(&pushed, &name).to_owned();
        Box::pin(find(control.clone(), workspace.clone(), name))
    })
}

/// Returns how the names begin under which the images of a workspace are pushed and pulled.
fn pushed_below(server: &str, workspace: &str) -> String {
    let host = server.split_once("://").map_or(server, |(_, host)| host);
    format!("{host}/{workspace}/")
}

/// Returns the name that a `spec` has for an image that is named as it was pushed.
fn in_spec<'a>(pushed: &str, name: &'a str) -> &'a str {
    name.strip_prefix(pushed).filter(|rest| is_own_image(rest)).unwrap_or(name)
}

async fn find(
    control: Control,
    workspace: WorkspaceId,
    name: String,
) -> Result<Option<String>, LaunchFault> {
    let Some(machine) = control.machine().cloned() else { return Ok(None) };
    let is_own = is_own_image(&name);
    let work = move |tx: &mut Tx<'_>| usable(tx, &*machine, &workspace, &name);
    match control.store.read(work).await {
        Ok(Usable::Now(granted)) => Ok(granted),
        Ok(Usable::Fetched) => Ok(None),
        // A name of this form is nobody else's, whatever a registry has under it.
        Err(Error::InvalidImage(unknown)) if is_own => Err(unknown.into()),
        Err(Error::InvalidImage(_)) => Ok(None),
        Err(error) => {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "an image of a workspace could not be looked up for a build"
            );
            Err(LaunchFault::Broken("its own images could not be looked up".to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_images_have_the_names_under_which_they_are_pushed_too() {
        let pushed = pushed_below("https://holm.example.org:8443", "main");
        for (name, found) in [
            ("agent/a:v1", "agent/a:v1"),
            ("holm.example.org:8443/main/agent/a:v1", "agent/a:v1"),
            ("holm.example.org:8443/main/a:v1", "holm.example.org:8443/main/a:v1"),
            ("holm.example.org:8443/other/agent/a", "holm.example.org:8443/other/agent/a"),
            ("docker.io/agent/a", "docker.io/agent/a"),
        ] {
            assert_eq!(in_spec(&pushed, name), found);
        }
    }
}
