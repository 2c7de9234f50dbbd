//! Fuzzy search for files by letters of their paths, best match first.

use super::access::refuse;
use super::blocking::{Stop, blocking_until};
use super::find::{Kind, exclusions, results_max};
use super::path::{resolve, text};
use super::walk::{Exclusions, walk};
use crate::http::{Answer, Error, Request};
use crate::instance::Instance;
use crate::route::PathArgument;
use serde::Serialize;
use std::cmp::Reverse;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

const RESULTS: usize = 20;
const QUERY_CHARS_MAX: usize = 256;

#[derive(Serialize)]
struct Match {
    path: String,
    score: i64,
    r#type: Kind,
}

#[derive(Serialize)]
struct Matches {
    total: usize,
    matches: Vec<Match>,
}

/// Searches below the working directory, or below the one in `directory`. The argument is the text
/// to search for, although it stands where other operations have a path.
pub(crate) async fn get(
    instance: &Arc<Instance>,
    argument: &PathArgument,
    request: Request,
) -> Result<Answer, Error> {
    let query = String::from_utf8_lossy(&argument.0).trim().to_owned();
    if query.is_empty() || query.chars().count() > QUERY_CHARS_MAX {
        return Err(Error::BadRequest(format!(
            "a search needs 1 to {QUERY_CHARS_MAX} characters to look for"
        )));
    }
    let results_max = results_max(&request, RESULTS, RESULTS)?;
    let exclusions = exclusions(&request, true)?;
    let directory =
        request.query("directory").map(|directory| PathArgument(directory.into_bytes()));
    let root = directory.map_or_else(
        || instance.settings.workdir.clone(),
        |directory| resolve(instance, &directory),
    );
    blocking_until(move |stop| {
        Answer::json(&search(&root, &query, results_max, &exclusions, stop)?)
    })
    .await
}

fn search(
    root: &Path,
    query: &str,
    results_max: usize,
    exclusions: &Exclusions,
    stop: &Stop,
) -> Result<Matches, Error> {
    let query = Query::new(query);
    let mut matches: Vec<Match> = Vec::new();
    walk(root, exclusions, stop, |found| {
        let path = text(found.relative);
        if let Some(score) = query.score(&path).filter(|_| !found.kind.is_dir()) {
            matches.push(Match { path, score, r#type: Kind::File });
        }
        // Trimmed now and then, so that at most twice the wanted number is held.
        if matches.len() >= results_max * 2 {
            keep_best(&mut matches, results_max);
        }
        ControlFlow::Continue(())
    })
    .map_err(|error| refuse(root, &error))?;
    keep_best(&mut matches, results_max);
    Ok(Matches { total: matches.len(), matches })
}

fn keep_best(matches: &mut Vec<Match>, count: usize) {
    matches.sort_by(|a, b| {
        let rank = |one: &Match| (Reverse(one.score), one.path.len());
        rank(a).cmp(&rank(b)).then_with(|| a.path.cmp(&b.path))
    });
    matches.truncate(count);
}

struct Query(Vec<char>);

const MATCH: i64 = 16;
const CONSECUTIVE: i64 = 12;
const WORD_START: i64 = 10;
const IN_NAME: i64 = 4;
const GAP: i64 = -1;

impl Query {
    fn new(text: &str) -> Self {
        Self(text.chars().filter(|c| !c.is_whitespace()).map(fold).collect())
    }

    /// Scores how well the path contains the letters of the query in their order; `None` if it does
    /// not. Letters that are adjacent, start a word or are in the file name count more.
    fn score(&self, path: &str) -> Option<i64> {
        let chars: Vec<char> = path.chars().collect();
        let places = self.places(&chars)?;
        let name_start = chars.iter().rposition(|c| *c == '/').map_or(0, |slash| slash + 1);
        let mut score = 0;
        let mut before: Option<usize> = None;
        for &at in &places {
            score += MATCH;
            score += match before.map(|before| at - before) {
                None => 0,
                Some(1) => CONSECUTIVE,
                Some(distance) => GAP * i64::try_from(distance - 1).unwrap_or(i64::MAX).min(MATCH),
            };
            score += if starts_word(&chars, at) { WORD_START } else { 0 };
            score += if at >= name_start { IN_NAME } else { 0 };
            before = Some(at);
        }
        Some(score)
    }

    /// Returns the positions of the letters: the earliest possible end, and from there back the
    /// closest start. A match within the file name is preferred to one across directories.
    fn places(&self, chars: &[char]) -> Option<Vec<usize>> {
        let name_start = chars.iter().rposition(|c| *c == '/').map_or(0, |slash| slash + 1);
        self.places_from(chars, name_start).or_else(|| self.places_from(chars, 0))
    }

    fn places_from(&self, chars: &[char], start: usize) -> Option<Vec<usize>> {
        let mut at = start;
        for wanted in &self.0 {
            at += chars[at..].iter().position(|c| fold(*c) == *wanted)? + 1;
        }
        let mut places = Vec::with_capacity(self.0.len());
        for wanted in self.0.iter().rev() {
            at = chars[..at].iter().rposition(|c| fold(*c) == *wanted)?;
            places.push(at);
        }
        places.reverse();
        Some(places)
    }
}

fn starts_word(chars: &[char], at: usize) -> bool {
    let Some(before) = at.checked_sub(1).map(|before| chars[before]) else { return true };
    !before.is_alphanumeric() || before.is_lowercase() && chars[at].is_uppercase()
}

fn fold(c: char) -> char {
    c.to_lowercase().next().unwrap_or(c)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn better(query: &str, good: &str, worse: &str) {
        let query = Query::new(query);
        assert!(query.score(good) > query.score(worse), "{good} {worse}");
    }

    #[test]
    fn closer_matches_rank_higher() {
        better("main", "src/main.rs", "src/m/a/i/n.rs");
        better("main", "src/main.rs", "main/other.rs");
        better("fb", "src/fooBar.rs", "src/afxb.rs");
        better("MAIN", "src/main.rs", "src/x.rs");
        assert_eq!(Query::new("abc").score("cba"), None);
    }

    proptest! {
        #[test]
        fn letters_taken_from_a_path_in_order_are_found(path in "[a-zA-Z/._-]{1,40}", keep in proptest::collection::vec(any::<bool>(), 40)) {
            let query: String = path.chars().zip(keep).filter(|(_, keep)| *keep).map(|(c, _)| c).collect();
            prop_assert!(Query::new(&query).score(&path).is_some());
        }

        #[test]
        fn any_query_and_path_have_a_score_or_none(query in "\\PC{0,20}", path in "\\PC{0,40}") {
            let _ = Query::new(&query).score(&path);
        }
    }
}
