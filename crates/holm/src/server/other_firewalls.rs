//! Other firewalls of this machine, such as Docker's, which drop what sandboxes send. Whatever any
//! of them drops is dropped, so they have to be told; their rules are not ours to change.

use super::machine_name;
use crate::config::{Config, Egress};
use node::{Other, Subnet, WayOut};
use std::io;
use std::time::Duration;
use types::World;

/// Rules come and go: Docker, for example, may start after this server.
const LOOK_EVERY: Duration = Duration::from_secs(600);

/// What keeps sandboxes from where they should get, and what mends it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) says: String,
    pub(crate) remedy: String,
}

/// Logs what keeps sandboxes from the internet, at the start and whenever it changes.
pub(super) async fn watch(config: Config, world: World) {
    if config.node.egress == Egress::Nothing {
        return;
    }
    let Ok(subnet) = config.node.subnet.parse() else { return };
    let Ok(machine) = machine_name::read(&config.data.folder, &world) else { return };
    let name = machine_name::of_node(&machine);
    let mut known = Vec::new();
    loop {
        let name = name.clone();
        match tokio::task::spawn_blocking(move || look(&name, subnet)).await {
            Ok(Ok(found)) if found != known => {
                for Problem { says, remedy } in &found {
                    tracing::warn!(remedy, "{says}");
                }
                if found.is_empty() {
                    tracing::info!("what sandboxes send gets past the firewalls of this machine");
                }
                known = found;
            }
            Ok(Err(error)) => tracing::debug!(%error, "the firewalls could not be tried"),
            Ok(Ok(_)) | Err(_) => {}
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

pub(crate) fn look(node: &str, subnet: Subnet) -> io::Result<Vec<Problem>> {
    Ok(problems(&node::try_way_out(node, subnet)?, subnet))
}

fn problems(way: &WayOut, subnet: Subnet) -> Vec<Problem> {
    let mut found = Vec::new();
    if !way.routed {
        found.push(Problem {
            says: "this machine has no route to the internet, and so sandboxes have none".into(),
            remedy: "ip route add default via GATEWAY".into(),
        });
    } else if !way.forwards {
        found.push(Problem {
            says: "IPv4 forwarding was turned off after Holm had turned it on: sandboxes without \
                   network rules reach nothing"
                .into(),
            remedy: "sysctl -w net.ipv4.ip_forward=1, and set it in a file of /etc/sysctl.d".into(),
        });
    } else if !way.internet {
        found.push(Problem {
            says: "another firewall of this machine drops what sandboxes send to the internet"
                .into(),
            remedy: remedies(way, |other| Some(pass(other, subnet))),
        });
    }
    if !way.proxy {
        found.push(Problem {
            says: "another firewall of this machine drops what sandboxes with network rules send \
                   to Holm's proxy and resolver"
                .into(),
            remedy: remedies(way, |other| arrive(other, subnet)),
        });
    }
    found
}

/// Joins what each program that may be the cause has to be told.
fn remedies(way: &WayOut, of: impl Fn(Option<Other>) -> Option<String>) -> String {
    let known: Vec<String> = way.firewalls.iter().filter_map(|other| of(Some(*other))).collect();
    match known.is_empty() {
        true => of(None).unwrap_or_default(),
        false => known.join("; or "),
    }
}

/// Returns what has a firewall let packets of sandboxes pass, and the answers to them.
fn pass(other: Option<Other>, subnet: Subnet) -> String {
    let iptables = |chain: &str| {
        format!(
            "iptables -I {chain} -s {subnet} -j ACCEPT && iptables -I {chain} -d {subnet} \
             -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT"
        )
    };
    match other {
        None => format!("{}, or the same in the table that drops it", iptables("FORWARD")),
        Some(Other::Docker) => iptables("DOCKER-USER"),
        Some(Other::Ufw) => format!("ufw route allow from {subnet}"),
        Some(Other::Firewalld) => trusted(subnet),
    }
}

/// Returns what has a firewall let packets of sandboxes arrive. Docker does not decide about that.
fn arrive(other: Option<Other>, subnet: Subnet) -> Option<String> {
    let proxy = subnet.proxy();
    match other {
        None => Some(format!(
            "iptables -I INPUT -s {subnet} -d {proxy} -j ACCEPT, or the same in the table that \
             drops it"
        )),
        Some(Other::Docker) => None,
        Some(Other::Ufw) => Some(format!("ufw allow from {subnet} to {proxy}")),
        Some(Other::Firewalld) => Some(trusted(subnet)),
    }
}

fn trusted(subnet: Subnet) -> String {
    format!(
        "firewall-cmd --permanent --zone=trusted --add-source={subnet} && firewall-cmd --reload"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remedies_of(way: &WayOut) -> Vec<String> {
        let found = problems(way, "10.89.0.0/16".parse().unwrap());
        found.into_iter().map(|problem| problem.remedy).collect()
    }

    #[test]
    fn each_firewall_is_told_in_its_own_words() {
        let firewalls = vec![];
        let open = WayOut { routed: true, forwards: true, internet: true, proxy: true, firewalls };
        let off = WayOut { forwards: false, internet: false, ..open.clone() };
        assert!(remedies_of(&off)[0].contains("ip_forward=1"));
        assert_eq!(remedies_of(&open), Vec::<String>::new());
        let closed = WayOut { internet: false, proxy: false, ..open.clone() };
        let told = remedies_of(&closed);
        let [pass, arrive] = told.as_slice() else { panic!("{told:?}") };
        assert!(pass.contains("-I FORWARD -s 10.89.0.0/16"), "{pass}");
        assert!(arrive.contains("-I INPUT -s 10.89.0.0/16 -d 10.89.0.1 "), "{arrive}");
        let both = WayOut { firewalls: vec![Other::Docker, Other::Ufw], ..closed };
        let told = remedies_of(&both);
        let [pass, arrive] = told.as_slice() else { panic!("{told:?}") };
        assert!(pass.contains("DOCKER-USER") && pass.contains("; or ufw route allow"), "{pass}");
        assert_eq!(arrive, "ufw allow from 10.89.0.0/16 to 10.89.0.1");
        let lost = WayOut { routed: false, internet: false, ..open };
        assert_eq!(remedies_of(&lost), ["ip route add default via GATEWAY"]);
    }
}
