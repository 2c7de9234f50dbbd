//! Values and rows as both databases know them: only 64-bit integers, texts and nulls.

use crate::Error;
use types::Timestamp;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Null,
    Int(i64),
    Text(String),
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Int(i64::from(value))
    }
}

impl From<Timestamp> for Value {
    fn from(value: Timestamp) -> Self {
        Self::Int(value.ms())
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

macro_rules! from_id {
    ($($id:ident),+ $(,)?) => {$(
        impl From<&types::ids::$id> for Value {
            fn from(id: &types::ids::$id) -> Self {
                Self::Text(id.as_str().to_owned())
            }
        }
    )+};
}

from_id!(
    BudgetId,
    AccountId,
    WorkspaceId,
    UserId,
    ServiceAccountId,
    ApiKeyId,
    InvitationId,
    ClientId,
    GrantId,
    ResourceId,
    ExecutionId,
);

/// One row of a result. Columns are numbered in the order in which the statement lists them.
#[derive(Debug, Clone)]
pub struct Row {
    pub(crate) table: &'static str,
    pub(crate) values: Vec<Value>,
}

/// The first rows of a result, up to a number of bytes.
#[derive(Debug)]
pub struct Portion<T> {
    pub rows: Vec<T>,
    /// Whether there are more rows.
    pub is_cut: bool,
}

/// Collects a [`Portion`].
#[derive(Debug)]
pub(crate) struct Collector<T> {
    found: Portion<T>,
    left: usize,
}

impl<T> Collector<T> {
    pub(crate) const fn new(bytes_max: usize) -> Self {
        Self { found: Portion { rows: Vec::new(), is_cut: false }, left: bytes_max }
    }

    /// Takes a row, unless it does not fit beside those before. Returns whether it was taken.
    pub(crate) fn take(&mut self, row: T, bytes: usize) -> bool {
        let left = self.left.checked_sub(bytes);
        if left.is_none() && !self.found.rows.is_empty() {
            self.found.is_cut = true;
            return false;
        }
        self.left = left.unwrap_or(0);
        self.found.rows.push(row);
        true
    }

    pub(crate) fn done(self) -> Portion<T> {
        self.found
    }
}

impl<T> Portion<T> {
    /// Converts the rows, or returns the first error.
    pub(crate) fn try_map<U, E>(self, of: impl FnMut(T) -> Result<U, E>) -> Result<Portion<U>, E> {
        let rows = self.rows.into_iter().map(of).collect::<Result<_, E>>()?;
        Ok(Portion { rows, is_cut: self.is_cut })
    }
}

impl Row {
    /// Returns how many bytes its texts have.
    pub(crate) fn bytes(&self) -> usize {
        let bytes = |value: &Value| match value {
            Value::Text(text) => text.len(),
            Value::Int(_) | Value::Null => 0,
        };
        self.values.iter().map(bytes).sum()
    }

    fn wrong(&self, column: usize, want: &str) -> Error {
        let id = self.values.first().map(|value| format!("{value:?}")).unwrap_or_default();
        Error::corrupt(self.table, id, format!("column {column} is not {want}"))
    }

    pub fn int(&self, column: usize) -> Result<i64, Error> {
        self.opt_int(column)?.ok_or_else(|| self.wrong(column, "an integer"))
    }

    pub fn opt_int(&self, column: usize) -> Result<Option<i64>, Error> {
        match self.values.get(column) {
            Some(Value::Int(value)) => Ok(Some(*value)),
            Some(Value::Null) => Ok(None),
            _ => Err(self.wrong(column, "an integer or null")),
        }
    }

    pub fn text(&self, column: usize) -> Result<String, Error> {
        self.opt_text(column)?.ok_or_else(|| self.wrong(column, "a text"))
    }

    pub fn opt_text(&self, column: usize) -> Result<Option<String>, Error> {
        match self.values.get(column) {
            Some(Value::Text(value)) => Ok(Some(value.clone())),
            Some(Value::Null) => Ok(None),
            _ => Err(self.wrong(column, "a text or null")),
        }
    }

    /// Returns the text like [`Row::text`], but without a copy: the column is null afterwards.
    pub fn take_text(&mut self, column: usize) -> Result<String, Error> {
        match self.values.get_mut(column).map(|value| std::mem::replace(value, Value::Null)) {
            Some(Value::Text(value)) => Ok(value),
            _ => Err(self.wrong(column, "a text")),
        }
    }

    pub fn flag(&self, column: usize) -> Result<bool, Error> {
        Ok(self.int(column)? != 0)
    }

    pub fn time(&self, column: usize) -> Result<Timestamp, Error> {
        self.int(column).map(Timestamp::from_ms)
    }

    pub fn opt_time(&self, column: usize) -> Result<Option<Timestamp>, Error> {
        Ok(self.opt_int(column)?.map(Timestamp::from_ms))
    }
}
