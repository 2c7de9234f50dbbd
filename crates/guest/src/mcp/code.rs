//! MCP tools that agents use on code.

use super::files::{argument, ask, directory, file};
use crate::guest::Guest;
use crate::http::{Error, Request};
use crate::route::{Files, PathArgument};
use http::Method;
use regex::RegexBuilder;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

const LINES_MAX: usize = 250;
const DIRECTORIES_MAX: usize = 64;

#[derive(Deserialize, JsonSchema)]
pub(super) struct FileSearch {
    /// Letters of the path, in order.
    query: String,
    /// Directory to search. Default: the working directory.
    directory: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct CodebaseSearch {
    /// The text to find.
    query: String,
    /// Directories to search. Default: the working directory.
    target_directories: Option<Vec<String>>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct GrepSearch {
    /// A regular expression.
    query: String,
    case_sensitive: Option<bool>,
    /// Shell pattern for the names of files to search.
    include_pattern: Option<String>,
    /// Shell pattern for the names of files to skip.
    exclude_pattern: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReadRange {
    target_file: String,
    start_line_one_indexed: usize,
    end_line_one_indexed_inclusive: usize,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ListDirectory {
    /// Path of the directory, relative to the working directory.
    relative_workspace_path: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Reapply {
    target_file: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ParallelApply {
    #[expect(dead_code, reason = "a published input, which what is done here has no use for")]
    edit_plan: String,
    edit_regions: Vec<Region>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Region {
    relative_workspace_path: String,
    #[expect(dead_code, reason = "a published input, which what is done here has no use for")]
    start_line: Option<i64>,
    #[expect(dead_code, reason = "a published input, which what is done here has no use for")]
    end_line: Option<i64>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct EditFile {
    target_file: String,
    /// One sentence about the purpose of the edit.
    #[expect(dead_code, reason = "a published input, which what is done here has no use for")]
    instructions: String,
    /// The edit, in which unchanged parts are left out.
    code_edit: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Rerank {
    /// The directory whose files are ranked.
    path: String,
    query: String,
    /// Lowest score of a file that is returned. Default: 0.5.
    score_threshold: Option<f64>,
    /// Limit of tokens for the request. Default: 30000.
    token_limit: Option<u32>,
    /// A regular expression that file paths must match.
    file_pattern: Option<String>,
}

pub(super) async fn file_search(guest: &Arc<Guest>, search: FileSearch) -> Result<Value, Error> {
    let mut query = vec![("maxResults", "10")];
    query.extend(search.directory.as_deref().map(|directory| ("directory", directory)));
    let request = Request::made(Method::GET, &query, &Value::Null);
    let found = ask(guest, Files::Search(argument(search.query.clone())), request).await?;
    Ok(json!({"success": true, "matches": found["matches"], "query": search.query}))
}

pub(super) async fn codebase_search(
    guest: &Arc<Guest>,
    search: CodebaseSearch,
) -> Result<Value, Error> {
    let mut results = Vec::new();
    let directories = search.target_directories.unwrap_or_else(|| vec![".".into()]);
    if directories.len() > DIRECTORIES_MAX {
        return Err(Error::BadRequest("`targetDirectories` lists too many".into()));
    }
    for directory in directories {
        let request = Request::made(Method::GET, &[("query", &search.query)], &Value::Null);
        let found = ask(guest, Files::ContentSearch(argument(directory.clone())), request).await?;
        for mut one in found["matches"].as_array().cloned().unwrap_or_default() {
            one["path"] =
                format!("{}/{}", directory.trim_end_matches('/'), text(&one["path"])).into();
            results.push(one);
        }
    }
    Ok(json!({"success": true, "results": results, "query": search.query}))
}

pub(super) async fn grep_search(guest: &Arc<Guest>, search: GrepSearch) -> Result<Value, Error> {
    let case_sensitive = search.case_sensitive == Some(true);
    let query = [
        ("query", search.query.as_str()),
        ("regex", "true"),
        ("caseSensitive", if case_sensitive { "true" } else { "false" }),
        ("filePattern", search.include_pattern.as_deref().unwrap_or_default()),
        ("excludePattern", search.exclude_pattern.as_deref().unwrap_or_default()),
    ];
    let request = Request::made(Method::GET, &query, &Value::Null);
    let found = ask(guest, Files::ContentSearch(PathArgument(Vec::new())), request).await?;
    let pattern = RegexBuilder::new(&search.query).case_insensitive(!case_sensitive).build();
    let pattern = pattern.map_err(|error| Error::BadRequest(error.to_string()))?;
    let lines: String = found["matches"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|one| grep_line(one, &pattern))
        .collect();
    Ok(json!({"success": true, "results": lines}))
}

/// Formats one match as `rg --json` writes it.
fn grep_line(one: &Value, pattern: &regex::Regex) -> String {
    let line = text(&one["text"]);
    let submatches: Vec<Value> = pattern
        .find_iter(line)
        .map(|found| json!({"match": {"text": found.as_str()}, "start": found.start(), "end": found.end()}))
        .collect();
    let data = json!({
        "path": {"text": one["path"]},
        "lines": {"text": format!("{line}\n")},
        "line_number": one["line"],
        "submatches": submatches,
    });
    format!("{}\n", json!({"type": "match", "data": data}))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

pub(super) async fn read_range(guest: &Arc<Guest>, range: ReadRange) -> Result<Value, Error> {
    let (first, last) = (range.start_line_one_indexed, range.end_line_one_indexed_inclusive);
    if first == 0 || last < first {
        return Err(Error::BadRequest(
            "lines are counted from one, and the last is not before the first".into(),
        ));
    }
    let found = file(guest, range.target_file.clone()).await?;
    let lines = text(&found["content"]).split_inclusive('\n').skip(first - 1);
    let content: String = lines.take((last - first).saturating_add(1).min(LINES_MAX)).collect();
    Ok(json!({"success": true, "content": content, "file": range.target_file}))
}

pub(super) async fn list_directory(guest: &Arc<Guest>, of: ListDirectory) -> Result<Value, Error> {
    Ok(json!({"success": true, "directory": directory(guest, of.relative_workspace_path).await?}))
}

pub(super) fn reapply(of: &Reapply) -> Value {
    let message = format!("no edit of {} is made again; edit the file instead", of.target_file);
    json!({"success": false, "message": message})
}

pub(super) fn parallel_apply(of: &ParallelApply) -> Value {
    let paths: Vec<&str> =
        of.edit_regions.iter().map(|region| region.relative_workspace_path.as_str()).collect();
    let message =
        format!("several files are not edited at once; edit each of {} instead", paths.join(", "));
    json!({"success": false, "message": message})
}

pub(super) async fn edit_file(guest: &Arc<Guest>, edit: EditFile) -> Result<Value, Error> {
    let request = Request::made(Method::PUT, &[], &json!({"codeEdit": edit.code_edit}));
    let edited = ask(guest, Files::FastApply(argument(edit.target_file)), request).await?;
    let changed = edited["originalContent"] != edited["updatedContent"];
    Ok(json!({
        "success": true, "message": edited["message"], "filePath": edited["path"], "changesApplied": changed,
    }))
}

pub(super) async fn rerank(guest: &Arc<Guest>, rank: Rerank) -> Result<Value, Error> {
    let threshold = rank.score_threshold.map(|score| score.to_string());
    let tokens = rank.token_limit.map(|tokens| tokens.to_string());
    let query = [
        ("query", rank.query.as_str()),
        ("scoreThreshold", threshold.as_deref().unwrap_or_default()),
        ("tokenLimit", tokens.as_deref().unwrap_or_default()),
        ("filePattern", rank.file_pattern.as_deref().unwrap_or_default()),
    ];
    ask(
        guest,
        Files::Reranking(argument(rank.path)),
        Request::made(Method::GET, &query, &Value::Null),
    )
    .await
}
