//! The OCI configuration of an instance, with the same isolation as [`crate::launch`].

use super::seccomp;
use crate::launch::rules::{
    CAPABILITIES, FROZEN, HIDDEN_FILES, HIDDEN_FOLDERS, OUT_OF_MEMORY_SCORE,
};
use crate::launch::tool::ROOT_FOLDER;
use crate::spec::{Spec, User};
use crate::users::IDS_PER_INSTANCE;
use serde_json::{Value, json};
use std::path::Path;
use types::instance::Medium;

/// Where the first program is inside: in a file system that is not part of the image.
const PROGRAM_FOLDER: &str = "/dev/first";

/// What the node has prepared for the instance.
pub(crate) struct Prepared<'a> {
    pub(crate) network: String,
    pub(crate) root: u32,
    pub(crate) group: String,
    pub(crate) program: &'a Path,
    pub(crate) open_files: u64,
    pub(crate) shared_memory_mb: u32,
    pub(crate) terminals: u32,
}

pub(super) fn config(spec: &Spec, prepared: &Prepared<'_>) -> Value {
    let ids = json!([{ "containerID": 0, "hostID": prepared.root, "size": IDS_PER_INSTANCE }]);
    let hidden: Vec<_> = HIDDEN_FILES.iter().chain(&HIDDEN_FOLDERS).collect();
    json!({
        "ociVersion": "1.0.2",
        "root": { "path": ROOT_FOLDER },
        "hostname": spec.hostname,
        "process": process(spec, prepared.open_files),
        "mounts": mounts(spec, prepared),
        "linux": {
            "namespaces": [
                { "type": "pid" },
                { "type": "mount" },
                { "type": "ipc" },
                { "type": "uts" },
                { "type": "cgroup" },
                { "type": "network", "path": prepared.network },
                // Not the slot's namespace: `runc` joins a user namespace first, and the network
                // then belongs to another one.
                { "type": "user" },
            ],
            "uidMappings": ids,
            "gidMappings": ids,
            "cgroupsPath": prepared.group,
            "resources": resources(spec),
            "maskedPaths": hidden,
            "readonlyPaths": FROZEN,
            "seccomp": seccomp::profile(),
        },
    })
}

fn process(spec: &Spec, open_files: u64) -> Value {
    let kept: Vec<_> = CAPABILITIES.iter().map(|(_, name)| name).collect();
    // Only root starts with capabilities. Others may get them from programs that are marked so.
    let held = if spec.user == User::ROOT { kept.clone() } else { Vec::new() };
    let arguments = spec.first.arguments.iter().skip(1).cloned();
    json!({
        "user": { "uid": spec.user.uid, "gid": spec.user.gid },
        "args": std::iter::once(program_inside(spec)).chain(arguments).collect::<Vec<_>>(),
        "env": spec.first.environment,
        "cwd": spec.workdir,
        "capabilities": { "bounding": kept, "effective": held, "permitted": held },
        "rlimits": [
            { "type": "RLIMIT_CORE", "soft": 0, "hard": 0 },
            { "type": "RLIMIT_NOFILE", "soft": open_files, "hard": open_files },
        ],
        "noNewPrivileges": true,
        "oomScoreAdj": OUT_OF_MEMORY_SCORE,
    })
}

/// Returns the path of the program inside. OCI uses the same text for the path and the program's
/// name, so only the last part of the name is kept.
fn program_inside(spec: &Spec) -> String {
    let name = spec.first.arguments.first().and_then(|name| Path::new(name).file_name()?.to_str());
    format!("{PROGRAM_FOLDER}/{}", name.unwrap_or("program"))
}

fn mounts(spec: &Spec, prepared: &Prepared<'_>) -> Value {
    let size = format!("size={}m", prepared.shared_memory_mb);
    let max = format!("max={}", prepared.terminals);
    let terminals =
        ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5", &max];
    let mount = |kind: &str, at: &str, options: &[&str]| json!({ "type": kind, "source": kind, "destination": at, "options": options });
    let mut mounts = vec![
        mount("proc", "/proc", &["nosuid", "noexec", "nodev"]),
        mount("tmpfs", "/dev", &["nosuid", "mode=0755", "size=64k"]),
        mount("devpts", "/dev/pts", &terminals),
        mount("tmpfs", "/dev/shm", &["nosuid", "noexec", "nodev", "mode=1777", &size]),
        mount("mqueue", "/dev/mqueue", &["nosuid", "noexec", "nodev"]),
        json!({
            "type": "bind",
            "source": prepared.program,
            "destination": program_inside(spec),
            "options": ["bind", "ro", "nosuid", "nodev"],
        }),
    ];
    // Those on disk have been refused before, because the node cannot hand over a file system.
    for scratch in spec.scratch.iter().filter(|scratch| scratch.medium == Medium::Memory) {
        let (size, access) =
            (format!("size={}m", scratch.size_mb), if scratch.read_only { "ro" } else { "rw" });
        mounts.push(mount(
            "tmpfs",
            &scratch.path,
            &["nosuid", "noexec", "nodev", "mode=0755", &size, access],
        ));
    }
    Value::Array(mounts)
}

/// Returns the limits. The groups have them already, but a program that sets its own must not widen
/// them.
fn resources(spec: &Spec) -> Value {
    json!({
        "memory": { "limit": u64::from(spec.memory_mb) << 20 },
        "cpu": { "quota": u64::from(spec.cpu_millicores) * 100, "period": 100_000 },
        "pids": { "limit": spec.pids_max },
        "devices": [{ "allow": false, "access": "rwm" }],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(user: User) -> Spec {
        let mut spec = Spec { user, ..Spec::for_tests() };
        spec.first.arguments = vec!["/usr/bin/../sh".into(), "-c".into()];
        spec
    }

    fn made(user: User) -> Value {
        let prepared = Prepared {
            network: "/net".into(),
            root: 7,
            group: "/node/one".into(),
            program: Path::new("/program"),
            open_files: 9,
            shared_memory_mb: 3,
            terminals: 11,
        };
        config(&spec(user), &prepared)
    }

    #[test]
    fn the_first_program_is_called_by_the_last_part_of_its_name() {
        assert_eq!(made(User::ROOT)["process"]["args"], json!(["/dev/first/sh", "-c"]));
    }

    #[test]
    fn only_root_begins_with_rights() {
        let capabilities = |user| made(user)["process"]["capabilities"].clone();
        assert_eq!(
            capabilities(User::ROOT)["effective"].as_array().unwrap().len(),
            CAPABILITIES.len()
        );
        let user = capabilities(User { uid: 1, gid: 1 });
        assert_eq!((&user["effective"], &user["permitted"]), (&json!([]), &json!([])));
        assert_eq!(user["bounding"].as_array().unwrap().len(), CAPABILITIES.len());
    }

    #[test]
    fn limits_are_those_of_the_instance() {
        assert!(made(User::ROOT)["mounts"].to_string().contains("max=11"));
        assert_eq!(made(User::ROOT)["process"]["oomScoreAdj"], json!(500));
        let resources = made(User::ROOT)["linux"]["resources"].clone();
        assert_eq!(resources["memory"]["limit"], json!(64 << 20));
        assert_eq!(resources["cpu"], json!({ "quota": 50_000, "period": 100_000 }));
        assert_eq!(resources["pids"]["limit"], json!(32));
    }
}
