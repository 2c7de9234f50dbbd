//! Planning: from a folder and flags to the requests to send.

use super::flags::Args;
use crate::client::target::{Target, resolve};
use crate::commands::apply::substitute::Secrets;
use crate::commands::apply::{self, Document};
use crate::error::Error;
use crate::project::manifest::{self, Manifest};
use crate::project::pack::Sources;
use crate::project::resource::{self, Deployed, Image, Wishes};
use serde_json::Value;
use std::fs;
use std::path::{Component, Path};

const DOCKERFILE: &str = "Dockerfile";
const DOCUMENTS: &str = ".blaxel";
/// Members of a spec that `blaxel.toml` has no word for.
const UNSAID: [&str; 10] = [
    "description",
    "enabled",
    "extensions",
    "integrationConnections",
    "lifecycle",
    "network",
    "proxy",
    "repository",
    "revision",
    "urls",
];

/// One deployment.
pub(super) struct Plan {
    pub(super) kind: Deployed,
    pub(super) name: String,
    pub(super) target: Target,
    /// Its image is missing if the object keeps its image, which only the server knows.
    pub(super) wish: Wish,
    /// Sources to upload, if something is built.
    pub(super) sources: Option<Sources>,
    /// Documents of other objects that the project needs.
    pub(super) documents: Vec<Document>,
}

/// The object to deploy, except for its image.
pub(super) struct Wish {
    manifest: Manifest,
    wishes: Wishes,
    envs: Vec<Value>,
    image: Option<Image>,
}

impl Plan {
    /// Returns kind and name for messages, such as `agent helper`.
    pub(super) fn what(&self) -> String {
        format!("{} {}", self.kind.name(), self.name)
    }

    /// Returns the object to send. `before` is the existing one, if any.
    pub(super) fn object(&self, before: Option<&Value>) -> Result<Value, Error> {
        let Wish { manifest, wishes, envs, image } = &self.wish;
        let image = match image {
            Some(image) => image.clone(),
            None => {
                let image = before.and_then(resource::image_of).ok_or_else(|| {
                    let message =
                        format!("{} has no image yet: deploy without --skip-build", self.what());
                    Error::Absent(message)
                })?;
                Image::Named { image: image.to_owned(), docker_config: None, skip_build: true }
            }
        };
        let mut object = resource::object(self.kind, manifest, wishes, envs.clone(), &image);
        if let Some(before) = before {
            keep_labels(&mut object, before);
            keep_unsaid(&mut object, before);
        }
        Ok(object)
    }
}

/// Keeps the names and labels that users gave the object.
fn keep_labels(object: &mut Value, before: &Value) {
    for member in ["displayName", "externalId"] {
        if let Some(kept) = before.pointer(&format!("/metadata/{member}")) {
            object["metadata"][member] = kept.clone();
        }
    }
    let labels = before.pointer("/metadata/labels").and_then(Value::as_object);
    let ours = |name: &str| name.starts_with("x-blaxel-");
    for (name, value) in labels.into_iter().flatten().filter(|(name, _)| !ours(name)) {
        object["metadata"]["labels"][name] = value.clone();
    }
}

/// Keeps what users set by other means than the project. Which revision serves is for the server to
/// say, because the deployment makes a new one.
fn keep_unsaid(object: &mut Value, before: &Value) {
    for member in UNSAID {
        if let Some(kept) = before.pointer(&format!("/spec/{member}")) {
            object["spec"][member] = kept.clone();
        }
    }
    if let Some(revision) = object.pointer_mut("/spec/revision").and_then(Value::as_object_mut) {
        revision.remove("active");
    }
}

/// Plans the project in the folder and, with `--recursive`, those in subfolders.
pub(super) fn plans(args: &Args) -> Result<Vec<Plan>, Error> {
    let root = args.folder.as_path();
    if !root.is_dir() {
        return Err(Error::Absent(format!("{} is no folder", root.display())));
    }
    let first = Manifest::read(root)?;
    let below = if args.recursive { first.packages() } else { Vec::new() };
    let mut plans = Vec::new();
    for (kind, name, folder) in below {
        let manifest = Manifest::read(&root.join(inner(&folder)?))?;
        let said = Said { name: Some(name), kind: Some(kind) };
        plans.push(plan(args, &said, &root.join(&folder), None, manifest)?);
    }
    if first.skip_root && args.recursive {
        return Ok(plans);
    }
    let said = Said { name: args.name.as_deref(), kind: args.kind.as_deref() };
    let directory = args.directory.clone().or_else(|| first.directory.clone());
    plans.push(match directory {
        Some(directory) => {
            let below = root.join(inner(Path::new(&directory))?);
            let manifest = Manifest::read(&below)?;
            plan(args, &said, root, Some(&below), manifest)?
        }
        None => plan(args, &said, root, None, first)?,
    });
    Ok(plans)
}

/// Checks that a path leads to a subfolder, by its components alone.
fn inner(folder: &Path) -> Result<&Path, Error> {
    let plain = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    if folder.components().all(plain) {
        return Ok(folder);
    }
    Err(Error::Usage(format!("{} is not below the folder of the project", folder.display())))
}

/// Settings that override the manifest.
struct Said<'a> {
    name: Option<&'a str>,
    kind: Option<&'a str>,
}

/// Plans one deployment. `root` is packed; `below` is the subfolder with the project's own files,
/// if they are not at the top.
fn plan(
    args: &Args,
    said: &Said<'_>,
    root: &Path,
    below: Option<&Path>,
    manifest: Manifest,
) -> Result<Plan, Error> {
    let folder = below.unwrap_or(root);
    let kind = Deployed::read_all(said.kind.or(manifest.kind.as_deref()))?;
    tell_useless(kind, &manifest, &folder.join(manifest::FILE));
    if kind == Deployed::VolumeTemplate && (args.skip_build || manifest.image.is_some()) {
        let message =
            "a volume template has files and no image: leave out `image` and --skip-build";
        return Err(Error::Usage(message.into()));
    }
    let name = said.name.map(str::to_owned).or_else(|| manifest.name.clone());
    let name = name.map_or_else(|| name_of(folder), Ok)?;
    let secrets = Secrets::read(&args.env_file, &secret_pairs(&args.secrets)?)?;
    let envs = resource::environment(&manifest, &secrets)?;
    let image = match (&manifest.image, args.skip_build) {
        (Some(image), skip_build) => {
            let docker_config = args.supplies.docker_config()?;
            Some(Image::Named { image: image.clone(), docker_config, skip_build })
        }
        (None, true) => None,
        (None, false) => Some(Image::Built),
    };
    let sources = match image {
        Some(Image::Built) => Some(sources(args, root, below, kind)?),
        _ => None,
    };
    let target = resolve(&[kind.name().to_owned(), name.clone()])?;
    let wishes = Wishes { name: name.clone(), experimental: args.experimental };
    let documents = apply::read_folder(&folder.join(DOCUMENTS), &secrets)?;
    Ok(Plan {
        kind,
        name,
        target,
        wish: Wish { manifest, wishes, envs, image },
        sources,
        documents,
    })
}

/// Names what the manifest says without an effect.
fn tell_useless(kind: Deployed, manifest: &Manifest, file: &Path) {
    let note = |text: String| crate::term::note(format!("{}: {text}", file.display()));
    for name in manifest.unknown() {
        note(format!("`{name}` is not known and has no effect"));
    }
    for name in resource::unused(kind, manifest) {
        note(format!("`{name}` has no effect on an {}", kind.name()));
    }
}

/// Derives a name from that of the folder: lower-case letters, digits and hyphens.
fn name_of(folder: &Path) -> Result<String, Error> {
    let unnamed = || Error::Usage("the project has no name: give it with --name".into());
    let full =
        folder.canonicalize().map_err(Error::reading(format!("read {}", folder.display())))?;
    let name = full.file_name().and_then(|name| name.to_str()).ok_or_else(unnamed)?;
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let name: String = name.chars().map(plain).collect();
    let name = name.trim_matches('-');
    if name.is_empty() { Err(unnamed()) } else { Ok(name.to_owned()) }
}

fn secret_pairs(given: &[String]) -> Result<Vec<String>, Error> {
    let pair = |text: &String| {
        if text.contains('=') {
            return Ok(text.clone());
        }
        let value = std::env::var(text);
        let value = value.map_err(|_| Error::Usage(format!("`{text}` is not set here")))?;
        Ok(format!("{text}={value}"))
    };
    given.iter().map(pair).collect()
}

fn sources(
    args: &Args,
    root: &Path,
    below: Option<&Path>,
    kind: Deployed,
) -> Result<Sources, Error> {
    if kind == Deployed::VolumeTemplate {
        return Sources::read_all(below.unwrap_or(root), manifest::FILE);
    }
    let mut sources = Sources::read(root)?;
    if let Some(below) = below {
        for name in [manifest::FILE, DOCKERFILE] {
            let file = below.join(name);
            if file.is_file() {
                let content = fs::read(&file);
                let content = content.map_err(Error::io(format!("read {}", file.display())))?;
                sources.added.push((name, content));
            }
        }
    }
    args.supplies.add_to(&mut sources)?;
    if kind == Deployed::Sandbox && !sources.has(DOCKERFILE) {
        let message = format!(
            "a sandbox is built from a Dockerfile, and {} has none; `holm new sandbox` makes one, or name an image: `image = \"…\"` in {}",
            below.unwrap_or(root).display(),
            manifest::FILE
        );
        return Err(Error::Absent(message));
    }
    if sources.files() == 0 {
        return Err(Error::Absent(format!("{} has no files to deploy", root.display())));
    }
    Ok(sources)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::flags;
    use serde_json::json;

    fn project(files: &[(&str, &str)]) -> tempfile::TempDir {
        let place = tempfile::Builder::new().prefix("My App").tempdir().unwrap();
        for (name, text) in files {
            let file = place.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        place
    }

    fn plans_of(place: &tempfile::TempDir, words: &[&str]) -> Result<Vec<Plan>, Error> {
        let folder = place.path().to_str().unwrap();
        plans(&flags::read(["deploy", folder].iter().chain(words)).unwrap())
    }

    #[test]
    fn flags_stand_over_the_file() {
        let place = project(&[("blaxel.toml", "name = 'a'\ntype = 'agent'"), ("main.py", "")]);
        let plan = plans_of(&place, &["-n", "b", "-t", "mcp"]).unwrap().remove(0);
        assert_eq!(
            (plan.what().as_str(), plan.target.collection.as_str()),
            ("function b", "functions")
        );
        let before = json!({"metadata": {"displayName": "B", "labels": {"team": "x", "x-blaxel-experimental": "true"}}});
        let object = plan.object(Some(&before)).unwrap();
        let labels = json!({"x-blaxel-auto-generated": "true", "team": "x"});
        assert_eq!(object["metadata"], json!({"name": "b", "labels": labels, "displayName": "B"}));
    }

    #[test]
    fn what_the_file_cannot_say_stays() {
        let place = project(&[("blaxel.toml", "name = 'a'\ntype = 'app'"), ("main.py", "")]);
        let plan = plans_of(&place, &[]).unwrap().remove(0);
        let made = plan.object(None).unwrap();
        let set = json!({"enabled": false, "urls": [{"domain": "shop.example"}],
            "extensions": {"x": {"sandbox": "s"}}, "network": {"vpcName": "v"}});
        let mut before = json!({"metadata": {"name": "a"}, "spec": set});
        before["spec"]["memory"] = json!(512);
        before["spec"]["revision"] = json!({"active": "r2", "canary": "r1", "canaryPercent": 10,
            "stickySessionTtl": 60});
        let object = plan.object(Some(&before)).unwrap();
        let mut expected = made["spec"].clone();
        for (member, value) in set.as_object().unwrap() {
            expected[member] = value.clone();
        }
        expected["revision"] = json!({"canary": "r1", "canaryPercent": 10, "stickySessionTtl": 60});
        assert_eq!(object["spec"], expected);
        assert_eq!(plan.object(Some(&json!({}))).unwrap(), made);
    }

    #[test]
    fn a_sandbox_needs_a_dockerfile_or_an_image() {
        let place = project(&[("main.py", "")]);
        assert!(plans_of(&place, &[]).err().unwrap().to_string().contains("Dockerfile"));
        let named = project(&[("blaxel.toml", "name = 'a'\nimage = 'ghcr.io/a/b:1'")]);
        let plan = plans_of(&named, &[]).unwrap().remove(0);
        assert!(plan.sources.is_none());
        assert_eq!(plan.object(None).unwrap()["spec"]["runtime"]["image"], "ghcr.io/a/b:1");
    }

    #[test]
    fn a_volume_template_is_all_files_of_the_folder() {
        let files = [
            ("blaxel.toml", "name = 'base'\ntype = 'volume-template'\ndefaultSize = 2048"),
            ("node_modules/x", "kept"),
            (".env", "kept"),
        ];
        let place = project(&files);
        let plan = plans_of(&place, &[]).unwrap().remove(0);
        assert_eq!(plan.target.object("base").unwrap(), "volume_templates/base");
        let object = plan.object(None).unwrap();
        assert_eq!(
            (&object["kind"], &object["spec"]),
            (&json!("VolumeTemplate"), &json!({"defaultSize": 2048}))
        );
        let sources = plan.sources.unwrap();
        let names: Vec<_> = sources.entries.iter().map(|entry| entry.path.as_str()).collect();
        assert_eq!(names, [".env", "node_modules", "node_modules/x"]);
        assert!(plans_of(&place, &["--skip-build"]).is_err());
    }

    #[test]
    fn without_a_build_the_image_stays() {
        let place = project(&[("main.py", "")]);
        let plan = plans_of(&place, &["--skip-build", "-t", "agent"]).unwrap().remove(0);
        assert!(plan.name.starts_with("my-app"), "{}", plan.name);
        let before = json!({"spec": {"runtime": {"image": "agent/a:1"}}});
        let object = plan.object(Some(&before)).unwrap();
        assert_eq!(object["spec"]["runtime"]["image"], "agent/a:1");
        assert_eq!(object["metadata"]["labels"], json!({}));
        assert!(plan.object(None).is_err());
    }

    #[test]
    fn a_folder_below_brings_its_own_files() {
        let files = [
            ("blaxel.toml", "name = 'root'\ntype = 'agent'\n[job.nightly]\npath = 'jobs/n'"),
            ("Dockerfile", "root"),
            ("jobs/n/blaxel.toml", "type = 'agent'"),
            ("jobs/n/Dockerfile", "job"),
        ];
        let place = project(&files);
        let plan = plans_of(&place, &["-d", "jobs/n", "-n", "n"]).unwrap().remove(0);
        let added = &plan.sources.unwrap().added;
        assert_eq!(added[1], ("Dockerfile", b"job".to_vec()));
        let all = plans_of(&place, &["-R"]).unwrap();
        assert_eq!(all.iter().map(Plan::what).collect::<Vec<_>>(), ["job nightly", "agent root"]);
        assert!(plans_of(&place, &["-d", "../.."]).is_err());
    }
}
