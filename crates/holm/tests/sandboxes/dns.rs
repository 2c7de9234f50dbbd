//! A name server on loopback, whose zone the tests change.

use hickory_resolver::proto::op::{Message, MessageType, ResponseCode};
use hickory_resolver::proto::rr::rdata::{A, TXT};
use hickory_resolver::proto::rr::{RData, Record, RecordType};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};

pub(crate) struct NameServer {
    pub(crate) address: SocketAddr,
    zone: Arc<Mutex<Zone>>,
}

/// All names end in a dot.
struct Zone {
    texts: BTreeMap<String, String>,
    addresses: BTreeMap<String, Ipv4Addr>,
    /// Where all other names lead.
    machine: Ipv4Addr,
    ttl_s: u32,
    /// Names whose addresses were asked for.
    asked: Vec<String>,
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
        let (texts, addresses, asked) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        let zone = Arc::new(Mutex::new(Zone { texts, addresses, machine, ttl_s: 1, asked }));
        let answering = Arc::clone(&zone);
        std::thread::spawn(move || {
            let mut bytes = [0; 1500];
            while let Ok((length, from)) = socket.recv_from(&mut bytes) {
                let Ok(question) = Message::from_vec(&bytes[..length]) else { continue };
                let answer = answer(&question, &mut answering.lock().unwrap());
                if let Some(answer) = answer {
                    socket.send_to(&answer.to_vec().unwrap(), from).unwrap();
                }
            }
        });
        Self { address, zone }
    }

    pub(crate) fn set_text(&self, name: &str, text: &str) {
        self.zone.lock().unwrap().texts.insert(format!("{name}."), text.to_owned());
    }

    pub(crate) fn clear(&self) {
        self.zone.lock().unwrap().texts.clear();
    }

    pub(crate) fn lead(&self, name: &str, to: Ipv4Addr) {
        self.zone.lock().unwrap().addresses.insert(format!("{name}."), to);
    }

    /// Sets how long answers may be kept.
    pub(crate) fn set_ttl(&self, ttl_s: u32) {
        self.zone.lock().unwrap().ttl_s = ttl_s;
    }

    /// Returns how often the address of a name was asked for.
    pub(crate) fn asked(&self, name: &str) -> usize {
        let name = format!("{name}.");
        self.zone.lock().unwrap().asked.iter().filter(|asked| **asked == name).count()
    }

    pub(crate) fn setting(&self) -> (&'static str, String) {
        ("HOLM_DOMAINS__NAMESERVERS", format!("[\"{}\"]", self.address))
    }
}

/// Names that begin with `silent` get no answer.
fn answer(question: &Message, zone: &mut Zone) -> Option<Message> {
    let query = question.queries[0].clone();
    let name = query.name().to_ascii().to_lowercase();
    let mut answer =
        Message::new(question.metadata.id, MessageType::Response, question.metadata.op_code);
    answer.metadata.recursion_available = true;
    answer.metadata.response_code = ResponseCode::NoError;
    let data = match query.query_type() {
        RecordType::TXT => {
            zone.texts.get(&name).map(|text| RData::TXT(TXT::new(vec![text.clone()])))
        }
        RecordType::A => {
            zone.asked.push(name.clone());
            Some(RData::A(A(zone.addresses.get(&name).copied().unwrap_or(zone.machine))))
        }
        _ => None,
    };
    if name.starts_with("silent") {
        return None;
    }
    if let Some(data) = data {
        answer.add_answer(Record::from_rdata(query.name().clone(), zone.ttl_s, data));
    }
    answer.add_query(query);
    Some(answer)
}
