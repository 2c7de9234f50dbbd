//! What rules did, written as lines among the logs of the workload that has them.

use crate::control::Control;
use crate::machine::Machine;
use crate::notes::{self, cut};
use jobs::logs::{Printer, Source};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use store::{Tx, executions, resources};
use types::egress::{EgressDecision, EgressEvent};
use types::ids::ResourceId;
use types::instance::{InstanceName, RunsFor};

/// How long events are gathered for one chunk of lines. Meanwhile the machine keeps new ones, up to
/// a limit of its own.
const GATHERING: Duration = Duration::from_millis(500);
/// Most bytes of a host, a path or a rule in the JSON of a line, so that no line is cut.
const PART_BYTES_MAX: usize = 1000;
/// The same for single words: a method, the name of something injected.
const WORD_BYTES_MAX: usize = 100;
/// Most names of injected things in a line.
const INJECTED_MAX: usize = 16;

/// Follows the machine for as long as the program runs. Events that a kill interrupts are lost.
pub(crate) async fn run(control: Control) {
    let Some(machine) = control.machine().cloned() else { return };
    loop {
        let events = machine.egress_events().await;
        keep(&control, &machine, events).await;
        tokio::time::sleep(GATHERING).await;
    }
}

/// Writes events to the logs of the workloads they belong to.
async fn keep(control: &Control, machine: &Arc<dyn Machine>, events: Vec<EgressEvent>) {
    let mut by_instance: HashMap<InstanceName, Vec<EgressEvent>> = HashMap::new();
    for event in events {
        by_instance.entry(event.instance.clone()).or_default().push(event);
    }
    let names: Vec<_> = by_instance.keys().cloned().collect();
    let find = move |tx: &mut Tx<'_>| {
        let source = |name: InstanceName| Ok((source(tx, &name)?, name));
        names.clone().into_iter().map(source).collect::<Result<Vec<_>, store::Error>>()
    };
    let found = match control.store.read(find).await {
        Ok(found) => found,
        Err(error) => {
            tracing::error!(%error, machine = machine.name(), "what rules of egress did is not kept");
            return;
        }
    };
    let mut by_workload: HashMap<ResourceId, (Source, Vec<EgressEvent>)> = HashMap::new();
    for (source, name) in found {
        // A workload without a row has no readers.
        let (Some((id, source)), Some(events)) = (source, by_instance.remove(&name)) else {
            continue;
        };
        by_workload.entry(id).or_insert_with(|| (source, Vec::new())).1.extend(events);
    }
    let told = by_workload.into_values().map(|(source, events)| {
        (source, events.iter().map(|event| (event.at, line(event))).collect())
    });
    notes::write_all(control, "what rules of egress did", told).await;
}

/// Returns the source under which the lines of an instance are found.
fn source(
    tx: &mut Tx<'_>,
    instance: &InstanceName,
) -> Result<Option<(ResourceId, Source)>, store::Error> {
    let id = match instance.runs_for() {
        Some(RunsFor::Sandbox { id, .. }) => id,
        Some(RunsFor::Replica(replica)) => replica.workload,
        Some(RunsFor::Task(attempt)) => match executions::find_by_id(tx, &attempt.execution)? {
            Some(execution) => execution.job_id,
            None => return Ok(None),
        },
        Some(RunsFor::Build(_)) | None => return Ok(None),
    };
    let Some(row) = resources::find_by_id(tx, &id)? else { return Ok(None) };
    let printer = Printer::Network(id.clone());
    let source = Source { workspace: row.workspace, kind: row.kind, name: row.name, printer };
    Ok(Some((id, source)))
}

/// Returns one line. Host, path and method come from inside the instance; JSON keeps them from
/// being taken for another line.
fn line(event: &EgressEvent) -> Value {
    let part = |text: &str| cut(text, PART_BYTES_MAX).to_owned();
    let word = |text: &str| cut(text, WORD_BYTES_MAX).to_owned();
    let injected: Vec<_> = event.injected.iter().take(INJECTED_MAX).map(|it| word(it)).collect();
    json!({
        "message": message(event),
        "severity": severity(event.decision),
        "at": event.at,
        "instance": event.instance,
        "decision": event.decision,
        "host": part(&event.host),
        "port": event.port,
        "method": event.method.as_deref().map(word),
        "path": event.path.as_deref().map(part),
        "rule": part(&event.rule),
        "injected": injected,
        "leftOut": event.left_out,
    })
}

fn message(event: &EgressEvent) -> String {
    let cut = |text: &str| cut(text, PART_BYTES_MAX / 4).to_owned();
    let method = event.method.as_deref().map(|it| format!("{} ", cut(it))).unwrap_or_default();
    let path = event.path.as_deref().map(cut).unwrap_or_default();
    let (host, port, rule) = (cut(&event.host), event.port, cut(&event.rule));
    format!("network {}: {method}{host}:{port}{path} ({rule})", event.decision.name())
}

const fn severity(decision: EgressDecision) -> &'static str {
    match decision {
        EgressDecision::Blocked => "WARNING",
        EgressDecision::Injected => "INFO",
        EgressDecision::Failed => "ERROR",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jobs::logs::{LINE_BYTES_MAX, Line, Severity};
    use proptest::prelude::*;
    use types::Timestamp;
    use types::instance::Stream;

    fn event(host: String, path: String, rule: String) -> EgressEvent {
        EgressEvent {
            at: Timestamp::from_ms(1_776_300_000_000),
            instance: InstanceName::of_sandbox(&ResourceId::known("res_ab3k9"), 1),
            decision: EgressDecision::Blocked,
            host,
            port: 443,
            method: Some("GET".into()),
            path: Some(path),
            rule,
            injected: vec!["header authorization".into()],
            left_out: 3,
        }
    }

    #[test]
    fn a_line_says_what_happened_and_why() {
        let event = event("a.example".into(), "/x".into(), "forbiddenDomains: *.example".into());
        let line = line(&event);
        let said = "network blocked: GET a.example:443/x (forbiddenDomains: *.example)";
        assert_eq!((line["message"].as_str(), line["leftOut"].as_u64()), (Some(said), Some(3)));
        assert_eq!(line["decision"], "blocked");
    }

    proptest! {
        /// Nobody inside can write a second line, or one of another severity.
        #[test]
        fn whatever_is_asked_for_is_one_line(host in ".{0,300}", path in "(?s).{0,4000}", rule in "(?s).{0,2000}") {
            let event = event(host, path, rule);
            let piece = notes::piece(event.at, &line(&event));
            let bytes = piece.bytes.strip_suffix(b"\n").unwrap();
            prop_assert!(!bytes.contains(&b'\n'));
            let read = Line::read(1, Stream::Stdout, bytes);
            prop_assert_eq!(read.severity, Severity::Warning);
            prop_assert!(serde_json::from_str::<Value>(&read.message).unwrap().is_object());
        }
    }

    #[test]
    fn no_line_is_cut() {
        for wide in ["\u{1f600}", "\u{1}", "\"", "\\"].map(|text| text.repeat(5000)) {
            let mut event = event(wide.clone(), wide.clone(), wide.clone());
            event.method = Some(wide.clone());
            event.injected = vec![wide; 100];
            let bytes = notes::piece(event.at, &line(&event)).bytes.len();
            assert!(bytes < LINE_BYTES_MAX, "{bytes}");
        }
    }
}
