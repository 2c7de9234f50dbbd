//! Decides what an instance is told when it asks for a name.

use super::answers::{Answer, address_of};
use crate::client::Client;
use crate::policy::Verdict;
use crate::service::{Blocked, Service};
use admission::is_own_address;
use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::rdata::opt::EdnsOption;
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};
use std::net::{IpAddr, Ipv4Addr};
use types::parts::hosts::Host;

/// Short, because members of a VPC come and go.
const MEMBER_TTL_S: u32 = 5;
/// A size that passes through every network in one piece, whatever the client accepts.
const UDP_BYTES_MAX: u16 = 1232;
/// The option code of extended errors (RFC 8914). The codes below are from that list.
const EXTENDED_ERROR: u16 = 15;
const BLOCKED: u16 = 15;
const FILTERED: u16 = 17;
const NO_SERVER: u16 = 22;
const NAMES_PORT: u16 = 53;

/// The transport of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Over {
    Udp,
    Tcp,
}

struct Reply {
    code: ResponseCode,
    records: Vec<Record>,
    why: Option<(u16, String)>,
}

impl Reply {
    const fn plain(code: ResponseCode) -> Self {
        Self { code, records: Vec::new(), why: None }
    }

    fn because(code: ResponseCode, number: u16, text: impl Into<String>) -> Self {
        Self { code, records: Vec::new(), why: Some((number, text.into())) }
    }
}

/// Answers a question. Returns `None` if it deserves no answer.
pub(super) async fn answer(
    service: &Service,
    client: &Client,
    bytes: &[u8],
    over: Over,
) -> Option<Vec<u8>> {
    let Ok(message) = Message::from_vec(bytes) else {
        // Answer at least with the question's id, so that the client does not wait.
        let id = u16::from_be_bytes([*bytes.first()?, *bytes.get(1)?]);
        let is_question = bytes.get(2)? & 0x80 == 0;
        let error = Message::error_msg(id, OpCode::Query, ResponseCode::FormErr);
        return if is_question { error.to_vec().ok() } else { None };
    };
    if message.metadata.message_type != MessageType::Query {
        return None;
    }
    let reply = match (message.metadata.op_code, message.queries.as_slice()) {
        (OpCode::Query, [query]) => reply(service, client, query).await,
        (OpCode::Query, _) => Reply::plain(ResponseCode::FormErr),
        _ => Reply::plain(ResponseCode::NotImp),
    };
    write(&message, reply, over)
}

fn write(question: &Message, reply: Reply, over: Over) -> Option<Vec<u8>> {
    let mut message = Message::response(question.metadata.id, question.metadata.op_code);
    message.metadata.recursion_desired = question.metadata.recursion_desired;
    message.metadata.recursion_available = true;
    message.metadata.response_code = reply.code;
    message.queries = question.queries.clone();
    message.answers = reply.records;
    let mut bytes_max = 512;
    if let Some(asked) = &question.edns {
        bytes_max = asked.max_payload().clamp(512, UDP_BYTES_MAX);
        let mut edns = Edns::new();
        edns.set_max_payload(UDP_BYTES_MAX);
        if let Some((number, text)) = reply.why {
            let content = [&number.to_be_bytes(), text.as_bytes()].concat();
            edns.options_mut().insert(EdnsOption::Unknown(EXTENDED_ERROR, content));
        }
        message.set_edns(edns);
    }
    let bytes = message.to_vec().ok()?;
    if over == Over::Udp && bytes.len() > bytes_max.into() {
        return message.truncate().to_vec().ok();
    }
    Some(bytes)
}

async fn reply(service: &Service, client: &Client, query: &Query) -> Reply {
    let kind = query.query_type;
    if query.query_class != DNSClass::IN
        || matches!(kind, RecordType::ANY | RecordType::AXFR | RecordType::IXFR | RecordType::OPT)
    {
        return Reply::plain(ResponseCode::Refused);
    }
    let Some(host @ Host::Name(_)) = Host::parse(&query.name.to_ascii()) else {
        return Reply::plain(ResponseCode::NXDomain);
    };
    if let Some(addresses) = members(service, client, &host) {
        if kind == RecordType::A {
            service.wake(client, &addresses).await;
        }
        return of_members(&query.name, kind, addresses);
    }
    let is_own = service.own_hosts.has(&host);
    if let (false, Verdict::Block { rule }) = (is_own, client.policy().of_host(&host)) {
        service.note_blocked(client, &Blocked { host: &host, port: NAMES_PORT, rule: &rule });
        return Reply::because(ResponseCode::NXDomain, BLOCKED, rule);
    }
    match kind {
        // Instances have no IPv6. With the keys for an encrypted hello, nobody could tell where a
        // connection goes.
        RecordType::AAAA | RecordType::HTTPS | RecordType::SVCB => {
            Reply::plain(ResponseCode::NoError)
        }
        kind => ask(service, client, &host, kind).await,
    }
}

async fn ask(service: &Service, client: &Client, host: &Host, kind: RecordType) -> Reply {
    let name = host.to_string();
    let Ok((answer, ttl_s)) = service.resolver.ask(&name, kind).await else {
        return Reply::because(ResponseCode::ServFail, NO_SERVER, "no name server answers");
    };
    let Answer { code, records, .. } = &*answer;
    let permitted = |record: &&Record| {
        let permit = |address| service.inside.permit(host, address, is_own_address);
        service.own_hosts.has(host) || address_of(record).is_none_or(permit)
    };
    let mut records: Vec<Record> = records.iter().filter(permitted).cloned().collect();
    let addresses: Vec<Ipv4Addr> = records
        .iter()
        .filter_map(address_of)
        .filter_map(|address| match address {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        })
        .collect();
    if addresses.is_empty() && !answer.addresses().is_empty() {
        let text = "the addresses are not on the internet";
        return Reply::because(ResponseCode::NXDomain, FILTERED, text);
    }
    records.iter_mut().for_each(|record| record.ttl = record.ttl.min(ttl_s));
    let now_ms = service.world.uptime_ms();
    let valid = std::time::Duration::from_secs(ttl_s.into()) + service.settings.limits.names_grace;
    let until_ms = now_ms.saturating_add(i64::try_from(valid.as_millis()).unwrap_or(i64::MAX));
    client.gave_out(&name, &addresses, now_ms, until_ms);
    Reply { code: *code, records, why: None }
}

/// Returns who has this name in the client's VPC, or `None` if it is not a name of that VPC.
fn members(service: &Service, client: &Client, host: &Host) -> Option<Vec<Ipv4Addr>> {
    let policy = client.policy();
    let member = policy.rules().vpc.as_ref()?;
    let Host::Name(name) = host else { return None };
    let suffix = format!(".{}.internal", member.vpc_name.to_ascii_lowercase());
    let label = name.strip_suffix(&suffix)?;
    Some(service.clients.members(&member.vpc, label))
}

fn of_members(name: &Name, kind: RecordType, addresses: Vec<Ipv4Addr>) -> Reply {
    if addresses.is_empty() {
        return Reply::plain(ResponseCode::NXDomain);
    }
    let mut reply = Reply::plain(ResponseCode::NoError);
    if kind == RecordType::A {
        let record = |address| Record::from_rdata(name.clone(), MEMBER_TTL_S, RData::A(A(address)));
        reply.records = addresses.into_iter().map(record).collect();
    }
    reply
}
