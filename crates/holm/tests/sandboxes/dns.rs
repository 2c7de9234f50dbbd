//! A name server on loopback, whose zone the tests change.

use hickory_resolver::proto::op::{Message, MessageType, ResponseCode};
use hickory_resolver::proto::rr::rdata::{A, TXT};
use hickory_resolver::proto::rr::{RData, Record, RecordType};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};

pub(crate) struct NameServer {
    pub(crate) address: SocketAddr,
    texts: Arc<Mutex<BTreeMap<String, String>>>,
}

impl NameServer {
    /// Starts a server at which every name leads to this machine. It serves until the process ends.
    pub(crate) fn start() -> Self {
        Self::start_at(Ipv4Addr::LOCALHOST)
    }

    /// Starts a server at which every name leads to this address.
    pub(crate) fn start_at(machine: Ipv4Addr) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let texts = Arc::new(Mutex::new(BTreeMap::new()));
        let zone = Arc::clone(&texts);
        std::thread::spawn(move || {
            let mut bytes = [0; 1500];
            while let Ok((length, from)) = socket.recv_from(&mut bytes) {
                let Ok(question) = Message::from_vec(&bytes[..length]) else { continue };
                let answer = answer(&question, &zone.lock().unwrap(), machine);
                socket.send_to(&answer.to_vec().unwrap(), from).unwrap();
            }
        });
        Self { address, texts }
    }

    pub(crate) fn set_text(&self, name: &str, text: &str) {
        self.texts.lock().unwrap().insert(format!("{name}."), text.to_owned());
    }

    pub(crate) fn clear(&self) {
        self.texts.lock().unwrap().clear();
    }

    pub(crate) fn setting(&self) -> (&'static str, String) {
        ("HOLM_DOMAINS__NAMESERVERS", format!("[\"{}\"]", self.address))
    }
}

fn answer(question: &Message, texts: &BTreeMap<String, String>, machine: Ipv4Addr) -> Message {
    let query = question.queries[0].clone();
    let mut answer =
        Message::new(question.metadata.id, MessageType::Response, question.metadata.op_code);
    answer.metadata.recursion_available = true;
    answer.metadata.response_code = ResponseCode::NoError;
    let data = match query.query_type() {
        RecordType::TXT => texts
            .get(&query.name().to_ascii().to_lowercase())
            .map(|text| RData::TXT(TXT::new(vec![text.clone()]))),
        RecordType::A => Some(RData::A(A(machine))),
        _ => None,
    };
    if let Some(data) = data {
        answer.add_answer(Record::from_rdata(query.name().clone(), 1, data));
    }
    answer.add_query(query);
    answer
}
