//! The control group that this program itself is in.
//!
//! Where it runs in a container, the root of the tree that it sees is a group with processes: those
//! of the container. Version 2 lets no group but the machine's root both have processes and hand
//! controllers down. So they move into a group below, as they do for others that run containers in
//! containers. That changes no limit.

use std::fs::{read_to_string, write};
use std::io;
use std::path::Path;

/// Where the processes go, below the root of the tree.
const BELOW: &str = "holm-outside";
/// How often those that are left are moved: each may have started another one meanwhile.
const ROUNDS: u32 = 16;

/// Makes sure that the root of this tree may hand down controllers. Does nothing on a machine, and
/// in a container whose processes are in groups below already.
pub(crate) fn leave_root(root: &Path) -> io::Result<()> {
    // The machine's own root has no such file, nor has version 1.
    if !root.join("cgroup.type").exists() {
        return Ok(());
    }
    let below = root.join(BELOW);
    for _ in 0..ROUNDS {
        let processes = read_to_string(root.join("cgroup.procs"))?;
        if processes.is_empty() {
            return Ok(());
        }
        if !below.exists() {
            tracing::info!(to = %below.display(), "the processes of this container move to another control group");
            std::fs::create_dir(&below)?;
        }
        for process in processes.lines() {
            match write(below.join("cgroup.procs"), process) {
                // It has ended.
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                moved => moved?,
            }
        }
    }
    Err(io::Error::other(format!(
        "processes keep coming to {}: have them start in another control group",
        root.display()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    /// Returns a folder in which groups of version 2 can be made.
    fn tree() -> Option<&'static Path> {
        let trees = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].map(Path::new);
        trees.into_iter().find(|tree| tree.join("cgroup.controllers").exists())
    }

    #[test]
    fn processes_of_a_container_leave_the_root_of_its_tree() {
        let Some(tree) = tree() else { return };
        let root = tree.join(format!("holm-own-group-{}", std::process::id()));
        std::fs::create_dir(&root).unwrap();
        let mut process = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
        write(root.join("cgroup.procs"), process.id().to_string()).unwrap();
        for _ in 0..2 {
            leave_root(&root).unwrap();
            assert_eq!(read_to_string(root.join("cgroup.procs")).unwrap(), "");
            let below = read_to_string(root.join(BELOW).join("cgroup.procs")).unwrap();
            assert_eq!(below.trim(), process.id().to_string());
        }
        process.kill().unwrap();
        process.wait().unwrap();
        let deadline = Instant::now() + Duration::from_secs(5);
        while std::fs::remove_dir(root.join(BELOW)).is_err() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        std::fs::remove_dir(&root).unwrap();
        // Without a container, nothing is to be moved.
        leave_root(Path::new("/proc")).unwrap();
    }
}
