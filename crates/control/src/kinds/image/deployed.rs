//! Which images of its own registry a workspace uses.

use super::is_of;
use crate::context::Context;
use crate::error::Error;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;
use store::{Tx, feed, wishes};
use types::KindName;
use types::own_image::is_own_image;

/// The kinds that run images.
const RUNNERS: [KindName; 5] =
    [KindName::Agent, KindName::Application, KindName::Function, KindName::Job, KindName::Sandbox];
/// Occurs in each wish that names an image.
const NAMES_IMAGE: &str = "\"image\"";

/// References to images of a workspace's registry, in everything that it runs and in the revisions
/// that it may go back to.
///
/// They are read before a transaction that removes images, and not in it: all wishes of a workspace
/// may be many megabytes, and all others who write wait meanwhile. The transaction itself only
/// looks at what was written since ([`Deployed::catch_up`]), so it misses nothing. What was given up
/// since still counts.
#[derive(Debug, Clone)]
pub struct Deployed {
    read: Arc<BTreeSet<String>>,
    since: BTreeSet<String>,
    /// The revision of the feed up to which nothing is missing.
    upto: i64,
}

impl Deployed {
    /// Looks through all wishes of the workspace.
    pub fn read(context: &Context, tx: &mut Tx<'_>) -> Result<Self, Error> {
        // Before the wishes, so that nothing can be between the two.
        let upto = feed::latest(tx)?;
        let (mut read, workspace) = (BTreeSet::new(), &context.member.workspace);
        for kind in RUNNERS {
            wishes::each(tx, workspace, kind, NAMES_IMAGE, |wish| add_images(&mut read, wish))?;
        }
        Ok(Self { read: Arc::new(read), since: BTreeSet::new(), upto })
    }

    /// Adds what was written since. `context` must be in the same workspace.
    pub fn catch_up(&mut self, context: &Context, tx: &mut Tx<'_>) -> Result<(), Error> {
        let (upto, workspace) = (feed::latest(tx)?, &context.member.workspace);
        for kind in RUNNERS {
            wishes::each_since(tx, workspace, kind, self.upto, NAMES_IMAGE, |wish| {
                add_images(&mut self.since, wish)
            })?;
        }
        self.upto = upto;
        Ok(())
    }

    /// Returns the references to images of a repository.
    pub(super) fn of<'d>(&'d self, repository: &'d str) -> impl Iterator<Item = &'d String> {
        let begins = move |reference: &&String| reference.starts_with(repository);
        let all = [&*self.read, &self.since].into_iter();
        all.flat_map(move |known| known.range(repository.to_owned()..).take_while(begins))
            .filter(move |reference| is_of(reference, repository, None))
    }
}

/// Adds the own images that a wish names. A wish that cannot be read might name any, so it must not
/// be skipped.
fn add_images(references: &mut BTreeSet<String>, wish: &str) -> Result<(), store::Error> {
    let images = images_in(wish).map_err(|error| {
        let why = format!("it names an image, and cannot be read at column {}", error.column());
        store::Error::corrupt("resources", "a wish", why)
    })?;
    references.extend(images.into_iter().filter(|image| is_own_image(image)));
    Ok(())
}

/// Returns the images that a wish names.
fn images_in(wish: &str) -> serde_json::Result<Vec<String>> {
    let wish: Value = serde_json::from_str(wish)?;
    let of_revisions = wish.pointer("/spec/revisions").and_then(Value::as_array);
    let of_revisions = of_revisions.into_iter().flatten().map(|revision| revision.get("image"));
    let places = [wish.pointer("/spec/runtime/image"), wish.pointer("/spec/image")];
    let all = places.into_iter().chain(of_revisions);
    Ok(all.flatten().filter_map(Value::as_str).map(str::to_owned).collect())
}
