/// What a store accepts and how it unpacks.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    pub limits: Limits,
    pub overlay: Overlay,
    pub rules: Rules,
}

/// Bounds on what an image may be. Whoever makes an image is not trusted with this machine's disk
/// and memory.
#[derive(Clone, Debug)]
pub struct Limits {
    /// One layer or other blob as it is stored and sent.
    pub blob_bytes_max: u64,
    /// One layer unpacked, holes in files included.
    pub layer_bytes_max: u64,
    /// All layers of one image unpacked.
    pub image_bytes_max: u64,
    /// Overlayfs takes 500; the instance adds some of its own.
    pub layers_max: usize,
    /// Files, folders and links in one layer.
    pub entries_max: u64,
    pub path_bytes_max: usize,
    pub depth_max: usize,
    /// Unpacked size over packed size, looked at only beyond `ratio_free_bytes`.
    pub ratio_max: u64,
    pub ratio_free_bytes: u64,
    /// Manifests, indexes and configurations, which are held in memory.
    pub document_bytes_max: u64,
    /// Long names, extended attributes and maps of holes of one entry, which are held in memory.
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

/// How a layer says "the folder below is hidden" to overlayfs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overlay {
    /// `trusted.overlay.opaque`, for overlays that are mounted from outside of user namespaces.
    #[default]
    Trusted,
    /// `user.overlay.opaque`, for overlays mounted with `userxattr` inside of one.
    User,
}

impl Overlay {
    /// Also the folder of the layers, because they differ by form.
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
    /// Whose everything is, whatever the archive says.
    pub owner: Option<(u32, u32)>,
}

/// What the names in an archive mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Names {
    /// It is a layer: some hide what is below. A leading slash means nothing.
    #[default]
    Layer,
    /// They are files and nothing else; absolute ones are refused.
    Files,
}

/// What to do with device nodes. They are never made: an instance has a `/dev` of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Devices {
    /// Usual images carry a few of them in `/dev`.
    #[default]
    Skip,
    Refuse,
}

/// What to do with set-user-id and set-group-id programs and file capabilities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Privileges {
    /// Instances run with `no_new_privs`, which makes them useless inside; outside they could only
    /// harm.
    #[default]
    Drop,
    Keep,
}
