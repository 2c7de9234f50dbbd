//! Log lines that the server itself writes into the logs of resources.

use crate::control::Control;
use crate::workloads::output;
use bytes::Bytes;
use jobs::logs::Source;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use types::Timestamp;
use types::instance::{Printed, Stream};

/// Most logs that are written at the same time.
const WRITERS_MAX: usize = 16;

/// A log line: a JSON object with `message` and `severity`, and its time.
pub(crate) type Note = (Timestamp, Value);

/// Writes the lines of several sources. Lines that a kill interrupts are lost.
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
    // An earlier batch, or an earlier run of this program, may have begun this log.
    let writer = output::writer(&control.logs, source, true).await;
    let (pieces, printed) = mpsc::channel(notes.len().max(1));
    for (at, line) in notes {
        // The channel has room for all lines.
        drop(pieces.try_send(piece(at, &line)));
    }
    drop(pieces);
    if let Err(lost) = control.logs.record(writer, printed).await {
        tracing::error!(%lost, name, %workspace, "{what} is not kept as a whole");
    }
}

/// Makes one line of output. As JSON, text from others cannot be mistaken for another line.
pub(crate) fn piece(at: Timestamp, line: &Value) -> Printed {
    let mut bytes = line.to_string().into_bytes();
    bytes.push(b'\n');
    // `next` does not matter: this output is never read again from a position.
    Printed { next: 0, at, stream: Stream::Stdout, bytes: Bytes::from(bytes) }
}

/// Returns the longest beginning of a text that takes at most `bytes_max` bytes in JSON.
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
