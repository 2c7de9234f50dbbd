//! Parameters of a request, whichever way they were sent.

use super::Fault;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;
use url::form_urlencoded;

const COUNT_MAX: usize = 50;
const VALUE_BYTES_MAX: usize = 4096;

#[derive(Clone, Default)]
pub struct Params(BTreeMap<String, String>);

/// Shows only the names: values may be secrets.
impl fmt::Debug for Params {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Params {
    /// Reads a form body or a query.
    pub fn from_form(text: &[u8]) -> Result<Self, Fault> {
        Self::collect(
            form_urlencoded::parse(text)
                .map(|(name, value)| Ok((name.into_owned(), value.into_owned()))),
        )
    }

    /// Reads a JSON object, which published clients send.
    pub fn from_json(text: &[u8]) -> Result<Self, Fault> {
        let members: Map<String, Value> = serde_json::from_slice(text)
            .map_err(|_| Fault::request("the body is not a JSON object"))?;
        Self::collect(members.into_iter().filter(|(_, value)| !value.is_null()).map(
            |(name, value)| match value {
                Value::String(text) => Ok((name, text)),
                _ => Err(Fault::request(format!("`{}` is not a string", name.escape_debug()))),
            },
        ))
    }

    fn collect(
        pairs: impl Iterator<Item = Result<(String, String), Fault>>,
    ) -> Result<Self, Fault> {
        let mut params = BTreeMap::new();
        for pair in pairs {
            let (name, value) = pair?;
            let shown = name.escape_debug();
            if value.len() > VALUE_BYTES_MAX || value.contains('\0') {
                return Err(Fault::request(format!(
                    "`{shown}` is too long or holds a NUL character"
                )));
            }
            if params.len() >= COUNT_MAX {
                return Err(Fault::request("there are too many parameters"));
            }
            if params.contains_key(&name) {
                return Err(Fault::request(format!("`{shown}` is given twice")));
            }
            params.insert(name, value);
        }
        Ok(Self(params))
    }

    /// Returns a parameter. One without a value counts as absent (RFC 6749, section 3.1).
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub fn need(&self, name: &str) -> Result<&str, Fault> {
        self.get(name).ok_or_else(|| Fault::request(format!("`{name}` is missing")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn form_and_json_say_the_same() {
        let form =
            Params::from_form(b"grant_type=refresh_token&refresh_token=a%20b&client_id=").unwrap();
        let json = Params::from_json(
            br#"{"grant_type":"refresh_token","refresh_token":"a b","client_id":null}"#,
        )
        .unwrap();
        for params in [form, json] {
            assert_eq!(params.need("refresh_token").unwrap(), "a b");
            assert_eq!(params.get("client_id"), None);
        }
    }

    #[test]
    fn a_repeated_parameter_is_refused_by_name() {
        let error = Params::from_form(b"code=1&code=2").unwrap_err();
        assert!(error.to_string().contains("`code`"), "{error}");
    }

    proptest! {
        #[test]
        fn any_form_is_read_or_refused(text in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Params::from_form(&text);
        }

        #[test]
        fn any_json_is_read_or_refused(text in r#"\{?("[a-z]{1,3}":("[a-z]*"|[0-9]+|null|\[\]),?){0,4}\}?|.{0,40}"#) {
            let _ = Params::from_json(text.as_bytes());
        }
    }
}
