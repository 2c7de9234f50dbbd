//! Tests of requests that wait while the rules change.

use super::super::*;
use super::lab::{Fetched, Lab, Program, request};
use super::{list, rules};
use crate::policy::Policy;
use hyper::client::conn::http2;
use hyper_util::rt::TokioExecutor;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{JoinHandle, yield_now};
use types::egress::EgressRules;
use types::parts::Sensitive;

/// A host that serves one request at a time, and answers when it is told to.
struct Slow {
    lab: Lab,
    answers: Arc<Semaphore>,
    heard: UnboundedReceiver<(String, String)>,
    program: http2::SendRequest<Body>,
}

impl Slow {
    async fn new(alpn: &str) -> Self {
        // One connection of HTTP/1.1, or one request at a time on one of HTTP/2.
        let lab = Lab::with_limits(rules(), Limits { upstreams_max: 1, ..Limits::default() });
        let answers = Arc::new(Semaphore::new(0));
        let (say, heard) = unbounded_channel();
        let (acceptor, ready) = (lab.acceptor("api.test", &[alpn]), Arc::clone(&answers));
        lab.listen("api.test", move |stream| {
            let (acceptor, ready, say) = (acceptor.clone(), Arc::clone(&ready), say.clone());
            tokio::spawn(async move {
                let stream = acceptor.accept(stream).await.unwrap();
                answer_one_by_one(stream, ready, say).await;
            });
        })
        .await;
        let Program::Two(program) = lab.browse("api.test", "h2").await else {
            panic!("the connection speaks HTTP/2");
        };
        let mut slow = Self { lab, answers, heard, program };
        // By its end, the host has said how many requests it takes.
        slow.answers.add_permits(1);
        assert_eq!(slow.ask("/begin").await.unwrap().status, 200);
        assert_eq!(slow.heard.recv().await.unwrap().0, "/begin");
        slow
    }

    fn ask(&self, path: &str) -> JoinHandle<Fetched> {
        let mut program = self.program.clone();
        let asked = request("GET", &format!("https://api.test{path}"), "");
        tokio::spawn(async move { Fetched::of(program.send_request(asked).await.unwrap()).await })
    }

    /// Has one request wait for its answer and another one for the first. Then changes the rules,
    /// and returns the answers to both.
    async fn change_while_two_wait(&mut self, rules: EgressRules) -> [JoinHandle<Fetched>; 2] {
        let first = self.ask("/first");
        assert_eq!(self.heard.recv().await.unwrap(), ("/first".to_owned(), "Bearer hush".into()));
        let policy = self.lab.client.policy();
        let before = Arc::strong_count(&policy);
        let second = self.ask("/second");
        // A request that has been judged holds the rules, and goes on until it has to wait.
        while Arc::strong_count(&policy) == before {
            yield_now().await;
        }
        self.lab.client.set_policy(Policy::compile(rules));
        [first, second]
    }
}

async fn answer_one_by_one<S>(
    stream: S,
    ready: Arc<Semaphore>,
    say: UnboundedSender<(String, String)>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request: Request<Incoming>| {
        let key = request.headers().get("authorization").map(|key| key.to_str().unwrap());
        say.send((request.uri().path().to_owned(), key.unwrap_or_default().to_owned())).unwrap();
        let ready = Arc::clone(&ready);
        async move {
            ready.acquire().await.unwrap().forget();
            Ok::<_, Infallible>(Response::new(body::full("ok")))
        }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http2().max_concurrent_streams(1);
    // The program may end the connection first.
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}

#[tokio::test]
async fn nothing_is_sent_to_what_new_rules_forbid() {
    for alpn in ["http/1.1", "h2"] {
        let mut slow = Slow::new(alpn).await;
        let forbidden = list(&["api.test/second"]);
        let now = EgressRules { forbidden_domains: forbidden, ..EgressRules::default() };
        let [first, second] = slow.change_while_two_wait(now).await;
        // At once, and not when its turn has come.
        let page = second.await.unwrap();
        assert_eq!((page.status, page.error()), (403, "firewall_blocked"), "{alpn}");
        assert!(page.text.contains("forbiddenDomains: api.test/second"), "{}", page.text);
        slow.answers.add_permits(8);
        assert_eq!(first.await.unwrap().status, 200, "{alpn}");
        assert_eq!(slow.ask("/last").await.unwrap().status, 200);
        assert_eq!(slow.heard.recv().await.unwrap(), ("/last".to_owned(), String::new()));
    }
}

#[tokio::test]
async fn an_answer_that_new_rules_forbid_is_not_passed_back() {
    let mut slow = Slow::new("http/1.1").await;
    let forbidden = list(&["api.test/first"]);
    let [first, second] =
        slow.change_while_two_wait(EgressRules { forbidden_domains: forbidden, ..rules() }).await;
    slow.answers.add_permits(8);
    assert_eq!(first.await.unwrap().status, 403);
    assert_eq!(second.await.unwrap().status, 200);
}

#[tokio::test]
async fn no_secret_leaves_that_was_replaced_meanwhile() {
    for alpn in ["http/1.1", "h2"] {
        let mut slow = Slow::new(alpn).await;
        let mut now = rules();
        now.routing[0].secrets = Some(Sensitive(super::map(&[("key", "new")])));
        let [first, second] = slow.change_while_two_wait(now).await;
        slow.answers.add_permits(8);
        assert_eq!(first.await.unwrap().status, 200, "it left before");
        let page = second.await.unwrap();
        assert_eq!((page.status, page.error()), (403, "firewall_blocked"));
        assert!(page.text.contains("routing: it changed"), "{}", page.text);
        assert_eq!(slow.ask("/last").await.unwrap().status, 200);
        assert_eq!(slow.heard.recv().await.unwrap(), ("/last".to_owned(), "Bearer new".into()));
    }
}

#[tokio::test]
async fn what_stays_allowed_is_sent_when_its_turn_comes() {
    for alpn in ["http/1.1", "h2"] {
        let mut slow = Slow::new(alpn).await;
        let mut now = rules();
        now.allowed_domains = list(&["api.test"]);
        now.routing[0].destinations = Some(list(&["api.test", "other.test"]));
        let [first, second] = slow.change_while_two_wait(now).await;
        slow.answers.add_permits(8);
        assert_eq!([first.await.unwrap().status, second.await.unwrap().status], [200, 200]);
        assert_eq!(slow.heard.recv().await.unwrap(), ("/second".to_owned(), "Bearer hush".into()));
    }
}
