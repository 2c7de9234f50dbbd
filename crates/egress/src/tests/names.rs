use super::servers::Told;
use super::*;
use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::opt::{EdnsCode, EdnsOption};
use hickory_proto::rr::{DNSClass, Name, RecordType};
use std::sync::atomic::Ordering;
use types::egress::VpcMember;
use types::ids::ResourceId;

fn question(name: &str, kind: RecordType) -> Message {
    let mut message = Message::new(7, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
    message.set_edns(Edns::new());
    message
}

impl Net {
    async fn answer(&self, from: Ipv4Addr, question: &Message) -> Message {
        let answer = self.ask(from, &question.to_vec().unwrap()).await;
        let answer = Message::from_vec(&answer).unwrap();
        assert_eq!(answer.metadata.id, question.metadata.id);
        answer
    }

    async fn lookup(&self, name: &str, kind: RecordType) -> Message {
        self.answer(ONE, &question(name, kind)).await
    }

    /// Resolves a name, as a program does before it connects.
    pub(in crate::tests) async fn resolve(&self, from: Ipv4Addr, name: &str) -> Vec<String> {
        addresses(&self.answer(from, &question(&format!("{name}."), RecordType::A)).await)
    }
}

fn addresses(answer: &Message) -> Vec<String> {
    let is_a = |record: &&hickory_proto::rr::Record| record.record_type() == RecordType::A;
    answer.answers.iter().filter(is_a).map(|record| record.data.to_string()).collect()
}

fn why(answer: &Message) -> Option<u16> {
    match answer.edns.as_ref()?.option(EdnsCode::Unknown(15))? {
        EdnsOption::Unknown(_, content) => Some(u16::from_be_bytes([content[0], content[1]])),
        _ => None,
    }
}

#[tokio::test]
async fn only_names_that_pass_are_answered() {
    let net = Net::new().await;
    net.set(ONE, rules(&["ok.example"], &[])).await;
    net.names.tell("ok.example", Told::Addresses(vec![OUT_THERE, ELSEWHERE]));
    net.names.tell("bad.example", Told::Addresses(vec![OUT_THERE]));
    let answer = net.lookup("OK.example.", RecordType::A).await;
    assert_eq!(addresses(&answer), ["127.1.0.1", "127.1.0.2"]);
    let asked = net.names.asked.load(Ordering::Relaxed);
    for kind in [RecordType::A, RecordType::AAAA, RecordType::TXT, RecordType::HTTPS] {
        let answer = net.lookup("data.bad.example.", kind).await;
        assert_eq!(answer.metadata.response_code, ResponseCode::NXDomain);
        assert_eq!(why(&answer), Some(15));
        assert!(answer.answers.is_empty());
    }
    // Not a byte of them has left the machine.
    assert_eq!(net.names.asked.load(Ordering::Relaxed), asked);
    let event = &net.events().await[0];
    assert_eq!((event.host.as_str(), event.port), ("data.bad.example", 53));
    assert_eq!(event.rule, "allowedDomains");
    // A cached answer is not asked for again.
    assert_eq!(net.resolve(ONE, "ok.example").await.len(), 2);
    assert_eq!(net.names.asked.load(Ordering::Relaxed), asked);
}

/// Text records can be as long as the owner of a zone likes, and would fill memory.
#[tokio::test]
async fn nothing_but_addresses_is_kept() {
    let net = Net::new().await;
    net.set(ONE, rules(&[], &["bad.example"])).await;
    net.names.tell("ok.example", Told::Text(400));
    for turn in 1..=2 {
        assert_eq!(net.lookup("ok.example.", RecordType::TXT).await.answers.len(), 1);
        assert_eq!(net.names.asked.load(Ordering::Relaxed), turn);
    }
}

#[tokio::test]
async fn what_could_lead_past_the_rules_is_not_told() {
    let net = Net::new().await;
    net.set(ONE, rules(&[], &["bad.example"])).await;
    net.names.tell("ok.example", Told::Addresses(vec![OUT_THERE]));
    for kind in [RecordType::AAAA, RecordType::HTTPS, RecordType::SVCB] {
        let answer = net.lookup("ok.example.", kind).await;
        assert_eq!(answer.metadata.response_code, ResponseCode::NoError, "{kind}");
        assert!(answer.answers.is_empty(), "{kind}");
    }
    for kind in [RecordType::ANY, RecordType::AXFR, RecordType::IXFR] {
        let answer = net.lookup("ok.example.", kind).await;
        assert_eq!(answer.metadata.response_code, ResponseCode::Refused, "{kind}");
    }
    let mut chaos = question("ok.example.", RecordType::A);
    chaos.queries[0].query_class = DNSClass::CH;
    assert_eq!(net.answer(ONE, &chaos).await.metadata.response_code, ResponseCode::Refused);
    let mut update = question("ok.example.", RecordType::SOA);
    update.metadata.op_code = OpCode::Update;
    assert_eq!(net.answer(ONE, &update).await.metadata.response_code, ResponseCode::NotImp);
    let mut two = question("ok.example.", RecordType::A);
    two.add_query(Query::query(Name::from_ascii("bad.example.").unwrap(), RecordType::A));
    assert_eq!(net.answer(ONE, &two).await.metadata.response_code, ResponseCode::FormErr);
    // Too short for a message, but enough to get that as an answer.
    let odd = Message::from_vec(&net.ask(ONE, b"\0\x07\0\0\0\x01").await).unwrap();
    assert_eq!(odd.metadata.response_code, ResponseCode::FormErr);
    for name in ["127.0.0.1.", "2130706433.", "a\\.b.example.", "*.example."] {
        let answer = net.lookup(name, RecordType::A).await;
        assert_eq!(answer.metadata.response_code, ResponseCode::NXDomain, "{name}");
    }
}

#[tokio::test]
async fn answers_that_point_inside_are_dropped() {
    let net = Net::new().await;
    net.set(ONE, rules(&[], &["bad.example"])).await;
    net.names.tell("mixed.example", Told::Addresses(vec![INSIDE, OUT_THERE]));
    net.names.tell("inside.example", Told::Addresses(vec![INSIDE, Ipv4Addr::LOCALHOST]));
    net.names.tell("alias.example", Told::Alias("printer.lan.", vec![INSIDE]));
    assert_eq!(net.resolve(ONE, "mixed.example").await, ["127.1.0.1"]);
    for name in ["inside.example.", "alias.example."] {
        let answer = net.lookup(name, RecordType::A).await;
        assert_eq!(answer.metadata.response_code, ResponseCode::NXDomain);
        assert_eq!(why(&answer), Some(17));
        assert!(answer.answers.is_empty());
    }
}

#[tokio::test]
async fn name_servers_may_misbehave() {
    let net = Net::new().await;
    net.set(ONE, rules(&[], &["bad.example"])).await;
    let many: Vec<Ipv4Addr> = (1..=50).map(|last| Ipv4Addr::new(127, 1, 1, last)).collect();
    net.names.tell("long.example", Told::Long(many.clone()));
    net.names.tell("forged.example", Told::Forged(ELSEWHERE, vec![OUT_THERE]));
    net.names.tell("alias.example", Told::Alias("cdn.example.", vec![OUT_THERE]));
    net.names.tell("fails.example", Told::Failure);
    net.names.tell("silent.example", Told::Silence);
    net.names.tell("text.example", Told::Text(800));
    assert_eq!(net.resolve(ONE, "forged.example").await, ["127.1.0.1"]);
    assert_eq!(net.resolve(ONE, "alias.example").await, ["127.1.0.1"]);
    for name in ["fails.example.", "silent.example."] {
        let answer = net.lookup(name, RecordType::A).await;
        assert_eq!(answer.metadata.response_code, ResponseCode::ServFail, "{name}");
    }
    // Longer than the client accepts, so it has to ask again over TCP.
    let answer = net.lookup("long.example.", RecordType::A).await;
    assert!(answer.metadata.truncation && answer.answers.is_empty());
    let answer = net.lookup("text.example.", RecordType::TXT).await;
    assert!(answer.metadata.truncation);
    let mut stream = bound(ONE).connect(net.at(net.egress.ports().names)).await.unwrap();
    for name in ["long.example.", "text.example."] {
        let kind = if name.starts_with("long") { RecordType::A } else { RecordType::TXT };
        let bytes = question(name, kind).to_vec().unwrap();
        stream.write_u16(bytes.len().try_into().unwrap()).await.unwrap();
        stream.write_all(&bytes).await.unwrap();
        let length = stream.read_u16().await.unwrap();
        let mut answer = vec![0; length.into()];
        stream.read_exact(&mut answer).await.unwrap();
        let answer = Message::from_vec(&answer).unwrap();
        assert!(!answer.metadata.truncation);
        assert_eq!(answer.answers.len(), if kind == RecordType::A { many.len() } else { 1 });
    }
}

fn member(vpc: &str, host: &str, lists: EgressRules) -> EgressRules {
    let vpc = VpcMember {
        vpc: ResourceId::known(vpc),
        vpc_name: "net".to_owned(),
        host: host.to_owned(),
    };
    EgressRules { vpc: Some(vpc), ..lists }
}

#[tokio::test]
async fn members_of_a_vpc_know_each_other_by_name() {
    let net = Net::new().await;
    let third = Ipv4Addr::new(127, 0, 0, 4);
    net.set(ONE, member("res_a", "one", rules(&["ok.example"], &[]))).await;
    net.set(OTHER, member("res_a", "two", EgressRules::default())).await;
    net.set(third, member("res_b", "three", EgressRules::default())).await;
    assert_eq!(net.resolve(ONE, "two.net.internal").await, ["127.0.0.3"]);
    assert_eq!(net.resolve(OTHER, "ONE.net.internal").await, ["127.0.0.2"]);
    // Another VPC with the same name, as another workspace may have.
    assert!(net.resolve(third, "two.net.internal").await.is_empty());
    assert!(net.resolve(ONE, "three.net.internal").await.is_empty());
    let asked = net.names.asked.load(Ordering::Relaxed);
    assert_eq!(asked, 0, "names of a VPC are nobody else's business");
    net.egress.remove(&instance(OTHER));
    assert!(net.resolve(ONE, "two.net.internal").await.is_empty());
}

#[tokio::test]
async fn a_member_of_a_vpc_is_awake_before_another_is_told_its_address() {
    let net = Net::new().await;
    let woken = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&woken);
    let stuck = Ipv4Addr::new(127, 0, 0, 5);
    net.egress.wake_by(Box::new(move |instance| {
        let seen = Arc::clone(&seen);
        Box::pin(async move {
            tokio::task::yield_now().await;
            if instance == super::instance(stuck) {
                std::future::pending::<()>().await;
            }
            seen.lock().push(instance);
        })
    }));
    let third = Ipv4Addr::new(127, 0, 0, 4);
    for (address, vpc, host) in [
        (ONE, "res_a", "one"),
        (OTHER, "res_a", "two"),
        (third, "res_b", "three"),
        (stuck, "res_a", "stuck"),
    ] {
        net.set(address, member(vpc, host, EgressRules::default())).await;
    }
    let woke = |expect: &[Ipv4Addr]| {
        let expect: Vec<_> = expect.iter().copied().map(instance).collect();
        assert_eq!(std::mem::take(&mut *woken.lock()), expect);
    };
    assert_eq!(net.resolve(ONE, "two.net.internal").await, ["127.0.0.3"]);
    woke(&[OTHER]);
    // Neither for those outside of the VPC, nor for what nobody connects to, nor for oneself.
    assert!(net.resolve(third, "two.net.internal").await.is_empty());
    assert!(net.resolve(ONE, "three.net.internal").await.is_empty());
    net.lookup("two.net.internal.", RecordType::AAAA).await;
    assert_eq!(net.resolve(ONE, "one.net.internal").await, ["127.0.0.2"]);
    woke(&[]);
    // What does not wake does not keep the answer.
    assert_eq!(net.resolve(ONE, "stuck.net.internal").await, ["127.0.0.5"]);
    woke(&[]);
}

#[tokio::test]
async fn one_instance_cannot_take_all_questions() {
    let questions = admission::Limits { total: 8, share: 4 };
    let nameserver = Duration::from_secs(60);
    let net = Net::with(Limits { questions, nameserver, ..limits() }, None).await;
    net.set(ONE, rules(&[], &["bad.example"])).await;
    net.set(OTHER, rules(&[], &["bad.example"])).await;
    net.names.tell("silent.example", Told::Silence);
    net.names.tell("ok.example", Told::Addresses(vec![OUT_THERE]));
    let flood = UdpSocket::bind((ONE, 0)).await.unwrap();
    let names = net.at(net.egress.ports().names);
    let silent = question("silent.example.", RecordType::A).to_vec().unwrap();
    for _ in 0..50 {
        flood.send_to(&silent, names).await.unwrap();
    }
    assert_eq!(net.resolve(OTHER, "ok.example").await, ["127.1.0.1"]);
}

#[tokio::test]
async fn the_server_itself_is_found_and_not_connected_to() {
    let net = Net::new().await;
    net.names.tell("holm.example", Told::Addresses(vec![INSIDE]));
    net.set(ONE, rules(&["ok.example"], &[])).await;
    assert_eq!(net.resolve(ONE, "holm.example").await, [INSIDE.to_string()]);
    assert!(net.resolve(ONE, "a.holm.example").await.is_empty());
    net.set(ONE, rules(&[], &["bad.example"])).await;
    let (_, head) = net.connect("holm.example:443").await;
    assert!(head.starts_with("http/1.1 403"), "{head}");
}
