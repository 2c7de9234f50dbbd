//! A root file system small enough to be made by a test: a shell and its tools.

use crate::run;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

/// Debian's `busybox-static`, which needs no libraries.
const BUSYBOX: &str = "/usr/bin/busybox";

/// Makes the file system below `place`, with extra files by path, and returns it as a tar archive.
pub fn small_root(place: &Path, files: &[(&str, &str)]) -> io::Result<Vec<u8>> {
    let root = place.join("root");
    for folder in ["bin", "etc", "tmp", "root"] {
        fs::create_dir_all(root.join(folder))?;
    }
    fs::write(root.join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n")?;
    for (path, text) in files {
        fs::write(root.join(path), text)?;
    }
    fs::copy(BUSYBOX, root.join("bin/busybox")).map_err(|error| {
        io::Error::other(format!("{BUSYBOX}: {error}; is the package busybox-static installed?"))
    })?;
    let applets = Command::new(BUSYBOX).arg("--list").output()?.stdout;
    for applet in String::from_utf8_lossy(&applets).lines().filter(|applet| *applet != "busybox") {
        symlink("busybox", root.join("bin").join(applet))?;
    }
    let archive = place.join("root.tar");
    run(Command::new("tar").arg("-C").arg(&root).arg("-cf").arg(&archive).arg("."))?;
    fs::read(archive)
}
