//! A stand-in for the internet: a separate network with a TLS server, an authority, and a name
//! server that knows only its name.

use crate::program;
use crate::running::{Running, Signal};
use anyhow::{Context as _, ensure};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

pub(crate) const NAME: &str = "api.bench.test";
/// Addresses that no provider routes, so that nothing else is there, and that no rule takes for
/// internal ones.
const SERVER: Ipv4Addr = Ipv4Addr::new(11, 97, 0, 2);
const MACHINE: &str = "11.97.0.1/30";
const NETWORK: &str = "holm-bench-internet";
const NEAR: &str = "hbench-near";
const FAR: &str = "hbench-far";
const PORT: u16 = 443;
const START_MAX: Duration = Duration::from_secs(10);
/// How long one attempt to connect may take.
const CONNECT_MAX: Duration = Duration::from_millis(50);

pub(crate) struct Internet {
    folder: PathBuf,
    _server: Running,
    /// Deleted when the server has ended.
    _network: Network,
    names: SocketAddr,
}

impl Internet {
    pub(crate) fn start(folder: &Path) -> anyhow::Result<Self> {
        certify(folder)?;
        clear();
        let network = Network;
        run("ip", &["netns", "add", NETWORK])?;
        run("ip", &["link", "add", NEAR, "type", "veth", "peer", "name", FAR, "netns", NETWORK])?;
        run("ip", &["address", "add", MACHINE, "dev", NEAR])?;
        run("ip", &["link", "set", NEAR, "up"])?;
        let within = ["-n", NETWORK];
        let far = format!("{SERVER}/30");
        run("ip", &[&within[..], &["address", "add", &far, "dev", FAR]].concat())?;
        run("ip", &[&within[..], &["link", "set", FAR, "up"]].concat())?;
        let caller = program::build_caller()?;
        let text = |name: &str| folder.join(name).display().to_string();
        let server = Signal::Kill
            .command("ip")
            .args(["netns", "exec", NETWORK])
            .arg(caller)
            .args(["serve", &format!("{SERVER}:{PORT}"), &text("server.pem"), &text("server.key")])
            .spawn()?;
        let mut server = Running::new(server, Signal::Kill);
        let address = SocketAddr::from((SERVER, PORT));
        let is_ready = || TcpStream::connect_timeout(&address, CONNECT_MAX).is_ok();
        let names = serve_names()?;
        server.await_that(START_MAX, is_ready).context("the server of the measurement")?;
        Ok(Self { folder: folder.to_owned(), _server: server, _network: network, names })
    }

    pub(crate) fn address() -> String {
        format!("{SERVER}:{PORT}")
    }

    /// Returns the file of the authority that signed the server's certificate.
    pub(crate) fn authority(&self) -> PathBuf {
        self.folder.join("authority.pem")
    }

    pub(crate) fn settings(&self) -> Vec<(&'static str, String)> {
        vec![
            ("HOLM_EGRESS__NAMESERVERS", format!(r#"["{}"]"#, self.names)),
            ("HOLM_EGRESS__AUTHORITIES", self.authority().display().to_string()),
        ]
    }
}

/// The network of the server. It is deleted when this is dropped.
struct Network;

impl Drop for Network {
    fn drop(&mut self) {
        clear();
    }
}

/// Deletes the network, and with it the interface whose other end is in it.
fn clear() {
    let _ = Command::new("ip").args(["netns", "delete", NETWORK]).stderr(Stdio::null()).status();
}

fn run(program: &str, arguments: &[&str]) -> anyhow::Result<()> {
    let output = Command::new(program).args(arguments).output().context(program.to_owned())?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} {}: {said}", arguments.join(" "));
    Ok(())
}

/// Makes an authority, and a certificate by it for the name.
fn certify(folder: &Path) -> anyhow::Result<()> {
    let script = format!(
        "cd {folder} && curve='-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes'
        openssl req -x509 $curve -days 2 -subj /CN=bench -keyout authority.key -out authority.pem &&
        openssl req $curve -subj /CN={NAME} -keyout server.key -out server.csr &&
        echo subjectAltName=DNS:{NAME} > names &&
        openssl x509 -req -in server.csr -CA authority.pem -CAkey authority.key -days 2 -extfile names -out server.pem",
        folder = folder.display()
    );
    run("sh", &["-c", &script])
}

/// Answers each question for an address with the server's, on a thread that ends with the program.
fn serve_names() -> anyhow::Result<SocketAddr> {
    const HEAD: usize = 12;
    const KIND_AND_CLASS: usize = 4;
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = socket.local_addr()?;
    thread::spawn(move || {
        let mut question = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut question) {
            let Some(name) = question[HEAD..length].iter().position(|byte| *byte == 0) else {
                continue;
            };
            let end = HEAD + name + 1 + KIND_AND_CLASS;
            let is_address = question[end - KIND_AND_CLASS..end - 2] == [0, 1];
            let mut answer = question[..end].to_vec();
            answer[2..4].copy_from_slice(&[0x81, 0x80]);
            answer[6..HEAD].copy_from_slice(&[0, u8::from(is_address), 0, 0, 0, 0]);
            if is_address {
                answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
                answer.extend(SERVER.octets());
            }
            let _ = socket.send_to(&answer, from);
        }
    });
    Ok(address)
}
