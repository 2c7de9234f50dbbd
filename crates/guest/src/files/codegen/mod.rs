//! Edits and rankings of code by an external model, if a provider is configured.

mod provider;
mod wire;

use super::access::{open_file, refuse};
use super::blocking::{Stop, blocking, blocking_until};
use super::path::{resolve, text};
use super::walk::{Exclusions, walk};
use super::write;
use crate::http::{Answer, Error, Request};
use crate::instance::Instance;
use crate::route::PathArgument;
use provider::{Provider, Source};
use regex::Regex;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

/// Largest file that is sent to a model.
const SOURCE_BYTES_MAX: u64 = 1 << 20;
const RANKED_FILES_MAX: usize = 1_000;
const RANKED_BYTES_MAX: usize = 8 << 20;
const SCORE_THRESHOLD: f64 = 0.5;
const TOKEN_LIMIT: u32 = 30_000;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Edit {
    code_edit: String,
    model: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Edited {
    success: bool,
    path: String,
    original_content: String,
    updated_content: String,
    provider: &'static str,
    message: &'static str,
}

#[derive(Serialize)]
struct RankedFile {
    path: String,
    score: f64,
    content: String,
}

/// Merges an edit, in the shortened form that models write, into a file. A missing file counts as
/// empty.
pub(crate) async fn put_edit(
    instance: &Arc<Instance>,
    argument: &PathArgument,
    mut request: Request,
) -> Result<Answer, Error> {
    let path = resolve(instance, argument);
    let edit: Edit = request.json().await?;
    let provider = Provider::configured(instance).ok_or_else(|| {
        Error::BadRequest(
            "no provider of edits is configured: set RELACE_API_KEY or MORPH_API_KEY".into(),
        )
    })?;
    let reading = path.clone();
    let original_content = blocking(move || match read_source(&reading) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        other => other.map_err(|error| refuse(&reading, &error)),
    })
    .await?;
    let updated_content =
        provider.apply(&original_content, &edit.code_edit, edit.model.as_deref()).await?;
    let instance = instance.clone();
    blocking(move || {
        write::write(&path, updated_content.as_bytes(), None, instance.settings.user.as_ref())?;
        Answer::json(&Edited {
            success: true,
            path: text(&path),
            original_content,
            updated_content,
            provider: provider.name(),
            message: "Edit applied successfully",
        })
    })
    .await
}

/// Ranks the files below a directory by how relevant they are to a question.
pub(crate) async fn get_ranking(
    instance: &Arc<Instance>,
    argument: &PathArgument,
    request: Request,
) -> Result<Answer, Error> {
    let root = resolve(instance, argument);
    let query = request.query("query").filter(|query| !query.is_empty());
    let query = query.ok_or_else(|| Error::BadRequest("`query` is missing".into()))?;
    let threshold = request.query_number("scoreThreshold")?.unwrap_or(SCORE_THRESHOLD);
    let token_limit = request.query_number("tokenLimit")?.unwrap_or(TOKEN_LIMIT);
    let pattern = request.query("filePattern").filter(|pattern| !pattern.is_empty());
    let pattern = pattern.map(|pattern| Regex::new(&pattern)).transpose();
    let pattern = pattern
        .map_err(|error| Error::BadRequest(format!("`filePattern` cannot be read: {error}")))?;
    let ranker = Provider::configured(instance).filter(Provider::ranks).ok_or_else(|| {
        Error::Unavailable("no provider of rankings is configured: set RELACE_API_KEY".into())
    })?;
    let sources = blocking_until(move |stop| gather(&root, pattern.as_ref(), stop)).await?;
    let scores = ranker.rank(&query, &sources, token_limit).await?;
    let mut contents: HashMap<String, String> =
        sources.into_iter().map(|source| (source.filename, source.content)).collect();
    let known =
        scores.into_iter().filter(|ranked| ranked.score >= threshold).filter_map(|ranked| {
            let content = contents.remove(&ranked.filename)?;
            Some(RankedFile { path: ranked.filename, score: ranked.score, content })
        });
    let mut files: Vec<RankedFile> = known.collect();
    files.sort_by(|a, b| b.score.total_cmp(&a.score));
    let message = format!("{} files have to do with the question", files.len());
    Answer::json(&serde_json::json!({"success": true, "message": message, "files": files}))
}

/// Returns whether edits and rankings are offered.
pub(crate) fn offered(instance: &Instance) -> (bool, bool) {
    let provider = Provider::configured(instance);
    (provider.is_some(), provider.as_ref().is_some_and(Provider::ranks))
}

fn read_source(path: &Path) -> io::Result<String> {
    let (file, _) = open_file(path)?;
    let mut content = String::new();
    if file.take(SOURCE_BYTES_MAX + 1).read_to_string(&mut content)? as u64 > SOURCE_BYTES_MAX {
        return Err(io::Error::other(format!("the file has more than {SOURCE_BYTES_MAX} bytes")));
    }
    Ok(content)
}

/// Collects the text files that are sent to be ranked, up to the limits.
fn gather(root: &Path, pattern: Option<&Regex>, stop: &Stop) -> Result<Vec<Source>, Error> {
    let mut sources = Vec::new();
    let mut room = RANKED_BYTES_MAX;
    walk(root, &Exclusions::new(None, true), stop, |found| {
        let filename = text(found.relative);
        if found.kind.is_file() && pattern.is_none_or(|pattern| pattern.is_match(&filename)) {
            // Files that are not text, too large or unreadable are left out.
            if let Ok(content) = read_source(&found.path)
                && content.len() <= room
            {
                room -= content.len();
                sources.push(Source { filename, content });
            }
        }
        if sources.len() < RANKED_FILES_MAX {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    })
    .map_err(|error| refuse(root, &error))?;
    Ok(sources)
}
