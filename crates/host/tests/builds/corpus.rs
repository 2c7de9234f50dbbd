//! Builds Dockerfiles of common shapes both here and with `buildah`, and compares the images: every
//! file with its type, mode, owner, content, links and times, and the configuration.

use crate::place::{BASE, OTHER, Place, base, other, run, tar};
use crate::tree;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A Dockerfile, with the settings from its first comments.
struct Case {
    name: String,
    text: String,
    ignored: String,
    arguments: Vec<(String, String)>,
    /// Whether this release of `buildah` can build it.
    compared: bool,
}

fn cases() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/builds/corpus");
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| case(file)).collect()
}

fn case(file: &Path) -> Case {
    let text = fs::read_to_string(file).unwrap();
    let said = |what: &str| -> Vec<String> {
        let prefix = format!("# {what}: ");
        text.lines().filter_map(|line| Some(line.strip_prefix(&prefix)?.to_owned())).collect()
    };
    let pair = |text: &String| text.split_once('=').map(|(a, b)| (a.to_owned(), b.to_owned()));
    Case {
        name: file.file_stem().unwrap().to_string_lossy().into_owned(),
        ignored: said("ignore").join("\n"),
        arguments: said("build-arg").iter().filter_map(pair).collect(),
        compared: said("buildah").is_empty(),
        text,
    }
}

/// Makes the files that all Dockerfiles of the corpus use.
fn make_context(root: &Path) {
    for folder in ["app/sub/deeper", "links", "hard"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    for (name, content) in [
        ("package.json", "{\"name\": \"x\", \"scripts\": {\"start\": \"cat server.js\"}}\n"),
        ("package-lock.json", "{}\n"),
        ("requirements.txt", "flask==3.0\n"),
        ("go.mod", "module x\n"),
        ("main.go", "package main\n"),
        ("server.js", "console.log(1)\n"),
        ("with space.txt", "space\n"),
        ("grüße.txt", "grüße\n"),
        ("app/main.py", "print(1)\n"),
        ("app/zebra.py", "print(2)\n"),
        ("app/start.sh", "#!/bin/sh\necho start\n"),
        ("app/sub/one.txt", "1\n"),
        ("app/sub/deeper/two.txt", "2\n"),
        ("app/.hidden", "hidden\n"),
        ("hard/one", "same\n"),
    ] {
        fs::write(root.join(name), content).unwrap();
    }
    fs::hard_link(root.join("hard/one"), root.join("hard/two")).unwrap();
    for (target, link) in
        [("../package.json", "to-file"), ("../app/sub", "to-folder"), ("nowhere", "dangling")]
    {
        std::os::unix::fs::symlink(target, root.join("links").join(link)).unwrap();
    }
    run(Command::new("chmod").arg("755").arg(root.join("app/start.sh")));
    run(Command::new("chmod").arg("600").arg(root.join("app/sub/one.txt")));
    run(Command::new("chmod").arg("750").arg(root.join("app/sub")));
    let archived = ["--owner=7", "--group=8", "--numeric-owner", "-C", "app", "-c", "."];
    fs::write(root.join("files.tar"), tar(root, &archived)).unwrap();
    let packed = [&["-z"], &archived[..]].concat();
    fs::write(root.join("files.tar.gz"), tar(root, &packed)).unwrap();
    let touch = "find . -exec touch -h -d 2001-02-03T04:05:06Z {} +";
    run(Command::new("sh").current_dir(root).args(["-c", touch]));
}

struct Buildah(PathBuf);

impl Buildah {
    fn command(&self) -> Command {
        let mut command = Command::new("buildah");
        command.arg("--root").arg(self.0.join("root")).arg("--runroot").arg(self.0.join("runroot"));
        command.args(["--storage-driver", "vfs"]);
        command
    }

    fn make_images(&self, folder: &Path) {
        for (name, fill, more) in [
            (BASE, base as fn(&Path), ""),
            (OTHER, other, "ENV OTHER=1\nCMD [\"other\"]\nWORKDIR /root\n"),
        ] {
            let root = folder.join(name.replace('/', "-"));
            fill(&root);
            let file = folder.join("Dockerfile");
            fs::write(&file, format!("FROM scratch\nCOPY . /\nENV PATH=/bin\n{more}")).unwrap();
            self.build(&file, &root, name, &[]);
            fs::remove_dir_all(&root).unwrap();
        }
    }

    fn build(&self, file: &Path, context: &Path, name: &str, arguments: &[(String, String)]) {
        let mut command = self.command();
        command.args(["bud", "--format", "docker", "--isolation", "chroot", "--layers=false"]);
        command.args(["--pull=never", "--network", "host", "-t", name]);
        for (argument, value) in arguments {
            command.arg("--build-arg").arg(format!("{argument}={value}"));
        }
        run(command.arg("-f").arg(file).arg(context));
    }

    fn save(&self, name: &str, to: &Path) {
        run(self.command().args(["push", name]).arg(format!("docker-archive:{}", to.display())));
    }
}

fn archive_config(archive: &Path) -> Value {
    let read = |file: &str| -> Value {
        let bytes = run(Command::new("tar").arg("-xOf").arg(archive).arg(file));
        serde_json::from_slice(&bytes).unwrap()
    };
    let manifest = read("manifest.json");
    read(manifest[0]["Config"].as_str().unwrap())["config"].clone()
}

fn layout_config(layout: &Path) -> Value {
    let read = |path: &Path| -> Value { serde_json::from_slice(&fs::read(path).unwrap()).unwrap() };
    let blob = |digest: &Value| {
        layout.join("blobs/sha256").join(digest.as_str().unwrap().trim_start_matches("sha256:"))
    };
    let index = read(&layout.join("index.json"));
    let manifest = read(&blob(&index["manifests"][0]["digest"]));
    read(&blob(&manifest["config"]["digest"]))["config"].clone()
}

/// Reduces a configuration to what both programs can say: leaves out empty values, and what a
/// program says about itself.
fn plain(mut config: Value) -> Value {
    for name in ["Hostname", "Domainname", "Image", "AttachStdin", "AttachStdout", "AttachStderr"] {
        config[name] = Value::Null;
    }
    for name in ["Tty", "OpenStdin", "StdinOnce", "ArgsEscaped"] {
        config[name] = Value::Null;
    }
    if let Some(labels) = config["Labels"].as_object_mut() {
        labels.retain(|name, _| !name.starts_with("io.buildah"));
    }
    if let Some(env) = config["Env"].as_array_mut() {
        env.sort_by_key(ToString::to_string);
    }
    if let Some(config) = config.as_object_mut() {
        config.retain(|_, value| {
            !matches!(value, Value::Null)
                && *value != json!("")
                && *value != json!([])
                && *value != json!({})
        });
    }
    config
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn images_are_those_that_buildah_makes() {
    let place = Place::new();
    let work = place.data.path().join("work");
    fs::create_dir_all(&work).unwrap();
    let buildah = Buildah(place.data.path().join("buildah"));
    buildah.make_images(&work);
    let only = std::env::var("CASE").unwrap_or_default();
    let mut wrong = Vec::new();
    let cases = cases();
    assert!(cases.len() >= 60, "there are {} Dockerfiles", cases.len());
    for (number, case) in cases.iter().filter(|case| case.name.contains(&only)).enumerate() {
        let context = work.join("context");
        fs::create_dir_all(&context).unwrap();
        make_context(&context);
        if !case.ignored.is_empty() {
            fs::write(context.join(".dockerignore"), &case.ignored).unwrap();
        }
        let file = context.join("Dockerfile");
        fs::write(&file, &case.text).unwrap();
        let secrets: String =
            case.arguments.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
        fs::write(context.join(".env.build"), secrets).unwrap();
        let archive = tar(&context, &["-z", "-c", "."]);
        fs::remove_file(context.join(".env.build")).unwrap();
        let build = format!("c{number}");
        let seen = place.build(&build, archive).await;
        let built = match seen.built {
            Ok(built) => built,
            Err(error) => {
                wrong.push(format!("{}: {error}\n{}", case.name, seen.log));
                fs::remove_dir_all(&context).unwrap();
                continue;
            }
        };
        let layout = work.join("layout");
        place.export(&build, &built, &layout);
        let ours = tree::of_image(&layout, &work.join("ours"));
        if case.compared {
            buildah.build(&file, &context, "localhost/compared", &case.arguments);
            let saved = work.join("saved.tar");
            buildah.save("localhost/compared", &saved);
            let theirs = tree::of_image(&saved, &work.join("theirs"));
            let mut found = tree::differences(&ours, &theirs);
            let (own, other) = (plain(layout_config(&layout)), plain(archive_config(&saved)));
            if own != other {
                found.push(format!("configuration: here {own}\n there {other}"));
            }
            if !found.is_empty() {
                wrong.push(format!("{}:\n  {}", case.name, found.join("\n  ")));
            }
            fs::remove_file(saved).unwrap();
            fs::remove_dir_all(work.join("theirs")).unwrap();
        }
        for folder in ["layout", "ours", "context"] {
            fs::remove_dir_all(work.join(folder)).unwrap();
        }
    }
    place.clear();
    assert!(wrong.is_empty(), "{} of them differ:\n{}", wrong.len(), wrong.join("\n"));
}
