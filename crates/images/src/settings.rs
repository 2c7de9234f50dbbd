//! Settings of a store: what it accepts and how it unpacks.

#[derive(Clone, Debug, Default)]
pub struct Settings {
    pub limits: Limits,
    pub overlay: Overlay,
    pub rules: Rules,
}

/// Bounds on the size and shape of an image. The maker of an image must not be able to fill this
/// machine's disk or memory.
#[derive(Clone, Debug)]
pub struct Limits {
    /// One layer or other blob, as it is stored and sent.
    pub blob_bytes_max: u64,
    /// One unpacked layer, including the holes of sparse files.
    pub layer_bytes_max: u64,
    /// All unpacked layers of one image together.
    pub image_bytes_max: u64,
    /// Overlayfs takes 500 layers; the instance adds some of its own.
    pub layers_max: usize,
    /// Files, folders and links in one layer.
    pub entries_max: u64,
    pub path_bytes_max: usize,
    pub depth_max: usize,
    /// Unpacked size divided by packed size. Checked only beyond `ratio_free_bytes` of unpacked
    /// size.
    pub ratio_max: u64,
    pub ratio_free_bytes: u64,
    /// One manifest, index or configuration, which is held in memory.
    pub document_bytes_max: u64,
    /// Long names, extended attributes and sparse maps of one entry, which are held in memory.
    pub extension_bytes_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        const GIB: u64 = 1 << 30;
        Self {
            blob_bytes_max: 32 * GIB,
            layer_bytes_max: 64 * GIB,
            image_bytes_max: 128 * GIB,
            layers_max: 256,
            entries_max: 2_000_000,
            path_bytes_max: 4095,
            depth_max: 256,
            ratio_max: 200,
            ratio_free_bytes: GIB / 4,
            document_bytes_max: 4 << 20,
            extension_bytes_max: 1 << 20,
        }
    }
}

/// How a layer tells overlayfs "the folder below is hidden".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overlay {
    /// `trusted.overlay.opaque`, for overlays that are mounted outside of user namespaces.
    #[default]
    Trusted,
    /// `user.overlay.opaque`, for overlays mounted with `userxattr` inside a user namespace.
    User,
}

impl Overlay {
    /// Also names the folder of the layers, because unpacked layers differ by form.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Trusted => "trusted",
            Self::User => "user",
        }
    }

    pub(crate) fn opaque_attribute(self) -> &'static str {
        match self {
            Self::Trusted => "trusted.overlay.opaque",
            Self::User => "user.overlay.opaque",
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Rules {
    pub devices: Devices,
    pub privileges: Privileges,
    pub names: Names,
    /// Owner (user and group id) of every file, instead of the owners in the archive.
    pub owner: Option<(u32, u32)>,
}

/// How the names in an archive are interpreted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Names {
    /// The archive is a layer: some names hide what is below. A leading slash has no meaning.
    #[default]
    Layer,
    /// All names are plain files; absolute names are refused.
    Files,
}

/// What to do with device nodes. They are never created: an instance has a `/dev` of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Devices {
    /// Common images contain a few in `/dev`.
    #[default]
    Skip,
    Refuse,
}

/// What to do with set-user-id and set-group-id programs and file capabilities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Privileges {
    /// Instances run with `no_new_privs`, which makes them useless inside; outside they could only
    /// do harm.
    #[default]
    Drop,
    Keep,
}
