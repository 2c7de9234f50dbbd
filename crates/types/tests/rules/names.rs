//! Names that users give: each can be shown in a line, and found again by an address.

use super::*;
use proptest::prelude::*;
use types::wire::{SandboxForkRequest, SandboxSnapshotRequest};

/// Checks whether a text is taken as the name of a snapshot.
fn takes(checker: &Checker, name: &str) -> bool {
    let checked = checker.check(&json!({"name": name}));
    let told = checked.as_ref().err().map(ToString::to_string).unwrap_or_default();
    assert!(!told.contains("must match"), "{told}");
    checked.is_ok()
}

#[test]
fn snapshots_have_names_that_can_be_read_and_addressed() {
    let checker = Checker::of::<SandboxSnapshotRequest>();
    for good in ["", "before", "Before the upgrade (2)", "v1.2", "größer", &"ä".repeat(63)] {
        assert!(takes(&checker, good), "{good}");
    }
    let bad =
        [".", "..", ".hidden", " a", "a/b", "a\\b", "a\nb", "\u{7f}", "a\u{9b}2J", "a\u{2028}b"];
    for bad in bad.into_iter().chain([&*"x".repeat(64)]) {
        assert!(!takes(&checker, bad), "{bad:?}");
    }
    let told = checker.check(&json!({"name": "a/b"})).unwrap_err().to_string();
    assert!(told.contains("`name` must have no control characters, no `/`"), "{told}");
}

#[test]
fn what_is_one_step_of_an_address_is_not_a_step_up() {
    let schedule =
        |id: &str| json!({"id": id, "type": "sleep", "value": "1h", "input": {"command": "ls"}});
    check::<Schedule>(schedule("nightly_2.0"), &[]);
    let expires = json!({"expiresAt": "2027-01-01T00:00:00Z"});
    let token = |name: &str| json!({"metadata": {"name": name}, "spec": expires});
    check::<PreviewToken>(token("-a.b"), &[]);
    for bad in [".", "..", ".a", "a/b", "a b"] {
        check::<Schedule>(schedule(bad), &["id"]);
        check::<PreviewToken>(token(bad), &["metadata.name"]);
    }
}

#[test]
fn a_fork_is_checked_whole_before_anything_is_taken_for_it() {
    let problems = |body: Value| {
        let asked: SandboxForkRequest = serde_json::from_value(body).unwrap();
        asked.target().map(drop)
    };
    let fork = json!({"targetType": "application", "targetName": "a", "customDomain": "a b",
        "prefix": "A", "envs": [{"name": "A-B"}]});
    refused(problems(fork), &["prefix", "customDomain", "envs[0].name"]);
    let fork = json!({"targetType": "application", "targetName": "a",
        "customDomain": "a.example", "prefix": ""});
    refused(problems(fork), &[]);
}

#[test]
fn names_of_short_lived_volumes_are_lines() {
    let volume = |name: &str| {
        let volume = json!({"name": name, "mountPath": "/a", "type": "ephemeral", "sizeMb": 1});
        json!({"runtime": {"image": "a"}, "volumes": [volume]})
    };
    for (name, expect) in [("my cache", &[][..]), ("a\u{1b}[2J", &["spec.volumes[0].name"])] {
        check_spec::<Sandbox>(volume(name), expect);
        check_spec::<Job>(volume(name), expect);
    }
}

proptest! {
    /// Whoever puts the name into an address reaches the snapshot, not what is above it.
    #[test]
    fn a_name_of_a_snapshot_is_one_step_of_an_address(name in "[./ \\\\a\\PC\\x00-\\xa0]{1,70}") {
        let checker = Checker::of::<SandboxSnapshotRequest>();
        if takes(&checker, &name) {
            let mut url = url::Url::parse("https://a.example/snapshots").unwrap();
            url.path_segments_mut().unwrap().push(&name).push("restore");
            let read = url::Url::parse(url.as_str()).unwrap();
            prop_assert_eq!(read.path_segments().unwrap().count(), 3, "{}", url);
            prop_assert!(name.chars().count() <= 63 && !name.chars().any(char::is_control));
        }
    }
}
