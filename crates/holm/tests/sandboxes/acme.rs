//! Certificates by ACME from a real authority on loopback (Debian's `pebble`), which connects back
//! to the server.

use crate::dns::NameServer;
use crate::domains::{echoing, preview, prove, register};
use crate::setup::{Client, Identity, Place, eventually};
use serde_json::json;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use testing::Holm;
use testing::machine::own;

struct Pebble {
    process: Child,
    roots: String,
}

impl Pebble {
    /// Starts the authority. `checked` is the port at which it checks proofs.
    fn start(
        folder: &Path,
        identity: &Identity,
        dns: SocketAddr,
        ports: [u16; 2],
        checked: u16,
    ) -> Self {
        let [directory, management] = ports;
        let settings = json!({"pebble": {
            "listenAddress": format!("127.0.0.1:{directory}"),
            "managementListenAddress": format!("127.0.0.1:{management}"),
            "certificate": identity.certificate(),
            "privateKey": identity.key(),
            "httpPort": 1,
            "tlsPort": checked,
            "externalAccountBindingRequired": false,
        }});
        let file = folder.join("pebble.json");
        std::fs::write(&file, settings.to_string()).unwrap();
        // `setpriv` execs the program, which is then killed when this thread ends.
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig=KILL", "--", "pebble", "-dnsserver", &dns.to_string(), "-config"])
            .arg(&file);
        // Otherwise it refuses one request in twenty by chance. Three in a row are a failed order.
        command.envs([("PEBBLE_VA_NOSLEEP", "1"), ("PEBBLE_WFE_NONCEREJECT", "0")]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().expect("the package pebble");
        Self { process, roots: format!("https://127.0.0.1:{management}/roots/0") }
    }

    /// Returns the certificate that signs everything the authority makes.
    fn root(&self, identity: &Identity) -> reqwest::Certificate {
        let http = reqwest::blocking::Client::builder()
            .no_proxy()
            .tls_certs_only([identity.trusted()])
            .build()
            .unwrap();
        let mut text = None;
        eventually("the authority answers", || {
            text = http.get(&self.roots).send().ok().and_then(|response| response.bytes().ok());
            text.is_some()
        });
        reqwest::Certificate::from_pem(&text.unwrap()).unwrap()
    }
}

impl Drop for Pebble {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A server that gets its certificates from an authority of its own.
struct Ground {
    place: Place,
    dns: NameServer,
    identity: Identity,
    ports: [u16; 2],
    folder: tempfile::TempDir,
    /// The certificate that signs everything the authority makes, once it runs.
    root: Option<reqwest::Certificate>,
}

impl Ground {
    fn new() -> Self {
        let (dns, ports) = (NameServer::start(), [0, 1].map(|index| own().port(index)));
        let (identity, folder) = (Identity::new(), tempfile::tempdir().unwrap());
        let mut place = Place::new("15s");
        place.settings = vec![
            dns.setting(),
            ("HOLM_DOMAINS__ACME__DIRECTORY", format!("https://127.0.0.1:{}/dir", ports[0])),
            ("HOLM_DOMAINS__ACME__CONTACT", "admin@app.test".into()),
            ("HOLM_DOMAINS__ACME__AGREE", "true".into()),
            ("HOLM_DOMAINS__ACME__ROOT", identity.certificate().display().to_string()),
        ];
        place.identity = Some(Identity::new());
        Self { place, dns, identity, ports, folder, root: None }
    }

    /// Starts the server, then the authority, which checks proofs at the server's port.
    fn start(&mut self) -> (Holm, Client, Pebble) {
        let (server, client) = self.place.start();
        let pebble = self.authority(&server);
        (server, client, pebble)
    }

    /// Starts an authority that knows nothing of an earlier one.
    fn authority(&mut self, server: &Holm) -> Pebble {
        let checked = server.address.rsplit(':').next().unwrap().parse().unwrap();
        let (folder, dns) = (self.folder.path(), self.dns.address);
        let pebble = Pebble::start(folder, &self.identity, dns, self.ports, checked);
        self.root = Some(pebble.root(&self.identity));
        pebble
    }
}

/// Requests a host over TLS, trusting only the authority.
fn at(client: &Client, host: &str, root: &reqwest::Certificate) -> Option<u16> {
    let address: SocketAddr = client.base.split("://").nth(1).unwrap().parse().unwrap();
    let http = reqwest::blocking::Client::builder()
        .no_proxy()
        .tls_certs_only([root.clone()])
        .resolve(host, address);
    let response = http.build().unwrap().get(format!("https://{host}:{}/", address.port())).send();
    Some(response.ok()?.status().as_u16())
}

#[test]
fn hosts_of_previews_get_certificates_and_keep_them_and_no_other_name_does() {
    let mut ground = Ground::new();
    let (mut server, client, pebble) = ground.start();
    let Ground { place, dns, root, .. } = &mut ground;
    let root = root.as_ref().unwrap();
    echoing(&client, "main", "one");
    assert_eq!(prove(&client, dns, &register(&client)), "verified");
    assert_eq!(at(&client, "web.app.test", root), None, "nobody has asked for it");
    client.done("POST", "/v0/sandboxes/one/previews", Some(&preview("web", "web")));
    eventually("the host has a certificate", || at(&client, "web.app.test", root) == Some(200));
    assert_eq!(at(&client, "other.app.test", root), None);
    assert_eq!(
        kept(place.data()),
        [("account.json".into(), 0o600), ("web.app.test.pem".into(), 0o600)]
    );

    // The next start needs no authority.
    drop(pebble);
    server.end().unwrap();
    let (server, client) = place.start();
    eventually("the kept certificate is shown", || at(&client, "web.app.test", root) == Some(200));
    place.clear(server, &client);
}

#[test]
fn an_authority_that_has_lost_its_accounts_gets_another_one() {
    let mut ground = Ground::new();
    let (server, client, pebble) = ground.start();
    echoing(&client, "main", "one");
    assert_eq!(prove(&client, &ground.dns, &register(&client)), "verified");
    let ask = |prefix: &str| {
        client.done("POST", "/v0/sandboxes/one/previews", Some(&preview(prefix, prefix)))
    };
    let has = |host: &str, ground: &Ground| at(&client, host, ground.root.as_ref().unwrap());
    ask("first");
    eventually("the account is in use", || has("first.app.test", &ground) == Some(200));
    drop(pebble);
    let _pebble = ground.authority(&server);
    ask("second");
    eventually("another account is in use", || has("second.app.test", &ground) == Some(200));
    ground.place.clear(server, &client);
}

#[test]
fn a_workspace_that_has_had_its_orders_waits_and_another_does_not() {
    let mut ground = Ground::new();
    ground.place.settings.push(("HOLM_DOMAINS__ACME__ORDERS_WORKSPACE_HOUR_MAX", "1".into()));
    let (server, client, _pebble) = ground.start();
    let has = |host: &str| at(&client, host, ground.root.as_ref().unwrap()) == Some(200);
    client.done("POST", "/v0/workspaces", Some(&json!({"name": "team"})));
    echoing(&client, "main", "one");
    echoing(&client, "team", "two");
    assert_eq!(prove(&client, &ground.dns, &register(&client)), "verified");
    let share = json!({"targetWorkspace": "team"});
    client.done("POST", "/v0/customdomains/app.test/share?workspace=main", Some(&share));

    let previews = "/v0/sandboxes/one/previews?workspace=main";
    client.done("POST", previews, Some(&preview("first", "first")));
    eventually("the first host has a certificate", || has("first.app.test"));
    client.done("POST", previews, Some(&preview("more", "more")));
    let previews = "/v0/sandboxes/two/previews?workspace=team";
    client.done("POST", previews, Some(&preview("team", "team")));
    eventually("the host of the other has a certificate", || has("team.app.test"));
    assert!(!has("more.app.test"), "it was asked for first");
    client.done("DELETE", "/v0/sandboxes/two?workspace=team", None);
    client.done("DELETE", "/v0/workspaces/team", None);
    ground.place.clear(server, &client);
}

/// Returns names and permissions of the stored files.
fn kept(data: &Path) -> Vec<(String, u32)> {
    let entries = std::fs::read_dir(data.join("certificates")).unwrap().map(Result::unwrap);
    let mut files: Vec<_> = entries
        .map(|entry| {
            let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
            (entry.file_name().into_string().unwrap(), mode)
        })
        .collect();
    files.sort();
    files
}
