//! As much of a browser as signing in needs: cookies, redirects and forms.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;

pub(crate) struct Browser {
    address: String,
    cookies: BTreeMap<String, String>,
}

/// A page, whose forms can be read.
pub(crate) struct Page {
    pub(crate) text: String,
}

impl Browser {
    pub(crate) fn new(address: &str) -> Self {
        Self { address: address.to_owned(), cookies: BTreeMap::new() }
    }

    /// Opens a page, following redirects.
    pub(crate) fn open(&mut self, path: &str) -> Page {
        self.request("GET", path, "")
    }

    /// Submits the hidden inputs of a page together with more fields.
    pub(crate) fn submit(&mut self, path: &str, page: &Page, more: &[(&str, &str)]) -> Page {
        let mut fields = page.hidden();
        fields.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let body: Vec<_> =
            fields.iter().map(|(name, value)| format!("{name}={}", encode(value))).collect();
        self.request("POST", path, &body.join("&"))
    }

    fn request(&mut self, method: &str, path: &str, body: &str) -> Page {
        let (address, cookies) = (self.address.clone(), self.cookies.clone());
        let cookies: Vec<_> =
            cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let mut stream = TcpStream::connect(&address).unwrap();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nOrigin: http://{address}\r\nConnection: close\r\nCookie: {}\r\n\
             Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{body}",
            cookies.join("; "),
            body.len(),
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        for cookie in headers(&answer, "set-cookie") {
            let (name, value) = cookie.split(';').next().unwrap().split_once('=').unwrap();
            self.cookies.insert(name.to_owned(), value.to_owned());
        }
        let next = headers(&answer, "location").next().map(str::to_owned);
        match next {
            Some(next) => {
                self.open(next.strip_prefix(&format!("http://{address}")).unwrap_or(&next))
            }
            None => Page { text: answer },
        }
    }
}

impl Page {
    fn hidden(&self) -> Vec<(String, String)> {
        let inputs =
            self.text.split("<input").skip(1).filter(|input| input.contains("type=\"hidden\""));
        let attribute = |input: &str, name: &str| {
            let (_, rest) = input.split_once(&format!("{name}=\"")).unwrap();
            rest.split('"').next().unwrap().replace("&amp;", "&")
        };
        inputs.map(|input| (attribute(input, "name"), attribute(input, "value"))).collect()
    }
}

fn headers<'a>(answer: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    let lines = answer.lines().take_while(|line| !line.is_empty());
    let pairs = lines.filter_map(|line| line.split_once(": "));
    pairs.filter(move |(header, _)| header.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

fn encode(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}
