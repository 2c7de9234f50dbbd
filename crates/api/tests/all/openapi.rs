//! The published document: it matches the code, and has everything that the interface has.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use crate::common::Cloud;
use http::StatusCode;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// Differences between our document and the interface, with reasons. An entry that is no longer
/// needed fails the test.
const DIFFERENCES: &[(&str, &str)] = &[
    (FORK_NAME, "the published command line writes `target_name`; one of the two is required"),
    (FORK_TYPE, "the published command line writes `type`; one of the two is required"),
];
const FORK_NAME: &str = "POST /sandboxes/{sandboxName}/fork body.targetName: not required";
const FORK_TYPE: &str = "POST /sandboxes/{sandboxName}/fork body.targetType: not required";

fn contract() -> Value {
    serde_json::from_str(include_str!("../contract/control-plane.json")).unwrap()
}

#[test]
fn the_file_in_docs_is_what_the_code_says() {
    let file: Value = serde_json::from_str(include_str!("../../../../docs/openapi.json")).unwrap();
    assert!(
        file == api::document(),
        "docs/openapi.json differs from the code: run `cargo xtask openapi`"
    );
}

#[tokio::test]
async fn the_page_for_keys_runs_only_its_own_script_and_is_in_no_frame() {
    let cloud = Cloud::start().await;
    let page = cloud.get("/v0/docs").await;
    let header = |name: &str| page.headers.get(name).map_or("", |value| value.to_str().unwrap());
    assert_eq!(page.status, StatusCode::OK);
    for rule in ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"] {
        assert!(header("content-security-policy").contains(rule), "{rule}");
    }
    assert_eq!(header("x-frame-options"), "DENY");
    assert_eq!(header("referrer-policy"), "same-origin");
    assert_eq!(header("cache-control"), "no-store");
    assert!(!page.text.contains("style=") && !page.text.contains("<script>"));
}

#[test]
fn every_operation_has_a_name_of_its_own_and_says_what_it_answers() {
    let document = api::document();
    let mut names = BTreeSet::new();
    for (at, operation) in operations(&document) {
        let name = operation["operationId"].as_str().unwrap().to_owned();
        assert!(names.insert(name.clone()), "{name} stands twice");
        let done = operation["responses"]
            .as_object()
            .unwrap()
            .keys()
            .filter(|status| status.starts_with('2'))
            .count();
        assert!(done > 0, "{at} has no answer");
    }
    assert!(names.len() > 160, "only {} operations", names.len());
}

#[test]
fn a_key_is_offered_where_it_has_an_effect() {
    let document = api::document();
    let key = serde_json::json!({"$ref": "#/components/parameters/IdempotencyKey"});
    let without: BTreeSet<&str> = operations(&document)
        .iter()
        .filter(|(at, _)| at.starts_with("POST "))
        .filter(|(_, operation)| !operation["parameters"].as_array().unwrap().contains(&key))
        .map(|(_, operation)| operation["operationId"].as_str().unwrap())
        .collect();
    let known = [
        "AcceptInvitation",
        "CallManagementTools",
        "CheckWorkspaceAvailability",
        "CreateDriveAccessToken",
        "DeclineInvitation",
        "RotateSealKeys",
        "VerifyCustomDomain",
    ];
    assert_eq!(without, known.into());
}

#[test]
fn nothing_of_the_interface_is_missing() {
    let (theirs, ours) = (contract(), api::document());
    let mut comparison = Comparison { theirs: &theirs, ours: &ours, found: BTreeSet::new() };
    for (at, operation) in operations(&theirs) {
        comparison.operation(&at, operation);
    }
    let known: BTreeSet<String> = DIFFERENCES.iter().map(|(at, _)| (*at).to_owned()).collect();
    let new: Vec<_> = comparison.found.difference(&known).collect();
    let gone: Vec<_> = known.difference(&comparison.found).collect();
    assert!(
        new.is_empty() && gone.is_empty(),
        "not in the list: {new:#?}\nno longer different: {gone:#?}"
    );
}

#[test]
fn the_comparison_sees_what_is_missing() {
    let (theirs, mut ours) = (contract(), api::document());
    let job = &mut ours["components"]["schemas"]["JobRuntime"];
    job["properties"].as_object_mut().unwrap().remove("diskPercent");
    ours["components"]["schemas"]["Metadata"]["required"] = Value::Array(Vec::new());
    ours["components"]["schemas"]["Status"]["enum"]
        .as_array_mut()
        .unwrap()
        .retain(|status| status != "BUILT");
    ours["paths"]["/jobs"].as_object_mut().unwrap().remove("post");
    let mut comparison = Comparison { theirs: &theirs, ours: &ours, found: BTreeSet::new() };
    for (at, operation) in operations(&theirs) {
        comparison.operation(&at, operation);
    }
    for lost in [
        "PUT /jobs/{jobId} 200.spec.runtime.diskPercent: missing",
        "PUT /agents/{agentName} body.metadata.name: not required",
        "GET /agents/{agentName} 200.status: value \"BUILT\" is missing",
        "POST /jobs: missing",
    ] {
        assert!(comparison.found.contains(lost), "{lost} was not seen in {:#?}", comparison.found);
    }
}

#[test]
fn what_is_missing_is_written_down_and_nothing_else() {
    let page = include_str!("../../../../docs/not-yet.md");
    let rows: Vec<&str> = page
        .lines()
        .filter(|line| line.starts_with("| ") && !line.contains("Operations |"))
        .collect();
    for missing in control::Missing::ALL {
        assert!(
            rows.iter().any(|row| row.contains(missing.act())),
            "docs/not-yet.md lacks: {}",
            missing.act()
        );
    }
    assert_eq!(
        rows.len(),
        control::Missing::ALL.len(),
        "docs/not-yet.md lists what is not missing"
    );
}

const METHODS: [&str; 4] = ["get", "post", "put", "delete"];

fn operations(document: &Value) -> Vec<(String, &Value)> {
    let mut all = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in METHODS {
            if let Some(operation) = item.get(method) {
                all.push((format!("{} {path}", method.to_uppercase()), operation));
            }
        }
    }
    all
}

/// Follows a reference within its document.
fn resolve<'d>(document: &'d Value, value: &'d Value) -> &'d Value {
    match value.get("$ref").and_then(Value::as_str) {
        Some(reference) => {
            resolve(document, document.pointer(reference.trim_start_matches('#')).unwrap())
        }
        None => value,
    }
}

struct Comparison<'c> {
    theirs: &'c Value,
    ours: &'c Value,
    found: BTreeSet<String>,
}

impl Comparison<'_> {
    fn operation(&mut self, at: &str, theirs: &Value) {
        let (method, path) = at.split_once(' ').unwrap();
        let ours = &self.ours["paths"][path][method.to_lowercase()];
        if ours.is_null() {
            self.found.insert(format!("{at}: missing"));
            return;
        }
        if ours["operationId"] != theirs["operationId"] {
            self.found.insert(format!("{at}: operationId {}", theirs["operationId"]));
        }
        let inherited = |document: &Value, operation: &Value| {
            operation.get("security").unwrap_or(&document["security"]).clone()
        };
        if inherited(self.ours, ours) != inherited(self.theirs, theirs) {
            self.found.insert(format!("{at}: security {}", theirs["security"]));
        }
        self.parameters(at, theirs, ours);
        let body = "/requestBody/content/application~1json/schema";
        if let Some(schema) = theirs.pointer(body) {
            self.schema(
                &format!("{at} body"),
                schema,
                ours.pointer(body).unwrap_or(&Value::Null),
                0,
            );
        }
        for (status, answer) in theirs["responses"].as_object().unwrap() {
            let schema = "/content/application~1json/schema";
            match (answer.pointer(schema), ours["responses"].get(status)) {
                (_, None) => drop(self.found.insert(format!("{at}: answer {status} is missing"))),
                (None, Some(_)) => {}
                (Some(theirs), Some(ours)) => {
                    let ours = ours.pointer(schema).unwrap_or(&Value::Null);
                    self.schema(&format!("{at} {status}"), theirs, ours, 0);
                }
            }
        }
    }

    fn parameters(&mut self, at: &str, theirs: &Value, ours: &Value) {
        let none = Vec::new();
        for parameter in theirs["parameters"].as_array().unwrap_or(&none) {
            let parameter = resolve(self.theirs, parameter);
            let same = |other: &&Value| {
                other["name"] == parameter["name"] && other["in"] == parameter["in"]
            };
            let mut all = ours["parameters"]
                .as_array()
                .unwrap_or(&none)
                .iter()
                .map(|other| resolve(self.ours, other));
            let Some(found) = all.find(same) else {
                self.found.insert(format!("{at}: parameter {} is missing", parameter["name"]));
                continue;
            };
            if parameter["required"] == true && found["required"] != true {
                self.found.insert(format!("{at}: parameter {} is not required", parameter["name"]));
            }
            let name = parameter["name"].as_str().unwrap();
            self.schema(&format!("{at} ?{name}"), &parameter["schema"], &found["schema"], 0);
        }
    }

    /// Records what `theirs` has but none of the alternatives of `ours` has.
    fn schema(&mut self, at: &str, theirs: &Value, ours: &Value, depth: usize) {
        // Deeper than any schema of the interface.
        if depth > 12 {
            return;
        }
        if let Some(choices) = merged(self.theirs, theirs).get("oneOf").and_then(Value::as_array) {
            choices.iter().for_each(|choice| self.schema(at, choice, ours, depth + 1));
            return;
        }
        let mut best: Option<BTreeSet<String>> = None;
        for form in forms(self.ours, ours) {
            let mut attempt =
                Comparison { theirs: self.theirs, ours: self.ours, found: BTreeSet::new() };
            attempt.form(at, theirs, &form, depth);
            if best.as_ref().is_none_or(|best| attempt.found.len() < best.len()) {
                best = Some(attempt.found);
            }
        }
        match best {
            Some(found) => self.found.extend(found),
            None => drop(self.found.insert(format!("{at}: no schema"))),
        }
    }

    fn form(&mut self, at: &str, theirs: &Value, ours: &Value, depth: usize) {
        let theirs = merged(self.theirs, theirs);
        self.kind(at, &theirs, ours);
        for value in theirs.get("enum").and_then(Value::as_array).into_iter().flatten() {
            if !values(ours).contains(value) {
                self.found.insert(format!("{at}: value {value} is missing"));
            }
        }
        for (name, member) in
            theirs.get("properties").and_then(Value::as_object).into_iter().flatten()
        {
            match ours.pointer(&format!("/properties/{}", name.replace('/', "~1"))) {
                Some(own) => self.schema(&format!("{at}.{name}"), member, own, depth + 1),
                None => drop(self.found.insert(format!("{at}.{name}: missing"))),
            }
        }
        let required = ours.get("required").and_then(Value::as_array);
        for name in theirs.get("required").and_then(Value::as_array).into_iter().flatten() {
            if !required.is_some_and(|required| required.contains(name)) {
                self.found.insert(format!("{at}.{}: not required", name.as_str().unwrap()));
            }
        }
        for inner in ["items", "additionalProperties"] {
            if let (Some(theirs), Some(own)) =
                (theirs.get(inner).filter(|inner| inner.is_object()), ours.get(inner))
            {
                self.schema(&format!("{at}[]"), theirs, own, depth + 1);
            }
        }
    }

    fn kind(&mut self, at: &str, theirs: &Map<String, Value>, ours: &Value) {
        let Some(theirs) = theirs.get("type") else { return };
        let own = match ours.get("type") {
            Some(Value::Array(kinds)) => kinds.clone(),
            Some(kind) => vec![kind.clone()],
            // Without a type anything is allowed, unless the values are listed.
            None => values(ours)
                .iter()
                .map(|value| Value::from(if value.is_string() { "string" } else { "other" }))
                .collect(),
        };
        let whole = theirs == "number" && own.contains(&Value::from("integer"));
        if !own.is_empty() && !own.contains(theirs) && !whole {
            self.found.insert(format!("{at}: type {theirs}"));
        }
    }
}

/// Returns the alternatives in one of our schemas, without the one that only means "or null".
fn forms(document: &Value, schema: &Value) -> Vec<Value> {
    let schema = Value::Object(merged(document, schema));
    let choices = schema.get("anyOf").or_else(|| schema.get("oneOf")).and_then(Value::as_array);
    match choices {
        // Values that each have a description are listed as choices.
        Some(choices) if choices.iter().all(|choice| choice.get("const").is_some()) => vec![schema],
        Some(choices) => {
            let real =
                choices.iter().filter(|choice| choice.get("type") != Some(&Value::from("null")));
            real.flat_map(|choice| forms(document, choice)).collect()
        }
        None if schema == Value::Object(Map::new()) => Vec::new(),
        None => vec![schema],
    }
}

/// Returns a schema with its references followed and its `allOf` merged.
fn merged(document: &Value, schema: &Value) -> Map<String, Value> {
    let Some(members) = resolve(document, schema).as_object() else { return Map::new() };
    let mut whole = members.clone();
    let parts =
        whole.remove("allOf").and_then(|parts| parts.as_array().cloned()).unwrap_or_default();
    for part in parts {
        for (name, value) in merged(document, &part) {
            match (whole.get_mut(&name), value) {
                (Some(Value::Object(whole)), Value::Object(part)) => whole.extend(part),
                (Some(Value::Array(whole)), Value::Array(part)) => whole.extend(part),
                (Some(_), _) => {}
                (None, value) => drop(whole.insert(name, value)),
            }
        }
    }
    whole
}

/// Returns the values that a schema lists.
fn values(schema: &Value) -> Vec<Value> {
    let choices = schema.get("oneOf").and_then(Value::as_array).into_iter().flatten();
    let mut values: Vec<Value> =
        choices.filter_map(|choice| choice.get("const").cloned()).collect();
    values.extend(schema.get("enum").and_then(Value::as_array).into_iter().flatten().cloned());
    values.extend(schema.get("const").cloned());
    values
}
