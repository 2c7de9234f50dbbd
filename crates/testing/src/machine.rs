//! What a server with instances needs on the machine, and what it leaves there, as seen from
//! outside without asking the server.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

/// Folders of instances' control groups, for both cgroup versions.
const GROUPS: [&str; 3] = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup/pids", "/sys/fs/cgroup"];

const FREEZER: &str = "/sys/fs/cgroup/freezer";
const CONTROLLERS: &str = "/sys/fs/cgroup";
const SWEEP_MAX: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Most test processes that can have a place at the same time.
const PLACES: u32 = 100;
/// Enough user ids for 400 instances and the prepared ones.
const IDS_EACH: u32 = 28_000_000;
/// Below the range from which the kernel assigns ports.
const FIRST_PORT: u16 = 20_000;
const PORTS_EACH: u16 = 20;
const PLACE_EVERY: Duration = Duration::from_millis(100);

/// Addresses, user ids and ports that only this process has, until it ends.
pub struct Own {
    number: u32,
    /// Locked for as long as this process runs.
    _taken: File,
}

impl Own {
    /// Returns the subnet for instances.
    pub fn subnet(&self) -> String {
        format!("10.{}.{}.0/20", 40 + self.number / 16, self.number % 16 * 16)
    }

    /// Returns the address in it at which a server listens for its instances, on the interface
    /// `lo`.
    fn proxy(&self) -> String {
        format!("10.{}.{}.1/32", 40 + self.number / 16, self.number % 16 * 16)
    }

    pub fn first_uid(&self) -> u32 {
        1_000_000_000 + self.number * IDS_EACH
    }

    /// Returns one of twenty ports that neither the kernel nor other tests use.
    pub fn port(&self, index: u16) -> u16 {
        assert!(index < PORTS_EACH, "a process has {PORTS_EACH} ports");
        FIRST_PORT + self.number as u16 * PORTS_EACH + index
    }
}

/// Takes a place that no other test process has. Random numbers would collide now and then.
pub fn own() -> &'static Own {
    static OWN: OnceLock<Own> = OnceLock::new();
    OWN.get_or_init(|| {
        let user = fs::metadata("/proc/self").map(|about| about.uid()).expect("a user");
        let folder = std::env::temp_dir().join(format!("holm-testing-places-{user}"));
        fs::create_dir_all(&folder).expect("a folder for places");
        loop {
            for number in 0..PLACES {
                let file =
                    File::options().create(true).append(true).open(folder.join(number.to_string()));
                let file = file.expect("a file for a place");
                if file.try_lock().is_ok() {
                    return Own { number, _taken: file };
                }
            }
            thread::sleep(PLACE_EVERY);
        }
    })
}

/// Returns the settings that let a server with instances run beside those of other tests.
pub fn settings() -> Vec<(&'static str, String)> {
    let own = own();
    vec![
        ("HOLM_SERVER__ROLES", r#"["api", "gateway", "node"]"#.to_owned()),
        ("HOLM_NODE__GUEST", guest().display().to_string()),
        ("HOLM_NODE__SUBNET", own.subnet()),
        ("HOLM_NODE__FIRST_UID", own.first_uid().to_string()),
        ("HOLM_NODE__INSTANCES_MAX", "400".to_owned()),
        ("HOLM_NODE__READY", "4".to_owned()),
    ]
}

/// Returns the path of the guest program, which `tools/guest` builds.
fn guest() -> PathBuf {
    let told = std::env::var_os("HOLM_NODE__GUEST").map(PathBuf::from);
    let guest =
        told.unwrap_or(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/holm-guest").into());
    guest
        .canonicalize()
        .unwrap_or_else(|error| panic!("{}: {error}; run tools/guest", guest.display()))
}

/// Returns a server's name on its machine, which its first start chooses.
fn name(data: &Path) -> io::Result<String> {
    Ok(format!("holm-{}", fs::read_to_string(data.join("machine"))?))
}

/// Returns the folder with all instances' control groups, in which memory is accounted.
pub fn groups_folder(data: &Path) -> io::Result<Option<PathBuf>> {
    let name = name(data)?;
    Ok(GROUPS.into_iter().map(|root| Path::new(root).join(&name)).find(|folder| folder.exists()))
}

/// Returns the control group of each existing instance.
pub fn groups(data: &Path) -> io::Result<Vec<PathBuf>> {
    let Some(folder) = groups_folder(data)? else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for owner in folders(&folder)? {
        // It is gone once its last instance is.
        found.extend(folders(&owner).unwrap_or_default());
    }
    Ok(found)
}

fn folders(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder)?.map(|entry| Ok(entry?.path()));
    entries.filter(|path| path.as_ref().map_or(true, |path| path.is_dir())).collect()
}

/// Returns the folders of a server's volumes, including those in its pool while that is mounted.
/// The pool's mount is attached nowhere, so it is reached through a process that has it open.
pub fn volume_folders(data: &Path) -> io::Result<Vec<PathBuf>> {
    let pool = pool_device(data)?.map(mounts_of).unwrap_or_default();
    let folders = [data.join("node")].into_iter().chain(pool);
    Ok(folders.map(|folder| folder.join("volumes")).filter(|folder| folder.is_dir()).collect())
}

/// Returns the number of the loop device of the pool's file.
fn pool_device(data: &Path) -> io::Result<Option<u64>> {
    let file = data.canonicalize()?.join("node/pool");
    for block in fs::read_dir("/sys/block")? {
        let block = block?.path();
        let said = fs::read_to_string(block.join("loop/backing_file")).unwrap_or_default();
        if Path::new(said.trim_end_matches('\n')) != file {
            continue;
        }
        let number = fs::read_to_string(block.join("dev"))?;
        let numbers = number.trim().split_once(':');
        let parse = |number: &str| number.parse::<u64>().map_err(io::Error::other);
        let (major, minor) = numbers.ok_or(io::ErrorKind::InvalidData)?;
        let (major, minor) = (parse(major)?, parse(minor)?);
        return Ok(Some(minor & 0xff | major << 8 | (minor & !0xff) << 12));
    }
    Ok(None)
}

/// Returns the root of a mounted file system, through any process that has it open.
fn mounts_of(device: u64) -> Option<PathBuf> {
    // Without `self`, which means a different process for each reader.
    let is_number = |entry: &fs::DirEntry| {
        entry.file_name().to_str().is_some_and(|name| name.parse::<u32>().is_ok())
    };
    let entries = fs::read_dir("/proc").ok()?.filter_map(Result::ok);
    let processes = entries.filter(is_number).map(|entry| entry.path());
    let open = processes.filter_map(|process| fs::read_dir(process.join("fd")).ok()).flatten();
    let folders = open.filter_map(|entry| Some(entry.ok()?.path()));
    folders
        .filter(|path| fs::metadata(path).is_ok_and(|it| it.is_dir() && it.dev() == device))
        .find(|path| path.join("volumes").is_dir())
}

/// Returns everything that a cleanly stopped server has left on the machine.
pub fn traces(data: &Path) -> io::Result<Vec<String>> {
    let (name, place) = (name(data)?, data.to_string_lossy());
    let mut found: Vec<String> =
        groups_folder(data)?.iter().map(|folder| folder.display().to_string()).collect();
    let tables = Command::new("nft").args(["list", "tables"]).output()?.stdout;
    found.extend(
        String::from_utf8_lossy(&tables)
            .lines()
            .filter(|line| line.contains(&name))
            .map(str::to_owned),
    );
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    found.extend(mounts.lines().filter(|line| line.contains(&*place)).map(str::to_owned));
    found.extend(loops()?.into_iter().filter(|file| file.contains(&*place)));
    Ok(found)
}

/// Kills all instances of a server that no longer runs, and removes what they used.
pub fn sweep(data: &Path) -> io::Result<()> {
    let deadline = Instant::now() + SWEEP_MAX;
    let groups = groups(data)?;
    for group in &groups {
        thaw(group);
        while !fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default().is_empty()
            && Instant::now() < deadline
        {
            // The shell's command line has the processes to kill. Processes come and go in the
            // meantime, so it is repeated.
            Command::new("sh")
                .arg("-c")
                .arg("kill -9 $(cat \"$1\")")
                .arg("sweep")
                .arg(group.join("cgroup.procs"))
                .output()?;
            thread::sleep(LOOK_EVERY);
        }
    }
    // Already gone if the server was stopped cleanly.
    Command::new("ip").args(["address", "delete", &own().proxy(), "dev", "lo"]).output()?;
    let name = name(data)?;
    for controller in fs::read_dir(CONTROLLERS)? {
        let folder = controller?.path().join(&name);
        for owner in folders(&folder).unwrap_or_default() {
            for instance in folders(&owner).unwrap_or_default() {
                let _ = fs::remove_dir(instance);
            }
            let _ = fs::remove_dir(owner);
        }
        let _ = fs::remove_dir(folder);
    }
    let tables = Command::new("nft").args(["list", "tables"]).output()?.stdout;
    for table in String::from_utf8_lossy(&tables).lines().filter(|line| line.contains(&name)) {
        Command::new("nft").arg("delete").args(table.split_whitespace()).output()?;
    }
    Ok(())
}

/// Thaws a group, since a frozen process would not die before it is thawed.
fn thaw(group: &Path) {
    for (file, thawed, _) in freezers(group) {
        let _ = fs::write(file, thawed);
    }
}

/// Returns whether an instance sleeps.
pub fn is_frozen(group: &Path) -> bool {
    let mut files = freezers(group).into_iter();
    files
        .any(|(file, _, frozen)| fs::read_to_string(file).is_ok_and(|state| state.trim() == frozen))
}

/// Returns the files that freeze a group, one for each cgroup version, with what they hold when it
/// is thawed and when it is frozen.
fn freezers(group: &Path) -> Vec<(PathBuf, &'static str, &'static str)> {
    // Below the root are the server, the owner and the instance.
    let below = group.ancestors().nth(3).and_then(|root| group.strip_prefix(root).ok());
    let first = below.map(|below| Path::new(FREEZER).join(below).join("freezer.state"));
    let first = first.map(|file| (file, "THAWED", "FROZEN"));
    first.into_iter().chain([(group.join("cgroup.freeze"), "0", "1")]).collect()
}

/// Returns the files that are attached to loop devices.
fn loops() -> io::Result<Vec<String>> {
    let devices =
        fs::read_dir("/sys/block")?.map(|entry| Ok(entry?.path().join("loop/backing_file")));
    let files = devices.collect::<io::Result<Vec<_>>>()?;
    // A device without a file has no such entry, or loses it meanwhile.
    Ok(files.into_iter().filter_map(|file| fs::read_to_string(file).ok()).collect())
}
