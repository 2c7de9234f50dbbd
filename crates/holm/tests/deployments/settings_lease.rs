//! How long a build waits for a server that does not come back, as seen by another server on the
//! same PostgreSQL.

use crate::place::Place;
use crate::settings::end;
use crate::tools::{failure, until_printed, upload_dockerfile};
use crate::{Sweep, TASK};
use std::path::Path;

/// Returns one of two servers on this database, each with half of this process's share of the
/// machine.
fn place(database: &str, keys: &Path, second: bool) -> Place {
    let own = testing::machine::own();
    let subnet = own.subnet().replace("/20", "/21");
    let [a, b, c, d] = subnet.split('.').collect::<Vec<_>>().try_into().unwrap();
    let third: u32 = c.parse().unwrap();
    let half = u32::from(second);
    let mut place = Place::new("15s");
    place.settings = vec![
        ("HOLM_STORE__URL", database.to_owned()),
        ("HOLM_STORE__KEY_FILE", keys.display().to_string()),
        ("HOLM_NODE__SUBNET", format!("{a}.{b}.{}.{d}", third + 8 * half)),
        ("HOLM_NODE__FIRST_UID", (own.first_uid() + 14_000_000 * half).to_string()),
        ("HOLM_NODE__INSTANCES_MAX", "200".to_owned()),
        ("HOLM_BUILDS__LEASE", "30s".to_owned()),
    ];
    place
}

#[test]
fn a_build_is_given_up_when_the_settings_say() {
    let (database, folder) = (testing::postgres(), tempfile::tempdir().unwrap());
    let keys = folder.path().join("keys");
    let mut first = place(&database, &keys, false);
    let mut second = place(&database, &keys, true);
    let (mut server, client) = first.start();
    second.key = Some(client.key.clone());
    let (other, its_client) = second.start();
    let _sweeps = [Sweep::of(&first), Sweep::of(&second)];
    upload_dockerfile(&client, "a", &format!("FROM {TASK}\nRUN echo begun; sleep 1000\n"));
    until_printed(&client, "a", "begun");
    server.kill();
    let why = failure(&its_client, "a");
    assert!(why.contains("was not heard of any more"), "{why}");
    // It finds that it is too late, and removes what it had started.
    let (server, client) = first.start();
    end((first, server, client));
    end((second, other, its_client));
}
