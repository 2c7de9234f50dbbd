//! How a machine answers, and why it refuses or fails.

use types::own_image::is_own_image;

/// There is no such image here, and no registry that could have it. Lists the images that the
/// caller may use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", unknown_image(.wanted, .there_are, *.elsewhere))]
pub struct UnknownImage {
    pub wanted: String,
    pub there_are: Vec<String>,
    /// The workspace has the image, but another machine has its content.
    pub elsewhere: bool,
}

fn unknown_image(wanted: &str, there_are: &[String], elsewhere: bool) -> String {
    match elsewhere {
        true => format!(
            "the content of the image `{wanted}` is on another machine of this installation; push it to the server that is to run it, or deploy there"
        ),
        false => format!("there is no image `{wanted}`; {}", listed(wanted, there_are)),
    }
}

fn listed(wanted: &str, there_are: &[String]) -> String {
    match there_are {
        [] if is_own_image(wanted) => {
            "this workspace has none yet: push it, or build it with `holm deploy`".into()
        }
        [] => "there is none yet: whoever runs the server makes some with `holm image make`".into(),
        some => format!("there are: {}", some.join(", ")),
    }
}

#[derive(Debug, thiserror::Error)]
pub enum LaunchFault {
    #[error(transparent)]
    Image(#[from] UnknownImage),
    #[error("the image cannot be had: {0}")]
    Pull(String),
    #[error("the machine is full: {0}")]
    Full(String),
    /// The workspace has to give something back first, or asks for more than this machine ever has.
    #[error("{0}")]
    OverShare(String),
    /// An instance that is about to go still holds one of its volumes.
    #[error("{0}")]
    Busy(String),
    #[error("the machine cannot start it: {0}")]
    Broken(String),
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct MachineFault(pub String);
