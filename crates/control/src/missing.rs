//! Operations that this server cannot do. Each answers 501 and names what is missing.
//! `docs/not-yet.md` lists them, and a test keeps the two lists equal.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    Build,
    ReceiveTemplate,
    MountVolume,
    Snapshot,
    Fork,
}

impl Missing {
    pub const ALL: [Self; 5] =
        [Self::Build, Self::ReceiveTemplate, Self::MountVolume, Self::Snapshot, Self::Fork];

    /// Continues the sentence "This server cannot yet …".
    pub const fn act(self) -> &'static str {
        match self {
            Self::Build => "build an image from uploaded sources: it has no machine that builds",
            Self::ReceiveTemplate => {
                "receive the content of a volume template: it has no machine that keeps volumes"
            }
            Self::MountVolume => "mount a volume: its machine keeps no volumes",
            Self::Snapshot => "take a snapshot: no machine of it keeps any",
            Self::Fork => "fork a sandbox: no machine of it keeps snapshots",
        }
    }
}
