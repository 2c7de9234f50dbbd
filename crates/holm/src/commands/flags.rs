//! Reading the flags of one command alone, for its tests.

use std::ffi::OsString;

#[derive(clap::Parser)]
struct Line<Flags: clap::Args> {
    #[command(flatten)]
    flags: Flags,
}

/// Reads a command line whose first word is the command.
pub(crate) fn read<Flags: clap::Args>(
    words: impl IntoIterator<Item = impl Into<OsString> + Clone>,
) -> Result<Flags, clap::Error> {
    <Line<Flags> as clap::Parser>::try_parse_from(words).map(|line| line.flags)
}
