//! Picks out of a name server's answer what belongs to the question.

use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use std::net::IpAddr;

/// Longest chain of aliases that is followed.
const ALIASES_MAX: usize = 16;
/// How many addresses of one name are used. Nobody needs more.
const RECORDS_MAX: usize = 64;
const TTL_S_MAX: u32 = 3600;
/// How long a missing record is remembered.
const ABSENT_TTL_S: u32 = 5;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    /// Either `NoError` or `NXDomain`.
    pub(crate) code: ResponseCode,
    /// The aliases that lead to the records asked for, and those records.
    pub(crate) records: Vec<Record>,
    pub(crate) ttl_s: u32,
}

impl Answer {
    /// Follows the aliases from the name that was asked for. Everything else in the message is
    /// ignored, whoever put it there.
    pub(super) fn read(asked: &Name, kind: RecordType, message: &Message) -> Self {
        let mut records: Vec<Record> = Vec::new();
        let mut name = asked.clone();
        for _ in 0..ALIASES_MAX {
            let of_name = |record: &&Record| record.name.eq_ignore_root(&name);
            let found = message.answers.iter().filter(of_name);
            let wanted = found.clone().filter(|record| record.record_type() == kind);
            records.extend(wanted.take(RECORDS_MAX).cloned());
            let alias = found.clone().find(|record| record.record_type() == RecordType::CNAME);
            let Some(alias) = alias.filter(|_| kind != RecordType::CNAME) else { break };
            let RData::CNAME(target) = &alias.data else { break };
            name = target.0.clone();
            records.push(alias.clone());
        }
        let ttl = records.iter().map(|record| record.ttl).min();
        Self {
            code: message.metadata.response_code,
            records,
            ttl_s: ttl.map_or(ABSENT_TTL_S, |ttl| ttl.min(TTL_S_MAX)),
        }
    }

    pub(crate) fn addresses(&self) -> Vec<IpAddr> {
        self.records.iter().filter_map(address_of).collect()
    }
}

pub(super) fn address_of(record: &Record) -> Option<IpAddr> {
    match &record.data {
        RData::A(address) => Some(IpAddr::V4(address.0)),
        RData::AAAA(address) => Some(IpAddr::V6(address.0)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hickory_proto::op::OpCode;
    use hickory_proto::rr::rdata::{A, CNAME};

    fn name(text: &str) -> Name {
        Name::from_ascii(text).unwrap()
    }

    fn a(owner: &str, address: [u8; 4], ttl: u32) -> Record {
        Record::from_rdata(name(owner), ttl, RData::A(A(address.into())))
    }

    fn alias(owner: &str, target: &str) -> Record {
        Record::from_rdata(name(owner), 60, RData::CNAME(CNAME(name(target))))
    }

    fn read(records: Vec<Record>) -> Answer {
        let mut message = Message::response(1, OpCode::Query);
        message.answers = records;
        Answer::read(&name("asked.example."), RecordType::A, &message)
    }

    #[test]
    fn an_address_counts_for_the_name_that_was_asked_for() {
        let answer = read(vec![
            a("other.example.", [192, 0, 2, 9], 60),
            a("end.example.", [192, 0, 2, 1], 30),
            alias("ASKED.example.", "middle.example."),
            alias("middle.example.", "end.example."),
            a("middle.example.", [192, 0, 2, 2], 999_999),
        ]);
        let found: Vec<String> = answer.addresses().iter().map(ToString::to_string).collect();
        assert_eq!(found, ["192.0.2.2", "192.0.2.1"]);
        assert_eq!(answer.ttl_s, 30);
    }

    #[test]
    fn aliases_in_a_circle_end() {
        let answer = read(vec![
            alias("asked.example.", "b.example."),
            alias("b.example.", "asked.example."),
        ]);
        assert!(answer.addresses().is_empty());
        assert!(answer.records.len() <= ALIASES_MAX);
        assert!(read(vec![a("other.example.", [1, 1, 1, 1], 1)]).records.is_empty());
    }
}
