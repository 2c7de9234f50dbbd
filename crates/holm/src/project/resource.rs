//! The API object that is made from a project.

use super::manifest::Manifest;
use crate::commands::apply::substitute::{OPEN, Secrets};
use crate::error::Error;
use serde_json::{Map, Value, json};

/// Kind of what is deployed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deployed {
    Agent,
    Function,
    Job,
    Sandbox,
    Application,
    /// Files that volumes start with. Nothing in it is run.
    VolumeTemplate,
}

/// Image that an object runs.
#[derive(Debug, Clone)]
pub(crate) enum Image {
    /// Built from the uploaded sources.
    Built,
    /// An existing image, with credentials for its registry.
    Named { image: String, docker_config: Option<String>, skip_build: bool },
}

/// Settings from flags that apply to the whole project.
#[derive(Debug, Default)]
pub(crate) struct Wishes {
    pub(crate) name: String,
    pub(crate) experimental: bool,
}

const AUTO_GENERATED: &str = "x-blaxel-auto-generated";
const EXPERIMENTAL: &str = "x-blaxel-experimental";
/// Credentials of the user who deploys, which no workload should get.
const NEVER_SENT: [&str; 2] = ["BL_API_KEY", "HOLM_API_KEY"];
const APPLICATION_MEMORY_MB: i64 = 2048;
const MASK: &str = "***";
/// Types with a program, but the last, for messages.
const PROGRAMS: &str = "agent, function, job, sandbox";

impl Deployed {
    /// Parses the type of something with a program. The default is sandbox, as in the published
    /// command line.
    pub(crate) fn read(word: Option<&str>) -> Result<Self, Error> {
        let word = word.unwrap_or("sandbox");
        match Self::known(word) {
            Some(kind) if kind != Self::VolumeTemplate => Ok(kind),
            Some(_) => Err(Error::Usage(format!(
                "`{word}` has files and no program, so it can only be deployed; a type with a program is {PROGRAMS} or application"
            ))),
            None => Err(unknown(word)),
        }
    }

    /// Like [`Self::read`], but also accepts volume templates, which have files and no program.
    pub(crate) fn read_all(word: Option<&str>) -> Result<Self, Error> {
        let word = word.unwrap_or("sandbox");
        Self::known(word).ok_or_else(|| unknown(word))
    }

    fn known(word: &str) -> Option<Self> {
        Some(match word.to_ascii_lowercase().as_str() {
            "agent" | "agents" => Self::Agent,
            "function" | "functions" | "mcp" => Self::Function,
            "job" | "jobs" => Self::Job,
            "sandbox" | "sandboxes" => Self::Sandbox,
            "application" | "applications" | "app" => Self::Application,
            "volume-template" | "volumetemplate" | "vt" => Self::VolumeTemplate,
            _ => return None,
        })
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Function => "function",
            Self::Job => "job",
            Self::Sandbox => "sandbox",
            Self::Application => "application",
            Self::VolumeTemplate => "volume-template",
        }
    }

    /// Returns the value of `kind` in documents.
    fn document(self) -> &'static str {
        match self {
            Self::Agent => "Agent",
            Self::Function => "Function",
            Self::Job => "Job",
            Self::Sandbox => "Sandbox",
            Self::Application => "Application",
            Self::VolumeTemplate => "VolumeTemplate",
        }
    }

    pub(crate) fn has_revisions(self) -> bool {
        matches!(self, Self::Agent | Self::Function | Self::Job | Self::Application)
    }

    /// True for kinds whose creation answers 409 if the object exists, after which it is replaced.
    /// All others are replaced first.
    pub(crate) fn is_created_first(self) -> bool {
        matches!(self, Self::Sandbox | Self::Application)
    }
}

fn unknown(word: &str) -> Error {
    Error::Usage(format!(
        "`{word}` cannot be deployed; a type is {PROGRAMS}, application or volume-template"
    ))
}

/// Returns the variables for the program: those from files and flags, and those from the project,
/// which may refer to the former. Values from files and flags may be secret, so they are marked for
/// the server to seal.
pub(crate) fn environment(manifest: &Manifest, secrets: &Secrets) -> Result<Vec<Value>, Error> {
    let mut all: Map<String, Value> = secrets
        .given()
        .map(|(name, value)| {
            (name.to_owned(), json!({"name": name, "value": value, "secret": true}))
        })
        .collect();
    for (name, value) in &manifest.env {
        let mut text = match value {
            Value::String(text) => Value::String(text.clone()),
            other => Value::String(other.to_string()),
        };
        let secret = text.as_str().is_some_and(|text| text.contains(OPEN));
        secrets.fill_value(&mut text).map_err(|missing| {
            Error::Usage(format!(
                "`env.{name}` needs the secret `{missing}`: give it with --secrets, --env-file or as a variable"
            ))
        })?;
        let mut variable = json!({"name": name, "value": text});
        if secret {
            variable["secret"] = true.into();
        }
        all.insert(name.clone(), variable);
    }
    let kept = all.into_iter().filter(|(name, _)| !NEVER_SENT.contains(&name.as_str()));
    Ok(kept.map(|(_, variable)| variable).collect())
}

/// Returns the object to send.
pub(crate) fn object(
    kind: Deployed,
    manifest: &Manifest,
    wishes: &Wishes,
    envs: Vec<Value>,
    image: &Image,
) -> Value {
    let spec = match kind {
        Deployed::Application => application(manifest, envs, image),
        Deployed::VolumeTemplate => json!({"defaultSize": manifest.default_size}),
        _ => workload(kind, manifest, envs, image),
    };
    let mut labels = Map::new();
    if matches!(image, Image::Built) {
        labels.insert(AUTO_GENERATED.to_owned(), "true".into());
    }
    if wishes.experimental {
        labels.insert(EXPERIMENTAL.to_owned(), "true".into());
    }
    let metadata = json!({"name": wishes.name, "labels": labels});
    let version = "blaxel.ai/v1alpha1";
    json!({"apiVersion": version, "kind": kind.document(), "metadata": metadata, "spec": spec})
}

fn workload(kind: Deployed, manifest: &Manifest, envs: Vec<Value>, image: &Image) -> Value {
    let mut runtime = manifest.runtime.clone();
    runtime.insert("envs".to_owned(), envs.into());
    if kind == Deployed::Function {
        runtime.entry("type").or_insert_with(|| "mcp".into());
    }
    if let Image::Named { image, docker_config, skip_build } = image {
        runtime.insert("image".to_owned(), image.as_str().into());
        if let Some(config) = docker_config {
            runtime.insert("dockerConfig".to_owned(), config.as_str().into());
        }
        if *skip_build {
            runtime.insert("skipBuild".to_owned(), "true".into());
        }
    }
    let mut spec = Map::from_iter([("runtime".to_owned(), Value::Object(runtime))]);
    let mut set = |name: &str, value: Option<Value>| {
        value.and_then(|value| spec.insert(name.to_owned(), value))
    };
    set("policies", manifest.policies.clone().map(Value::from));
    set("public", manifest.public.map(Value::from));
    set("region", manifest.region.clone().map(Value::from));
    set("volumes", manifest.volumes.clone().map(Value::from));
    set("githubRunner", manifest.github_runner.clone());
    // If there are no triggers, null removes those of the existing object.
    let triggers = manifest.triggers.iter().cloned().map(Value::Object).collect::<Vec<_>>();
    set("triggers", Some(if triggers.is_empty() { Value::Null } else { triggers.into() }));
    Value::Object(spec)
}

fn application(manifest: &Manifest, envs: Vec<Value>, image: &Image) -> Value {
    let memory = manifest.runtime.get("memory").cloned();
    let mut revision =
        json!({"envs": envs, "memory": memory.unwrap_or_else(|| APPLICATION_MEMORY_MB.into())});
    // A revision must have an image, but that of a build is not known yet.
    revision["image"] = match image {
        Image::Named { image, .. } => image.as_str().into(),
        Image::Built => "".into(),
    };
    let mut spec = json!({"enabled": true, "revisions": [revision]});
    if let Some(region) = &manifest.region {
        spec["region"] = region.as_str().into();
    }
    if let Some(port) = manifest.port {
        spec["port"] = port.into();
    }
    spec
}

/// Returns what the manifest says and an object of this kind has no place for.
pub(crate) fn unused(kind: Deployed, manifest: &Manifest) -> Vec<String> {
    match kind {
        Deployed::Application => {
            let names = manifest.runtime.keys().filter(|name| *name != "memory");
            names.map(|name| format!("runtime.{name}")).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the image of an existing object.
pub(crate) fn image_of(object: &Value) -> Option<&str> {
    let places = ["/spec/runtime/image", "/spec/image", "/spec/revisions/0/image"];
    let text = |at: &&str| object.pointer(at).and_then(Value::as_str);
    places.iter().find_map(text).filter(|image| !image.is_empty())
}

/// Returns the object with its secrets masked, to be shown.
pub(crate) fn masked(object: &Value) -> Value {
    let mut shown = object.clone();
    hide(&mut shown);
    shown
}

fn hide(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(hide),
        Value::Object(members) => {
            let secret = members.get("secret").is_some_and(|secret| secret == true);
            for (name, member) in members.iter_mut() {
                match name.as_str() {
                    "value" if secret => *member = MASK.into(),
                    "dockerConfig" => *member = MASK.into(),
                    _ => hide(member),
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(text: &str) -> Manifest {
        Manifest::parse(text).unwrap()
    }

    fn wishes() -> Wishes {
        Wishes { name: "a".into(), ..Wishes::default() }
    }

    #[test]
    fn a_wrong_type_is_told_which_there_are() {
        let told = |kind: Result<Deployed, Error>| kind.unwrap_err().to_string();
        for error in [told(Deployed::read(Some("pod"))), told(Deployed::read_all(Some("pod")))] {
            assert!(error.contains("`pod`") && error.contains("volume-template"), "{error}");
        }
        assert_eq!(Deployed::read_all(Some("VolumeTemplate")).unwrap(), Deployed::VolumeTemplate);
        assert!(told(Deployed::read(Some("vt"))).contains("only be deployed"));
        assert_eq!(Deployed::read(Some("MCP")).unwrap(), Deployed::Function);
    }

    #[test]
    fn a_function_is_an_mcp_server_built_from_sources() {
        let project = manifest("public = true\npolicies = ['eu']\n[runtime]\nmemory = 512");
        let made = object(Deployed::Function, &project, &wishes(), vec![], &Image::Built);
        let expected = json!({"apiVersion": "blaxel.ai/v1alpha1", "kind": "Function",
            "metadata": {"name": "a", "labels": {"x-blaxel-auto-generated": "true"}},
            "spec": {"runtime": {"memory": 512, "envs": [], "type": "mcp"}, "policies": ["eu"],
                "public": true, "triggers": null}});
        assert_eq!(made, expected);
    }

    #[test]
    fn an_application_has_one_revision() {
        let image = Image::Named { image: "app/a:1".into(), docker_config: None, skip_build: true };
        let made =
            object(Deployed::Application, &manifest("port = 8080"), &wishes(), vec![], &image);
        let revision = json!({"envs": [], "memory": 2048, "image": "app/a:1"});
        assert_eq!(made["spec"], json!({"enabled": true, "revisions": [revision], "port": 8080}));
        assert_eq!(made["metadata"]["labels"], json!({}));
        assert_eq!(image_of(&made), Some("app/a:1"));
        let built = object(Deployed::Application, &manifest(""), &wishes(), vec![], &Image::Built);
        assert_eq!(built["spec"]["revisions"][0]["image"], "");
        let runtime = manifest("[runtime]\nmemory = 1\nmemori = 2");
        assert_eq!(unused(Deployed::Application, &runtime), ["runtime.memori"]);
        assert!(unused(Deployed::Agent, &runtime).is_empty());
        assert_eq!(image_of(&built), None);
    }

    #[test]
    fn variables_of_files_are_secret_and_the_own_key_stays_here() {
        let pairs = ["TOKEN=s3cret".to_owned(), "BL_API_KEY=k".to_owned()];
        let secrets = Secrets::read(&[], &pairs).unwrap();
        let project = manifest("[env]\nMODE = 'fast'\nDEBUG = true\nURL = 'x?${secrets.TOKEN}'");
        let envs = environment(&project, &secrets).unwrap();
        let expected = json!([
            {"name": "TOKEN", "value": "s3cret", "secret": true},
            {"name": "DEBUG", "value": "true"},
            {"name": "MODE", "value": "fast"},
            {"name": "URL", "value": "x?s3cret", "secret": true},
        ]);
        assert_eq!(Value::from(envs.clone()), expected);
        let shown = masked(&json!({"envs": envs, "dockerConfig": "{}"})).to_string();
        assert!(!shown.contains("s3cret") && shown.contains("fast"), "{shown}");
        let lacking = manifest("[env]\nA = '${secrets.NOT_SET_ANYWHERE}'");
        assert!(environment(&lacking, &Secrets::default()).is_err());
    }
}
