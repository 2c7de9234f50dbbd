//! The table of MCP tools.

use super::{code, files, processes};
use crate::files::offered;
use crate::guest::Guest;
use crate::http::Error;
use rmcp::handler::server::tool::schema_for_type;
use rmcp::model::Tool;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::Arc;

/// The reason why a call has no result.
pub(super) enum Refused {
    Unknown,
    Failed(Error),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct Nothing {}

fn tool<Input: JsonSchema + 'static>(name: &'static str, description: &'static str) -> Tool {
    Tool::new(name, description, schema_for_type::<Input>())
}

fn read<Input: DeserializeOwned>(arguments: Value) -> Result<Input, Error> {
    serde_json::from_value(arguments)
        .map_err(|error| Error::BadRequest(format!("invalid arguments: {error}")))
}

pub(super) fn list(guest: &Guest) -> Vec<Tool> {
    let mut tools = vec![
        tool::<Nothing>(
            "processesList",
            "Lists the processes that were started here, with the end of their output.",
        ),
        tool::<processes::Execute>("processExecute", "Runs a command in a shell."),
        tool::<processes::Identifier>("processGet", "Shows a process."),
        tool::<processes::Identifier>("processGetLogs", "Shows the output of a process."),
        tool::<processes::Identifier>(
            "processStop",
            "Asks a process, and all that it started, to end.",
        ),
        tool::<processes::Identifier>(
            "processKill",
            "Ends a process, and all that it started, at once.",
        ),
        tool::<Nothing>("fsGetWorkingDirectory", "Tells where relative paths begin."),
        tool::<files::OnePath>(
            "fsListDirectory",
            "Lists the files and directories in a directory, one level deep.",
        ),
        tool::<files::OnePath>("fsReadFile", "Reads a text file."),
        tool::<files::Write>(
            "fsWriteFile",
            "Writes a file, or makes a directory, with what is missing above it.",
        ),
        tool::<files::Edit>(
            "fsEditFile",
            "Replaces a text in a file that is in it once, or each time if asked.",
        ),
        tool::<files::Delete>("fsDeleteFileOrDirectory", "Deletes a file or a directory."),
        tool::<code::FileSearch>(
            "codegenFileSearch",
            "Finds files by a few letters of their paths, best first.",
        ),
        tool::<code::CodebaseSearch>(
            "codegenCodebaseSearch",
            "Finds lines that hold a text, in any case.",
        ),
        tool::<code::GrepSearch>(
            "codegenGrepSearch",
            "Finds lines that match a regular expression.",
        ),
        tool::<code::ReadRange>("codegenReadFileRange", "Reads up to 250 lines of a text file."),
        tool::<code::ListDirectory>("codegenListDir", "Lists a directory, one level deep."),
        tool::<code::Reapply>(
            "codegenReapply",
            "Not served here: the last edit is not made again.",
        ),
        tool::<code::ParallelApply>(
            "codegenParallelApply",
            "Not served here: edit one file at a time.",
        ),
    ];
    let (edits, rankings) = offered(&guest.instance);
    if edits {
        tools.push(tool::<code::EditFile>(
            "codegenEditFile",
            "Merges an edit with parts left out into a file.",
        ));
    }
    if rankings {
        tools.push(tool::<code::Rerank>(
            "codegenRerank",
            "Ranks files by how much they have to do with a question.",
        ));
    }
    tools
}

pub(super) async fn call(
    guest: &Arc<Guest>,
    name: &str,
    arguments: Value,
) -> Result<Value, Refused> {
    Ok(match name {
        "processesList" => processes::list(guest).await?,
        "processExecute" => processes::execute(guest, read(arguments)?).await?,
        "processGet" => processes::get(guest, &read(arguments)?).await?,
        "processGetLogs" => processes::logs(guest, &read(arguments)?).await?,
        "processStop" => processes::stop(guest, &read(arguments)?).await?,
        "processKill" => processes::kill(guest, &read(arguments)?).await?,
        "fsGetWorkingDirectory" => files::working_directory(guest),
        "fsListDirectory" => files::list(guest, read(arguments)?).await?,
        "fsReadFile" => files::read(guest, read(arguments)?).await?,
        "fsWriteFile" => files::write(guest, read(arguments)?).await?,
        "fsEditFile" => files::edit(guest, read(arguments)?).await?,
        "fsDeleteFileOrDirectory" => files::delete(guest, read(arguments)?).await?,
        "codegenFileSearch" => code::file_search(guest, read(arguments)?).await?,
        "codegenCodebaseSearch" => code::codebase_search(guest, read(arguments)?).await?,
        "codegenGrepSearch" => code::grep_search(guest, read(arguments)?).await?,
        "codegenReadFileRange" => code::read_range(guest, read(arguments)?).await?,
        "codegenListDir" => code::list_directory(guest, read(arguments)?).await?,
        "codegenReapply" => code::reapply(&read(arguments)?),
        "codegenParallelApply" => code::parallel_apply(&read(arguments)?),
        "codegenEditFile" => code::edit_file(guest, read(arguments)?).await?,
        "codegenRerank" => code::rerank(guest, read(arguments)?).await?,
        _ => return Err(Refused::Unknown),
    })
}
