use super::*;
use rcgen::{CertificateParams, KeyPair};

#[test]
fn pauses_grow_and_end() {
    let (mut now, mut standing, mut pauses) =
        (Timestamp::from_ms(0), Standing::Waiting, Vec::new());
    while let Some(tries) = due(standing, now) {
        standing = after_failure(Some(Standing::Ordering { tries }), false, now);
        let Standing::Failed { again_at, .. } = standing else { break };
        assert_eq!(due(standing, Timestamp::from_ms(again_at.ms() - 1)), None);
        pauses.push((again_at.ms() - now.ms()) / 1000);
        now = again_at;
    }
    assert_eq!(standing, Standing::GivenUp);
    assert_eq!(pauses.len() + 1, TRIES_MAX as usize);
    assert_eq!((pauses[0], pauses[1]), (FIRST_PAUSE_S, 2 * FIRST_PAUSE_S));
    assert!(
        pauses.is_sorted() && pauses.iter().all(|pause| *pause <= LONGEST_PAUSE_S),
        "{pauses:?}"
    );
}

#[test]
fn a_renewal_is_never_given_up() {
    let (mut now, mut standing, mut pause_s) =
        (Timestamp::from_ms(0), Standing::Held { renew_at: Timestamp::from_ms(0) }, 0);
    for _ in 0..1000 {
        let tries = due(standing, now).unwrap();
        standing = after_failure(Some(Standing::Ordering { tries }), true, now);
        let Standing::Failed { again_at, .. } = standing else { panic!("{standing:?}") };
        pause_s = (again_at.ms() - now.ms()) / 1000;
        assert!(pause_s <= LONGEST_PAUSE_S, "{pause_s}");
        now = again_at;
    }
    assert_eq!(pause_s, LONGEST_PAUSE_S);
}

#[test]
fn a_certificate_is_renewed_when_two_thirds_of_its_life_are_over() {
    let held = Standing::Held { renew_at: Timestamp::from_ms(60_000) };
    assert_eq!(due(held, Timestamp::from_ms(59_999)), None);
    assert_eq!(due(held, Timestamp::from_ms(60_000)), Some(0));
}

/// Opens the keeper of certificates for an authority that nobody reaches.
fn acme(folder: &Path, hour_max: u32) -> Acme {
    let hour_max = hour_max.to_string();
    opened(folder, "domains.acme.orders_workspace_hour_max", hour_max).unwrap()
}

/// The same with another setting.
fn opened(folder: &Path, setting: &'static str, value: String) -> Result<Acme, Error> {
    // Fails only if it is already installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let key = KeyPair::generate().unwrap();
    let own = CertificateParams::new(["holm.example".to_owned()]).unwrap();
    let file = |name: &str| folder.join(name).display().to_string();
    std::fs::write(file("own.crt"), own.self_signed(&key).unwrap().pem()).unwrap();
    std::fs::write(file("own.key"), key.serialize_pem()).unwrap();
    let flags = [
        ("server.tls_certificate", file("own.crt")),
        ("server.tls_key", file("own.key")),
        ("domains.acme.directory", "https://127.0.0.1:1/directory".to_owned()),
        ("domains.acme.agree", "true".to_owned()),
        (setting, value),
    ];
    let config = config::load(None, std::iter::empty(), &flags).unwrap();
    let certificates = Certificates::open(&config.server).unwrap().unwrap();
    let world = World::new(|| Timestamp::from_ms(0), |_| {});
    Acme::open(&config.domains.acme, folder, &certificates, &world).map(Option::unwrap)
}

#[tokio::test]
async fn an_authority_whose_own_certificate_cannot_be_read_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    for file in ["/nope", "/dev/null"] {
        let refused = opened(folder.path(), "domains.acme.root", file.to_owned()).err().unwrap();
        assert!(refused.to_string().contains("(domains.acme.root)"), "{refused}");
    }
    let own = folder.path().join("own.crt").display().to_string();
    assert!(opened(folder.path(), "domains.acme.root", own).is_ok());
}

fn hosts(of: &[(&str, usize)]) -> BTreeMap<String, WorkspaceId> {
    let names = of.iter().flat_map(|(workspace, count)| {
        let workspace = WorkspaceId::known(*workspace);
        (0..*count).map(move |at| (format!("{at}.{workspace}.example"), workspace.clone()))
    });
    names.collect()
}

fn ordering(acme: &Acme) -> Vec<&str> {
    let mut names: Vec<_> = acme.ordered.values().map(|order| order.name.as_str()).collect();
    names.sort_unstable();
    names
}

#[tokio::test]
async fn a_workspace_with_many_hosts_does_not_delay_another() {
    let folder = tempfile::tempdir().unwrap();
    let mut acme = acme(folder.path(), 20);
    acme.begin(&hosts(&[("a", 1000)]));
    assert_eq!(ordering(&acme), ["0.a.example", "1.a.example"]);
    acme.begin(&hosts(&[("a", 1000), ("z", 1)]));
    assert_eq!(ordering(&acme), ["0.a.example", "0.z.example", "1.a.example"]);
}

#[tokio::test]
async fn a_name_that_has_a_certificate_is_ordered_again_however_often_that_failed() {
    let folder = tempfile::tempdir().unwrap();
    let mut acme = acme(folder.path(), 20);
    let pair = Pair::read(&folder.path().join("own.crt"), &folder.path().join("own.key")).unwrap();
    acme.certificates.put_made("0.a.example", pair.certified);
    for (name, given_up) in [("0.a.example", false), ("1.a.example", true)] {
        acme.standings.insert(name.to_owned(), Standing::Ordering { tries: TRIES_MAX });
        acme.order(name.to_owned(), WorkspaceId::known("a"));
        acme.orders.abort_all();
        let done = acme.orders.join_next_with_id().await.unwrap();
        acme.finish(done);
        assert_eq!(acme.standings[name] == Standing::GivenUp, given_up, "{name}");
    }
}

#[tokio::test]
async fn an_order_whose_task_breaks_off_is_tried_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut acme = acme(folder.path(), 20);
    let wanted = hosts(&[("a", 1)]);
    acme.begin(&wanted);
    acme.orders.abort_all();
    let done = acme.orders.join_next_with_id().await.unwrap();
    acme.finish(done);
    let standing = acme.standings["0.a.example"];
    assert!(matches!(standing, Standing::Failed { tries: 1, .. }), "{standing:?}");
    assert!(acme.ordered.is_empty());
}

#[tokio::test]
async fn a_certificate_of_another_authority_is_used_until_it_is_renewed_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut acme = acme(folder.path(), 20);
    let read = |kind: &str| std::fs::read_to_string(folder.path().join(kind)).unwrap();
    let (chain, key) = (read("own.crt"), read("own.key"));
    let own = acme.authority.directory.clone();
    for (name, directory) in [("0.a.example", &*own), ("1.a.example", "https://ca.example/try")] {
        acme.shelf.keep(name, directory, &chain, &key).unwrap();
    }
    std::fs::write(folder.path().join("certificates/2.a.example.pem"), chain + &key).unwrap();
    acme.begin(&hosts(&[("a", 3)]));
    assert_eq!(ordering(&acme), ["1.a.example"]);
    for name in ["0.a.example", "1.a.example", "2.a.example"] {
        assert!(acme.certificates.has_made(name), "{name}");
    }
}
