//! Tunnels of sandboxes: what is stored of them, when they come back, and which network settings
//! exclude them.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use crate::common::Cloud;
use crate::common::machine::{IMAGE, Pretended};
use crate::common::tunnels::{INSIDE, PretendedTunnels};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use control::machine::Machine;
use control::tunnels;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::{resources, settings};
use types::KindName;
use types::ids::ResourceId;
use types::instance::{InstanceName, Outcome};
use types::tunnel::{NotATunnel, TunnelRefusal};

fn config(interface: &str, host: &str) -> String {
    let key = STANDARD.encode([7; 32]);
    let settings = json!({
        "local_ip": "10.9.0.2/32", "peer_endpoint": format!("{host}:51820"), "interface": interface,
        "peer_public_key": key, "private_key": key,
    });
    STANDARD.encode(settings.to_string())
}

fn wish(memory: u32, network: &Value) -> Value {
    json!({
        "metadata": {"name": "one"},
        "spec": {"runtime": {"image": IMAGE, "memory": memory}, "network": network},
    })
}

impl Cloud {
    async fn sandbox(&self) -> ResourceId {
        let main = self.workspace("main").await;
        let find =
            move |tx: &mut store::Tx<'_>| resources::find(tx, &main, KindName::Sandbox, "", "one");
        self.store.read(find).await.unwrap().unwrap().id
    }

    /// Returns what the database has of the tunnel.
    async fn kept(&self, id: &ResourceId) -> Option<String> {
        let name = format!("tunnels/{id}");
        self.store.read(move |tx| settings::get(tx, &name)).await.unwrap()
    }
}

/// Waits until one instance has a tunnel, and it is another than before.
async fn until_another(made: &PretendedTunnels, before: &[InstanceName]) {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let now = made.instances();
        if now.len() == 1 && now != before {
            return;
        }
        assert!(Instant::now() < deadline, "{now:?} have tunnels");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_sandbox_has_its_tunnel_until_it_is_taken_down() {
    let made = PretendedTunnels::default();
    let machine = || {
        Arc::new(Pretended::new(|_| Ok(Outcome::SUCCESS)).with_tunnels(&made)) as Arc<dyn Machine>
    };
    for cloud in Cloud::start_on_machines(machine).await {
        let open = json!({});
        cloud.post("/v0/sandboxes", wish(512, &open)).await.ok();
        cloud.until("/v0/sandboxes/one", |it| it["status"] == "DEPLOYED").await;
        let id = cloud.sandbox().await;
        let set = |config: String| tunnels::set(&cloud.control, &id, config);

        let unreadable = set("?".into()).await.unwrap_err();
        assert!(matches!(unreadable, TunnelRefusal::Settings(NotATunnel::Unreadable(_))));
        let invalid = set(config("eth0", "vpn.example.com")).await.unwrap_err();
        assert!(matches!(invalid, TunnelRefusal::Settings(NotATunnel::Invalid(_))));
        let unfit = set(config("wg0", INSIDE)).await.unwrap_err();
        assert!(matches!(unfit, TunnelRefusal::Failed(_)), "{unfit}");
        assert_eq!((cloud.kept(&id).await, made.interfaces()), (None, vec![]));
        let none = tunnels::remove(&cloud.control, &id).await.unwrap_err();
        assert_eq!(none, TunnelRefusal::Missing);

        set(config("wg0", "vpn.example.com")).await.unwrap();
        set(config("vpn", "vpn.example.com")).await.unwrap();
        assert_eq!(made.interfaces(), ["vpn"], "one in the place of the other");
        let kept = cloud.kept(&id).await.unwrap();
        assert!(kept.starts_with("sealed:"), "{kept}");

        // A new instance of the sandbox gets the tunnel of the previous one.
        let before = made.instances();
        made.lose_all();
        cloud.put("/v0/sandboxes/one", wish(1024, &open)).await.ok();
        until_another(&made, &before).await;
        assert_eq!(made.interfaces(), ["vpn"]);

        let lists = json!({"allowedDomains": ["example.com"]});
        cloud.put("/v0/sandboxes/one", wish(1024, &lists)).await.ok();
        let led_past = set(config("wg0", "vpn.example.com")).await.unwrap_err();
        assert!(matches!(led_past, TunnelRefusal::Rules(_)), "{led_past}");
        assert_eq!(made.interfaces(), ["vpn"], "what was there is not changed");

        tunnels::remove(&cloud.control, &id).await.unwrap();
        assert_eq!((cloud.kept(&id).await, made.interfaces()), (None, vec![]));
        cloud.put("/v0/sandboxes/one", wish(1024, &open)).await.ok();
        set(config("wg0", "vpn.example.com")).await.unwrap();
        cloud.delete("/v0/sandboxes/one").await.ok();
        assert_eq!(cloud.kept(&id).await, None, "it goes with its sandbox");
        made.lose_all();
    }
}

#[tokio::test]
async fn a_tunnel_that_the_machine_did_not_remove_can_be_removed_again() {
    let made = PretendedTunnels::default();
    let machine = Pretended::new(|_| Ok(Outcome::SUCCESS)).with_tunnels(&made);
    let cloud = Cloud::start_on_machine(Arc::new(machine), crate::common::settings()).await;
    cloud.post("/v0/sandboxes", wish(512, &json!({}))).await.ok();
    cloud.until("/v0/sandboxes/one", |it| it["status"] == "DEPLOYED").await;
    let id = cloud.sandbox().await;
    tunnels::set(&cloud.control, &id, config("wg0", "vpn.example.com")).await.unwrap();
    made.set_stuck(true);
    let failed = tunnels::remove(&cloud.control, &id).await.unwrap_err();
    assert!(matches!(failed, TunnelRefusal::Failed(_)), "{failed}");
    assert_eq!(made.interfaces(), ["wg0"]);
    made.set_stuck(false);
    tunnels::remove(&cloud.control, &id).await.unwrap();
    assert_eq!((cloud.kept(&id).await, made.interfaces()), (None, vec![]));
}
