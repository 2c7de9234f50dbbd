use super::*;
use crate::client::of_unseen;
use crate::pattern::Pattern;
use proptest::prelude::*;
use std::time::{Duration, Instant};
use types::parts::TextMap;

fn list(entries: &[&str]) -> Vec<String> {
    entries.iter().map(|&entry| entry.to_owned()).collect()
}

fn policy(bypass: &[&str], allowed: &[&str], forbidden: &[&str], routing: &[&[&str]]) -> Policy {
    let target = |destinations: &&[&str]| ProxyTarget {
        destinations: Some(list(destinations)),
        ..ProxyTarget::default()
    };
    Policy::compile(EgressRules {
        bypass: list(bypass),
        allowed_domains: list(allowed),
        forbidden_domains: list(forbidden),
        routing: routing.iter().map(target).collect(),
        ..EgressRules::default()
    })
}

fn host(text: &str) -> Host {
    Host::parse(text).unwrap()
}

fn block(rule: &str) -> Verdict {
    Verdict::Block { rule: rule.to_owned() }
}

#[test]
fn verdicts_of_hosts() {
    let look = Verdict::Look;
    let pass = Verdict::Pass;
    let named = |entry| block(&format!("forbiddenDomains: {entry}"));
    let unlisted = block("allowedDomains");
    type Lists<'a> = (&'a [&'a str], &'a [&'a str], &'a [&'a str], &'a [&'a [&'a str]]);
    let table: &[(Lists<'_>, &str, Verdict)] = &[
        ((&[], &[], &[], &[]), "a.b", pass.clone()),
        ((&[], &["a.b"], &[], &[]), "a.b", pass.clone()),
        ((&[], &["a.b"], &[], &[]), "c.a.b", unlisted.clone()),
        ((&[], &["*.b"], &[], &[]), "a.b", pass.clone()),
        ((&[], &["*.b"], &[], &[]), "b", unlisted.clone()),
        ((&[], &[], &["a.b"], &[]), "a.b", named("a.b")),
        ((&[], &[], &["a.b"], &[]), "b", pass.clone()),
        // A host on both lists passes.
        ((&[], &["a.b"], &["*"], &[]), "a.b", pass.clone()),
        ((&[], &["a.b"], &["*"], &[]), "c.b", named("*")),
        ((&["a.b"], &["c"], &["*"], &[&["*"]]), "a.b", pass.clone()),
        ((&[], &["GET:a.b"], &[], &[]), "a.b", look.clone()),
        ((&[], &["GET:a.b"], &[], &[]), "c.b", unlisted.clone()),
        ((&[], &["GET:a.b", "a.b"], &[], &[]), "a.b", pass.clone()),
        ((&[], &[], &["a.b/admin"], &[]), "a.b", look.clone()),
        ((&[], &[], &["a.b/admin", "*.b"], &[]), "a.b", named("*.b")),
        ((&[], &["c"], &["a.b/admin"], &[]), "a.b", unlisted.clone()),
        ((&[], &["a.b"], &["a.b/admin"], &[]), "a.b", pass.clone()),
        ((&[], &["a.b/x"], &["a.b"], &[]), "a.b", look.clone()),
        ((&["a.b/x"], &[], &["a.b"], &[]), "a.b", look.clone()),
        ((&["GET:a.b"], &[], &[], &[]), "a.b", pass.clone()),
        ((&[], &[], &[], &[&["a.b"]]), "a.b", look.clone()),
        ((&[], &[], &[], &[&["POST:a.b/x"]]), "a.b", look.clone()),
        ((&[], &[], &["a.b"], &[&["a.b"]]), "a.b", named("a.b")),
        ((&[], &["192.0.2.0/24"], &[], &[]), "192.0.2.9", pass.clone()),
        ((&[], &["192.0.2.0/24"], &[], &[]), "192.0.3.9", unlisted.clone()),
        ((&[], &[], &["192.0.2.0/24"], &[]), "::ffff:192.0.2.9", named("192.0.2.0/24")),
        ((&[], &["not a domain"], &[], &[]), "a.b", unlisted),
    ];
    for ((bypass, allowed, forbidden, routing), name, wanted) in table {
        let policy = policy(bypass, allowed, forbidden, routing);
        assert_eq!(policy.of_host(&host(name)), *wanted, "{policy:?} {name}");
    }
}

#[test]
fn verdicts_of_requests_name_the_rule() {
    let policy = policy(
        &["hooks.b/in"],
        &["GET:HEAD:a.b", "a.b/api"],
        &["*.b", "a.b/api/admin"],
        &[&["a.b/api"], &["POST:*.b"], &["hooks.b"]],
    );
    let of = |method: &str, name: &str, path: &str| {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let routes = policy.routes(&host(name), &method, path);
        (policy.of_request(&host(name), &method, &Paths::of(path)), routes.count())
    };
    let pass = |rule: &str| RequestVerdict::Pass { rule: Some(rule.to_owned()) };
    let block = |rule: &str| RequestVerdict::Block { rule: rule.to_owned() };
    assert_eq!(of("GET", "a.b", "/x"), (pass("allowedDomains: GET:HEAD:a.b"), 0));
    assert_eq!(of("POST", "a.b", "/api"), (pass("allowedDomains: a.b/api"), 2));
    assert_eq!(of("POST", "a.b", "/x"), (block("forbiddenDomains: *.b"), 1));
    // The list of what is allowed wins, even over a longer path.
    assert_eq!(of("PUT", "a.b", "/api/admin"), (pass("allowedDomains: a.b/api"), 1));
    assert_eq!(of("PUT", "a.b", "/api/..%2fx").0, block("forbiddenDomains: *.b"));
    assert_eq!(of("PUT", "c", "/"), (block("allowedDomains"), 0));
    assert_eq!(of("POST", "hooks.b", "/in"), (pass("bypass: hooks.b/in"), 0));
    assert_eq!(of("POST", "hooks.b", "/out"), (block("forbiddenDomains: *.b"), 2));
}

#[test]
fn a_path_that_is_too_long_to_compare_gets_past_no_rule() {
    let entries: Vec<String> = (0..999).map(|n| format!("a.b/*x{n}")).collect();
    let many: Vec<&str> = entries.iter().map(String::as_str).collect();
    let forbidding = policy(&[], &[], &many, &[&["a.b/*"]]);
    let allowing =
        policy(&[&many[..], &["a.b/z"]].concat(), &[&many[..], &["a.b/*"]].concat(), &[], &[]);
    let blocks = |policy: &Policy, path: &str| {
        let verdict = policy.of_request(&host("a.b"), &Method::GET, &Paths::of(path));
        matches!(verdict, RequestVerdict::Block { .. })
    };
    for length in [8000, 60_000] {
        let path = format!("/%3b%3b%3b{}", "z".repeat(length));
        assert!(blocks(&forbidding, &path) && blocks(&allowing, &path));
    }
    let long = "z".repeat(60_000);
    assert!(blocks(&allowing, &format!("/{long}")));
    assert_eq!(forbidding.routes(&host("a.b"), &Method::GET, &format!("/{long}")).count(), 0);
    // What one host has used up is missing for the next.
    let paths = Paths::of(&format!("/{}", "z".repeat(8000)));
    let of_next = policy(&[], &["*.c/*z"], &[], &[]);
    let passes = |policy: &Policy, name: &str| {
        let verdict = policy.of_request(&host(name), &Method::GET, &paths);
        matches!(verdict, RequestVerdict::Pass { .. })
    };
    assert!(passes(&of_next, "b.c"));
    assert!(!passes(&forbidding, "a.b"));
    assert!(!passes(&of_next, "b.c"));
    // Other hosts and short paths are not concerned.
    let of_other =
        forbidding.of_request(&host("c.b"), &Method::GET, &Paths::of(&format!("/{long}")));
    assert_eq!(of_other, RequestVerdict::Pass { rule: None });
    for path in ["/y", "/%3b%3b%3bz", &format!("/y?{long}")] {
        assert!(!blocks(&forbidding, path) && !blocks(&allowing, path), "{path}");
        assert_eq!(forbidding.routes(&host("a.b"), &Method::GET, path).count(), 1);
    }
}

#[test]
fn a_policy_shows_no_values() {
    let value = |value: &str| Some(TextMap::from([("k".to_owned(), value.to_owned())]));
    let target = ProxyTarget {
        destinations: Some(list(&["a.b"])),
        headers: value("Bearer hush"),
        body: value("hush"),
        secrets: value("hush").map(Sensitive),
    };
    let rules = EgressRules { routing: vec![target], ..EgressRules::default() };
    assert!(!format!("{:?}", Policy::compile(rules)).contains("hush"));
}

/// Returns how long it takes to look a host up a hundred times in so many rules, of which the last
/// one blocks it.
fn lookups(rules: usize) -> Duration {
    let entries: Vec<String> = (0..rules).map(|n| format!("*.host{n}.example.com")).collect();
    let last = entries[rules - 1].clone();
    let policy = policy(&[], &[], &entries.iter().map(String::as_str).collect::<Vec<_>>(), &[]);
    let (name, wanted) =
        (host(&last.replace('*', "x.y")), block(&format!("forbiddenDomains: {last}")));
    fastest(|| assert_eq!(policy.of_host(&name), wanted))
}

/// Returns how long it takes to do something a hundred times.
fn fastest(look_up: impl Fn()) -> Duration {
    let round = || {
        let begun = Instant::now();
        (0..100).for_each(|_| look_up());
        begun.elapsed()
    };
    // A busy machine may interrupt any round, but not all of them.
    (0..50).map(|_| round()).min().unwrap()
}

#[test]
fn a_thousand_rules_cost_little() {
    let (one, thousand) = (lookups(1), lookups(1000));
    // Going through all entries would take far longer.
    assert!(thousand < one * 5, "{one:?} and {thousand:?}");
}

#[test]
fn bytes_cost_little_where_something_is_added_to_requests() {
    let of_bytes = |rules: usize| {
        let entries: Vec<String> = (0..rules).map(|n| format!("*.host{n}.example.com")).collect();
        let entries: Vec<&str> = entries.iter().map(String::as_str).collect();
        let policy = policy(&[], &[], &entries, &[&["*"]]);
        let hosts = [host("a.b")];
        assert_eq!(policy.of_host(&hosts[0]), Verdict::Look);
        fastest(|| assert_eq!(of_unseen(&policy, &hosts), Verdict::Pass))
    };
    let (one, thousand) = (of_bytes(1), of_bytes(1000));
    // Making a policy of the lists would take far longer.
    assert!(thousand < one * 5, "{one:?} and {thousand:?}");
}

/// Applies the rules in the plainest way, one entry after another.
fn slowly(policy: &Policy, host: &Host, method: &Method, path: &str) -> RequestVerdict {
    let paths = Paths::of(path);
    let first = |list: &str, entries: &[String], any: bool| {
        let meets = |entry: &&String| {
            let pattern = Pattern::parse(entry);
            let condition = |it: Box<crate::pattern::Condition>| match any {
                true => it.may_match(method, &paths),
                false => it.must_match(method, &paths),
            };
            pattern.is_host(host) && pattern.condition.is_none_or(condition)
        };
        entries.iter().find(meets).map(|entry| format!("{list}: {entry}"))
    };
    let rules = policy.rules();
    if let rule @ Some(_) = first(BYPASS, &rules.bypass, false) {
        return RequestVerdict::Pass { rule };
    }
    if let rule @ Some(_) = first(ALLOWED, &rules.allowed_domains, false) {
        return RequestVerdict::Pass { rule };
    }
    match first(FORBIDDEN, &rules.forbidden_domains, true) {
        Some(rule) => RequestVerdict::Block { rule },
        None if rules.allowed_domains.is_empty() => RequestVerdict::Pass { rule: None },
        None => RequestVerdict::Block { rule: ALLOWED.to_owned() },
    }
}

const ENTRY: &str = "(!?(GET:|post:)?)?(\\*\\.)?(a|b|a\\.b|b\\.a|\\*|192\\.0\\.2\\.1|192\\.0\\.2\\.0/24)(:80)?(/|/a|/\\*/b|/a/\\*)?";
const PATH: &str = "(/|a|b|\\.|\\.\\.|%2e|%2f|;|%61){0,8}(\\?a)?";

fn entries() -> impl Strategy<Value = Vec<String>> {
    proptest::collection::vec(ENTRY, 0..4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn the_index_says_what_the_lists_say(
        lists in (entries(), entries(), entries(), entries()),
        name in "((a|b)(\\.(a|b)){0,2}|192\\.0\\.2\\.[12])",
        method in "GET|POST|PUT",
        path in PATH,
    ) {
        let (bypass, allowed_domains, forbidden_domains, destinations) = lists;
        let destinations = Some(destinations);
        let routing = vec![ProxyTarget { destinations, ..ProxyTarget::default() }];
        let policy = Policy::compile(EgressRules {
            bypass, allowed_domains, forbidden_domains, routing, ..EgressRules::default()
        });
        let (host, path) = (host(&name), format!("/{path}"));
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let verdict = policy.of_request(&host, &method, &Paths::of(&path));
        prop_assert_eq!(&verdict, &slowly(&policy, &host, &method, &path));
        let adds = policy.routes(&host, &method, &path).next().is_some();
        let lists = EgressRules { routing: Vec::new(), ..policy.rules().clone() };
        prop_assert_eq!(policy.of_host_unseen(&host), Policy::compile(lists).of_host(&host));
        // What is said about a host holds for each of its requests.
        match policy.of_host(&host) {
            Verdict::Pass => {
                let passes = matches!(verdict, RequestVerdict::Pass { .. });
                prop_assert!(passes && !adds);
            }
            Verdict::Block { .. } => {
                let blocks = matches!(verdict, RequestVerdict::Block { .. });
                prop_assert!(blocks);
            }
            Verdict::Look => {}
        }
    }
}
