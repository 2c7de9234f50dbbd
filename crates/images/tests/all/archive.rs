//! Writes tar archives byte by byte, including ones that no honest program writes.

#[derive(Clone, Default)]
pub(crate) struct Archive(Vec<u8>);

/// The fields of a header that the tests vary.
#[derive(Clone)]
pub(crate) struct Header {
    pub(crate) path: Vec<u8>,
    pub(crate) kind: u8,
    pub(crate) link: Vec<u8>,
    pub(crate) mode: u32,
    pub(crate) owner: u32,
}

impl Header {
    pub(crate) fn new(kind: u8, path: impl AsRef<[u8]>) -> Self {
        Self { path: path.as_ref().to_vec(), kind, link: Vec::new(), mode: 0o644, owner: 0 }
    }
}

impl Archive {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn folder(self, path: impl AsRef<[u8]>) -> Self {
        self.entry(&Header { mode: 0o755, ..Header::new(b'5', path) }, b"")
    }

    pub(crate) fn file(self, path: impl AsRef<[u8]>, content: impl AsRef<[u8]>) -> Self {
        self.entry(&Header::new(b'0', path), content.as_ref())
    }

    pub(crate) fn symlink(self, path: &str, target: impl AsRef<[u8]>) -> Self {
        self.entry(&Header { link: target.as_ref().to_vec(), ..Header::new(b'2', path) }, b"")
    }

    pub(crate) fn hard_link(self, path: &str, target: &str) -> Self {
        self.entry(&Header { link: target.as_bytes().to_vec(), ..Header::new(b'1', path) }, b"")
    }

    /// Adds a PAX header for the next entry.
    pub(crate) fn pax(self, records: &[(&str, &[u8])]) -> Self {
        let mut bytes = Vec::new();
        for (key, value) in records {
            let rest = key.len() + value.len() + 3;
            let length =
                (1..).find(|digits| (rest + digits).to_string().len() == *digits).unwrap() + rest;
            bytes.extend_from_slice(format!("{length} {key}=").as_bytes());
            bytes.extend_from_slice(value);
            bytes.push(b'\n');
        }
        self.entry(&Header::new(b'x', "pax"), &bytes)
    }

    pub(crate) fn entry(mut self, header: &Header, content: &[u8]) -> Self {
        let mut block = [0; 512];
        block[..header.path.len()].copy_from_slice(&header.path);
        block[100..107].copy_from_slice(format!("{:07o}", header.mode).as_bytes());
        for at in [108, 116] {
            block[at..at + 7].copy_from_slice(format!("{:07o}", header.owner).as_bytes());
        }
        block[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
        block[136..147].copy_from_slice(format!("{:011o}", 1_700_000_000).as_bytes());
        block[156] = header.kind;
        block[157..157 + header.link.len()].copy_from_slice(&header.link);
        block[257..265].copy_from_slice(b"ustar\x0000");
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        self.0.extend_from_slice(&block);
        self.0.extend_from_slice(content);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    pub(crate) fn bytes(mut self) -> Vec<u8> {
        self.0.resize(self.0.len() + 1024, 0);
        self.0
    }
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write as _;
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}
