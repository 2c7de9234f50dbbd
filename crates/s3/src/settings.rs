//! Every limit has a name.

use std::time::Duration;

#[derive(Debug, Clone)]
pub struct Settings {
    /// What stands before the bucket in paths, such as `/s3`: without a slash at its end.
    pub base: String,
    /// Requests that may go on at the same time, of all owners of keys and of one.
    pub requests_max: usize,
    pub requests_per_owner_max: usize,
    /// Bytes of one object, and of what one request may bring.
    pub object_bytes_max: u64,
    pub put_bytes_max: u64,
    /// Parts of an upload other than the last have this many bytes or more.
    pub part_bytes_min: u64,
    pub parts_max: u32,
    /// Multipart uploads of one bucket that may be open, and how long one may stay open.
    pub uploads_max: usize,
    pub upload_life: Duration,
    /// How often the hidden folder is looked through for what was abandoned.
    pub tidy_every: Duration,
    /// Keys of one page of a list, and of one request that deletes many.
    pub keys_per_page_max: usize,
    pub delete_keys_max: usize,
    /// Folders that one page of a list may look into; what is left is on the next page.
    pub list_folders_max: usize,
    /// Bytes of a body of XML, and elements in it: each takes many times the memory of its bytes.
    pub xml_bytes_max: usize,
    pub xml_elements_max: usize,
    /// Bytes of all `x-amz-meta-` names and values together.
    pub metadata_bytes_max: usize,
    /// How long the next MiB of a body may take to come, and the next piece of an answer to be taken.
    pub idle_max: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        const MIB: u64 = 1 << 20;
        Self {
            base: String::new(),
            requests_max: 256,
            requests_per_owner_max: 64,
            object_bytes_max: 5 * MIB * MIB,
            put_bytes_max: 5 * 1024 * MIB,
            part_bytes_min: 5 * MIB,
            parts_max: 10_000,
            uploads_max: 1000,
            upload_life: Duration::from_secs(7 * 24 * 3600),
            tidy_every: Duration::from_secs(3600),
            keys_per_page_max: 1000,
            delete_keys_max: 1000,
            list_folders_max: 10_000,
            xml_bytes_max: 2 << 20,
            xml_elements_max: 100_000,
            metadata_bytes_max: 2048,
            idle_max: Duration::from_secs(60),
        }
    }
}
