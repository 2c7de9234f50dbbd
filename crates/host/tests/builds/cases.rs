//! What the comparison with `buildah` does not cover: the cache, secrets, what is shared, and what
//! is left over.

use crate::place::{Place, Seen, tar};
use crate::tree;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Makes an archive of these files.
pub(crate) fn archive(place: &Place, files: &[(&str, &str)]) -> Vec<u8> {
    let folder = tempfile::tempdir_in(place.data.path()).unwrap();
    for (name, content) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    tar(folder.path(), &["-c", "."])
}

#[track_caller]
fn digest(seen: &Seen) -> String {
    match &seen.built {
        Ok(built) => built.digest.clone(),
        Err(error) => panic!("{error}\n{}", seen.log),
    }
}

fn text(place: &Place, seen: &Seen, path: &str) -> String {
    let built = seen.built.as_ref().unwrap_or_else(|error| panic!("{error}\n{}", seen.log));
    let digest = built.digest.parse().unwrap();
    let (image, _lease) = place.store.pin(&digest).unwrap().unwrap();
    let found = image.layers.iter().rev().map(|layer| layer.join(path)).find(|path| path.exists());
    fs::read_to_string(found.unwrap_or_else(|| panic!("{path} is not there"))).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_that_did_not_change_is_built_from_the_cache() {
    let place = Place::new();
    let files = [
        (
            "Dockerfile",
            "FROM localhost/test/base\nWORKDIR /a\nCOPY x .\nRUN cat /proc/sys/kernel/random/uuid > /when\nRUN cp x y\n",
        ),
        ("x", "1"),
    ];
    let first = place.build("one", archive(&place, &files)).await;
    assert!(first.log.contains("[5/5] RUN cp x y"), "{}", first.log);
    assert!(!first.log.contains("CACHED"), "{}", first.log);
    let again = place.build("two", archive(&place, &files)).await;
    assert_eq!(digest(&first), digest(&again));
    assert_eq!(again.log.matches("CACHED").count(), 4, "{}", again.log);
    // A changed step is built, and all that come after it.
    let files = [files[0], ("x", "2")];
    let changed = place.build("three", archive(&place, &files)).await;
    assert_eq!(changed.log.matches("CACHED").count(), 1, "{}", changed.log);
    assert_ne!(text(&place, &changed, "when"), text(&place, &first, "when"));
    assert_eq!(text(&place, &changed, "a/y"), "2");
    // Another workspace learns nothing of it.
    let files = [files[0], ("x", "1")];
    let other = place.build_as("wsp_other", "four", archive(&place, &files)).await;
    assert!(!other.log.contains("CACHED"), "{}", other.log);
    assert_ne!(digest(&other), digest(&first));
    place.clear();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secrets_are_in_no_layer_and_no_configuration() {
    let place = Place::new();
    let secret = "s3cr3t-0123456789";
    let dockerfile = "FROM localhost/test/base\nARG TOKEN\n\
        RUN --mount=type=secret,id=TOKEN,target=/root/.token test \"$(cat /root/.token)\" = \"$TOKEN\"\n\
        RUN --mount=type=secret,id=TOKEN cat /run/secrets/TOKEN | wc -c > /length\n\
        RUN --mount=type=secret,id=TOKEN,env=OTHER test -n \"$OTHER\"\n\
        RUN --mount=type=secret,id=MISSING echo without > /without\nCOPY . /all/\n";
    let files = [
        ("Dockerfile", dockerfile),
        (".env.build", "TOKEN=s3cr3t-0123456789\n"),
        (".docker/config.json", "{\"auths\":{\"s3cr3t-0123456789.example\":{}}}"),
        ("x", "1"),
    ];
    let seen = place.build("one", archive(&place, &files)).await;
    assert_eq!(text(&place, &seen, "length").trim(), secret.len().to_string());
    let layout = place.data.path().join("layout");
    place.export("one", seen.built.as_ref().unwrap(), &layout);
    let tree = tree::of_image(&layout, &place.data.path().join("compared"));
    for path in ["root/.token", "run/secrets", "all/.env.build", "all/.docker"] {
        assert!(!tree.contains_key(Path::new(path)), "{path} is in the image");
    }
    assert!(tree.contains_key(Path::new("all/x")));
    let found =
        Command::new("grep").args(["-rlF", secret]).arg(place.data.path()).output().unwrap();
    assert!(found.stdout.is_empty(), "on disk: {}", String::from_utf8_lossy(&found.stdout));
    assert!(!seen.log.contains(secret), "{}", seen.log);
    place.clear();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kept_folders_are_those_of_the_workspace() {
    let place = Place::new();
    let files = |number: &'static str| {
        [
            (
                "Dockerfile",
                "FROM localhost/test/base\nCOPY n /n\n\
           RUN --mount=type=cache,id=c,target=/cache cat /n >> /cache/all; cp /cache/all /all\n",
            ),
            ("n", number),
        ]
    };
    let first = place.build("one", archive(&place, &files("1"))).await;
    assert_eq!(text(&place, &first, "all"), "1");
    let second = place.build("two", archive(&place, &files("2"))).await;
    assert_eq!(text(&place, &second, "all"), "12");
    let other = place.build_as("wsp_other", "three", archive(&place, &files("3"))).await;
    assert_eq!(text(&place, &other, "all"), "3");
    place.clear();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_vendors_sandbox_program_has_a_stand_in() {
    let place = Place::new();
    let dockerfile = "FROM ghcr.io/blaxel-ai/sandbox:latest AS api\nFROM localhost/test/base\n\
        COPY --from=ghcr.io/blaxel-ai/sandbox:latest /sandbox-api /usr/local/bin/sandbox-api\n\
        COPY --from=api /sandbox-api /other/\nRUN test -x /other/sandbox-api\n\
        ENTRYPOINT [\"/usr/local/bin/sandbox-api\"]\n";
    let seen = place.build("one", archive(&place, &[("Dockerfile", dockerfile)])).await;
    assert!(text(&place, &seen, "usr/local/bin/sandbox-api").starts_with("#!/bin/sh"));
    place.clear();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_zip_is_as_good_as_a_tar() {
    let place = Place::new();
    let folder = place.data.path().join("zipped");
    fs::create_dir_all(folder.join("sub")).unwrap();
    fs::write(
        folder.join("Dockerfile"),
        "FROM localhost/test/base\nCOPY . /all/\nRUN /all/sub/run\n",
    )
    .unwrap();
    fs::write(folder.join("sub/run"), "#!/bin/sh\necho ran > /ran\n").unwrap();
    fs::write(folder.join("large"), "0123456789".repeat(10_000)).unwrap();
    let script = "chmod 755 sub/run && python3 -m zipfile -c ../x.zip . ";
    crate::place::run(Command::new("sh").current_dir(&folder).args(["-c", script]));
    let seen = place.build("one", fs::read(place.data.path().join("x.zip")).unwrap()).await;
    assert_eq!(text(&place, &seen, "ran"), "ran\n");
    assert_eq!(text(&place, &seen, "all/large").len(), 100_000);
    place.clear();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_without_a_network_reaches_only_itself() {
    let place = Place::new();
    let dockerfile = "FROM localhost/test/base\nRUN ip -o route > /with\nRUN --network=none ip -o route > /without; true\n";
    let seen = place.build("one", archive(&place, &[("Dockerfile", dockerfile)])).await;
    assert!(text(&place, &seen, "with").contains("default"), "{}", text(&place, &seen, "with"));
    assert_eq!(text(&place, &seen, "without"), "");
    place.clear();
}
