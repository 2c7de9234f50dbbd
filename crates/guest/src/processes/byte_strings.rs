//! Serializes what need not be text: paths, and the names and values of variables.

/// Serializes maps of byte strings, which cannot be members of JSON objects.
pub(crate) mod pairs {
    use serde::{Deserialize, Deserializer, Serializer};
    use std::collections::BTreeMap;
    use std::ffi::OsString;

    type Map = BTreeMap<OsString, OsString>;

    pub(crate) fn serialize<S: Serializer>(map: &Map, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(map)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Map, D::Error> {
        Vec::<(OsString, OsString)>::deserialize(deserializer).map(Map::from_iter)
    }
}

/// The same for a shared map. The copy that arrives is not shared.
pub(crate) mod shared_pairs {
    use crate::environment::Variables;
    use crate::processes::byte_strings::pairs;
    use serde::{Deserializer, Serializer};
    use std::sync::Arc;

    pub(crate) fn serialize<S: Serializer>(
        map: &Arc<Variables>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        pairs::serialize(map, serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Arc<Variables>, D::Error> {
        pairs::deserialize(deserializer).map(Arc::new)
    }
}

/// Serializes paths, which need not be text.
pub(crate) mod path {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::ffi::OsString;
    use std::path::{Path, PathBuf};

    pub(crate) fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        path.as_os_str().serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<PathBuf, D::Error> {
        OsString::deserialize(deserializer).map(PathBuf::from)
    }
}
