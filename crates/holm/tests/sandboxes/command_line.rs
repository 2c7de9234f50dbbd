//! Working with sandboxes on the command line.

use crate::setup::{Client, PATIENCE, Place, eventually};
use serde_json::json;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Command, Output, Stdio};
use std::time::Instant;

pub(crate) fn holm(client: &Client, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holm"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    command.env_clear().env("HOME", "/nowhere").env("PATH", path).env("HOLM_URL", &client.base);
    command.env("HOLM_API_KEY", &client.key).env("HOLM_WORKSPACE", "main").args(arguments);
    command
}

#[track_caller]
pub(crate) fn done(command: &mut Command, exit: i32) -> Output {
    let output = command.output().unwrap();
    let (said, noted) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(exit), "said: {said}\nnoted: {noted}");
    output
}

#[test]
fn a_command_runs_as_if_it_were_here() {
    let mut place = Place::new("15s");
    let (server, client) = place.start();
    client.create("box", &json!({}));

    let ran = done(&mut holm(&client, &["exec", "box", "echo out; echo err >&2; exit 7"]), 7);
    assert_eq!((ran.stdout.as_slice(), ran.stderr.as_slice()), (&b"out\n"[..], &b"err\n"[..]));
    // Words stay separate, and options after the command belong to it.
    let words = ["exec", "-C", "/tmp", "-e", "A=b c", "-e", "TOKEN", "box", "--", "sh", "-c"];
    let script = r#"echo "$A $TOKEN $1"; pwd"#;
    let ran = done(holm(&client, &words).args([script, "x", "-e it's"]).env("TOKEN", "s3cret"), 0);
    assert_eq!(String::from_utf8(ran.stdout).unwrap(), "b c s3cret -e it's\n/tmp\n");
    done(&mut holm(&client, &["exec", "box", "kill -9 $$"]), 137);
    done(&mut holm(&client, &["exec", "gone", "true"]), 6);
    let there = done(&mut holm(&client, &["exec", "-w", "/tmp", "box", "pwd"]), 0);
    assert_eq!(there.stdout, b"/tmp\n");

    // Exact bytes in both directions, and more than fit into one request.
    let bytes: Vec<u8> = (0..12_000_000_u32).map(|at| (at % 251) as u8).collect();
    let mut through = holm(&client, &["exec", "-i", "box", "cat"]);
    through.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut running = through.spawn().unwrap();
    let mut input = running.stdin.take().unwrap();
    let sent = bytes.clone();
    let writing = std::thread::spawn(move || input.write_all(&sent));
    let output = running.wait_with_output().unwrap();
    writing.join().unwrap().unwrap();
    assert!(output.status.success() && output.stdout == bytes, "{}", output.stdout.len());
    assert_eq!(client.run("box", "find /tmp -name '.holm-input*' | wc -l").trim(), "0");
    place.clear(server, &client);
}

#[test]
fn an_interrupt_ends_the_command_in_the_sandbox() {
    let mut place = Place::new("15s");
    let (server, client) = place.start();
    client.create("box", &json!({}));
    let ready = "trap 'exit 3' TERM; echo begun; while :; do sleep 0.1; done";
    for (line, code) in [("echo begun; exec sleep 1000", 143), (ready, 3)] {
        let mut command = holm(&client, &["exec", "box", line]);
        let mut running = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(running.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "begun\n");
        let killed = Command::new("kill").args(["-INT", &running.id().to_string()]).status();
        assert!(killed.unwrap().success());
        assert_eq!(running.wait().unwrap().code(), Some(code));
    }
    let list = client.done("GET", "/main/sandboxes/box/process", None);
    let mut all = list.as_array().unwrap().iter();
    assert!(all.all(|process| process["status"] == "stopped"), "{list}");
    place.clear(server, &client);
}

#[test]
fn a_stream_that_is_cut_goes_on_without_loss() {
    let mut place = Place::new("15s");
    let (server, client) = place.start();
    client.create("box", &json!({}));
    let count = "i=0; while [ $i -lt 300 ]; do echo $i; i=$((i+1)); sleep 0.01; done";
    let running = holm(&client, &["exec", "box", count]).stdout(Stdio::piped()).spawn();
    let mut running = running.unwrap();
    let mut output = BufReader::new(running.stdout.take().unwrap());
    let mut text = String::new();
    output.read_line(&mut text).unwrap();
    // An upgrade breaks all connections and keeps the processes.
    client.done("POST", "/main/sandboxes/box/upgrade", Some(&json!({})));
    output.read_to_string(&mut text).unwrap();
    assert!(running.wait().unwrap().success());
    let expected: String = (0..300).map(|number| format!("{number}\n")).collect();
    assert_eq!(text, expected);
    let health = client.done("GET", "/main/sandboxes/box/health", None);
    assert_eq!(health["upgradeCount"], 1, "{health}");
    place.clear(server, &client);
}

#[test]
fn folders_are_copied_both_ways() {
    let mut place = Place::new("15s");
    let (server, client) = place.start();
    client.create("box", &json!({}));
    let here = tempfile::tempdir().unwrap();
    let at = |path: &str| here.path().join(path);
    fs::create_dir_all(at("src/deep/empty")).unwrap();
    fs::write(at("src/run"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(at("src/run"), fs::Permissions::from_mode(0o755)).unwrap();
    let large: Vec<u8> = (0..11_000_001_u32).map(|at| (at % 241) as u8).collect();
    fs::write(at("src/deep/large 100%.bin"), &large).unwrap();
    fs::write(at("secret"), "s").unwrap();
    symlink("../secret", at("src/out")).unwrap();

    let copy = |from: &str, to: &str, exit: i32| {
        let output = done(holm(&client, &["cp", from, to]).current_dir(here.path()), exit);
        String::from_utf8(output.stderr).unwrap()
    };
    client.run("box", "mkdir /work");
    let told = copy("src", "box:/work", 0);
    assert!(told.contains("left out src/out") && told.contains("copied 2 files"), "{told}");
    assert_eq!(
        client.run("box", "cd /work/src && find . | sort"),
        "./\n".replace('/', "") + "./deep\n./deep/empty\n./deep/large 100%.bin\n./run\n"
    );
    assert_eq!(client.run("box", "stat -c %a /work/src/run"), "755\n");
    assert_eq!(client.run("box", "wc -c < '/work/src/deep/large 100%.bin'").trim(), "11000001");

    client.run("box", "ln -s /etc/passwd /work/src/link");
    let told = copy("box:/work/src", "back", 0);
    assert!(told.contains("left out /work/src/link"), "{told}");
    assert_eq!(fs::read(at("back/deep/large 100%.bin")).unwrap(), large);
    assert_eq!(at("back/run").metadata().unwrap().permissions().mode() & 0o777, 0o755);
    assert!(at("back/deep/empty").is_dir() && !at("back/link").exists());

    // A single file, under its own name and under a different one.
    copy("box:/work/src/run", ".", 0);
    copy("box:/work/src/run", "other", 0);
    assert_eq!(fs::read(at("run")).unwrap(), fs::read(at("other")).unwrap());
    assert_eq!(at("other").metadata().unwrap().permissions().mode() & 0o777, 0o755);
    copy("src/run", "box:/work/renamed", 0);
    assert_eq!(client.run("box", "cat /work/renamed"), "#!/bin/sh\n");
    copy("box:/nowhere", "x", 6);
    place.clear(server, &client);
}

/// What to do once a text was shown.
enum Act<'a> {
    Type(&'a str),
    /// Changes the size of the terminal.
    Resize,
}

/// Runs `holm` on a terminal of its own, and does one act after the other. Returns what was shown
/// and the exit code.
fn on_a_terminal(client: &Client, line: &str, acts: &[(&str, Act<'_>)]) -> (String, Option<i32>) {
    let place = tempfile::tempdir().unwrap();
    let resize = place.path().join("resize");
    let program = env!("CARGO_BIN_EXE_holm");
    let plain = holm(client, &[]);
    let envs: Vec<_> = plain
        .get_envs()
        .map(|(name, value)| (name.to_owned(), value.unwrap().to_owned()))
        .collect();
    let line = format!(
        "mkfifo {fifo}; (read x < {fifo} && stty rows 20 cols 70 < /dev/tty) & stty rows 33 cols 101; \
         {program} {line}; code=$?; kill $! 2> /dev/null; \
         stty -a | tr ';' '\\n' | grep -o -- '-\\?icanon'; exit $code",
        fifo = resize.display()
    );
    let mut command = Command::new("script");
    command.env_clear().envs(envs).env("SHELL", "/bin/sh").env("TERM", "xterm");
    command.args(["-qec", &line, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut running = command.spawn().unwrap();
    let mut input = running.stdin.take().unwrap();
    let mut output = running.stdout.take().unwrap();
    let (mut shown, mut buffer, begun) = (String::new(), [0; 4096], Instant::now());
    let mut acts = acts.iter().peekable();
    loop {
        while let Some((sign, act)) = acts.peek() {
            if !shown.contains(sign) {
                break;
            }
            match act {
                Act::Type(keys) => input.write_all(keys.as_bytes()).unwrap(),
                Act::Resize => fs::write(&resize, "now\n").unwrap(),
            }
            acts.next();
        }
        let length = output.read(&mut buffer).unwrap();
        if length == 0 {
            break;
        }
        shown.push_str(&String::from_utf8_lossy(&buffer[..length]));
        assert!(begun.elapsed() < PATIENCE, "{shown}");
    }
    drop(input);
    (shown, running.wait().unwrap().code())
}

#[test]
fn a_terminal_is_one_and_the_own_one_comes_back() {
    use Act::Type;
    let mut place = Place::new("15s");
    let (server, client) = place.start();
    client.create("box", &json!({}));
    let resized = "until stty size | grep -x '20 70'; do sleep 0.1; done; X=kept; echo be''gun\r";
    let typed = [
        ("# ", Type("stty size; echo smal''ler\r")),
        ("smaller\r\n", Act::Resize),
        ("smaller\r\n", Type(resized)),
        ("begun\r\n", Type("\u{10}\u{11}")),
    ];
    let connect = "connect box --session mine --shell /bin/sh";
    let (shown, code) = on_a_terminal(&client, connect, &typed);
    assert!(shown.contains("33 101") && shown.contains("--session mine"), "{shown}");
    assert!(code == Some(0) && shown.trim_end().ends_with("\nicanon"), "{code:?} {shown}");

    // The same shell continues, and its exit ends the command.
    let typed = [("begun\r\n", Type("echo still-$X; exit\r"))];
    let (shown, code) = on_a_terminal(&client, connect, &typed);
    assert!(shown.contains("still-kept") && code == Some(0), "{code:?} {shown}");
    assert!(shown.trim_end().ends_with("\nicanon"), "{shown}");

    let (shown, code) = on_a_terminal(&client, "exec -t -e A=b box 'tty; echo $A; exit 5'", &[]);
    assert!(shown.contains("/dev/pts/") && code == Some(5), "{code:?} {shown}");
    assert!(!shown.contains("HOLM_COMMAND"), "{shown}");
    let sleeping = [("asleep", Type("\u{3}"))];
    let asleep = "exec -t box 'echo as''leep; sleep 1000'";
    assert_eq!(on_a_terminal(&client, asleep, &sleeping).1, Some(130));

    // Without a terminal the command is refused.
    done(holm(&client, &["connect", "box"]).stdin(Stdio::null()), 2);
    eventually("the terminals have gone", || {
        client.run("box", "ps | grep -c 'sleep 100[0]' || true").trim() == "0"
    });
    place.clear(server, &client);
}

/// Sends a request on a new connection, and returns head and body of the answer.
fn ask(address: &str, host: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn ports_are_forwarded_to_this_machine_alone() {
    let mut place = Place::new("15s");
    let (server, client) = place.start();
    client.create("box", &json!({}));
    client.run("box", "mkdir -p /www/sub && echo it-is-me > /www/page");
    let serve = json!({"command": "httpd -f -p 3000 -h /www", "waitForPorts": [3000]});
    client.done("POST", "/main/sandboxes/box/process", Some(&serve));
    let mut command = holm(&client, &["port-forward", "box", ":3000"]);
    let mut running = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(running.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.strip_prefix("http://").unwrap().split(' ').next().unwrap().to_owned();
    assert!(address.starts_with("127.0.0.1:") && line.ends_with("is port 3000 of box\n"), "{line}");

    let page = ask(&address, "localhost", "/page");
    assert!(page.starts_with("HTTP/1.1 200") && page.ends_with("it-is-me\n"), "{page}");
    // No other content shares this origin, so the page is not confined.
    assert!(!page.to_lowercase().contains("content-security-policy"), "{page}");
    // A redirect leads to where the client is.
    let moved = ask(&address, "localhost", "/sub");
    assert!(moved.to_lowercase().contains("location: /sub/\r\n"), "{moved}");
    // No path leads out of the port, and a foreign page cannot get here by using its own domain.
    for path in ["/../../process", "/%2e%2e/process", "/..%5c../process"] {
        let refused = ask(&address, "localhost", path);
        assert!(!refused.contains("httpd -f"), "{path}: {refused}");
    }
    assert!(ask(&address, "evil.example", "/page").starts_with("HTTP/1.1 403"));
    let killed = Command::new("kill").arg(running.id().to_string()).status().unwrap();
    assert!(killed.success());
    assert_eq!(running.wait().unwrap().code(), Some(130));
    place.clear(server, &client);
}

#[test]
fn a_forwarded_connection_may_become_a_websocket() {
    let mut place = Place::new("15s");
    let (server, client) = place.start();
    client.create("box", &json!({}));
    // Switches protocols and then echoes everything it receives.
    let answer = "HTTP/1.1 101 x\\r\\nConnection: Upgrade\\r\\nUpgrade: websocket\\r\\n\\r\\n";
    let script =
        format!("while read -r l && [ ${{#l}} -gt 1 ]; do :; done; printf '{answer}'; exec cat");
    client.run("box", &format!("cat > /tmp/echo <<'END'\n{script}\nEND"));
    let serve = json!({"command": "nc -ll -p 3000 -e /bin/sh /tmp/echo", "waitForPorts": [3000]});
    client.done("POST", "/main/sandboxes/box/process", Some(&serve));
    let mut command = holm(&client, &["port-forward", "box", ":3000"]);
    let mut running = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(running.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.strip_prefix("http://").unwrap().split(' ').next().unwrap().to_owned();
    let mut stream = TcpStream::connect(&address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==";
    write!(stream, "GET /ws HTTP/1.1\r\nHost: localhost\r\n{upgrade}\r\n\r\n").unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut head).unwrap() > 0, "{head}");
    }
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    stream.write_all(b"\x81\x02hi").unwrap();
    let mut heard = [0; 4];
    reader.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"\x81\x02hi");
    running.kill().unwrap();
    running.wait().unwrap();
    place.clear(server, &client);
}

#[test]
fn a_port_gets_an_address() {
    let mut place = Place::new("15s");
    let (server, client) = place.start();
    client.create("box", &json!({}));
    let made = done(&mut holm(&client, &["preview", "box", "3000", "--public"]), 0);
    let url = String::from_utf8(made.stdout).unwrap();
    assert!(url.starts_with("http"), "{url}");
    // Asking again finds the preview; a different one with that name is not replaced.
    let again = done(&mut holm(&client, &["preview", "box", "3000", "--public"]), 0);
    assert_eq!(String::from_utf8(again.stdout).unwrap(), url);
    done(&mut holm(&client, &["preview", "box", "3000"]), 7);
    done(&mut holm(&client, &["preview", "box", "0"]), 2);
    let listed = done(&mut holm(&client, &["get", "sandbox", "box", "previews"]), 0);
    assert!(String::from_utf8(listed.stdout).unwrap().contains("port-3000"));
    place.clear(server, &client);
}
