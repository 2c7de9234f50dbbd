//! Lines that the server itself writes among the logs of what they are about.

use crate::control::Control;
use crate::workloads::output;
use bytes::Bytes;
use jobs::logs::Source;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use types::Timestamp;
use types::instance::{Printed, Stream};

/// Logs that are written at the same time.
const WRITERS_MAX: usize = 16;

/// A line: a JSON object with `message` and `severity`.
pub(crate) type Note = (Timestamp, Value);

/// Writes what is told of several sources. What a kill interrupts is lost.
pub(crate) async fn write_all(
    control: &Control,
    what: &'static str,
    notes: impl IntoIterator<Item = (Source, Vec<Note>)>,
) {
    let mut writing = JoinSet::new();
    for (source, notes) in notes {
        if writing.len() >= WRITERS_MAX {
            writing.join_next().await;
        }
        writing.spawn(write(control.clone(), what, source, notes));
    }
    while writing.join_next().await.is_some() {}
}

async fn write(control: Control, what: &'static str, source: Source, mut notes: Vec<Note>) {
    notes.sort_by_key(|(at, _)| *at);
    let (name, workspace) = (source.name.clone(), source.workspace.clone());
    // An earlier batch has begun it, or an earlier run of this program.
    let writer = output::writer(&control.logs, source, true).await;
    let (pieces, printed) = mpsc::channel(notes.len().max(1));
    for (at, line) in notes {
        // There is room for all.
        drop(pieces.try_send(piece(at, &line)));
    }
    drop(pieces);
    if let Err(lost) = control.logs.record(writer, printed).await {
        tracing::error!(%lost, name, %workspace, "{what} is not kept as a whole");
    }
}

/// JSON keeps what others said from being taken for another line.
pub(crate) fn piece(at: Timestamp, line: &Value) -> Printed {
    let mut bytes = line.to_string().into_bytes();
    bytes.push(b'\n');
    // It is never read again from a position.
    Printed { next: 0, at, stream: Stream::Stdout, bytes: Bytes::from(bytes) }
}

/// The beginning of a text that takes at most so many bytes in JSON.
pub(crate) fn cut(text: &str, bytes_max: usize) -> &str {
    let mut bytes = 0;
    let end = text.char_indices().find(|(_, character)| {
        bytes += match character {
            '"' | '\\' => 2,
            character if character.is_ascii_control() => 6,
            character => character.len_utf8(),
        };
        bytes > bytes_max
    });
    end.and_then(|(end, _)| text.get(..end)).unwrap_or(text)
}
