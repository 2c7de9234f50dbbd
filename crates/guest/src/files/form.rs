//! Parses form data incrementally, piece by piece. Of a field, only a tail shorter than the
//! boundary is kept, so files of any size can pass through, nearly all of it without copying.

use bytes::Bytes;

const BOUNDARY_BYTES_MAX: usize = 70;
const FIELD_HEADER_BYTES_MAX: usize = 16 << 10;

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A field begins.
    Field { name: String },
    /// More data of the current field.
    Data(Bytes),
    /// The current field is complete.
    FieldEnd,
    /// The form is complete; anything that follows is ignored.
    End,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    #[error("the content type names no usable boundary of form data")]
    Boundary,
    #[error("the headers of a form field are too long or unreadable")]
    FieldHeaders,
    #[error("a boundary of the form is followed by something else than a field")]
    AfterBoundary,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Preamble,
    AfterBoundary,
    Headers,
    Data,
    Done,
}

pub(crate) struct Reader {
    /// A line break, two dashes and the boundary.
    delimiter: Vec<u8>,
    /// The end of a piece, found to contain no boundary. It is data that comes before `held`.
    known: Option<Bytes>,
    held: Bytes,
    state: State,
}

impl Reader {
    pub(crate) fn new(content_type: &str) -> Result<Self, Error> {
        let boundary = boundary(content_type).ok_or(Error::Boundary)?;
        let delimiter = [b"\r\n--", boundary.as_bytes()].concat();
        // The first boundary is not preceded by a line break.
        let held = Bytes::from_static(b"\r\n");
        Ok(Self { delimiter, known: None, held, state: State::Preamble })
    }

    /// Takes the next piece. All events of the previous piece must have been read.
    pub(crate) fn push(&mut self, piece: Bytes) {
        if self.state == State::Done {
            return;
        }
        if self.state == State::Data && self.ends_before(&piece) {
            self.known =
                Some(std::mem::replace(&mut self.held, piece)).filter(|data| !data.is_empty());
        } else {
            self.held = [&self.held[..], &piece[..]].concat().into();
        }
    }

    /// Returns whether no boundary begins in `held`, now that the next piece is known.
    fn ends_before(&self, piece: &Bytes) -> bool {
        let Some(begin) = piece.get(..self.delimiter.len()) else { return false };
        find(&[&self.held[..], begin].concat(), &self.delimiter)
            .is_none_or(|at| at >= self.held.len())
    }

    /// Returns the next event of the pieces so far; `None` means that more input is needed.
    pub(crate) fn next(&mut self) -> Result<Option<Event>, Error> {
        if let Some(known) = self.known.take() {
            return Ok(Some(Event::Data(known)));
        }
        loop {
            match self.state {
                State::Done => return Ok(None),
                State::Data => return Ok(self.data()),
                State::Preamble => match find(&self.held, &self.delimiter) {
                    Some(at) => self.pass_delimiter(at),
                    None => {
                        self.pass_all_but_tail();
                        return Ok(None);
                    }
                },
                State::AfterBoundary => match self.after_boundary()? {
                    Some(State::Done) => {
                        self.state = State::Done;
                        return Ok(Some(Event::End));
                    }
                    Some(state) => self.state = state,
                    None => return Ok(None),
                },
                State::Headers => return self.headers(),
            }
        }
    }

    fn pass_delimiter(&mut self, at: usize) {
        let _ = self.held.split_to(at + self.delimiter.len());
        self.state = State::AfterBoundary;
    }

    /// Returns everything but a tail in which a boundary could begin. The tail is copied, because
    /// the reader of the connection needs the memory of the piece again.
    fn pass_all_but_tail(&mut self) -> Bytes {
        let known = (self.held.len() + 1).saturating_sub(self.delimiter.len());
        let passed = self.held.split_to(known);
        self.held = Bytes::copy_from_slice(&self.held);
        passed
    }

    fn data(&mut self) -> Option<Event> {
        match find(&self.held, &self.delimiter) {
            Some(0) => {
                self.pass_delimiter(0);
                Some(Event::FieldEnd)
            }
            Some(at) => Some(Event::Data(self.held.split_to(at))),
            None => Some(self.pass_all_but_tail()).filter(|data| !data.is_empty()).map(Event::Data),
        }
    }

    /// Decides by the next two bytes, after skipping blanks that a sender may have added.
    fn after_boundary(&mut self) -> Result<Option<State>, Error> {
        while matches!(self.held.first(), Some(b' ' | b'\t')) {
            let _ = self.held.split_to(1);
        }
        let state = match self.held.get(..2) {
            None => return Ok(None),
            Some(b"--") => State::Done,
            // The line break stays, because headers end with an empty line even when there are
            // none.
            Some(b"\r\n") => return Ok(Some(State::Headers)),
            Some(_) => return Err(Error::AfterBoundary),
        };
        let _ = self.held.split_to(2);
        Ok(Some(state))
    }

    fn headers(&mut self) -> Result<Option<Event>, Error> {
        let Some(end) = find(&self.held, b"\r\n\r\n") else {
            let too_long = self.held.len() > FIELD_HEADER_BYTES_MAX;
            return if too_long { Err(Error::FieldHeaders) } else { Ok(None) };
        };
        if end > FIELD_HEADER_BYTES_MAX {
            return Err(Error::FieldHeaders);
        }
        let head = self.held.split_to(end);
        let _ = self.held.split_to(4);
        self.state = State::Data;
        let name = field_name(&String::from_utf8_lossy(&head)).ok_or(Error::FieldHeaders)?;
        Ok(Some(Event::Field { name }))
    }
}

fn find(held: &[u8], wanted: &[u8]) -> Option<usize> {
    memchr::memmem::find(held, wanted)
}

fn boundary(content_type: &str) -> Option<String> {
    let (kind, parameters) = content_type.split_once(';')?;
    if !kind.trim().eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    let value = parameter(parameters, "boundary")?;
    (1..=BOUNDARY_BYTES_MAX).contains(&value.len()).then_some(value)
}

fn field_name(head: &str) -> Option<String> {
    let disposition = head.split("\r\n").find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.trim().eq_ignore_ascii_case("content-disposition").then_some(value)
    })?;
    parameter(disposition.split_once(';')?.1, "name")
}

/// Returns the value of `wanted` in `a=b; c="d"`. Quoted values may contain semicolons and escaped
/// quotes.
fn parameter(mut rest: &str, wanted: &str) -> Option<String> {
    loop {
        let (name, after) = rest.split_once('=')?;
        let (value, following) = match after.trim_start().strip_prefix('"') {
            Some(quoted) => unquote(quoted)?,
            None => {
                let (value, following) = after.split_once(';').unwrap_or((after, ""));
                (value.trim().to_owned(), following)
            }
        };
        if name.trim_matches([' ', '\t', ';']).eq_ignore_ascii_case(wanted) {
            return Some(value);
        }
        rest = following;
    }
}

fn unquote(quoted: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut rest = quoted.chars();
    loop {
        match rest.next()? {
            '"' => return Some((value, rest.as_str())),
            // Browsers send a `\` in file names unescaped, so only `\"` is an escape.
            '\\' if rest.as_str().starts_with('"') => value.extend(rest.next()),
            plain => value.push(plain),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Fields = Vec<(String, Vec<u8>)>;

    /// Returns the fields that were found, and whether the form was complete.
    fn read(content_type: &str, body: &[u8], step: usize) -> Result<(Fields, bool), Error> {
        let mut reader = Reader::new(content_type)?;
        let mut fields = Fields::new();
        let mut ended = false;
        for piece in body.chunks(step.max(1)) {
            reader.push(Bytes::copy_from_slice(piece));
            while let Some(event) = reader.next()? {
                match event {
                    Event::Field { name } => fields.push((name, Vec::new())),
                    Event::Data(data) => fields.last_mut().unwrap().1.extend_from_slice(&data),
                    Event::FieldEnd => {}
                    Event::End => ended = true,
                }
            }
        }
        Ok((fields, ended))
    }

    fn write(boundary: &str, fields: &[(String, Vec<u8>)]) -> Vec<u8> {
        let mut body = Vec::new();
        for (name, data) in fields {
            let head = format!(
                "--{boundary}\r\nContent-Type: a/b\r\ncontent-disposition: form-data; filename=\"a;\\\"b\"; name=\"{name}\"\r\n\r\n"
            );
            body.extend_from_slice(head.as_bytes());
            body.extend_from_slice(data);
            body.extend_from_slice(b"\r\n");
        }
        body.extend_from_slice(format!("--{boundary}--\r\nafter").as_bytes());
        body
    }

    #[test]
    fn broken_forms_are_told() {
        assert_eq!(Reader::new("application/json").err(), Some(Error::Boundary));
        assert_eq!(Reader::new("multipart/form-data").err(), Some(Error::Boundary));
        assert_eq!(Reader::new("multipart/form-data; boundary=").err(), Some(Error::Boundary));
        let kind = "multipart/form-data; charset=x; boundary=\"B\"";
        assert_eq!(read(kind, b"--Bxx", 1), Err(Error::AfterBoundary));
        assert_eq!(read(kind, b"--B\r\nnothing\r\n\r\n", 1), Err(Error::FieldHeaders));
        assert_eq!(
            read(kind, &[b"--B\r\n".to_vec(), vec![b'x'; 20_000]].concat(), 999),
            Err(Error::FieldHeaders)
        );
        assert!(
            !read(kind, b"--B\r\nContent-Disposition: form-data; name=a\r\n\r\nhalf", 3).unwrap().1
        );
    }

    proptest! {
        #[test]
        fn any_fields_survive_any_cuts(
            fields in proptest::collection::vec(("[a-z]{1,8}", proptest::collection::vec(
                prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'-'), Just(b'B'), any::<u8>()], 0..200)), 0..4),
            step in 1_usize..50,
        ) {
            // A boundary that does not occur in the data, as senders must choose it.
            let boundary = "B-B\u{7f}unique-B";
            let body = write(boundary, &fields);
            let kind = format!("multipart/form-data; boundary={boundary}");
            prop_assert_eq!(read(&kind, &body, step), Ok((fields, true)));
        }

        #[test]
        fn any_bytes_are_read_or_refused(body in proptest::collection::vec(
            prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'-'), Just(b'B'), any::<u8>()], 0..300), step in 1_usize..40) {
            let _ = read("multipart/form-data; boundary=B", &body, step);
        }

        #[test]
        fn any_content_type_is_read_or_refused(kind in "(multipart/form-data)?[;= \"\\\\a-z]{0,40}") {
            let _ = Reader::new(&kind);
        }
    }
}
