//! Each setting of deployments, builds and the registry in `docs/configuration.md`, tried with the
//! program: its effect can be seen from outside.
//!
//! Not visible from outside: `gateway.demand_repeat` (a demand that is not lost is not repeated)
//! and `deployments.looks_max` (how many rows are compared at once).

use crate::place::{Client, IMAGE, Place, TASK, eventually};
use crate::tools::{
    Request, address, agent, ask, clear, failure, printed, send, sources, until_printed, upload,
    upload_dockerfile,
};
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;
use std::time::{Duration, Instant};
use testing::Holm;

const MIB: usize = 1 << 20;

/// Starts a server with these settings in its file.
pub(crate) fn start(text: &str) -> (Place, Holm, Client) {
    let mut place = Place::new("15s");
    std::fs::write(place.data().join("holm.toml"), text).unwrap();
    let (server, client) = place.start();
    (place, server, client)
}

pub(crate) fn end((place, server, client): (Place, Holm, Client)) {
    clear(&client);
    place.clear(server, &client);
}

/// Returns bytes that cannot be compressed.
pub(crate) fn noise(count: usize) -> Vec<u8> {
    let mut state = 7_u32;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as u8
    };
    (0..count).map(|_| next()).collect()
}

/// Returns the code blocks in a language from the documentation of the settings.
fn examples(language: &str) -> Vec<String> {
    let page = include_str!("../../../../docs/configuration.md");
    let blocks = page.split("```").skip(1).step_by(2);
    let of = |block: &str| block.strip_prefix(language)?.strip_prefix('\n').map(str::to_owned);
    blocks.filter_map(of).collect()
}

/// Returns the settings in a shell block: `export HOLM_SECTION__KEY='value' …`.
fn variables(block: &str) -> Vec<(String, String)> {
    let script = format!("{block}\nenv -0");
    let shell = std::process::Command::new("sh").env_clear().args(["-euc", &script]).output();
    let all = String::from_utf8(shell.unwrap().stdout).unwrap();
    let pairs = all.split('\0').filter_map(|pair| pair.split_once('='));
    let settings = pairs.filter(|(name, _)| name.starts_with("HOLM_"));
    settings.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[test]
fn the_examples_of_the_page_start_a_server() {
    let (files, shells) = (examples("toml"), examples("sh"));
    let shells: Vec<_> = shells.iter().map(|block| variables(block)).collect();
    let shells: Vec<_> = shells.into_iter().filter(|settings| !settings.is_empty()).collect();
    assert!(!files.is_empty() && !shells.is_empty());
    for text in &files {
        let place = start(text);
        assert_eq!(place.2.ask("GET", "/v0/agents", None).unwrap().0, 200, "{text}");
        end(place);
    }
    for settings in shells {
        let mut place = Place::new("15s");
        place.settings = settings
            .iter()
            .map(|(name, value)| (&*Box::leak(name.clone().into_boxed_str()), value.clone()))
            .collect();
        let (server, client) = place.start();
        assert_eq!(client.ask("GET", "/v0/agents", None).unwrap().0, 200, "{settings:?}");
        end((place, server, client));
    }
}

#[test]
fn the_address_of_an_upload_runs_out() {
    let place = start("[builds]\nupload_valid = \"1s\"");
    let (line, asked) = (format!("PUT {}", address(&place.2, "a")), Instant::now());
    std::thread::sleep(Duration::from_millis(1001).saturating_sub(asked.elapsed()));
    assert_eq!(send(&place.2, &line, "", b"x").status, 410);
    assert!(failure(&place.2, "a").contains("nothing was uploaded in time"));
    end(place);
}

#[test]
fn an_upload_that_is_slow_or_silent_ends() {
    for (setting, why) in [
        ("upload_idle = \"500ms\"", "nothing more was sent for too long"),
        ("upload_timeout = \"500ms\"", "the upload took too long"),
    ] {
        let place = start(&format!("[builds]\n{setting}"));
        let line = format!("PUT {}", address(&place.2, "a"));
        let mut upload = Request::begin(&place.2, &line, "", 1000);
        upload.send(b"half");
        let answer = upload.answer();
        assert!(answer.status == 400 && answer.body.contains(why), "{setting}: {}", answer.body);
        assert_eq!(failure(&place.2, "a"), why);
        end(place);
    }
}

#[test]
fn an_upload_is_as_large_as_the_settings_say() {
    let place = start("[builds]\nupload_mb_max = 1");
    let line = format!("PUT {}", address(&place.2, "a"));
    let answer = Request::begin(&place.2, &line, "", 2 * MIB as u64).answer();
    assert_eq!(answer.status, 413, "{}", answer.body);
    end(place);
}

/// Waits until this many uploads are in progress.
fn until_uploading(client: &Client, count: usize) {
    let line = format!("holm_admission_held{{resource=\"uploads\"}} {count}\n");
    eventually("they are under way", || {
        client.done("GET", "/metrics", None).as_str().unwrap().contains(&line)
    });
}

#[test]
fn uploads_of_a_workspace_are_limited_in_number_and_size() {
    let place = start(
        "[builds]\nupload_mb_max = 1\nsources_workspace_mb_max = 1\nuploads_workspace_max = 2\nopen_workspace_max = 4",
    );
    let client = &place.2;
    let [_, b, c, d] = ["a", "b", "c", "d"].map(|name| format!("PUT {}", address(client, name)));
    let refused = ask(client, "e");
    assert_eq!(refused.status, 429, "{}", refused.body);

    let slow = format!("FROM {TASK}\nRUN sleep 1000\n");
    upload(client, "a", &sources(&[("Dockerfile", slow.as_bytes()), ("x", &noise(600 << 10))]));
    let answer = Request::begin(client, &b, "", 600 << 10).answer();
    assert!(answer.status == 429 && answer.body.contains("sources"), "{}", answer.body);

    let held = [b, c].map(|line| Request::begin(client, &line, "", 100));
    until_uploading(client, 2);
    let answer = Request::begin(client, &d, "", 100).answer();
    assert!(answer.status == 429 && answer.body.contains("2 uploads"), "{}", answer.body);
    drop(held);
    end(place);
}

#[test]
fn uploads_of_all_are_limited_in_number() {
    let place = start("[builds]\nuploads_max = 1\nopen_max = 2");
    let client = &place.2;
    let lines = ["a", "b"].map(|name| format!("PUT {}", address(client, name)));
    assert_eq!(ask(client, "c").status, 503);
    let held = Request::begin(client, &lines[0], "", 1000);
    until_uploading(client, 1);
    assert_eq!(Request::begin(client, &lines[1], "", 1000).answer().status, 503);
    drop(held);
    end(place);
}

#[test]
fn a_build_waits_for_its_slot_and_no_longer_than_it_may() {
    let slow = format!("FROM {TASK}\nRUN echo begun; sleep 1000\n");
    for setting in ["slots = 1", "workspace_slots = 1"] {
        let place = start(&format!("[builds]\n{setting}\nwait_max = \"5s\""));
        upload_dockerfile(&place.2, "a", &slow);
        until_printed(&place.2, "a", "begun");
        upload_dockerfile(&place.2, "b", &slow);
        assert!(failure(&place.2, "b").contains("no builder was free in time"), "{setting}");
        assert_eq!(agent(&place.2, "a")["status"], "BUILDING");
        end(place);
    }
    let place = start("[builds]\ntimeout = \"2s\"");
    upload_dockerfile(&place.2, "a", &slow);
    let why = failure(&place.2, "a");
    assert!(why.contains("2 s"), "{why}");
    end(place);
}

#[test]
fn what_the_machine_failed_at_is_tried_as_often_as_it_says() {
    let here = start("[builds]\nattempts_max = 2\nbackoff = \"100ms\"");
    let (place, _, client) = &here;
    upload_dockerfile(client, "a", &format!("FROM {TASK}\nRUN echo begun; sleep 1000\n"));
    for attempt in 1..=2 {
        eventually("the step runs", || printed(client, "a").matches("\nbegun").count() == attempt);
        for group in place.groups() {
            let processes = std::fs::read_to_string(group.join("cgroup.procs")).unwrap();
            // Killing one of them ends the others, perhaps before their turn comes.
            Command::new("kill").arg("-9").args(processes.split_whitespace()).status().unwrap();
        }
    }
    let why = failure(client, "a");
    let log = printed(client, "a");
    assert_eq!(log.matches("[1/2] FROM").count(), 2, "{why}\n{log}");
    end(here);
}

#[test]
fn a_step_waits_for_room_on_a_full_machine() {
    let mut place = Place::new("15s");
    place.settings = vec![
        ("HOLM_NODE__INSTANCES_MAX", "1".into()),
        ("HOLM_NODE__WORKSPACE_SHARE_PERCENT", "100".into()),
    ];
    let (server, client) = place.start();
    // A neighbour has the only place on the machine.
    client.done("POST", "/v0/workspaces", Some(&json!({"name": "team"})));
    let team = client.in_workspace("team");
    team.create("box", &json!({}));
    let main = client.in_workspace("main");
    upload_dockerfile(&main, "a", &format!("FROM {TASK}\nENV COMMAND=x\nRUN true\n"));
    until_printed(&main, "a", "waiting for room: ");
    team.delete("box");
    until_printed(&main, "a", "built sha256:");
    main.done("DELETE", "/v0/workspaces/team", None);
    end((place, server, main));
}

#[test]
fn a_build_is_shown_until_somebody_has_seen_it() {
    let place = start("[builds]\nshown_for = \"5m\"");
    upload_dockerfile(&place.2, "a", &format!("FROM {TASK}\nENV COMMAND=x\n"));
    until_printed(&place.2, "a", "built sha256:");
    // Longer than without the setting.
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(agent(&place.2, "a")["status"], "BUILDING");
    eventually("it goes on", || agent(&place.2, "a")["status"] != "BUILDING");
    end(place);
}

#[test]
fn sources_are_as_large_as_the_settings_say() {
    let dockerfile = format!("FROM {TASK}\n").into_bytes();
    let dockerfile = ("Dockerfile", dockerfile.as_slice());
    let large = noise(2 * MIB);
    let many: Vec<String> = (0..9).map(|number| number.to_string()).collect();
    let many = many.iter().map(|name| (name.as_str(), &b"x"[..]));
    let many: Vec<_> = many.chain([dockerfile]).collect();
    // About fifty times as large as its archive, at any compression level.
    let sparse = [noise(MIB / 2), vec![0; 40 * MIB]].concat();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&sources(&[dockerfile, ("sparse", &sparse)])).unwrap();
    let cases = [
        ("sources_mb_max = 1", sources(&[dockerfile, ("large", &large)])),
        ("sources_files_max = 5", sources(&many)),
        ("sources_ratio_max = 20", packed.finish().unwrap()),
    ];
    for (setting, archive) in &cases {
        let place = start(&format!("[builder]\n{setting}"));
        upload(&place.2, "a", archive);
        let why = failure(&place.2, "a");
        assert!(why.contains("more than"), "{setting}: {why}");
        end(place);
    }
    // No other limit refuses them.
    let plain = start("");
    for (setting, archive) in &cases {
        let name = setting.split(' ').next().unwrap().replace('_', "-");
        upload(&plain.2, &name, archive);
        until_printed(&plain.2, &name, "built sha256:");
    }
    end(plain);
}

/// Answers each request with this body until the test ends.
fn serve(body: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 4096];
            // A client that is gone needs no answer.
            let _ = stream.read(&mut request);
            let _ = write!(stream, "HTTP/1.1 200 x\r\nContent-Length: {}\r\n\r\n", body.len());
            let _ = stream.write_all(&body);
        }
    });
    address
}

#[test]
fn steps_take_as_much_as_the_settings_say() {
    let place = start(
        "[builder]\nmemory_mb = 64\ndisk_mb = 16\nlayers_max = 3\nlog_kb_max = 4\nadd_mb_max = 1\ninside = [\"127.0.0.1\"]\n\
         kept_folder_mb = 4\nnetwork = false",
    );
    let client = &place.2;
    let build = |name: &str, steps: &str| {
        upload_dockerfile(client, name, &format!("FROM {TASK}\n{steps}\n"));
        failure(client, name)
    };
    let why = build("memory", "RUN tail /dev/zero");
    assert!(why.contains("64 MB"), "{why}");
    let why = build("disk", "RUN head -c 30000000 /dev/zero > /big");
    assert!(why.contains("line 2"), "{why}");
    let why = build("layers", "RUN touch /1\nRUN touch /2\nRUN touch /3");
    assert!(why.contains("layers"), "{why}");
    build("log", "RUN yes 'a line of many letters' | head -n 1000\nRUN exit 1");
    let log = printed(client, "log");
    assert!(log.contains("left out") && log.len() < 16 << 10, "{}", log.len());
    let address = serve(noise(2 * MIB));
    let why = build("add", &format!("ADD {address}/file /"));
    assert!(why.contains("more than 1048576 bytes"), "{why}");
    let why = build("kept", "RUN --mount=type=cache,target=/c head -c 9000000 /dev/zero > /c/x");
    assert!(why.contains("line 2"), "{why}");
    // Without a network there is no way out, but the program still runs.
    build("offline", "RUN echo routes $(wc -l < /proc/net/route); exit 1");
    until_printed(client, "offline", "routes 1");
    end(place);
}

#[test]
fn what_builds_keep_is_as_much_as_the_settings_say() {
    let small = serve(b"small".to_vec());
    let settings = "[builder]\ncache_mb = 2\nkept_folders_max = 1\ninside = [\"127.0.0.1\"]\npython_image = \"holm/tiny\"\nnode_image = \"holm/task\"\n\
        sandbox_images = [\"registry.example/vendor/sandbox\"]";
    let place = start(settings);
    let client = &place.2;
    let again = |name: &str, steps: &str| {
        for _ in 0..2 {
            let marker = printed(client, name).matches("error: ").count();
            upload_dockerfile(client, name, &format!("FROM {TASK}\n{steps}\nRUN exit 1\n"));
            eventually("it is over", || printed(client, name).matches("error: ").count() > marker);
        }
        printed(client, name)
    };
    let log = again("kept", "RUN touch /x");
    assert!(log.contains("CACHED"), "{log}");
    let log = again("large", "RUN head -c 3000000 /dev/urandom > /x");
    assert!(!log.contains("CACHED"), "{log}");
    let log = again("fetched", &format!("ADD {small}/file /\nRUN cat /file"));
    assert!(log.contains("small"), "{log}");

    let folder = |id: &str, command: &str| {
        format!("RUN --mount=type=cache,id={id},target=/c {command}\nRUN exit 1")
    };
    let build = |name: &str, steps: &str| {
        upload_dockerfile(client, name, &format!("FROM {TASK}\n{steps}\n"));
        failure(client, name);
        printed(client, name)
    };
    build("one", &folder("one", "touch /c/x"));
    assert!(build("same", &folder("one", "echo has $(ls /c)")).contains("has x"));
    build("two", &folder("two", "touch /c/y"));
    assert!(!build("gone", &folder("one", "echo now $(ls /c)")).contains("now x"));

    // Here there is a way out.
    build("online", "RUN [ $(wc -l < /proc/net/route) -gt 1 ] && echo a way out; exit 1");
    until_printed(client, "online", "a way out");
    let vendor = "COPY --from=registry.example/vendor/sandbox:latest /sandbox-api /there\nRUN test -s /there && echo stands in; exit 1";
    assert!(build("vendor", vendor).contains("stands in"));
    for (name, file, image) in
        [("python", "requirements.txt", IMAGE), ("node", "package.json", TASK)]
    {
        upload(client, name, &sources(&[(file, b"{}")]));
        failure(client, name);
        assert!(printed(client, name).contains(&format!("FROM {image}\n")), "{name}");
    }
    end(place);
}
