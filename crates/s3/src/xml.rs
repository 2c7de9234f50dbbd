//! S3's XML: writes answers, and reads the two kinds of bodies that requests have.

use crate::error::{Code, Error};
use std::fmt::Write;

const NAMESPACE: &str = "http://s3.amazonaws.com/doc/2006-03-01/";
const DEPTH_MAX: usize = 8;

/// Writes one document.
pub(crate) struct Xml {
    text: String,
    open: Vec<&'static str>,
}

impl Xml {
    pub(crate) fn begin(root: &'static str, namespace: bool) -> Self {
        let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        text.push('<');
        text.push_str(root);
        if namespace {
            let _ = write!(text, " xmlns=\"{NAMESPACE}\"");
        }
        text.push('>');
        Self { text, open: vec![root] }
    }

    pub(crate) fn open(&mut self, name: &'static str) {
        self.open.push(name);
        let _ = write!(self.text, "<{name}>");
    }

    pub(crate) fn close(&mut self) {
        if let Some(name) = self.open.pop() {
            let _ = write!(self.text, "</{name}>");
        }
    }

    pub(crate) fn leaf(&mut self, name: &'static str, value: &str) {
        let _ = write!(self.text, "<{name}>");
        escape(&mut self.text, value);
        let _ = write!(self.text, "</{name}>");
    }

    pub(crate) fn end(mut self) -> String {
        while !self.open.is_empty() {
            self.close();
        }
        self.text
    }
}

fn escape(text: &mut String, value: &str) {
    for char in value.chars() {
        match char {
            '&' => text.push_str("&amp;"),
            '<' => text.push_str("&lt;"),
            '>' => text.push_str("&gt;"),
            '"' => text.push_str("&quot;"),
            // XML 1.0 cannot express most of these. S3 writes them like this, and expects clients
            // to ask for encoded keys (`encoding-type=url`).
            char if char.is_control() => {
                let _ = write!(text, "&#x{:x};", u32::from(char));
            }
            char => text.push(char),
        }
    }
}

/// An element that was read. Attributes, and prefixes of names, are ignored.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Element {
    pub(crate) name: String,
    pub(crate) text: String,
    pub(crate) children: Vec<Element>,
}

impl Element {
    /// Returns the text of the child with this name.
    pub(crate) fn child(&self, name: &str) -> Option<&str> {
        self.children.iter().find(|child| child.name == name).map(|child| child.text.as_str())
    }

    /// Reads a document of at most `elements_max` elements.
    pub(crate) fn read(bytes: &[u8], elements_max: usize) -> Result<Self, Error> {
        let malformed = || {
            let message = "The XML of the body is not well formed, or not what is expected.";
            Error::new(Code::MalformedXml, message)
        };
        let text = std::str::from_utf8(bytes).map_err(|_| malformed())?;
        Reader { rest: text.trim_start_matches('\u{feff}'), left: elements_max }
            .document()
            .ok_or_else(malformed)
    }
}

/// Reads elements, text, comments and the five entities of XML itself. Anything else is refused,
/// above all a document type.
struct Reader<'t> {
    rest: &'t str,
    /// How many elements may still follow.
    left: usize,
}

impl<'t> Reader<'t> {
    fn document(mut self) -> Option<Element> {
        self.misc()?;
        let root = self.element(0)?;
        self.misc()?;
        self.rest.is_empty().then_some(root)
    }

    /// Skips white space, comments and anything that begins with `<?`.
    fn misc(&mut self) -> Option<()> {
        loop {
            self.rest = self.rest.trim_start();
            if let Some(after) = self.rest.strip_prefix("<!--") {
                self.rest = after.split_once("-->")?.1;
            } else if let Some(after) = self.rest.strip_prefix("<?") {
                self.rest = after.split_once("?>")?.1;
            } else {
                return Some(());
            }
        }
    }

    fn element(&mut self, depth: usize) -> Option<Element> {
        if depth >= DEPTH_MAX {
            return None;
        }
        self.left = self.left.checked_sub(1)?;
        let (tag, empty) = self.tag()?;
        let mut element = Element { name: local(tag).to_owned(), ..Element::default() };
        if empty {
            return Some(element);
        }
        loop {
            let (text, _) = self.rest.split_once('<')?;
            unescape(&mut element.text, text)?;
            self.rest = self.rest.get(text.len()..)?;
            if let Some(after) = self.rest.strip_prefix("</") {
                let (name, after) = after.split_once('>')?;
                self.rest = after;
                if name.trim_end() != tag {
                    return None;
                }
                if !element.children.is_empty() {
                    element.text.clear();
                }
                return Some(element);
            } else if let Some(after) = self.rest.strip_prefix("<!--") {
                self.rest = after.split_once("-->")?.1;
            } else {
                element.children.push(self.element(depth + 1)?);
            }
        }
    }

    /// Reads an opening tag. Returns its name, and whether the element is empty.
    fn tag(&mut self) -> Option<(&'t str, bool)> {
        let inside = self.rest.strip_prefix('<')?;
        let end = tag_end(inside)?;
        self.rest = inside.get(end + 1..)?;
        let inside = inside.get(..end)?;
        let (inside, empty) = match inside.strip_suffix('/') {
            Some(inside) => (inside, true),
            None => (inside, false),
        };
        let name = inside.split(|char: char| char.is_ascii_whitespace()).next()?;
        let fits = |char: char| char.is_ascii_alphanumeric() || matches!(char, ':' | '_' | '-');
        (!name.is_empty() && name.chars().all(fits)).then_some((name, empty))
    }
}

/// Finds the end of a tag. A `>` in the value of an attribute does not end it.
fn tag_end(inside: &str) -> Option<usize> {
    let mut quote = None;
    for (at, char) in inside.char_indices() {
        match (quote, char) {
            (Some(open), char) if char == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(char),
            (None, '>') => return Some(at),
            (None, '<') => return None,
            (None, _) => {}
        }
    }
    None
}

fn local(name: &str) -> &str {
    name.rsplit_once(':').map_or(name, |(_, local)| local)
}

fn unescape(into: &mut String, text: &str) -> Option<()> {
    let mut rest = text;
    while let Some((plain, after)) = rest.split_once('&') {
        into.push_str(plain);
        let (entity, after) = after.split_once(';')?;
        into.push(match entity {
            "amp" => '&',
            "lt" => '<',
            "gt" => '>',
            "quot" => '"',
            "apos" => '\'',
            number => {
                let number = number.strip_prefix('#')?;
                let value = match number.strip_prefix('x') {
                    Some(hex) => u32::from_str_radix(hex, 16).ok()?,
                    None => number.parse().ok()?,
                };
                char::from_u32(value)?
            }
        });
        rest = after;
    }
    into.push_str(rest);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_body_as_clients_send_it_is_read() {
        let body = b"<?xml version=\"1.0\"?><!-- x --><Delete xmlns='http://s3/>'>
            <Object><Key>a&amp;b &#x1F600;&#10;</Key></Object><Object><Key/></Object>
            <Quiet>true</Quiet></Delete>";
        let read = Element::read(body, 10).unwrap();
        assert_eq!(read.name, "Delete");
        assert_eq!(read.children[0].child("Key"), Some("a&b \u{1F600}\n"));
        assert_eq!(read.children[1].child("Key"), Some(""));
        assert_eq!(read.child("Quiet"), Some("true"));
    }

    #[test]
    fn what_is_more_than_elements_is_refused() {
        let deep = "<a>".repeat(100_000);
        for bad in [
            "",
            "text",
            "<a>",
            "<a></b>",
            "<a/><b/>",
            "<!DOCTYPE a [<!ENTITY x 'y'>]><a>&x;</a>",
            "<a>&x;</a>",
            "<a>&#xD800;</a>",
            "<a><![CDATA[x]]></a>",
            "<a b='></a>",
            &deep,
        ] {
            let read = Element::read(bad.as_bytes(), 1_000_000);
            assert_eq!(read.unwrap_err().code, Code::MalformedXml, "{:.40}", bad);
        }
        assert!(Element::read(b"<a>\xff</a>", 10).is_err());
        // An element of four bytes takes more than a hundred in memory.
        let wide = format!("<a>{}</a>", "<b/>".repeat(9));
        assert!(Element::read(wide.as_bytes(), 10).is_ok());
        assert!(Element::read(wide.as_bytes(), 9).is_err());
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(text in "\\PC*[\n<>&\"']{0,3}\\PC*") {
            let mut xml = Xml::begin("Root", true);
            xml.open("Inner");
            xml.leaf("Leaf", &text);
            let read = Element::read(xml.end().as_bytes(), 10).unwrap();
            prop_assert_eq!(read.children[0].child("Leaf"), Some(text.as_str()));
        }

        #[test]
        fn nothing_makes_it_panic(text in "[<>/a&;#x!\\-? '\"é]{0,40}") {
            let _ = Element::read(text.as_bytes(), 10);
        }
    }
}
