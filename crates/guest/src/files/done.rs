//! The answer of operations that change something.

use super::path::text;
use crate::http::{Answer, Error};
use serde::Serialize;
use std::path::Path;

#[derive(Serialize)]
pub(crate) struct Done {
    message: &'static str,
    path: String,
}

impl Done {
    pub(crate) fn of(message: &'static str, path: &Path) -> Result<Answer, Error> {
        Answer::json(&Self { message, path: text(path) })
    }
}
