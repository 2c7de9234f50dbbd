//! The limits of the service.

use std::time::Duration;

#[derive(Debug, Clone)]
pub struct Settings {
    /// What precedes the bucket in paths, such as `/s3`, without a slash at the end.
    pub base: String,
    /// Requests in progress at the same time, in total and per owner of keys.
    pub requests_max: usize,
    pub requests_per_owner_max: usize,
    /// Copies, lists and other work on files that goes on at the same time, in total and per owner.
    pub heavy_max: usize,
    pub heavy_per_owner_max: usize,
    /// Most bytes of an object, and of the content that one request can bring.
    pub object_bytes_max: u64,
    pub put_bytes_max: u64,
    /// Fewest bytes of a part, except for the last part of an upload, and most parts of an upload.
    pub part_bytes_min: u64,
    pub parts_max: u32,
    /// Open multipart uploads per bucket, and how long an upload may stay open.
    pub uploads_max: usize,
    pub upload_life: Duration,
    /// How often the hidden folder is searched for abandoned files.
    pub tidy_every: Duration,
    /// Most keys on a page of a list, and in a request that deletes many.
    pub keys_per_page_max: usize,
    pub delete_keys_max: usize,
    /// How many folders are read for a page of a list, and about how many names. The rest comes on
    /// the next page.
    pub list_folders_max: usize,
    pub list_names_max: usize,
    /// Most bytes and elements of an XML body. In memory, an element takes many times its bytes.
    pub xml_bytes_max: usize,
    pub xml_elements_max: usize,
    /// Most bytes of all `x-amz-meta-` names and values together.
    pub metadata_bytes_max: usize,
    /// Time for the next MiB of a body to arrive, and for the next piece of an answer to be taken.
    pub idle_max: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        const MIB: u64 = 1 << 20;
        Self {
            base: String::new(),
            requests_max: 256,
            requests_per_owner_max: 64,
            heavy_max: 8,
            heavy_per_owner_max: 2,
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
            list_names_max: 1_000_000,
            xml_bytes_max: 2 << 20,
            xml_elements_max: 100_000,
            metadata_bytes_max: 2048,
            idle_max: Duration::from_secs(60),
        }
    }
}
