//! The page that documents the interface.

use crate::http::{Answer, Error};
use http::StatusCode;
use serde::Serialize;

#[derive(Serialize)]
pub(crate) struct Operation {
    pub(crate) path: &'static str,
    pub(crate) methods: &'static [&'static str],
    about: &'static str,
}

const fn operation(
    path: &'static str,
    methods: &'static [&'static str],
    about: &'static str,
) -> Operation {
    Operation { path, methods, about }
}

/// All operations; a test compares them with the routes.
pub(crate) const OPERATIONS: &[Operation] = &[
    operation("/", &["GET"], "Says what this is."),
    operation("/swagger", &["GET"], "This page."),
    operation("/health", &["GET"], "How this program is, and how its last upgrade went."),
    operation(
        "/upgrade",
        &["POST"],
        "Puts another version in the place of this program; what runs goes on.",
    ),
    operation(
        "/environment/reload",
        &["POST"],
        "Reads the metadata document again, for processes that start later.",
    ),
    operation("/process", &["GET", "POST"], "Lists the processes; runs a command."),
    operation("/process/{identifier}", &["GET", "DELETE"], "Shows a process; asks it to end."),
    operation("/process/{identifier}/kill", &["DELETE"], "Ends a process at once."),
    operation(
        "/process/{identifier}/stdin",
        &["POST", "DELETE"],
        "Writes to the standard input of a process, or closes it.",
    ),
    operation(
        "/process/{identifier}/wait",
        &["GET"],
        "Shows a process when it has ended, or when the time is over.",
    ),
    operation("/process/{identifier}/logs", &["GET"], "The output of a process."),
    operation(
        "/process/{identifier}/logs/stream",
        &["GET"],
        "The output as it comes, from an offset on.",
    ),
    operation(
        "/filesystem/{path}",
        &["GET", "PUT", "DELETE"],
        "Reads, writes or deletes a file or directory.",
    ),
    operation(
        "/filesystem/tree/{path}",
        &["GET", "PUT", "DELETE"],
        "The same for a whole directory; always absolute.",
    ),
    operation("/filesystem-find/{path}", &["GET"], "Finds entries by their names."),
    operation(
        "/filesystem-search/{path}",
        &["GET"],
        "Finds files by a few letters of their paths.",
    ),
    operation("/filesystem-content-search/{path}", &["GET"], "Finds lines by what they hold."),
    operation("/filesystem-copy", &["POST"], "Copies a file or a directory with all its contents."),
    operation("/filesystem-multipart", &["GET"], "Lists the uploads that are under way."),
    operation("/filesystem-multipart/initiate/{path}", &["POST"], "Begins an upload in parts."),
    operation("/filesystem-multipart/{uploadId}/part", &["PUT"], "Sends a part."),
    operation("/filesystem-multipart/{uploadId}/parts", &["GET"], "Lists the parts that came."),
    operation(
        "/filesystem-multipart/{uploadId}/complete",
        &["POST"],
        "Makes the file of its parts.",
    ),
    operation("/filesystem-multipart/{uploadId}/abort", &["DELETE"], "Gives an upload up."),
    operation(
        "/watch/filesystem/{path}",
        &["GET"],
        "Tells of changes in a directory as they happen.",
    ),
    operation("/network/process/{pid}/ports", &["GET"], "The ports of a process."),
    operation(
        "/network/process/{pid}/monitor",
        &["POST", "DELETE"],
        "Begins or ends to tell of new ports.",
    ),
    operation("/network/tunnel", &["DELETE"], "Takes the tunnel down."),
    operation(
        "/network/tunnel/config",
        &["PUT"],
        "Checks the settings of a tunnel; a sandbox may not bring one up.",
    ),
    operation(
        "/drives/mount",
        &["GET", "POST"],
        "Lists mounted drives; checks what is to be mounted.",
    ),
    operation("/drives/mount/{mountPath}", &["DELETE"], "Unmounts a drive."),
    operation("/codegen/fastapply/{path}", &["PUT"], "Merges an edit into a file, by a provider."),
    operation("/codegen/reranking/{path}", &["GET"], "Ranks files by a question, by a provider."),
    operation("/terminal", &["GET"], "A terminal in the browser."),
    operation("/terminal/ws", &["GET"], "A terminal over WebSocket."),
    operation("/mcp", &["POST"], "The operations as tools of the Model Context Protocol."),
];

pub(crate) fn page() -> Result<Answer, Error> {
    let operations =
        serde_json::to_string(OPERATIONS).map_err(|error| Error::Internal(error.to_string()))?;
    let page = include_str!("reference.html").replace("[OPERATIONS]", &operations);
    Ok(Answer::new(StatusCode::OK, "text/html; charset=utf-8", page))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::find;
    use http::Method;

    #[test]
    fn what_is_shown_is_served() {
        for operation in OPERATIONS {
            let path = operation.path.replace(['{', '}'], "");
            let served = |method: &Method| find(method, &path).is_ok();
            for method in [Method::GET, Method::POST, Method::PUT, Method::DELETE] {
                let shown = operation.methods.contains(&method.as_str());
                // The start page answers every method.
                assert!(shown == served(&method) || path == "/", "{method} {path}");
            }
        }
    }
}
