//! The rules of each kind: which fields of a body are refused, after the server has filled in its
//! own.

#![expect(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod names;
mod others;
mod sandboxes;
mod workloads;

use serde_json::{Value, json};
use types::kinds::*;
use types::parts::Sensitive;
use types::schema::Checker;
use types::{Kind, Problems, Timestamp, World};

const NOW: Timestamp = Timestamp::from_ms(1_776_331_800_000);

fn world() -> World {
    World::new(|| NOW, |bytes| bytes.fill(7))
}

/// Takes a body the way a request goes: schema, type, the server's own members, rules.
fn read<K: Kind>(body: &Value, old: Option<&K>) -> Result<K, Problems> {
    Checker::of::<K>().check(body)?;
    let mut wish: K = serde_json::from_value(body.clone()).unwrap();
    wish.complete(old, &world());
    let mut problems = Problems::default();
    wish.check(&mut problems);
    if let Some(old) = old {
        wish.check_change(old, &mut problems);
    }
    problems.into_result()?;
    Ok(wish)
}

#[track_caller]
fn refused(problems: Result<(), Problems>, expect: &[&str]) {
    let problems = problems.err().unwrap_or_default();
    let fields: Vec<&str> = problems.iter().map(|problem| problem.field.as_str()).collect();
    assert_eq!(fields, expect, "{problems}");
}

/// Checks which fields of a body are refused.
#[track_caller]
fn check<K: Kind>(body: Value, expect: &[&str]) {
    refused(read::<K>(&body, None).map(|_| ()), expect);
}

/// Checks which fields of a spec are refused.
#[track_caller]
fn check_spec<K: Kind>(spec: Value, expect: &[&str]) {
    check::<K>(json!({"metadata": {"name": "a"}, "spec": spec}), expect);
}

/// Checks which changes from one spec to another are refused.
#[track_caller]
fn check_change<K: Kind>(old: Value, new: Value, expect: &[&str]) {
    let body = |spec| json!({"metadata": {"name": "a"}, "spec": spec});
    let old = read::<K>(&body(old), None).unwrap();
    refused(read::<K>(&body(new), Some(&old)).map(|_| ()), expect);
}

fn made<K: Kind>(spec: Value) -> K {
    read(&json!({"metadata": {"name": "a"}, "spec": spec}), None).unwrap()
}
