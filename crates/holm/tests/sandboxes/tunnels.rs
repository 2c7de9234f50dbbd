//! A sandbox's tunnel, requested as clients do, to a peer that is part of this test.

use crate::internet::Internet;
use crate::setup::{Client, Place, eventually};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use boringtun::noise::{Tunn, TunnResult};
use boringtun::x25519::{PublicKey, StaticSecret};
use serde_json::{Value, json};
use std::net::UdpSocket;

const PORT: u16 = 51_820;
const OWN_KEY: [u8; 32] = [7; 32];
const PEER_KEY: [u8; 32] = [9; 32];
const CONFIG: &str = "/main/sandboxes/box/network/tunnel/config";
const TUNNEL: &str = "/main/sandboxes/box/network/tunnel";
const UDP: u8 = 17;

fn public(key: [u8; 32]) -> PublicKey {
    PublicKey::from(&StaticSecret::from(key))
}

/// Returns settings in the form in which they are sent.
fn config(internet: &Internet, change: &Value) -> Value {
    let mut settings = json!({
        "local_ip": "10.9.0.2/32",
        "peer_endpoint": format!("{}:{PORT}", internet.server()),
        "peer_public_key": STANDARD.encode(public(PEER_KEY).as_bytes()),
        "private_key": STANDARD.encode(OWN_KEY),
        "allowed_ips": ["10.9.0.0/24"],
    });
    settings.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    json!({"config": STANDARD.encode(settings.to_string())})
}

/// Starts a peer that answers DNS questions in a special way, until the process ends.
fn start_peer(internet: &Internet) {
    let socket = internet.within(|| UdpSocket::bind((internet.server(), PORT)).unwrap());
    std::thread::spawn(move || {
        let key = StaticSecret::from(PEER_KEY);
        let mut noise = Tunn::new(key, public(OWN_KEY), None, None, 5, None);
        loop {
            answer(&socket, &mut noise);
        }
    });
}

fn answer(socket: &UdpSocket, noise: &mut Tunn) {
    let (mut datagram, mut plain, mut sealed) = ([0; 4_096], [0; 4_096], [0; 4_096]);
    let Ok((length, from)) = socket.recv_from(&mut datagram) else { return };
    match noise.decapsulate(None, &datagram[..length], &mut plain) {
        TunnResult::WriteToNetwork(packet) => drop(socket.send_to(packet, from).unwrap()),
        TunnResult::WriteToTunnelV4(packet, _) => {
            let head = usize::from(packet[0] & 15) * 4;
            if packet[9] != UDP {
                return;
            }
            let (source, rest) = packet[12..].split_at_mut(4);
            source.swap_with_slice(&mut rest[..4]);
            let (source, rest) = packet[head..].split_at_mut(2);
            source.swap_with_slice(&mut rest[..2]);
            // A datagram without a checksum, and an answer (YXDOMAIN) that nobody else gives.
            packet[head + 6..head + 8].fill(0);
            packet[head + 10] |= 0x80;
            packet[head + 11] = 0x86;
            if let TunnResult::WriteToNetwork(packet) = noise.encapsulate(packet, &mut sealed) {
                socket.send_to(packet, from).unwrap();
            }
        }
        TunnResult::WriteToTunnelV6(..) | TunnResult::Done | TunnResult::Err(_) => {}
    }
}

/// Returns whether anybody answers in the network behind the tunnel.
fn is_through(client: &Client) -> bool {
    client.run("box", "timeout 3 nslookup a.test 10.9.0.1 2>&1 || true").contains("YXDOMAIN")
}

#[test]
fn a_tunnel_is_brought_up_and_down_and_comes_back_with_the_server() {
    let internet = Internet::open();
    start_peer(&internet);
    let mut place = Place::new("600s");
    let (mut server, mut client) = place.start();
    client.create("box", &json!({}));
    assert!(!is_through(&client));
    assert_eq!(client.ask("DELETE", TUNNEL, None).unwrap().0, 400, "there is none");
    for (change, status) in [
        (json!({"local_ip": "10.9.0.2"}), 422),
        (json!({"peer_endpoint": "127.0.0.1:51820"}), 500),
        (json!({"interface": "eth0"}), 422),
    ] {
        let (answered, body) =
            client.ask("PUT", CONFIG, Some(&config(&internet, &change))).unwrap();
        assert_eq!(answered, status, "{change}: {body}");
        assert!(!body.to_string().contains(&STANDARD.encode(OWN_KEY)), "{body}");
    }
    assert_eq!(client.ask("PUT", CONFIG, Some(&json!({"config": "?"}))).unwrap().0, 400);

    client.done("PUT", CONFIG, Some(&config(&internet, &json!({}))));
    eventually("a way through", || is_through(&client));
    // Nobody inside may change the tunnel or get its key.
    client.run("box", "! ip link set wg0 down 2>/dev/null");
    client.run("box", "! ip address add 10.9.0.3/32 dev wg0 2>/dev/null");
    let key = STANDARD.encode(OWN_KEY);
    let (first, rest) = key.split_at(8);
    client.run(
        "box",
        &format!("a={first}; ! grep -rlsF ${{a}}{rest} /proc/[0-9]*/environ /etc /var"),
    );

    server.kill();
    (server, client) = place.start();
    eventually("the way through again", || is_through(&client));
    client.done("DELETE", TUNNEL, None);
    assert!(!is_through(&client));
    place.clear(server, &client);
}

#[test]
fn lists_of_domains_and_a_tunnel_exclude_each_other() {
    let internet = Internet::open();
    start_peer(&internet);
    let mut place = Place::new("600s");
    let (server, client) = place.start();
    client.create("box", &json!({}));
    client.done("PUT", CONFIG, Some(&config(&internet, &json!({}))));
    eventually("a way through", || is_through(&client));
    let mut wish = client.get("box");
    wish["spec"]["network"] = json!({"allowedDomains": ["good.test"]});
    client.done("PUT", "/v0/sandboxes/box", Some(&wish));
    assert!(!is_through(&client), "it would lead past the lists");
    let again = client.ask("PUT", CONFIG, Some(&config(&internet, &json!({})))).unwrap();
    assert_eq!(again.0, 409, "{}", again.1);
    place.clear(server, &client);
}
