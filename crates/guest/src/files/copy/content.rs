//! Copies the content of one file.

use super::Stop;
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;

/// How much is copied before it is checked whether anybody still waits.
const KERNEL_STEP_BYTES: u64 = 64 << 20;
const STEP_BYTES: usize = 256 << 10;
/// Most of a file that claims to be empty, as those of the kernel do.
const UNSIZED_BYTES_MAX: u64 = 16 << 20;

/// Copies a file that had `length` bytes when it was opened; what is appended meanwhile is left
/// out, so the copy of a file that grows ends. Holes stay holes. `to` must be empty.
pub(super) fn copy(from: &File, length: u64, to: &File, stop: &Stop) -> io::Result<()> {
    if length == 0 {
        return copy_unsized(from, to);
    }
    let mut at = 0;
    while let Some(begin) = next_data(from, at)?.filter(|begin| *begin < length) {
        // A file system that knows no holes has data to the end.
        let end = rustix::fs::seek(from, SeekFrom::Hole(begin)).unwrap_or(length).min(length);
        at = copy_range(from, begin, end, to, stop)?;
        if at < end {
            // The file has become shorter.
            return to.set_len(at);
        }
    }
    to.set_len(length.min(from.metadata()?.len()))
}

/// Returns where the next data begins; `None` if only a hole follows, or nothing.
fn next_data(from: &File, at: u64) -> io::Result<Option<u64>> {
    match rustix::fs::seek(from, SeekFrom::Data(at)) {
        Ok(begin) => Ok(Some(begin)),
        Err(Errno::NXIO) => Ok(None),
        Err(Errno::INVAL) => Ok(Some(at)),
        Err(error) => Err(error.into()),
    }
}

/// Copies a range. Returns where it ended, which is earlier if the file does.
fn copy_range(from: &File, begin: u64, end: u64, to: &File, stop: &Stop) -> io::Result<u64> {
    let (mut read, mut written) = (begin, begin);
    while read < end {
        require_waiting(stop)?;
        let step = (end - read).min(KERNEL_STEP_BYTES) as usize;
        match rustix::fs::copy_file_range(from, Some(&mut read), to, Some(&mut written), step) {
            // The end of the file, or a file that can only be read.
            Ok(0) => return copy_plainly(from, read, end, to, stop),
            Ok(_) => {}
            Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                return copy_plainly(from, read, end, to, stop);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(read)
}

fn copy_plainly(from: &File, begin: u64, end: u64, to: &File, stop: &Stop) -> io::Result<u64> {
    let mut step = vec![0; STEP_BYTES];
    let mut at = begin;
    while at < end {
        require_waiting(stop)?;
        let wanted = (end - at).min(STEP_BYTES as u64) as usize;
        match from.read_at(&mut step[..wanted], at) {
            Ok(0) => break,
            Ok(count) => {
                to.write_all_at(&step[..count], at)?;
                at += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(at)
}

fn copy_unsized(from: &File, mut to: &File) -> io::Result<()> {
    let mut content = Vec::new();
    from.take(UNSIZED_BYTES_MAX + 1).read_to_end(&mut content)?;
    if content.len() as u64 > UNSIZED_BYTES_MAX {
        return Err(io::Error::other(format!(
            "a file without a known size has more than {UNSIZED_BYTES_MAX} bytes"
        )));
    }
    to.write_all(&content)
}

fn require_waiting(stop: &Stop) -> io::Result<()> {
    match stop.is_asked() {
        true => Err(io::Error::other("nobody waits for the copy any more")),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    fn copied(from: &File, length: u64) -> File {
        let to = tempfile::tempfile().unwrap();
        copy(from, length, &to, &Stop::default()).unwrap();
        to
    }

    fn content(file: &File) -> Vec<u8> {
        let mut content = vec![0; file.metadata().unwrap().len() as usize];
        file.read_exact_at(&mut content, 0).unwrap();
        content
    }

    #[test]
    fn holes_stay_holes() {
        let from = tempfile::tempfile().unwrap();
        let (middle, length) = (1_u64 << 30, 8_u64 << 30);
        from.write_all_at(b"begin", 0).unwrap();
        from.write_all_at(b"middle", middle).unwrap();
        from.set_len(length).unwrap();
        let to = copied(&from, length);
        let metadata = to.metadata().unwrap();
        assert_eq!(metadata.len(), length);
        assert!(metadata.blocks() * 512 <= from.metadata().unwrap().blocks() * 512 + (1 << 20));
        let mut read = [0; 6];
        to.read_exact_at(&mut read, middle).unwrap();
        assert_eq!(&read, b"middle");
    }

    #[test]
    fn a_file_that_grows_is_copied_as_it_was_and_one_that_shrinks_as_it_is() {
        let from = tempfile::tempfile().unwrap();
        from.write_all_at(b"0123456789", 0).unwrap();
        assert_eq!(content(&copied(&from, 4)), b"0123");
        assert_eq!(content(&copied(&from, 1 << 20)), b"0123456789");
    }

    #[test]
    fn a_file_of_the_kernel_is_copied_although_it_claims_to_be_empty() {
        let from = File::open("/proc/self/status").unwrap();
        assert!(content(&copied(&from, 0)).starts_with(b"Name:"));
        assert!(
            copy_unsized(&File::open("/dev/zero").unwrap(), &tempfile::tempfile().unwrap())
                .is_err()
        );
    }

    #[test]
    fn a_copy_that_nobody_waits_for_ends() {
        let from = tempfile::tempfile().unwrap();
        from.set_len(1 << 20).unwrap();
        from.write_all_at(b"x", 0).unwrap();
        let stop = Stop::default();
        stop.ask();
        assert!(copy(&from, 1 << 20, &tempfile::tempfile().unwrap(), &stop).is_err());
        assert!(copy_plainly(&from, 0, 1, &tempfile::tempfile().unwrap(), &stop).is_err());
    }
}
