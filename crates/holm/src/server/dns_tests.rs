use super::Dns;
use crate::config::{Acme, Domains, NameServer};
use control::domains::{Leads, Lookup};
use hickory_resolver::proto::op::{Message, MessageType, ResponseCode};
use hickory_resolver::proto::rr::rdata::{A, CNAME, TXT};
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use std::net::SocketAddr;
use tokio::net::UdpSocket;

/// Starts a name server on loopback that knows a few names and refuses questions about
/// `refused.org`.
async fn name_server() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    tokio::spawn(async move {
        let mut bytes = [0; 1500];
        while let Ok((length, from)) = socket.recv_from(&mut bytes).await {
            let answer = answer(&Message::from_vec(&bytes[..length]).unwrap());
            socket.send_to(&answer.to_vec().unwrap(), from).await.unwrap();
        }
    });
    address
}

fn answer(question: &Message) -> Message {
    let query = question.queries[0].clone();
    let mut answer =
        Message::new(question.metadata.id, MessageType::Response, question.metadata.op_code);
    answer.metadata.recursion_available = true;
    let name = query.name().to_ascii().to_lowercase();
    let data = match (name.as_str(), query.query_type()) {
        ("refused.org.", _) => {
            answer.metadata.response_code = ResponseCode::Refused;
            Vec::new()
        }
        ("_holm-challenge.a.org.", RecordType::TXT) => {
            vec![
                RData::TXT(TXT::new(vec!["holm-".into(), "verification=x".into()])),
                RData::TXT(TXT::new(vec!["y".into()])),
            ]
        }
        ("*.a.org.", RecordType::CNAME) => vec![alias("Domains.Holm.org.")],
        ("a.org.", RecordType::A) => vec![RData::A(A::new(192, 0, 2, 7))],
        ("a.org." | "*.a.org." | "_holm-challenge.a.org.", _) => Vec::new(),
        _ => {
            answer.metadata.response_code = ResponseCode::NXDomain;
            Vec::new()
        }
    };
    for data in data {
        answer.add_answer(Record::from_rdata(query.name().clone(), 60, data));
    }
    answer.add_query(query);
    answer
}

fn alias(name: &str) -> RData {
    RData::CNAME(CNAME(Name::from_ascii(name).unwrap()))
}

async fn dns() -> Dns {
    let acme = Acme {
        directory: None,
        contact: None,
        agree: false,
        orders_workspace_hour_max: 20,
        root: None,
    };
    let nameservers = vec![NameServer(name_server().await)];
    Dns::open(&Domains { nameservers, certificates: None, acme })
}

#[tokio::test]
async fn a_text_in_pieces_is_one_text() {
    let texts = dns().await.texts("_holm-challenge.a.org").await.unwrap();
    assert_eq!(texts, ["holm-verification=x", "y"]);
}

#[tokio::test]
async fn a_name_leads_to_names_and_addresses() {
    let dns = dns().await;
    let alias = Leads { aliases: vec!["domains.holm.org".into()], addresses: Vec::new() };
    assert_eq!(dns.leads("*.a.org").await, Ok(alias));
    let address = Leads { aliases: Vec::new(), addresses: vec!["192.0.2.7".parse().unwrap()] };
    assert_eq!(dns.leads("a.org").await, Ok(address));
}

#[tokio::test]
async fn what_is_not_there_is_an_answer_and_a_refusal_is_none() {
    let dns = dns().await;
    assert_eq!(dns.texts("a.org").await, Ok(Vec::new()));
    assert_eq!(dns.leads("none.org").await, Ok(Leads::default()));
    assert_eq!(dns.texts("refused.org").await.unwrap_err().name, "refused.org");
}
