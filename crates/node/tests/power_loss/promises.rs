//! What was acknowledged, and whether a node that starts on what is left of the disk has it.

use crate::machine::{Machine, owner, run, world};
use node::{
    Exit, Extras, Mount, Mounted, NewVolume, Node, SnapshotName, Spec, VolumeName, VolumeSource,
    Writable,
};

pub(crate) const VOLUME: &str = "disk";
pub(crate) const KEPT: &str = "root";
pub(crate) const TEMPLATE: &str = "template";
pub(crate) const IN_TEMPLATE: &str = "from the template\n";
pub(crate) const LINES: usize = 5_000;

/// Something that must hold from this length of the journal on.
#[derive(Debug, Clone)]
pub(crate) struct Promise {
    pub(crate) since: u64,
    pub(crate) what: What,
}

#[derive(Debug, Clone)]
pub(crate) enum What {
    /// The volume exists with this size.
    Volume {
        name: String,
        mb: u32,
    },
    /// A program has written this number or a later one.
    Written {
        place: Place,
        number: u64,
    },
    /// The snapshot contains what had been written to the instance's disk before it was taken.
    Snapshot {
        name: String,
        number: u64,
    },
    Template,
}

/// Where a program writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Volume,
    /// The disk of an instance that stays.
    Kept {
        mb: u32,
    },
}

impl Place {
    const fn folder(self) -> &'static str {
        match self {
            Self::Volume => "/data",
            Self::Kept { .. } => "/d",
        }
    }

    /// A script that writes number after number, and prints each once it is on the disk.
    pub(crate) fn writer(self) -> String {
        let folder = self.folder();
        format!(
            "mkdir -p {folder}; cd {folder}; n=0; while :; do n=$((n+1)); yes $n | head -n {LINES} > new \
             && sync new && mv new n && sync . || exit 1; echo $n; done"
        )
    }

    pub(crate) fn spec(self, machine: &Machine, script: &str) -> Spec {
        match self {
            Self::Volume => mounting(machine, VOLUME, script),
            Self::Kept { mb } => {
                let volume = VolumeName::new(KEPT).unwrap();
                let writable = Writable::Kept { volume, mb, over: "image".into() };
                Spec { writable, ..anew(machine, script) }
            }
        }
    }
}

fn anew(machine: &Machine, script: &str) -> Spec {
    machine.shell(&format!("run-{}", world().random_text(8)), script)
}

fn mounting(machine: &Machine, volume: &str, script: &str) -> Spec {
    let volume = VolumeName::new(volume).unwrap();
    let what = Mounted::Volume { volume, read_only: false };
    let mounts = vec![Mount { path: "/data".into(), what }];
    Spec { extras: Extras { mounts, ..Extras::default() }, ..anew(machine, script) }
}

fn output(node: &Node, spec: &Spec) -> String {
    let (exit, text) = run(node, spec);
    assert_eq!(exit, Exit::Code(0), "{text}");
    text
}

/// Returns the number that is stored there completely; 0 before the first.
fn number(node: &Node, spec: impl Fn(&str) -> Spec, place: Place) -> u64 {
    let look = format!("cd {} 2>/dev/null || exit 0; [ ! -e n ] || uniq -c n", place.folder());
    let text = output(node, &spec(&look));
    if text.is_empty() {
        return 0;
    }
    let words: Vec<_> = text.split_whitespace().collect();
    assert_eq!(words.len(), 2, "it is mixed: {text}");
    assert_eq!(words[0], LINES.to_string(), "it is not whole: {text}");
    words[1].parse().unwrap()
}

pub(crate) fn check(machine: &Machine, node: &Node, held: &[Promise]) {
    assert_eq!(node.list().iter().filter(|view| view.pid.is_some()).count(), 0);
    let views = node.list();
    views.iter().for_each(|view| node.destroy(&view.id).unwrap());
    let mut snapshots = 0;
    for promise in held {
        match &promise.what {
            What::Volume { name, mb } => {
                let found = node.volumes().size_mb(&VolumeName::new(name.clone()).unwrap());
                assert!(found.is_some_and(|found| found >= *mb), "{name}: {found:?}, not {mb} MB");
            }
            What::Snapshot { name, number } => {
                check_snapshot(machine, node, name, *number);
                snapshots += 1;
            }
            What::Template => check_template(machine, node),
            What::Written { .. } => {}
        }
    }
    check_written(machine, node, held);
    // Volumes and snapshots that nobody was told about must be intact too.
    for volume in node.volumes().list() {
        if ![KEPT, VOLUME].contains(&volume.name.as_str()) {
            output(node, &mounting(machine, volume.name.as_str(), "echo x > /data/x && sync"));
        }
    }
    let listed = node.snapshots().list();
    assert!(listed.len() >= snapshots, "{listed:?}");
    for snapshot in listed {
        check_snapshot(machine, node, snapshot.name.as_str(), 0);
    }
}

/// Checks only the last number of each place, which stands for those before.
fn check_written(machine: &Machine, node: &Node, held: &[Promise]) {
    let mut last: Vec<(Place, u64)> = Vec::new();
    for promise in held {
        if let What::Written { place, number } = promise.what {
            last.retain(|(known, _)| *known != place);
            last.push((place, number));
        }
    }
    for (place, promised) in last {
        let found = number(node, |look| place.spec(machine, look), place);
        assert!(
            found >= promised,
            "{promised} was acknowledged in {place:?}, and {found} is there"
        );
    }
}

fn check_snapshot(machine: &Machine, node: &Node, name: &str, promised: u64) {
    let snapshot = SnapshotName::new(name).unwrap();
    assert!(node.snapshots().list().iter().any(|one| one.name == snapshot), "{name} is not there");
    let fork = |look: &str| Spec { snapshot: Some(snapshot.clone()), ..anew(machine, look) };
    let found = number(node, fork, Place::Kept { mb: 0 });
    assert!(found >= promised, "{name} was ready with {promised}, and has {found}");
}

fn check_template(machine: &Machine, node: &Node) {
    let template = VolumeName::new(TEMPLATE).unwrap();
    let from = Some(VolumeSource { name: template, copy: None });
    let name = VolumeName::new(format!("copy-{}", world().random_text(8))).unwrap();
    let new = NewVolume { name: name.clone(), owner: owner("somebody"), size_mb: 64, from };
    node.volumes().make(&new).unwrap();
    assert_eq!(output(node, &mounting(machine, name.as_str(), "cat /data/hello")), IN_TEMPLATE);
    node.volumes().remove(&name).unwrap();
}
