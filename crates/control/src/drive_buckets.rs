//! Drives as buckets of the S3 protocol, named `drv-{drive}-{workspace id}`: which buckets a member
//! has, and access to their files.

use crate::context::Context;
use crate::control::Control;
use crate::drive_store::name_of;
use crate::engine::{self, Held};
use crate::error::Error;
use auth::Member;
use std::io;
use std::os::fd::OwnedFd;
use store::Tx;
use types::Timestamp;
use types::ids::ResourceId;
use types::kinds::Drive;

/// Path of the buckets on this server.
pub const BASE: &str = "/s3";

/// A drive whose root folder is open.
pub struct OpenDrive {
    pub id: ResourceId,
    pub root: OwnedFd,
}

#[derive(Debug, thiserror::Error)]
pub enum NoBucket {
    #[error("there is no such drive")]
    Missing,
    /// Another machine keeps its files.
    #[error("the drive {0}")]
    Elsewhere(String),
    /// No machine has made its files yet, or they are lost.
    #[error("the files of the drive are not on this server")]
    NotHere,
    #[error("the files of the drive could not be opened")]
    Files(#[source] io::Error),
    #[error(transparent)]
    Rules(#[from] Error),
}

/// Returns the name of a drive's bucket.
pub fn bucket_of(drive: &str, member: &Member) -> String {
    format!("drv-{drive}-{}", member.workspace)
}

/// Returns the S3 address of a drive: at the server on whose machine its files are.
pub(crate) fn url_of(context: &Context, drive: &str, machine: Option<&str>) -> String {
    let public_url = context.control.public_url_at(machine);
    let public_url = public_url.trim_end_matches('/');
    format!("{public_url}{BASE}/{}", bucket_of(drive, &context.member))
}

/// Returns the name of the drive, if this is a bucket of the member's workspace.
fn drive_of<'b>(bucket: &'b str, member: &Member) -> Option<&'b str> {
    bucket.strip_prefix("drv-")?.strip_suffix(member.workspace.as_str())?.strip_suffix('-')
}

/// Opens the files of a bucket.
pub async fn open(control: &Control, member: &Member, bucket: &str) -> Result<OpenDrive, NoBucket> {
    let drive = drive_of(bucket, member).ok_or(NoBucket::Missing)?.to_owned();
    let context = Context { control: control.clone(), member: member.clone() };
    let found =
        control.store.read(move |tx: &mut Tx<'_>| Held::<Drive>::get(&context, tx, &[], &drive));
    let held = match found.await {
        Ok(held) => held,
        Err(Error::NoResource { .. }) => return Err(NoBucket::Missing),
        Err(error) => return Err(error.into()),
    };
    let (here, kept_by) = (control.drive_store(), held.state.machine.as_deref());
    if kept_by.is_some() && kept_by != here.as_ref().map(|(_, machine)| machine.as_str()) {
        return Err(NoBucket::Elsewhere(control.kept_elsewhere(kept_by)));
    }
    let id = held.row.id;
    let ((store, _), name) = (here.ok_or(NoBucket::NotHere)?, name_of(&id));
    let opened = tokio::task::spawn_blocking(move || store.open_root(&name)).await;
    match opened.map_err(io::Error::other).and_then(|opened| opened) {
        Ok(root) => Ok(OpenDrive { id, root }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(NoBucket::NotHere),
        Err(error) => Err(NoBucket::Files(error)),
    }
}

/// Lists the buckets of a workspace, with the times at which their drives were made.
pub fn list(context: &Context, tx: &mut Tx<'_>) -> Result<Vec<(String, Timestamp)>, Error> {
    let named = |drive: Drive| {
        let made = drive.metadata.created_at.unwrap_or_default();
        (bucket_of(&drive.metadata.name, &context.member), made)
    };
    let drives = engine::list_all::<Drive>(context, tx, &[])?;
    Ok(drives.into_iter().map(named).collect())
}
