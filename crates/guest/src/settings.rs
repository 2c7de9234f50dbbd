//! The settings that this program gets from the one that starts it.

use crate::raw::HandedOver;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use types::guest;
use types::work::Orders;

/// More than any environment that the kernel would pass on, plus the most data that work may have.
const SETTINGS_BYTES_MAX: u64 = (8 << 20) + types::work::DATA_BYTES_MAX as u64;
/// Most groups that a user has besides its own. The kernel's limit is 65,536.
const GROUPS_MAX: usize = 1_000;
/// The kernel refuses groups from this one on, because an instance has this many ids
/// (`IDS_PER_INSTANCE` of `node`).
const GROUP_IDS: u32 = 65_536;

/// The settings as received, and the data that the work may fetch.
#[derive(Default)]
pub(crate) struct Given {
    settings: guest::Settings,
    data: Bytes,
}

pub(crate) struct Settings {
    /// The environment of every process: that of this program, overlaid with the given one.
    pub(crate) environment: BTreeMap<OsString, OsString>,
    pub(crate) workdir: PathBuf,
    /// The user that processes run as and files belong to; `None` means root.
    pub(crate) user: Option<User>,
    pub(crate) keep_alive_disabled: bool,
    pub(crate) process_logging_disabled: bool,
    pub(crate) terminal_disabled: bool,
    /// The program that the image itself starts, with its arguments; may be empty.
    pub(crate) start: Vec<String>,
    /// The secret by which the machine identifies itself. Without one there is no machine.
    pub(crate) secret: Option<String>,
    /// File with the environment, for programs that do not inherit it.
    pub(crate) environment_file: Option<PathBuf>,
    /// The only purpose of this instance, if it has just one.
    pub(crate) work: Option<WantedWork>,
    /// The document that `POST /environment/reload` reads.
    pub(crate) metadata: PathBuf,
    /// The settings as received, for a program that replaces this one.
    pub(crate) given: guest::Settings,
}

pub(crate) struct WantedWork {
    pub(crate) orders: Orders,
    pub(crate) data: Bytes,
    /// Why the work cannot be done. This is reported as its result, because the maker of the image
    /// has to fix it.
    pub(crate) refused: Option<Error>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct User {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) home: Option<PathBuf>,
    /// Further groups that the user is a member of.
    #[serde(default)]
    pub(crate) groups: Vec<u32>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("failed to read the settings that were handed over")]
    Read(#[source] io::Error),
    #[error("the settings that were handed over are not what they should be")]
    Parse(#[source] serde_json::Error),
    #[error("there is no user `{0}` here")]
    User(String),
}

impl Given {
    pub(crate) fn read(from: Option<OwnedFd>) -> Result<Self, Error> {
        from.map_or_else(|| Ok(Self::default()), |fd| read(File::from(fd)))
    }
}

/// Work is never handed over: an instance with work serves nothing else, so it has no upgrades.
impl From<guest::Settings> for Given {
    fn from(settings: guest::Settings) -> Self {
        Self { settings, data: Bytes::new() }
    }
}

impl Settings {
    pub(crate) fn new(Given { settings: mut given, data }: Given) -> Result<Self, Error> {
        let mut work = given.work.take().map(|orders| WantedWork { orders, data, refused: None });
        let mut environment: BTreeMap<OsString, OsString> = std::env::vars_os()
            .filter(|(name, _)| !HandedOver::ALL.iter().any(|one| name == one.variable()))
            .filter(|(name, _)| name != types::start::VARIABLE)
            .collect();
        environment.extend(given.env.iter().map(|(name, value)| (name.into(), value.into())));
        let on = |name: &str| {
            environment
                .get(&OsString::from(name))
                .is_some_and(|value| is_on(&value.to_string_lossy()))
        };
        let text = |name: &str| environment.get(&OsString::from(name)).cloned();
        let named = text("BL_SANDBOX_USER").filter(|_| on("BL_SANDBOX_USER_ENABLED"));
        let user =
            given.user.clone().or_else(|| named.map(|name| name.to_string_lossy().into_owned()));
        let user = match (
            user.filter(|user| !user.is_empty()).map(|user| find_user(&user)).transpose(),
            &mut work,
        ) {
            (Err(error), Some(work)) => {
                work.refused = Some(error);
                None
            }
            (found, _) => found?,
        };
        let workdir = given
            .workdir
            .clone()
            .map(PathBuf::from)
            .or_else(|| text("WORKDIR").map(PathBuf::from))
            .unwrap_or_else(|| "/".into());
        Ok(Self {
            workdir,
            user,
            keep_alive_disabled: given.disable_keep_alive || on("BL_DISABLE_KEEPALIVE"),
            process_logging_disabled: given.disable_process_logging
                || on("SANDBOX_DISABLE_PROCESS_LOGGING"),
            terminal_disabled: on("DISABLE_TERMINAL"),
            start: given.start.clone(),
            secret: given.secret.clone().filter(|secret| !secret.is_empty()),
            environment_file: given.environment_file.clone().map(PathBuf::from),
            work,
            metadata: given
                .metadata
                .clone()
                .map(PathBuf::from)
                .or_else(|| text("BL_METADATA_PATH").map(PathBuf::from))
                .unwrap_or_else(|| "/bl/metadata".into()),
            environment,
            given,
        })
    }
}

fn read(file: File) -> Result<Given, Error> {
    let mut text = Vec::new();
    file.take(SETTINGS_BYTES_MAX).read_to_end(&mut text).map_err(Error::Read)?;
    given_in(text.into()).map_err(Error::Parse)
}

/// Parses one line of JSON, followed by the raw data of the work.
fn given_in(mut text: Bytes) -> Result<Given, serde_json::Error> {
    if let Some(end) = memchr::memchr(b'\n', &text)
        && let Ok(settings) = serde_json::from_slice::<guest::Settings>(&text[..end])
        && settings.work.is_some()
    {
        return Ok(Given { settings, data: text.split_off(end + 1) });
    }
    // Handwritten settings may have several lines.
    serde_json::from_slice::<guest::Settings>(&text).map(Given::from)
}

fn is_on(value: &str) -> bool {
    matches!(value.to_ascii_lowercase().as_str(), "true" | "1" | "yes" | "on")
}

/// Finds a user in the forms that images use: `name` or `uid`, each optionally with `:group` or
/// `:gid`.
fn find_user(wanted: &str) -> Result<User, Error> {
    let [passwd, groups] = ["/etc/passwd", "/etc/group"]
        .map(|path| String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned());
    user_in(&passwd, &groups, wanted).ok_or_else(|| Error::User(wanted.to_owned()))
}

fn group_in(groups: &str, wanted: &str) -> Option<u32> {
    groups.lines().find_map(|line| match line.split(':').collect::<Vec<_>>().as_slice() {
        [name, _, gid, ..] if *name == wanted => gid.parse().ok(),
        _ => None,
    })
}

/// Returns the groups that list a user as a member.
fn memberships(groups: &str, login: &str) -> Vec<u32> {
    let member = |line: &str| match line.split(':').collect::<Vec<_>>().as_slice() {
        [_, _, gid, members] if members.split(',').any(|member| member == login) => {
            gid.parse().ok().filter(|gid| *gid < GROUP_IDS)
        }
        _ => None,
    };
    groups.lines().filter_map(member).take(GROUPS_MAX).collect()
}

fn user_in(passwd: &str, groups: &str, wanted: &str) -> Option<User> {
    let (name, group) = wanted.split_once(':').unwrap_or((wanted, ""));
    let known =
        passwd.lines().find_map(|line| match line.split(':').collect::<Vec<_>>().as_slice() {
            [login, _, uid, gid, rest @ ..] if *login == name || *uid == name => Some(User {
                uid: uid.parse().ok()?,
                gid: gid.parse().ok()?,
                home: rest.get(1).map(PathBuf::from),
                groups: memberships(groups, login),
            }),
            _ => None,
        });
    // An image may use a number that is not in its list of users.
    let unlisted = |uid| User { uid, gid: 0, home: None, groups: Vec::new() };
    let user = known.or_else(|| name.parse().ok().map(unlisted))?;
    if group.is_empty() {
        return Some(user);
    }
    // As in Docker, a group that is named is the only one.
    let gid = group.parse().ok().or_else(|| group_in(groups, group))?;
    Some(User { gid, groups: Vec::new(), ..user })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name_and_by_number() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nada:x:1000:1001:Ada:/home/ada:/bin/sh\nbob:x:7:8\nbroken\n";
        let groups = "root:x:0:\nstaff:x:50:ada\nbroken\nshared:x:1600:bob,ada\nfar:x:65536:ada\n";
        let ada =
            User { uid: 1000, gid: 1001, home: Some("/home/ada".into()), groups: vec![50, 1600] };
        let user_in = |wanted| user_in(passwd, groups, wanted);
        assert_eq!(user_in("ada"), Some(ada.clone()));
        assert_eq!(user_in("ada:"), Some(ada.clone()));
        assert_eq!(user_in("1000"), Some(ada.clone()));
        let ada_in = |gid| Some(User { gid, groups: Vec::new(), ..ada.clone() });
        assert_eq!(user_in("ada:7"), ada_in(7));
        assert_eq!(user_in("ada:staff"), ada_in(50));
        assert_eq!(user_in("bob"), Some(User { uid: 7, gid: 8, home: None, groups: vec![1600] }));
        let unlisted = User { uid: 4242, gid: 0, home: None, groups: Vec::new() };
        assert_eq!(user_in("4242"), Some(unlisted));
        assert_eq!(user_in("nobody-here"), None);
        assert_eq!(user_in("ada:nobody"), None);
    }
}
