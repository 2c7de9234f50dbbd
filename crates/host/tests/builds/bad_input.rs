//! Input that cannot be built: the reason is reported, and nothing is left over.

use crate::cases::archive;
use crate::place::{Place, tar};
use control::machine::{BuildFault, Builder};
use images::Digest;
use std::fs;
use std::time::Duration;
use types::ids::{BuildId, WorkspaceId};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_built_is_refused_with_its_reason() {
    let place = Place::new();
    for (number, (dockerfile, reason)) in [
        ("FROM localhost/test/base\nRUN exit 7\n", "line 2: the command ended with exit code 7"),
        ("FROM localhost/test/base\nNONSENSE\n", "line 2: `NONSENSE`"),
        ("FROM localhost/test/base\nCOPY missing /x\n", "line 2: there is no `missing`"),
        ("FROM localhost/test/base\nCOPY ../../etc/shadow /x\n", "line 2: there is no"),
        ("FROM localhost/test/base\nCOPY out /x\n", "line 2: there is no `out`"),
        ("FROM localhost/nowhere\n", "line 1: "),
        ("FROM localhost/test/base\nADD http://127.0.0.1:1/x /x\n", "not on the internet"),
        ("FROM localhost/test/base\nRUN --network=host true\n", "line 2: "),
        ("FROM localhost/test/base\nUSER nobody-here\nRUN true\n", "no user `nobody-here`"),
        ("FROM localhost/test/base\nRUN [\"/missing\"]\n", "line 2: "),
        (
            "FROM localhost/test/base\nRUN --mount=type=cache,target=/m/sub --mount=target=/m true\n",
            "line 2: RUN --mount: there is no place for /m/sub",
        ),
        ("FROM scratch\nRUN true\n", "line 2: "),
        ("FROM scratch\nENV A=1\n", "no file in the image"),
        ("FROM --platform=linux/s390x localhost/test/base\n", "line 1: this machine builds for"),
        ("", "there is no FROM"),
    ]
    .into_iter()
    .enumerate()
    {
        let folder = tempfile::tempdir_in(place.data.path()).unwrap();
        fs::write(folder.path().join("Dockerfile"), dockerfile).unwrap();
        std::os::unix::fs::symlink("/etc/shadow", folder.path().join("out")).unwrap();
        let seen = place.build(&format!("b{number}"), tar(folder.path(), &["-c", "."])).await;
        match seen.built {
            Err(BuildFault::Sources(why) | BuildFault::Failed(why)) => {
                assert!(why.contains(reason), "{dockerfile}: {why}");
            }
            other => panic!("{dockerfile}: {other:?}\n{}", seen.log),
        }
    }
    place.clear();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn archives_that_are_none_are_refused() {
    let place = Place::with(|settings| {
        settings.unpacked_bytes_max = 1 << 20;
        settings.sources_entries_max = 100;
    });
    let bomb = {
        let folder = tempfile::tempdir_in(place.data.path()).unwrap();
        fs::write(folder.path().join("zeros"), vec![0; 4 << 20]).unwrap();
        tar(folder.path(), &["-z", "-c", "."])
    };
    let many: Vec<(String, &str)> = (0..200).map(|number| (number.to_string(), "")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(name, text)| (name.as_str(), *text)).collect();
    let device = tar("/".as_ref(), &["-c", "dev/null"]);
    let absolute = tar("/".as_ref(), &["-c", "-P", "/etc/hostname"]);
    for (number, (what, bytes)) in [
        ("nothing", Vec::new()),
        ("text", b"hello, this is no archive".repeat(100)),
        ("half a zip", b"PK\x03\x04 and so on".to_vec()),
        ("half a gzip", b"\x1f\x8b and so on".to_vec()),
        ("a bomb", bomb),
        ("too many files", archive(&place, &many)),
        ("a device", device),
        ("an absolute name", absolute),
        ("no Dockerfile", archive(&place, &[("x", "1")])),
    ]
    .into_iter()
    .enumerate()
    {
        let seen = place.build(&format!("a{number}"), bytes).await;
        assert!(matches!(seen.built, Err(BuildFault::Sources(_))), "{what}: {:?}", seen.built);
    }
    place.clear();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_build_has_limits_of_time_disk_and_output() {
    let place = Place::with(|settings| {
        settings.log_bytes_max = 10_000;
        settings.disk_mb = 16;
    });
    let dockerfile = "FROM localhost/test/base\nRUN yes | head -c 1000000\nRUN head -c 100000000 /dev/zero > /x\n";
    let seen = place.build("one", archive(&place, &[("Dockerfile", dockerfile)])).await;
    assert!(matches!(seen.built, Err(BuildFault::Failed(_))), "{:?}", seen.built);
    assert!(seen.log.len() < 200_000, "{} bytes", seen.log.len());
    place.clear();

    let place = Place::with(|settings| settings.time_max = Duration::from_secs(3));
    let dockerfile = "FROM localhost/test/base\nRUN while :; do :; done\n";
    let seen = place.build("one", archive(&place, &[("Dockerfile", dockerfile)])).await;
    assert!(
        matches!(seen.built, Err(BuildFault::TooSlow(_) | BuildFault::Failed(_))),
        "{:?}",
        seen.built
    );
    place.clear();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_build_that_nobody_waits_for_ends() {
    let place = Place::new();
    let dockerfile = "FROM localhost/test/base\nRUN echo begun; sleep 1000\n";
    let files = archive(&place, &[("Dockerfile", dockerfile)]);
    place.abandon("one", files, "begun").await;
    // The step is gone: another build of the same name starts from the beginning.
    let files = archive(&place, &[("Dockerfile", "FROM localhost/test/base\nRUN echo ok\n")]);
    let seen = place.build("one", files).await;
    assert!(seen.built.is_ok(), "{:?}", seen.built);
    place.clear();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_waits_for_room_that_another_build_has() {
    // Each step takes all that a workspace may have.
    let place = Place::with(|settings| settings.disk_mb = u32::MAX);
    let dockerfile = "FROM localhost/test/base\nRUN echo begun; sleep 1000\n";
    let files = archive(&place, &[("Dockerfile", dockerfile)]);
    let one = place.upload("wsp_test", "one", files).await;
    let first = place.begin(&one, "begun").await;
    let files = archive(&place, &[("Dockerfile", "FROM localhost/test/base\nRUN echo ok\n")]);
    let two = place.upload("wsp_test", "two", files).await;
    let second = place.begin(&two, "waiting for room: ").await;
    drop(first);
    second.end().await.unwrap();
    place.clear_of(&[&one, &two]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_image_that_is_let_go_leaves_that_of_another_build() {
    let place = Place::new();
    let dockerfile = "FROM localhost/test/base\nRUN echo one > /one\n";
    let mut images = Vec::new();
    for build in ["one", "two"] {
        let seen = place.build(build, archive(&place, &[("Dockerfile", dockerfile)])).await;
        images.push(seen.built.unwrap().digest.parse::<Digest>().unwrap());
    }
    let let_go = |build: &str| {
        let (build, workspace) = (BuildId::known(build), WorkspaceId::known("wsp_test"));
        let builder = &place.builder;
        async move { builder.release(&build, &workspace, "sandbox/test").await.unwrap() }
    };
    let_go("bld_one").await;
    place.store.collect().unwrap();
    assert!(!place.store.has(&images[0]) || images[0] == images[1]);
    assert!(place.store.has(&images[1]), "another build has it");
    let_go("bld_two").await;
    place.store.collect().unwrap();
    assert!(!place.store.has(&images[1]));
    place.clear();
}
