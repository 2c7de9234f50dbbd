//! The tunnel of a sandbox: its settings are read and checked in full. Bringing it up needs a
//! tunnel device and rights over the network, and an instance has neither, so that nothing inside
//! of it can change the way out.

use crate::http::{Answer, Error, Request};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use std::fs::OpenOptions;
use std::net::IpAddr;

const DEVICE: &str = "/dev/net/tun";
const KEY_BYTES: usize = 32;
/// What the kernel takes as the name of an interface.
const INTERFACE_BYTES_MAX: usize = 15;
const MTU_MIN: u32 = 576;
const MTU_MAX: u32 = 65_535;
const ALLOWED_MAX: usize = 1024;

#[derive(Deserialize)]
struct Ask {
    config: String,
}

/// Holds a secret, so there is no `Debug`.
#[derive(Deserialize)]
#[serde(default)]
struct Settings {
    local_ip: String,
    peer_endpoint: String,
    peer_public_key: String,
    private_key: String,
    mtu: u32,
    listen_port: u16,
    interface: String,
    allowed_ips: Vec<String>,
    persistent_keepalive: u16,
    route_all: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            local_ip: String::new(),
            peer_endpoint: String::new(),
            peer_public_key: String::new(),
            private_key: String::new(),
            mtu: 1420,
            listen_port: 51_820,
            interface: "wg0".into(),
            allowed_ips: vec!["0.0.0.0/0".into()],
            persistent_keepalive: 25,
            route_all: false,
        }
    }
}

pub(crate) async fn set(mut request: Request) -> Result<Answer, Error> {
    let ask: Ask = request.json().await?;
    read(&ask.config)?
        .check()
        .map_err(|why| Error::Unprocessable(format!("the tunnel cannot be: {why}")))?;
    let why = match OpenOptions::new().read(true).write(true).open(DEVICE) {
        Err(error) => format!("this sandbox may not use {DEVICE}: {error}"),
        Ok(_) => "this sandbox has a tunnel device, but no rights over its network".into(),
    };
    Err(Error::Internal(format!("failed to bring up the tunnel: {why}")))
}

pub(crate) fn remove() -> Result<Answer, Error> {
    Err(Error::BadRequest("no tunnel is active".into()))
}

/// The reasons of the parsers are left out, since they could quote the key.
fn read(config: &str) -> Result<Settings, Error> {
    let text = STANDARD
        .decode(config.trim())
        .map_err(|_| Error::BadRequest("`config` is not base64".into()))?;
    serde_json::from_slice(&text).map_err(|_| {
        Error::BadRequest("`config` does not hold the settings of a tunnel as JSON".into())
    })
}

impl Settings {
    fn check(&self) -> Result<(), String> {
        check_network("local_ip", &self.local_ip)?;
        if self.allowed_ips.is_empty() || self.allowed_ips.len() > ALLOWED_MAX {
            return Err(format!("`allowed_ips` lists 1 to {ALLOWED_MAX} networks"));
        }
        self.allowed_ips.iter().try_for_each(|network| check_network("allowed_ips", network))?;
        check_endpoint(&self.peer_endpoint)?;
        check_key("peer_public_key", &self.peer_public_key)?;
        check_key("private_key", &self.private_key)?;
        if !(MTU_MIN..=MTU_MAX).contains(&self.mtu) {
            return Err(format!("`mtu` is not {MTU_MIN} to {MTU_MAX}"));
        }
        let plain =
            |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'=' | b'+');
        let named = (1..=INTERFACE_BYTES_MAX).contains(&self.interface.len())
            && self.interface.bytes().all(plain);
        if !named || matches!(self.interface.as_str(), "." | "..") {
            return Err("`interface` is not the name of an interface".into());
        }
        Ok(())
    }
}

fn check_network(name: &str, network: &str) -> Result<(), String> {
    let parsed = network.split_once('/').and_then(|(address, bits)| {
        let bits_max = if address.parse::<IpAddr>().ok()?.is_ipv4() { 32 } else { 128 };
        bits.parse::<u8>().ok().filter(|bits| *bits <= bits_max)
    });
    parsed
        .map(drop)
        .ok_or_else(|| format!("`{name}` is not an address with the bits of its network"))
}

fn check_endpoint(endpoint: &str) -> Result<(), String> {
    let parsed = endpoint.rsplit_once(':').filter(|(host, port)| {
        let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = match bracketed {
            Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
            None => {
                !host.is_empty()
                    && host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.'))
            }
        };
        host && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    parsed.map(drop).ok_or_else(|| "`peer_endpoint` is not a host with a port".into())
}

fn check_key(name: &str, key: &str) -> Result<(), String> {
    let fits = STANDARD.decode(key).is_ok_and(|key| key.len() == KEY_BYTES);
    if fits { Ok(()) } else { Err(format!("`{name}` is not a key of {KEY_BYTES} bytes in base64")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn check(change: serde_json::Value) -> bool {
        let key = STANDARD.encode([7; KEY_BYTES]);
        let mut settings = json!({
            "local_ip": "10.0.0.2/32", "peer_endpoint": "vpn.example.com:51820", "peer_public_key": key, "private_key": key,
        });
        settings.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let config = STANDARD.encode(settings.to_string());
        read(&config).unwrap_or_else(|_| panic!("{settings}")).check().is_ok()
    }

    #[test]
    fn every_setting_is_checked() {
        assert!(check(json!({})));
        assert!(check(
            json!({"local_ip": "fd00::2/64", "peer_endpoint": "[::1]:1", "allowed_ips": ["::/0"], "route_all": true})
        ));
        for wrong in [
            json!({"local_ip": "10.0.0.2"}),
            json!({"local_ip": "10.0.0.2/33"}),
            json!({"peer_endpoint": "vpn.example.com"}),
            json!({"peer_endpoint": ":1"}),
            json!({"peer_endpoint": "a:0"}),
            json!({"peer_public_key": "short"}),
            json!({"private_key": ""}),
            json!({"mtu": 12}),
            json!({"interface": "a/b"}),
            json!({"interface": "much-too-long-a-name"}),
            json!({"allowed_ips": []}),
            json!({"allowed_ips": ["everything"]}),
        ] {
            assert!(!check(wrong.clone()), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn no_text_is_too_odd(text in "\\PC{0,60}") {
            let _ = (read(&text).is_ok(), check_network("n", &text), check_endpoint(&text), check_key("k", &text));
            let _ = read(&STANDARD.encode(&text)).is_ok();
        }
    }
}
