//! The content that volumes start with: archives unpacked into file systems of their own.

use crate::cases::archive;
use crate::place::{PATIENCE, Place, tar};
use control::machine::{BuildFault, Builder, FillOrder, Filled};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;
use types::instance::VolumeName;

fn name() -> VolumeName {
    VolumeName::new("template-x-1").unwrap()
}

impl Place {
    async fn fill(&self, build: &str, archive: Vec<u8>) -> Result<Filled, BuildFault> {
        let order = self.upload("wsp_test", build, archive).await;
        let order = FillOrder { build: order.build, workspace: order.workspace, volume: name() };
        let filled = tokio::time::timeout(PATIENCE, self.builder.fill(&order)).await;
        self.builder.forget(&order.build).await.unwrap();
        filled.expect("it ends")
    }

    fn volumes(&self) -> Vec<PathBuf> {
        let folders = testing::machine::volume_folders(self.data.path()).unwrap();
        let files = folders.into_iter().filter_map(|all| fs::read_dir(all.join("wsp_test")).ok());
        files.flatten().map(|file| file.unwrap().path()).collect()
    }

    /// Reads the only volume without mounting it: `debugfs` comes with the tools for ext4.
    fn look(&self, command: &str) -> String {
        let volumes = self.volumes();
        let [file] = &volumes[..] else { panic!("{volumes:?}") };
        let output = Command::new("/usr/sbin/debugfs").args(["-R", command]).arg(file).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_archive_becomes_a_file_system_with_its_files() {
    let place = Place::new();
    let folder = tempfile::tempdir_in(place.data.path()).unwrap();
    fs::create_dir_all(folder.path().join("a/b")).unwrap();
    fs::write(folder.path().join("a/b/text"), "hello").unwrap();
    for number in 0..3_000 {
        fs::write(folder.path().join(format!("a/small-{number}")), "x").unwrap();
    }
    fs::write(folder.path().join("large"), vec![7; 20 << 20]).unwrap();
    let plain = tar(folder.path(), &["-c", "."]);
    let packed = tar(folder.path(), &["-z", "-c", "."]);
    let zip = archive(&place, &[("a/b/text", "hello")]);
    for (build, bytes, size) in [
        ("plain", plain, 5 + 3_000 + (20 << 20)),
        ("packed", packed, 5 + 3_000 + (20 << 20)),
        ("zip", zip, 5),
    ] {
        let wanted = Filled { bytes: size, copy: None };
        assert_eq!(place.fill(build, bytes).await.unwrap(), wanted, "{build}");
        assert_eq!(place.look("cat /a/b/text"), "hello", "{build}");
        assert!(place.look("stat /a/b/text").contains("User:     0"), "{build}");
        assert!(!place.look("ls -p /").contains("lost+found"), "{build}");
    }
    place.clear();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_volume_does_not_take_is_refused_and_nothing_is_left() {
    let place = Place::with(|settings| {
        settings.unpacked_bytes_max = 8 << 20;
        settings.sources_entries_max = 100;
    });
    let folder = |make: &dyn Fn(&std::path::Path)| {
        let folder = tempfile::tempdir_in(place.data.path()).unwrap();
        make(folder.path());
        folder
    };
    let links = folder(&|at| symlink("/etc/passwd", at.join("out")).unwrap());
    let inside = folder(&|at| {
        fs::write(at.join("file"), "x").unwrap();
        fs::hard_link(at.join("file"), at.join("again")).unwrap();
    });
    let zeros = folder(&|at| fs::write(at.join("zeros"), vec![0; 9 << 20]).unwrap());
    let many = folder(&|at| (0..200).for_each(|n| fs::write(at.join(n.to_string()), "").unwrap()));
    let pipe = folder(&|at| {
        let made = Command::new("mkfifo").arg(at.join("pipe")).status().unwrap();
        assert!(made.success());
    });
    let up = folder(&|at| {
        fs::create_dir(at.join("in")).unwrap();
        fs::write(at.join("x"), "").unwrap();
    });
    let cut = tar(up.path(), &["-z", "-c", "."]);
    for (build, bytes, reason) in [
        ("link", tar(links.path(), &["-c", "."]), "no symbolic and no hard links: ./out"),
        ("hard", tar(inside.path(), &["-c", "."]), "no symbolic and no hard links"),
        ("zeros", tar(zeros.path(), &["-c", "."]), "8388608 bytes in its files"),
        ("bomb", tar(zeros.path(), &["-z", "-c", "."]), "more than"),
        ("many", tar(many.path(), &["-c", "."]), "100 files and folders"),
        ("pipe", tar(pipe.path(), &["-c", "."]), "no pipes"),
        ("device", tar("/".as_ref(), &["-c", "dev/null"]), "no devices"),
        ("up", tar(&up.path().join("in"), &["-c", "-P", "../x"]), "refused"),
        ("absolute", tar("/".as_ref(), &["-c", "-P", "/etc/hostname"]), "absolute"),
        ("text", b"hello, this is no archive".repeat(100), "neither a zip nor a tar"),
        ("cut", cut[..cut.len() / 2].to_vec(), "damaged"),
    ] {
        match place.fill(build, bytes).await {
            Err(BuildFault::Sources(why) | BuildFault::Failed(why)) => {
                assert!(why.contains(reason), "{build}: {why}");
            }
            other => panic!("{build}: {other:?}"),
        }
        assert_eq!(place.volumes(), Vec::<PathBuf>::new(), "{build}");
    }
    place.clear();
}
