//! A place for a server with sandboxes, and a client for it.

use images::{Config, Settings, Store};
use reqwest::blocking;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use testing::{Holm, Start, machine};

pub(crate) const IMAGE: &str = "holm/tiny";
/// The same image, with a program that starts by itself.
pub(crate) const STARTING: &str = "holm/starting";
/// Runs the content of the variable `COMMAND`, with the arguments of a task.
pub(crate) const TASK: &str = "holm/task";
/// Nothing takes longer, however busy the machine is.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A server's folder and settings. Servers in it must be gone when it is dropped. A failed test
/// leaves behind no instances or firewall rules that could disturb other tests.
pub(crate) struct Place {
    data: TempDir,
    /// Key from the first start. A place that shares its database with another server is given that
    /// server's key.
    pub(crate) key: Option<String>,
    standby: &'static str,
    /// Settings in addition to the usual ones.
    pub(crate) settings: Vec<(&'static str, String)>,
    /// If set, the server speaks TLS with it.
    pub(crate) identity: Option<Identity>,
}

impl Place {
    pub(crate) fn new(standby: &'static str) -> Self {
        assert!(rustix::process::geteuid().is_root(), "sandboxes need root");
        let data = tempfile::tempdir().unwrap();
        make_image(data.path());
        Self { data, key: None, standby, settings: Vec::new(), identity: None }
    }

    pub(crate) fn start(&mut self) -> (Holm, Client) {
        let mut server = self.run().expect("the server starts");
        self.key = self.key.take().or(server.key.take());
        let key = self.key.as_deref().expect("the first start shows a key");
        let client = Client::new(&server.address, key, self.identity.as_ref());
        (server, client)
    }

    /// Starts a server, which may fail.
    pub(crate) fn run(&self) -> std::io::Result<Holm> {
        let mut start = Start {
            program: std::env::var_os("HOLM_PROGRAM")
                .unwrap_or(env!("CARGO_BIN_EXE_holm").into())
                .into(),
            data: self.data.path(),
            database: None,
            settings: machine::settings(),
        };
        start.settings.extend([
            ("HOLM_GATEWAY__STANDBY", self.standby.to_owned()),
            // Shorter than the client's timeout, so that a failure is answered.
            ("HOLM_GATEWAY__WAIT_TIMEOUT", "30s".to_owned()),
            ("HOLM_LOG__LEVEL", "warn".to_owned()),
        ]);
        start.settings.extend(self.settings.clone());
        if let Some(identity) = &self.identity {
            start.settings.extend(identity.settings());
        }
        start.run()
    }

    pub(crate) fn data(&self) -> &Path {
        self.data.path()
    }

    /// Returns the control groups of all existing instances.
    pub(crate) fn groups(&self) -> Vec<PathBuf> {
        machine::groups(self.data()).unwrap()
    }

    /// Deletes every sandbox, stops the server cleanly, and checks that neither has left anything.
    pub(crate) fn clear(&self, mut server: Holm, client: &Client) {
        // Repeated, because requests of clients that went away may still take effect.
        eventually("no instance is left", || {
            for name in client.names() {
                client.delete(&name);
            }
            self.groups().is_empty()
        });
        server.end().unwrap();
        // A start that was in progress when the groups were counted leaves its instance. The next
        // server ends it, since its owner is deleted.
        if !self.groups().is_empty() {
            let mut next = self.run().unwrap();
            eventually("what had started is ended", || self.groups().is_empty());
            next.end().unwrap();
        }
        // The kernel removes mounts some time after the process that had them.
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = machine::traces(self.data()).unwrap();
            if left.is_empty() {
                return;
            }
            assert!(Instant::now() < deadline, "{left:?} is left on the machine");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Err(error) = machine::sweep(self.data())
        {
            eprintln!("{} is left behind: {error}", self.data().display());
        }
    }
}

/// Makes a small image, and others that start a program.
fn make_image(data: &Path) {
    let archive = testing::small_root(data, &[]).unwrap();
    let store = store(data);
    store.import_rootfs(archive.as_slice(), &Config::default(), &IMAGE.parse().unwrap()).unwrap();
    let loud =
        ["/bin/sh", "-c", "echo $0 says $GREETING; exec sleep 1000", "it"].map(str::to_owned);
    let env = [("GREETING".to_owned(), "hello".to_owned())].into();
    let starting = Config { entrypoint: loud.to_vec(), env, ..Config::default() };
    store.import_rootfs(archive.as_slice(), &starting, &STARTING.parse().unwrap()).unwrap();
    let told = ["/bin/sh", "-c", "eval \"$COMMAND\"", "task"].map(str::to_owned);
    let task = Config { entrypoint: told.to_vec(), ..Config::default() };
    store.import_rootfs(archive.as_slice(), &task, &TASK.parse().unwrap()).unwrap();
}

fn store(data: &Path) -> Store {
    let settings = Settings { overlay: images::Overlay::User, ..Settings::default() };
    Store::open(&data.join("images"), settings).unwrap()
}

/// Makes an image of the small root and what `fill` puts into its folder.
pub(crate) fn make_image_of(data: &Path, name: &str, config: &Config, fill: impl FnOnce(&Path)) {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().join("root");
    std::fs::create_dir_all(root.join("bin")).unwrap();
    fill(&root);
    let archive = testing::small_root(place.path(), &[]).unwrap();
    store(data).import_rootfs(archive.as_slice(), config, &name.parse().unwrap()).unwrap();
}

/// Makes the small image again, with extra files by path.
pub(crate) fn make_image_with(data: &Path, files: &[(&str, &str)]) {
    let place = tempfile::tempdir().unwrap();
    let archive = testing::small_root(place.path(), files).unwrap();
    let image =
        store(data).import_rootfs(archive.as_slice(), &Config::default(), &IMAGE.parse().unwrap());
    image.unwrap();
}

/// Waits until something that must happen has happened.
#[track_caller]
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[derive(Clone)]
pub(crate) struct Client {
    http: blocking::Client,
    pub(crate) base: String,
    pub(crate) key: String,
    /// A workspace other than the key's own.
    workspace: Option<String>,
}

impl Client {
    fn new(address: &str, key: &str, identity: Option<&Identity>) -> Self {
        // Fails only if it is already installed.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut http = blocking::Client::builder().no_proxy().timeout(PATIENCE);
        if let Some(identity) = identity {
            http = http.tls_certs_only([identity.trusted()]);
        }
        let scheme = if identity.is_some() { "https" } else { "http" };
        Self {
            http: http.build().unwrap(),
            base: format!("{scheme}://{address}"),
            key: key.to_owned(),
            workspace: None,
        }
    }

    pub(crate) fn in_workspace(&self, name: &str) -> Self {
        Self { workspace: Some(name.to_owned()), ..self.clone() }
    }

    /// Returns status and body; `None` if the connection broke.
    pub(crate) fn ask(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Option<(u16, Value)> {
        let mut request =
            self.http.request(method.parse().unwrap(), format!("{}{path}", self.base));
        request = request.bearer_auth(&self.key).header("service-version", "2026-04-28");
        if let Some(workspace) = &self.workspace {
            request = request.header("x-service-workspace", workspace);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        let response = request.send().ok()?;
        let status = response.status().as_u16();
        let text = response.text().ok()?;
        Some((status, serde_json::from_str(&text).unwrap_or(Value::String(text))))
    }

    /// Sends a request and disconnects after this many milliseconds, answered or not.
    pub(crate) fn begin(&self, method: &str, path: &str, body: &Value, stay_ms: u64) {
        let (address, body, key) =
            (self.base.trim_start_matches("http://"), body.to_string(), &self.key);
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        let head =
            format!("host: holm\r\nauthorization: Bearer {key}\r\ncontent-length: {}", body.len());
        write!(stream, "{method} {path} HTTP/1.1\r\n{head}\r\n\r\n{body}").unwrap();
        std::thread::sleep(Duration::from_millis(stay_ms));
    }

    /// Sends a request and returns the connection once the answer to it begins.
    pub(crate) fn open(&self, path: &str) -> std::net::TcpStream {
        let address = self.base.trim_start_matches("http://");
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let head = format!("host: holm\r\nauthorization: Bearer {}\r\nconnection: close", self.key);
        write!(stream, "GET {path} HTTP/1.1\r\n{head}\r\n\r\n").unwrap();
        let mut start = [0; 12];
        stream.read_exact(&mut start).unwrap();
        assert_eq!(start, *b"HTTP/1.1 200");
        stream
    }

    #[track_caller]
    pub(crate) fn done(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        match self.ask(method, path, body) {
            Some((200, body)) => body,
            other => panic!(
                "{method} {path}: {other:?}; {:?}",
                self.ask("GET", "/v0/sandboxes?limit=200", None)
            ),
        }
    }

    #[track_caller]
    pub(crate) fn create(&self, name: &str, more: &Value) -> Value {
        self.done("POST", "/v0/sandboxes", Some(&body(name, more)))
    }

    #[track_caller]
    pub(crate) fn get(&self, name: &str) -> Value {
        self.done("GET", &format!("/v0/sandboxes/{name}"), None)
    }

    #[track_caller]
    pub(crate) fn delete(&self, name: &str) {
        self.done("DELETE", &format!("/v0/sandboxes/{name}"), None);
    }

    /// Returns the output of a command, which must succeed.
    #[track_caller]
    pub(crate) fn run(&self, name: &str, command: &str) -> String {
        let asked = json!({"command": command, "waitForCompletion": true});
        let workspace = self.workspace.as_deref().unwrap_or("main");
        let process = format!("/{workspace}/sandboxes/{name}/process");
        let done = self.done("POST", &process, Some(&asked));
        assert_eq!(done["exitCode"], 0, "{command}: {done}");
        done["stdout"].as_str().unwrap().to_owned()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let page = self.done("GET", "/v0/sandboxes?limit=200", None);
        assert_eq!(page["meta"]["hasMore"], false, "more than this helper reads");
        page["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["metadata"]["name"].as_str().unwrap().to_owned())
            .collect()
    }
}

/// A certificate for servers on this machine, which clients trust directly.
pub(crate) struct Identity {
    folder: TempDir,
}

impl Identity {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let names = ["localhost", "127.0.0.1"].map(str::to_owned);
        let certificate = rcgen::CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
        std::fs::write(folder.path().join("own.crt"), certificate.pem()).unwrap();
        std::fs::write(folder.path().join("own.key"), key.serialize_pem()).unwrap();
        Self { folder }
    }

    pub(crate) fn certificate(&self) -> PathBuf {
        self.folder.path().join("own.crt")
    }

    pub(crate) fn key(&self) -> PathBuf {
        self.folder.path().join("own.key")
    }

    pub(crate) fn trusted(&self) -> reqwest::Certificate {
        reqwest::Certificate::from_pem(&std::fs::read(self.certificate()).unwrap()).unwrap()
    }

    fn settings(&self) -> [(&'static str, String); 2] {
        [
            ("HOLM_SERVER__TLS_CERTIFICATE", self.certificate().display().to_string()),
            ("HOLM_SERVER__TLS_KEY", self.key().display().to_string()),
        ]
    }
}

pub(crate) fn body(name: &str, more: &Value) -> Value {
    let mut runtime = json!({"image": IMAGE, "memory": 256, "generation": "mk2"});
    let more = more.as_object().cloned().unwrap_or_default();
    runtime
        .as_object_mut()
        .unwrap()
        .extend(more.get("runtime").and_then(Value::as_object).cloned().unwrap_or_default());
    let mut spec = json!({"runtime": runtime});
    let rest = more.into_iter().filter(|(name, _)| name != "runtime");
    spec.as_object_mut().unwrap().extend(rest);
    json!({"metadata": {"name": name}, "spec": spec})
}
