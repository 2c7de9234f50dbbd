//! Programs in Go and Java get out under the rules, whether they use the proxy or not, and over
//! HTTP/2 as well.

mod site;

use crate::setup::{Client, Place, make_image_of};
use crate::world::World;
use images::Config;
use serde_json::json;
use site::Site;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use testing::Holm;

const IMAGE: &str = "holm/runtimes";
/// Not where distributions put it: images of other makers say where it is.
const JAVA_HOME: &str = "/usr/local/java";
const GO: &str = "/bin/ask";
/// The HTTP client of Java gives a proxy no password for HTTPS unless this allows it.
const OPTIONS: &str = "-Djdk.http.auth.tunneling.disabledSchemes=";

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sandboxes/runtimes").join(name)
}

#[track_caller]
fn run(command: &mut Command, package: &str) -> String {
    let done = command.output().unwrap_or_else(|error| {
        panic!("{command:?}: {error}; is the package {package} installed?");
    });
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

/// Compiles the program in Go into the root of an image. It needs nothing else there.
fn put_go(root: &Path) {
    let mut command = Command::new("go");
    command.arg("build").arg("-o").arg(root.join(GO.trim_start_matches('/'))).arg(source("ask.go"));
    command.env("CGO_ENABLED", "0").env("GO111MODULE", "off");
    // Compiling the library takes longest, and is done once.
    command.env("GOCACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("go"));
    run(&mut command, "golang-go");
}

/// Puts the program in Java into the root of an image, and as much of Java as it needs.
fn put_java(root: &Path) {
    let home = root.join(JAVA_HOME.trim_start_matches('/'));
    std::fs::create_dir_all(home.parent().unwrap()).unwrap();
    let mut command = Command::new("jlink");
    command.args(["--add-modules", "java.net.http,jdk.crypto.ec", "--strip-debug", "--output"]);
    run(command.arg(&home), "default-jdk-headless");
    let mut command = Command::new("javac");
    run(command.arg("-d").arg(&home).arg(source("Ask.java")), "default-jdk-headless");
    for library in libraries(&home) {
        let to = root.join(library.trim_start_matches('/'));
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(library, to).unwrap();
    }
}

/// Returns the libraries of this machine that Java loads.
fn libraries(home: &Path) -> BTreeSet<String> {
    let own = home.to_str().unwrap();
    let mut found = BTreeSet::new();
    for program in ["bin/java", "lib/server/libjvm.so", "lib/libnet.so", "lib/libnio.so"] {
        let told = run(Command::new("ldd").arg(home.join(program)), "libc-bin");
        let paths = told.split_whitespace().filter(|word| word.starts_with('/'));
        found.extend(paths.filter(|path| !path.starts_with(own)).map(str::to_owned));
    }
    found
}

/// A server, and a sandbox whose rules add a secret to requests to one host. The server is dropped
/// before its place.
struct Scene {
    server: Holm,
    place: Place,
    world: World,
    site: Site,
    client: Client,
}

impl Scene {
    fn start(fill: impl FnOnce(&Path)) -> Self {
        let world = World::open();
        let mut place = Place::new("600s");
        let config = Config {
            env: [("JAVA_HOME".to_owned(), JAVA_HOME.to_owned())].into(),
            ..Config::default()
        };
        make_image_of(place.data(), IMAGE, &config, fill);
        let site = Site::start(world.address);
        let authorities = place.data().join("authorities.pem");
        std::fs::write(&authorities, &site.authority).unwrap();
        place.settings = world.settings();
        place.settings.push(("HOLM_EGRESS__AUTHORITIES", authorities.display().to_string()));
        let (server, client) = place.start();
        let rule = json!({"destinations": ["api.site.test"], "headers": {"x-key": "{{SECRET:key}}"},
            "body": {"key": "{{SECRET:key}}"}, "secrets": {"key": "s3cret"}});
        let network = json!({"allowedDomains": ["*.site.test"], "proxy": {"routing": [rule]}});
        let env = json!([{"name": "JAVA_TOOL_OPTIONS", "value": OPTIONS}]);
        let runtime = json!({"image": IMAGE, "memory": 2048, "envs": env});
        client.create("box", &json!({"runtime": runtime, "network": network}));
        Self { server, place, world, site, client }
    }

    /// Returns what the program in the sandbox prints about an answer.
    fn ask(&self, program: &str, url: &str) -> String {
        self.client.run("box", &format!("{program} {url} '{{\"a\":1}}'"))
    }

    #[track_caller]
    fn gets_out(&self, program: &str, http_2: &str) {
        let (tls, plain) = (self.site.port, self.world.port);
        let told = self.ask(program, &format!("https://api.site.test:{tls}/"));
        assert!(told.starts_with(&format!("{http_2} 200")), "{program}: {told}");
        for part in ["HTTP/2.0 POST", "x-key: s3cret", r#""key":"s3cret""#, r#""a":1"#] {
            assert!(told.contains(part), "{program}: {told}");
        }
        let told = self.ask(program, &format!("http://api.site.test:{plain}/"));
        assert!(told.contains(" 200 ") && told.contains("x-key: s3cret"), "{program}: {told}");
        // Nobody has opened this one.
        let told = self.ask(program, &format!("https://other.site.test:{tls}/"));
        assert!(told.starts_with(&format!("{http_2} 200")), "{program}: {told}");
        assert!(!told.contains("s3cret") && !told.contains("x-blaxel-request-id"), "{told}");
        for url in [format!("https://bad.test:{tls}/"), format!("http://bad.test:{plain}/")] {
            let told = self.ask(program, &url);
            assert!(told.starts_with("failed") || told.contains("firewall_blocked"), "{told}");
        }
        assert!(!self.world.asked("bad.test") && !self.site.asked("bad.test"), "{program}");
    }

    fn end(self) {
        self.place.clear(self.server, &self.client);
    }
}

#[test]
fn programs_in_go_get_out_with_and_without_the_proxy() {
    let scene = Scene::start(put_go);
    for way in ["proxy", "direct"] {
        scene.gets_out(&format!("{GO} {way}"), "HTTP/2.0");
    }
    // Its certificate is of an authority that the settings do not list.
    let stranger = Site::start(scene.world.address);
    let told =
        scene.ask(&format!("{GO} proxy"), &format!("https://api.site.test:{}/", stranger.port));
    assert!(told.starts_with("HTTP/2.0 502 upstream_tls"), "{told}");
    assert!(!stranger.asked("api.site.test"));
    scene.end();
}

#[test]
fn programs_in_java_get_out_with_and_without_the_proxy() {
    let scene = Scene::start(put_java);
    for way in ["proxy", "direct"] {
        let java = format!("{JAVA_HOME}/bin/java -XX:TieredStopAtLevel=1 -cp {JAVA_HOME}");
        scene.gets_out(&format!("{java} Ask {way}"), "HTTP_2");
    }
    scene.end();
}
