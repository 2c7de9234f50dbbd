//! The variables that an instruction sees: the environment of the image, then the arguments of the
//! build.

use super::config::{ENTRY_BYTES, TEXT_BYTES_MAX};
use super::words::Variables;
use crate::manifest::Platform;
use std::collections::BTreeMap;

/// Arguments about the target machine, which every build has once ARG declares them.
pub(super) const PLATFORM_ARGUMENTS: [&str; 8] = [
    "TARGETPLATFORM",
    "TARGETOS",
    "TARGETARCH",
    "TARGETVARIANT",
    "BUILDPLATFORM",
    "BUILDOS",
    "BUILDARCH",
    "BUILDVARIANT",
];

/// Arguments that commands see without declaring them, and that do not count in the cache key.
pub(super) const PROXY_ARGUMENTS: [&str; 10] = [
    "HTTP_PROXY",
    "http_proxy",
    "HTTPS_PROXY",
    "https_proxy",
    "FTP_PROXY",
    "ftp_proxy",
    "NO_PROXY",
    "no_proxy",
    "ALL_PROXY",
    "all_proxy",
];

pub(super) fn platform_argument(name: &str) -> Option<String> {
    let here = Platform::here();
    match name {
        "TARGETPLATFORM" | "BUILDPLATFORM" => Some(here.to_string()),
        "TARGETOS" | "BUILDOS" => Some(here.os),
        "TARGETARCH" | "BUILDARCH" => Some(here.architecture),
        "TARGETVARIANT" | "BUILDVARIANT" => Some(String::new()),
        _ => None,
    }
}

/// Returns the arguments about the target machine, with their values.
pub(super) fn platform_arguments() -> BTreeMap<String, String> {
    let known = |name: &&str| Some(((*name).to_owned(), platform_argument(name)?));
    PLATFORM_ARGUMENTS.iter().filter_map(known).collect()
}

pub(super) struct Arguments<'a> {
    pub(super) all: &'a BTreeMap<String, String>,
}

impl Variables for Arguments<'_> {
    fn get(&self, name: &str) -> Option<&str> {
        self.all.get(name).map(String::as_str)
    }
}

/// Fails if arguments have become too many or too large to be kept for every stage.
pub(super) fn check_arguments(all: &BTreeMap<String, String>) -> Result<(), String> {
    let bytes = all.iter().map(|(name, value)| name.len() + value.len() + ENTRY_BYTES);
    match bytes.sum::<usize>() > TEXT_BYTES_MAX {
        true => Err(format!("the arguments have more than {TEXT_BYTES_MAX} bytes")),
        false => Ok(()),
    }
}

/// The variables that an instruction of a stage sees.
pub(super) struct Scope<'a> {
    pub(super) environment: &'a [String],
    pub(super) arguments: &'a BTreeMap<String, String>,
}

impl Variables for Scope<'_> {
    fn get(&self, name: &str) -> Option<&str> {
        variable(self.environment, name).or_else(|| self.arguments.get(name).map(String::as_str))
    }
}

/// Looks up a variable among entries such as `NAME=value`.
pub(super) fn variable<'e>(environment: &'e [String], name: &str) -> Option<&'e str> {
    let value = |entry: &'e String| entry.strip_prefix(name)?.strip_prefix('=');
    environment.iter().rev().find_map(value)
}
