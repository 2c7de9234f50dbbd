//! Requests to models whose log is on, written as lines among the logs of the model.

use crate::control::Control;
use crate::notes::{self, Note, cut};
use jobs::logs::{Printer, Source};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use store::{Tx, resources};
use types::ids::ResourceId;
use types::models::{ModelLogEntry, ModelOutcome};

/// How long requests are gathered for one chunk of lines. Meanwhile the edge keeps new ones, up to
/// a limit of its own.
const GATHERING: Duration = Duration::from_millis(500);
/// Most bytes of a body in the JSON of a line, so that no line is cut.
const BODY_BYTES_MAX: usize = 2800;
/// The same for a path, and for names.
const PATH_BYTES_MAX: usize = 500;
const NAME_BYTES_MAX: usize = 200;
/// Most models in a line that were asked before the one that answered.
const TRIED_MAX: usize = 8;

/// Follows the edge for as long as the program runs. Entries that a kill interrupts are lost.
pub(crate) async fn run(control: Control) {
    let Some(edge) = control.edge.as_ref().map(Arc::clone) else { return };
    loop {
        let entries = edge.model_log().await;
        keep(&control, entries).await;
        tokio::time::sleep(GATHERING).await;
    }
}

async fn keep(control: &Control, entries: Vec<ModelLogEntry>) {
    let mut by_model: HashMap<ResourceId, Vec<Note>> = HashMap::new();
    for entry in entries {
        let note = (entry.call.at, line(&entry));
        by_model.entry(entry.call.model_id).or_default().push(note);
    }
    let ids: Vec<_> = by_model.keys().cloned().collect();
    let find = move |tx: &mut Tx<'_>| {
        let source = |id: ResourceId| Ok((source(tx, &id)?, id));
        ids.clone().into_iter().map(source).collect::<Result<Vec<_>, store::Error>>()
    };
    let found = match control.store.read(find).await {
        Ok(found) => found,
        Err(error) => {
            tracing::error!(%error, "what is known of requests to models is not kept");
            return;
        }
    };
    // A model without a row has no readers.
    let told = found.into_iter().filter_map(|(source, id)| Some((source?, by_model.remove(&id)?)));
    let told: Vec<_> = told.collect();
    notes::write_all(control, "what is known of requests to a model", told).await;
}

fn source(tx: &mut Tx<'_>, id: &ResourceId) -> Result<Option<Source>, store::Error> {
    let Some(row) = resources::find_by_id(tx, id)? else { return Ok(None) };
    let printer = Printer::Requests(id.clone());
    Ok(Some(Source { workspace: row.workspace, kind: row.kind, name: row.name, printer }))
}

/// Returns one line. Much of it is text from the caller or the provider, none of which can end the
/// line.
fn line(entry: &ModelLogEntry) -> Value {
    let ModelLogEntry { call, .. } = entry;
    let name = |text: &str| cut(text, NAME_BYTES_MAX).to_owned();
    let body = |text: &Option<String>| text.as_deref().map(|it| cut(it, BODY_BYTES_MAX).to_owned());
    let was_asked = call.outcome != ModelOutcome::Refused;
    let tried: Vec<_> = entry.tried.iter().take(TRIED_MAX).collect();
    let tried: Vec<_> = tried
        .into_iter()
        .map(|(model, why)| json!({"model": name(model), "failure": why}))
        .collect();
    json!({
        "message": message(entry),
        "severity": severity(entry),
        "at": call.at,
        "method": name(&entry.method),
        "path": cut(&entry.path, PATH_BYTES_MAX),
        "status": entry.status,
        "error": entry.error,
        "outcome": call.outcome,
        "provider": was_asked.then_some(call.provider),
        "providerModel": was_asked.then(|| name(&call.provider_model)),
        "key": name(&call.key),
        "endUser": call.end_user.as_deref().map(name),
        "tag": call.tag.as_deref().map(name),
        "usage": call.usage,
        "cost": dollars(call.cost),
        "prices": name(&call.prices),
        "firstByteMs": entry.first_byte_ms,
        "tookMs": entry.took_ms,
        "tried": tried,
        "request": body(&entry.request),
        "answer": body(&entry.answer),
        "leftOut": entry.left_out,
    })
}

fn message(entry: &ModelLogEntry) -> String {
    let cut = |text: &str| cut(text, NAME_BYTES_MAX / 2).to_owned();
    let (method, path) = (cut(&entry.method), cut(&entry.path));
    if entry.call.outcome == ModelOutcome::Refused {
        let why = entry.error.as_deref().unwrap_or("no provider was asked");
        return format!("request {}: {method} {path} refused: {why}", entry.status);
    }
    let usage = entry.call.usage;
    let sort = if usage.estimated { " (estimated)" } else { "" };
    format!(
        "request {}: {method} {path} by {} in {} ms, {} + {} tokens{sort}",
        entry.status,
        cut(&entry.call.provider_model),
        entry.took_ms,
        usage.input,
        usage.output,
    )
}

/// Formats nanodollars as a plain decimal in dollars.
fn dollars(nano: u64) -> String {
    format!("{}.{:09}", nano / 1_000_000_000, nano % 1_000_000_000)
}

const fn severity(entry: &ModelLogEntry) -> &'static str {
    match (entry.call.outcome, entry.status) {
        (ModelOutcome::Interrupted | ModelOutcome::Failed(_), 500..) => "ERROR",
        (ModelOutcome::Interrupted, _) => "ERROR",
        (_, 500..) => "ERROR",
        (_, 400..) => "WARNING",
        _ => "INFO",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jobs::logs::{LINE_BYTES_MAX, Line, Severity};
    use proptest::prelude::*;
    use types::Timestamp;
    use types::ids::WorkspaceId;
    use types::instance::Stream;
    use types::kinds::model::{ModelFailure, ModelType};
    use types::models::{ModelCall, TokenUsage};

    fn entry(text: &str, status: u16, outcome: ModelOutcome) -> ModelLogEntry {
        let text = || text.to_owned();
        let usage = TokenUsage { input: 12, output: 34, estimated: true, ..TokenUsage::default() };
        ModelLogEntry {
            call: ModelCall {
                at: Timestamp::from_ms(1_776_300_000_000),
                workspace: WorkspaceId::known("w"),
                model: text(),
                model_id: ResourceId::known("res_ab3k9"),
                provider: ModelType::AzureOpenaiService,
                provider_model: text(),
                key: text(),
                end_user: Some(text()),
                tag: Some(text()),
                usage,
                cost: 1_250_000_001,
                prices: text(),
                outcome,
            },
            method: text(),
            path: text(),
            status,
            error: Some("MODEL_LIMIT_REACHED".to_owned()),
            first_byte_ms: u64::MAX,
            took_ms: u64::MAX,
            tried: vec![(text(), ModelFailure::ContextLength); 40],
            request: Some(text()),
            answer: Some(text()),
            left_out: u64::MAX,
        }
    }

    #[test]
    fn a_line_says_who_answered_and_what_it_took() {
        let line = line(&entry("x", 200, ModelOutcome::Answered));
        let said = line["message"].as_str().unwrap();
        assert!(
            said.starts_with("request 200: x x by x in ")
                && said.ends_with("12 + 34 tokens (estimated)"),
            "{said}"
        );
        assert_eq!((&line["cost"], &line["severity"]), (&json!("1.250000001"), &json!("INFO")));
        assert_eq!(severity(&entry("x", 429, ModelOutcome::Answered)), "WARNING");
        let failed = ModelOutcome::Failed(ModelFailure::Timeout);
        assert_eq!(severity(&entry("x", 504, failed)), "ERROR");
        assert_eq!(severity(&entry("x", 200, ModelOutcome::Interrupted)), "ERROR");
    }

    #[test]
    fn a_request_that_reached_nobody_has_no_provider() {
        let line = line(&entry("x", 429, ModelOutcome::Refused));
        assert_eq!(line["message"], "request 429: x x refused: MODEL_LIMIT_REACHED");
        let seen = (&line["provider"], &line["error"], &line["severity"]);
        assert_eq!(seen, (&Value::Null, &json!("MODEL_LIMIT_REACHED"), &json!("WARNING")));
    }

    #[test]
    fn no_line_is_cut() {
        for wide in ["\u{1f600}", "\u{1}", "\"", "\\"].map(|text| text.repeat(5000)) {
            let entry = entry(&wide, 65535, ModelOutcome::Interrupted);
            let bytes = notes::piece(entry.call.at, &line(&entry)).bytes.len();
            assert!(bytes < LINE_BYTES_MAX, "{bytes}");
        }
    }

    proptest! {
        /// Neither a caller nor a provider can write a second line, or one of another severity.
        #[test]
        fn whatever_is_said_is_one_line(text in "(?s).{0,400}") {
            let entry = entry(&text, 404, ModelOutcome::Answered);
            let piece = notes::piece(entry.call.at, &line(&entry));
            let bytes = piece.bytes.strip_suffix(b"\n").unwrap();
            prop_assert!(!bytes.contains(&b'\n'));
            let read = Line::read(1, Stream::Stdout, bytes);
            prop_assert_eq!(read.severity, Severity::Warning);
            prop_assert!(serde_json::from_str::<Value>(&read.message).unwrap().is_object());
        }
    }
}
