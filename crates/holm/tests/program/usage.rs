//! Usage on the command line: shown, exported and verified.

use crate::common::{Server, holm, text};
use meter::{Change, UsageFact};
use std::fs;
use std::path::Path;
use std::process::Output;
use store::usage::{Added, Owner};
use store::{Store, Target, Tx};
use tempfile::TempDir;
use types::ids::AccountId;
use types::usage::Dimension;
use types::{Timestamp, World};

/// Time window of the facts in these tests, which is in the past for any clock.
const JANUARY: [&str; 4] = ["--from", "2025-01-01", "--to", "2025-02-01"];

/// Works on the database of a stopped server.
pub(crate) fn with_database<T: Send + 'static>(
    folder: &Path,
    mut work: impl FnMut(&mut Tx<'_>) -> Result<T, store::Error> + Send + 'static,
) -> T {
    let target = Target::Sqlite { file: folder.join("data/holm.db") };
    let settings = store::Settings::new(target, folder.join("data/seal.keys"));
    let world = World::new(
        || Timestamp::from_ms(1_776_300_000_000),
        |bytes| getrandom::fill(bytes).unwrap(),
    );
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Store::open(settings, world).await.unwrap();
        store.write(move |tx| work(tx)).await.unwrap()
    })
}

/// Takes in the facts of a sandbox with 4 GB that ran for two hours.
fn take_in(tx: &mut Tx<'_>, account: &AccountId) -> Result<(), store::Error> {
    let owner = Owner {
        account: account.clone(),
        workspace: "main".into(),
        dimension: Dimension::SandboxRuntime,
        name: "box".into(),
        uuid: "id-box".into(),
        machine: None,
    };
    meter::register(tx, "box-1", &owner)?;
    let fact = |number: u64, at: &str, change| UsageFact {
        id: number.to_string(),
        subject: "box-1".into(),
        number,
        at: at.parse().unwrap(),
        stamp: None,
        change,
    };
    let facts = [
        fact(1, "2025-01-10T22:30:00Z", Change::Started { memory_mb: 4096 }),
        fact(2, "2025-01-11T00:30:00Z", Change::Ended),
    ];
    meter::take_in(tx, &facts).map(drop)
}

/// Returns a server whose sandbox has run, and the key of its admin.
fn server() -> (Server, String) {
    let server = Server::start();
    let key = server.api_key();
    let account = json(&server.cli(&key, &["workspaces", "-o", "json"]));
    let account = AccountId::known(account[0]["accountId"].as_str().unwrap());
    let (_, _, folder) = server.stop();
    with_database(folder.path(), move |tx| take_in(tx, &account));
    (Server::start_in(folder), key)
}

fn usage(server: &Server, key: &str, arguments: &[&str]) -> Output {
    let all: Vec<_> = ["usage"].iter().chain(arguments).chain(&JANUARY).copied().collect();
    server.cli(key, &all)
}

/// Returns the JSON on standard output.
fn json(output: &Output) -> serde_json::Value {
    text(output, 0);
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn usage_is_shown_and_exported() {
    let (server, key) = server();
    let shown = text(&usage(&server, &key, &["--by", "resource_name,billing_dimension"]), 0);
    for part in ["RESOURCE_NAME", "box", "$0.331200", "28,800.000 GB s", "100%", "BY DAY", "█"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let types = json(&usage(&server, &key, &["-o", "json"]));
    assert_eq!(
        (&types[0]["resourceType"], &types[0]["summary"]["cost"]),
        (&"sandbox".into(), &0.3312.into())
    );
    assert!(text(&usage(&server, &key, &["--by", "color"]), 11).contains("`groupBy` knows"));
    assert!(text(&server.cli(&key, &["usage", "--from", "soon"]), 2).contains("is no time"));
    assert!(
        text(&server.cli(&key, &["usage", "--by", "workspace"]), 0).contains("nothing was used")
    );

    let csv = usage(&server, &key, &["export", "all.csv", "--resolution", "hourly"]);
    assert!(text(&csv, 0).contains("3 rows in all.csv"));
    let written = fs::read_to_string(server.folder.path().join("all.csv")).unwrap();
    let expect =
        "2025-01-10T22:00:00.000Z,main,sandbox,box,id-box,sandbox_compute_runtime_gbs,7200,0.0828";
    assert_eq!(written.lines().nth(1), Some(expect));
    assert!(text(&usage(&server, &key, &["export", "all.csv"]), 7).contains("exists already"));
    assert!(text(&usage(&server, &key, &["export", "all.xls"]), 2).contains("--format"));
    assert!(text(&usage(&server, &key, &["export", "all.parquet"]), 0).contains("2 rows"));
    let parquet = fs::read(server.folder.path().join("all.parquet")).unwrap();
    assert!(parquet.starts_with(b"PAR1") && parquet.ends_with(b"PAR1"));
    text(&usage(&server, "hk_wrong", &["export", "none.csv"]), 4);
    let left: Vec<_> =
        fs::read_dir(server.folder.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with("none")), "{left:?}");
}

fn verify(folder: &TempDir) -> Output {
    let mut command = holm(folder.path());
    command
        .args(["usage", "verify"])
        .args(JANUARY)
        .env("HOLM_DATA__FOLDER", "data")
        .output()
        .unwrap()
}

#[test]
fn sums_that_facts_do_not_bear_out_are_found() {
    let (server, _) = server();
    assert!(
        text(&verify(&server.folder), 0).contains("3 hours of resources"),
        "while the server runs"
    );
    let (_, _, folder) = server.stop();
    let hour = "2025-01-11T05:00:00Z".parse::<Timestamp>().unwrap().ms() / 3_600_000;
    with_database(folder.path(), move |tx| {
        store::usage::add_hours(tx, &[Added { class: 1, series: 1, hour, amount: 7 }])
    });
    let found = text(&verify(&folder), 1);
    assert!(
        found.contains("2025-01-11T05:00:00.000Z") && found.contains("1 of 4 hours"),
        "{found}"
    );
}
