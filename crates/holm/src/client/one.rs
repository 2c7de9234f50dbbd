//! Reading one object of any kind.

use super::kinds::Read;
use super::target::Target;
use super::{Client, Query};
use crate::error::Error;
use serde_json::Value;

/// Members that name an object in the list of its kind.
const NAMES: [&str; 7] =
    ["/metadata/name", "/metadata/id", "/name", "/id", "/email", "/client_id", "/location"];

impl Client {
    /// Reads the object of this name. Some kinds have only lists; there it is looked for in the
    /// list.
    pub(crate) async fn one(
        &mut self,
        target: &Target,
        name: &str,
        query: Query<'_>,
    ) -> Result<Value, Error> {
        target.check_name(name)?;
        match target.kind.read {
            Read::Alone => self.get(&target.object(name)?, query).await,
            Read::InList => {
                let all = self.list(target, query).await?;
                let mut all = all.into_iter();
                all.find(|object| is_called(object, name)).ok_or_else(|| {
                    Error::Absent(format!("`{name}` is none of the {}", target.kind.name()))
                })
            }
        }
    }
}

fn is_called(object: &Value, name: &str) -> bool {
    NAMES.iter().any(|at| object.pointer(at).and_then(Value::as_str) == Some(name))
}
