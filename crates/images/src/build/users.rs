//! Users and groups of an image, looked up by name or number in the image's own files.

use super::Fault;
use crate::unpack::Tree;
use std::io::Read as _;
use std::path::Path;

const FILE_BYTES_MAX: u64 = 4 << 20;

/// The user and group that own a file or run a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

/// Parses an owner that consists of numbers and so does not need the image's files.
pub(super) fn numbers(text: &str) -> Option<Owner> {
    let (user, group) = text.split_once(':').unwrap_or((text, text));
    let group = if group.is_empty() { user } else { group };
    Some(Owner { uid: number(user)?, gid: number(group)? })
}

/// Resolves `user` or `user:group`, by name or number, as in `--chown`. Without a group, the user's
/// own group is taken, else the group with the user's number.
pub(super) fn owner(tree: &Tree, text: &str) -> Result<Owner, Fault> {
    if let Some(known) = numbers(text) {
        return Ok(known);
    }
    let (user, group) = match text.split_once(':') {
        Some((user, group)) if !group.is_empty() => (user, Some(group)),
        Some((user, _)) => (user, None),
        None => (text, None),
    };
    let (uid, own_group) = find_user(tree, user)?;
    let gid = match group {
        None => own_group.unwrap_or(uid),
        Some(group) => find_group(tree, group)?,
    };
    Ok(Owner { uid, gid })
}

/// Resolves `user` or `user:group` as in USER. Without a group, the user's own group is taken, else
/// root's.
pub(super) fn user(tree: &Tree, text: &str) -> Result<Owner, Fault> {
    let (user, group) = text.split_once(':').unwrap_or((text, ""));
    let (uid, own_group) = find_user(tree, user)?;
    let gid = match group {
        "" => own_group.unwrap_or(0),
        group => find_group(tree, group)?,
    };
    Ok(Owner { uid, gid })
}

fn find_user(tree: &Tree, wanted: &str) -> Result<(u32, Option<u32>), Fault> {
    let passwd = lines(tree, "etc/passwd");
    let known = passwd.lines().find_map(|line| {
        let mut parts = line.split(':');
        let (name, _, uid, gid) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        (name == wanted || uid == wanted).then(|| Some((number(uid)?, number(gid)))).flatten()
    });
    known
        .or_else(|| number(wanted).map(|uid| (uid, None)))
        .ok_or_else(|| Fault::Sources(format!("the image has no user `{wanted}`")))
}

fn find_group(tree: &Tree, wanted: &str) -> Result<u32, Fault> {
    let groups = lines(tree, "etc/group");
    let known = groups.lines().find_map(|line| {
        let mut parts = line.split(':');
        let (name, _, gid) = (parts.next()?, parts.next()?, parts.next()?);
        (name == wanted).then(|| number(gid)).flatten()
    });
    known
        .or_else(|| number(wanted))
        .ok_or_else(|| Fault::Sources(format!("the image has no group `{wanted}`")))
}

/// Parses an id. The highest number means "nobody in particular" to the kernel, and instances have
/// few ids.
fn number(text: &str) -> Option<u32> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| plain && *number < 1 << 16)
}

fn lines(tree: &Tree, path: &str) -> String {
    let mut bytes = Vec::new();
    // In an image without such files, only numbers are known.
    if let Ok(file) = tree.read(Path::new(path)) {
        let _ = file.take(FILE_BYTES_MAX).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
