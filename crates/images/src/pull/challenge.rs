//! Parses what a registry asks for when it answers 401.

use reqwest::header::{HeaderMap, WWW_AUTHENTICATE};

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Challenge {
    Basic,
    Bearer { realm: String, service: Option<String>, scope: Option<String> },
}

impl Challenge {
    /// Reads the challenge from the headers. Tokens are preferred to passwords.
    pub(super) fn read(headers: &HeaderMap) -> Option<Self> {
        let texts =
            || headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
        texts()
            .find_map(Self::bearer)
            .or_else(|| texts().find_map(|text| scheme(text, "basic")).map(|_| Self::Basic))
    }

    fn bearer(text: &str) -> Option<Self> {
        let mut rest = scheme(text, "bearer")?;
        let (mut realm, mut service, mut scope) = (None, None, None);
        while let Some((name, value, behind)) = parameter(rest) {
            match name.to_ascii_lowercase().as_str() {
                "realm" => realm = Some(value),
                "service" => service = Some(value),
                "scope" => scope = Some(value),
                _ => {}
            }
            rest = behind;
        }
        Some(Self::Bearer { realm: realm?, service, scope })
    }
}

fn scheme<'a>(text: &'a str, wanted: &str) -> Option<&'a str> {
    let (scheme, rest) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
    scheme.eq_ignore_ascii_case(wanted).then_some(rest)
}

/// Parses `name="value"` or `name=value`; returns it with the rest of the text.
fn parameter(text: &str) -> Option<(&str, String, &str)> {
    let (name, rest) = text.trim_start_matches([' ', ',']).split_once('=')?;
    let Some(quoted) = rest.strip_prefix('"') else {
        let end = rest.find(',').unwrap_or(rest.len());
        return Some((name.trim(), rest[..end].trim().to_owned(), &rest[end..]));
    };
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((name.trim(), value, &quoted[at + 1..])),
            '\\' => value.extend(characters.next().map(|(_, escaped)| escaped)),
            _ => value.push(character),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(values: &[&str]) -> Option<Challenge> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(WWW_AUTHENTICATE, value.parse().unwrap());
        }
        Challenge::read(&headers)
    }

    #[test]
    fn challenges_are_understood() {
        let bearer = |realm: &str, service: Option<&str>, scope: Option<&str>| {
            Some(Challenge::Bearer {
                realm: realm.into(),
                service: service.map(Into::into),
                scope: scope.map(Into::into),
            })
        };
        let full = r#"Bearer realm="https://a.example/token",service="b, c",scope="repository:x:pull,push""#;
        assert_eq!(
            read(&[full]),
            bearer("https://a.example/token", Some("b, c"), Some("repository:x:pull,push"))
        );
        assert_eq!(read(&["bearer Realm=x"]), bearer("x", None, None));
        assert_eq!(read(&["Basic realm=\"x\"", "Bearer realm=\"y\""]), bearer("y", None, None));
        assert_eq!(read(&["BASIC"]), Some(Challenge::Basic));
        assert_eq!(read(&["Bearer service=\"x\""]), None);
        assert_eq!(read(&["Bearer realm=\"x"]), None);
        assert_eq!(read(&[]), None);
    }

    proptest! {
        #[test]
        fn no_header_panics(text in "(Bearer |Basic )?[ -~]{0,40}") {
            let _ = Challenge::bearer(&text);
        }
    }
}
