//! Reads the first message of a TLS client without answering it.
//!
//! The message may be spread over many records and segments. Anything ambiguous is refused and
//! never guessed: if a message can be read in two ways, a name can get past a rule.

use types::parts::hosts::Host;

/// The most that a client may send before it says where it wants to go. Browsers send less than 2
/// KiB, even with post-quantum keys.
pub(crate) const HELLO_BYTES_MAX: usize = 32 << 10;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hello {
    /// The name that was asked for. `None` if there is an address in its place.
    pub(crate) name: Option<Host>,
    /// Whether there may be another name that only the server can decrypt.
    pub(crate) is_encrypted: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Read {
    /// It may be the beginning of a hello that is not complete.
    More,
    NotTls,
    /// It begins as TLS, but the rest is invalid or ambiguous.
    Odd,
    Hello(Hello),
}

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const RECORD_BYTES_MAX: usize = 16 << 10;
const SERVER_NAME: u16 = 0;
const ENCRYPTED_CLIENT_HELLO: u16 = 0xfe0d;
const HOST_NAME: u8 = 0;

/// Reads what has arrived so far.
pub(crate) fn read(bytes: &[u8]) -> Read {
    let begins = |at: usize, fits: fn(u8) -> bool| bytes.get(at).is_none_or(|byte| fits(*byte));
    let begins_so = begins(0, |byte| byte == HANDSHAKE)
        && begins(1, |byte| byte == 3)
        && begins(2, |byte| byte <= 4)
        && begins(5, |byte| byte == CLIENT_HELLO);
    if !begins_so {
        return Read::NotTls;
    }
    match message(bytes) {
        Ok(Some(message)) => hello(&message).map_or(Read::Odd, Read::Hello),
        Ok(None) if bytes.len() > HELLO_BYTES_MAX => Read::Odd,
        Ok(None) => Read::More,
        Err(Malformed) => Read::Odd,
    }
}

#[derive(Debug)]
struct Malformed;

/// Assembles the body of the message from its records, once it is complete.
fn message(mut bytes: &[u8]) -> Result<Option<Vec<u8>>, Malformed> {
    let mut message = Vec::new();
    loop {
        let [kind, major, _, high, low, rest @ ..] = bytes else { return Ok(None) };
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        if *kind != HANDSHAKE || *major != 3 || !(1..=RECORD_BYTES_MAX).contains(&length) {
            return Err(Malformed);
        }
        let whole = rest.len() >= length;
        message.extend_from_slice(rest.get(..length).unwrap_or(rest));
        if let [_, a, b, c, body @ ..] = message.as_slice() {
            let size = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
            if size > HELLO_BYTES_MAX {
                return Err(Malformed);
            }
            if let Some(body) = body.get(..size) {
                return Ok(Some(body.to_vec()));
            }
        }
        if !whole {
            return Ok(None);
        }
        bytes = &rest[length..];
    }
}

fn hello(message: &[u8]) -> Option<Hello> {
    let mut rest = Bytes(message);
    // Version and random.
    rest.take(2 + 32)?;
    let session = rest.byte()?;
    rest.take(session.into())?;
    rest.vector()?;
    let compressions = rest.byte()?;
    rest.take(compressions.into())?;
    let mut hello = Hello { name: None, is_encrypted: false };
    if rest.0.is_empty() {
        return Some(hello);
    }
    let mut extensions = Bytes(rest.vector()?);
    if !rest.0.is_empty() {
        return None;
    }
    let mut seen_name = false;
    while !extensions.0.is_empty() {
        let kind = extensions.number()?;
        let content = extensions.vector()?;
        match kind {
            SERVER_NAME if seen_name => return None,
            SERVER_NAME => {
                seen_name = true;
                hello.name = server_name(content)?;
            }
            ENCRYPTED_CLIENT_HELLO => hello.is_encrypted = true,
            _ => {}
        }
    }
    Some(hello)
}

/// Reads a server name extension. The inner option is `None` if it holds an address.
fn server_name(content: &[u8]) -> Option<Option<Host>> {
    let mut outer = Bytes(content);
    let mut list = Bytes(outer.vector()?);
    let kind = list.byte()?;
    let name = list.vector()?;
    if !outer.0.is_empty() || !list.0.is_empty() || kind != HOST_NAME {
        return None;
    }
    match Host::parse(std::str::from_utf8(name).ok()?)? {
        name @ Host::Name(_) => Some(Some(name)),
        Host::Address(_) => Some(None),
    }
}

struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|byte| byte[0])
    }

    fn number(&mut self) -> Option<u16> {
        self.take(2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// Takes content that is preceded by its length.
    fn vector(&mut self) -> Option<&'a [u8]> {
        let length = self.number()?;
        self.take(length.into())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;
    use rustls::pki_types::ServerName;
    use std::sync::Arc;

    /// Returns the first bytes that a rustls client sends.
    pub(crate) fn real(name: &str) -> Vec<u8> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let mut connection = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
        let mut bytes = Vec::new();
        connection.write_tls(&mut bytes).unwrap();
        bytes
    }

    fn name(text: &str) -> Read {
        Read::Hello(Hello { name: Host::parse(text), is_encrypted: false })
    }

    /// Cuts the same message into records of `size` bytes.
    pub(crate) fn split(bytes: &[u8], size: usize) -> Vec<u8> {
        let pieces = bytes[5..].chunks(size);
        pieces
            .flat_map(|piece| {
                let length = u16::try_from(piece.len()).unwrap().to_be_bytes();
                [&[22, 3, 1], length.as_slice(), piece].concat()
            })
            .collect()
    }

    /// Adds an extension at the end.
    fn with_extension(bytes: &[u8], kind: u16, content: &[u8]) -> Vec<u8> {
        let added =
            [&kind.to_be_bytes()[..], &(content.len() as u16).to_be_bytes(), content].concat();
        let mut message = bytes[9..].to_vec();
        let session = usize::from(message[34]);
        let suites = 35 + session;
        let suites_length = usize::from(u16::from_be_bytes([message[suites], message[suites + 1]]));
        let compressions = suites + 2 + suites_length;
        let at = compressions + 1 + usize::from(message[compressions]);
        let length = u16::from_be_bytes([message[at], message[at + 1]]) + added.len() as u16;
        message[at..at + 2].copy_from_slice(&length.to_be_bytes());
        message.extend_from_slice(&added);
        let size = (message.len() as u32).to_be_bytes();
        let whole = [&[1], &size[1..], &message].concat();
        [&[22, 3, 1], &(whole.len() as u16).to_be_bytes()[..], &whole].concat()
    }

    #[test]
    fn real_hellos_are_read_however_they_are_cut() {
        let bytes = real("api.Example.com");
        assert_eq!(read(&bytes), name("api.example.com"));
        for end in 0..bytes.len() {
            assert_eq!(read(&bytes[..end]), Read::More, "{end}");
        }
        for size in [1, 2, 3, 5, 100] {
            let bytes = split(&bytes, size);
            assert_eq!(read(&bytes), name("api.example.com"), "{size}");
            assert_eq!(read(&bytes[..bytes.len() - 1]), Read::More, "{size}");
        }
        assert_eq!(read(&real("192.0.2.7")), name(""));
    }

    #[test]
    fn two_readings_are_none() {
        let bytes = real("api.example.com");
        let listed = |name: &[u8]| {
            let length = name.len() as u16;
            let entry = [&[0], &length.to_be_bytes()[..], name].concat();
            [&(entry.len() as u16).to_be_bytes()[..], &entry].concat()
        };
        let other = listed(b"other.example.com");
        assert_eq!(read(&with_extension(&bytes, SERVER_NAME, &other)), Read::Odd);
        let encrypted = with_extension(&bytes, ENCRYPTED_CLIENT_HELLO, b"\0key");
        let Read::Hello(hello) = read(&encrypted) else { panic!("no hello") };
        assert!(hello.is_encrypted);
        let nameless = real("192.0.2.7");
        for odd in [&b"a b"[..], b"", b"\xff\xff", b"0x7f.1", b"a\0.example.com"] {
            let bytes = with_extension(&nameless, SERVER_NAME, &listed(odd));
            assert_eq!(read(&bytes), Read::Odd, "{odd:?}");
        }
        // An address in place of a name does not count as a name.
        let address = with_extension(&nameless, SERVER_NAME, &listed(b"10.0.0.1"));
        assert_eq!(read(&address), name(""));
        // Two names in one list.
        let entry = &other[2..];
        let both = [entry, entry].concat();
        let both = [&(both.len() as u16).to_be_bytes()[..], &both].concat();
        assert_eq!(read(&with_extension(&nameless, SERVER_NAME, &both)), Read::Odd);
    }

    #[test]
    fn what_is_not_tls_is_told_at_once() {
        for bytes in
            [&b"GET / HTTP/1.1\r\n"[..], b"SSH-2.0", b"\x16\x02", b"\x16\x03\x01\0\x05\x02"]
        {
            assert_eq!(read(bytes), Read::NotTls);
        }
        // Records that are empty, or of another kind in the middle.
        assert_eq!(read(b"\x16\x03\x01\0\0\x01"), Read::Odd);
        assert_eq!(read(b"\x16\x03\x01\0\x01\x01\x17\x03\x01\0\x01\0"), Read::Odd);
        assert_eq!(read(b"\x16\x03\x01\0\x04\x01\xff\xff\xff"), Read::Odd);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let _ = read(&bytes);
            let _ = read(&[&[22, 3, 1], &bytes[..]].concat());
        }

        #[test]
        fn a_changed_byte_is_read_or_refused(
            at in 0usize..250,
            byte in any::<u8>(),
            cut in 0usize..250,
        ) {
            let mut bytes = real("api.example.com");
            let end = bytes.len();
            bytes[at % end] = byte;
            let _ = read(&bytes);
            let _ = read(&bytes[..cut % end]);
        }

        /// More bytes never change a decision.
        #[test]
        fn what_is_decided_stays(more in proptest::collection::vec(any::<u8>(), 0..64)) {
            let bytes = real("api.example.com");
            prop_assert_eq!(read(&[&bytes[..], &more].concat()), name("api.example.com"));
        }
    }
}
