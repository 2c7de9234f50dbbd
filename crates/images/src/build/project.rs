//! Reads the settings in a folder of sources, and writes a Dockerfile for one that has none.

use super::Fault;
use super::lines::TEXT_BYTES_MAX;
use serde::Deserialize;
use std::collections::BTreeMap;

const VARIABLES_MAX: usize = 1_000;

/// Files found at the top of the sources, before any were removed.
#[derive(Clone)]
pub struct Project {
    pub dockerfile: Option<String>,
    pub(super) settings: Option<String>,
    pub(super) secrets: Option<String>,
    /// Registry credentials, in the format of a Docker client's configuration file.
    pub registries: Option<String>,
    /// Names at the top, and paths such as `src/main.py` of what is directly in `src`.
    pub(super) files: Vec<String>,
    pub(super) package: Option<String>,
    pub(super) requirements: Option<String>,
}

/// Values for the build alone, which are not part of the image.
#[derive(Clone, Default)]
pub struct Given {
    /// Values for ARG, including secrets.
    pub arguments: BTreeMap<String, String>,
    /// Secrets by name, for mounts of type `secret`.
    pub secrets: BTreeMap<String, String>,
    /// Command that starts the program, if the settings name one.
    pub entry: Option<String>,
}

/// Base images for a folder without a Dockerfile.
#[derive(Debug, Clone)]
pub struct Languages {
    pub python: String,
    pub node: String,
}

/// The members of blaxel.toml that a build reads.
#[derive(Deserialize, Default)]
#[serde(default)]
struct BlaxelToml {
    build: Build,
    entrypoint: Entrypoint,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Build {
    args: BTreeMap<String, toml::Value>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Entrypoint {
    prod: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct PackageJson {
    scripts: BTreeMap<String, serde_json::Value>,
    main: Option<String>,
    workspaces: Option<serde_json::Value>,
    #[serde(flatten)]
    rest: BTreeMap<String, serde_json::Value>,
}

impl PackageJson {
    /// Returns whether an installation needs other files of the folder: packages beside this one,
    /// or files that its install scripts may read.
    fn needs_files(&self) -> bool {
        let runs = ["preinstall", "install", "postinstall", "prepare"];
        let local = |version: &serde_json::Value| {
            let local = ["file:", "link:", "workspace:", "portal:", ".", "/"];
            version.as_str().is_some_and(|text| local.iter().any(|start| text.starts_with(start)))
        };
        let groups = self.rest.iter().filter(|(name, _)| name.ends_with("ependencies"));
        let mut versions =
            groups.filter_map(|(_, group)| group.as_object()).flat_map(|of| of.values());
        self.workspaces.is_some()
            || runs.iter().any(|name| self.scripts.contains_key(*name))
            || versions.any(local)
    }
}

/// Returns whether requirements name other files of the folder.
fn needs_files(requirements: &str) -> bool {
    const FILES: [&str; 10] = [
        "-r",
        "-c",
        "-e",
        "-f",
        "--requirement",
        "--constraint",
        "--editable",
        "--find-links",
        ".",
        "/",
    ];
    requirements.lines().map(str::trim).filter(|line| !line.starts_with('#')).any(|line| {
        let is_path = line.contains('/') && !line.contains("://");
        is_path || line.contains("file:") || FILES.iter().any(|start| line.starts_with(start))
    })
}

impl Project {
    pub fn given(&self) -> Result<Given, Fault> {
        let settings: BlaxelToml = match &self.settings {
            Some(text) => toml::from_str(text)
                .map_err(|error| Fault::Sources(format!("blaxel.toml: {}", error.message())))?,
            None => BlaxelToml::default(),
        };
        let mut given = Given { entry: settings.entrypoint.prod, ..Given::default() };
        for (name, value) in settings.build.args {
            let value = match value {
                toml::Value::String(text) => text,
                other => other.to_string(),
            };
            given.arguments.insert(name, value);
        }
        for (name, value) in self.secrets.as_deref().map(variables).unwrap_or_default() {
            given.arguments.insert(name.clone(), value.clone());
            given.secrets.insert(name, value);
        }
        if given.arguments.len() > VARIABLES_MAX {
            return Err(Fault::Sources(format!("more than {VARIABLES_MAX} build arguments")));
        }
        Ok(given)
    }

    fn has(&self, name: &str) -> bool {
        self.files.iter().any(|file| file == name)
    }

    /// Writes a Dockerfile for a program in a known language.
    pub fn dockerfile_of_language(
        &self,
        given: &Given,
        languages: &Languages,
    ) -> Result<String, Fault> {
        let text = if self.has("package.json") {
            self.node(given, &languages.node)?
        } else if self.has("pyproject.toml") || self.has("requirements.txt") {
            self.python(given, &languages.python)
        } else {
            return Err(Fault::Sources(
                "there is no Dockerfile at the top of the archive, and neither package.json nor pyproject.toml or \
                 requirements.txt to tell a language by"
                    .to_owned(),
            ));
        };
        debug_assert!(text.len() <= TEXT_BYTES_MAX);
        Ok(text)
    }

    fn python(&self, given: &Given, image: &str) -> String {
        let install = |what: &str| {
            format!("RUN python3 -m venv /venv && /venv/bin/pip install --no-cache-dir {what}\n")
        };
        let early = match &self.requirements {
            // Copied first, so that what is installed stays cached while only the program changes.
            Some(list) if !needs_files(list) => {
                format!("COPY requirements.txt ./\n{}COPY . .\n", install("-r requirements.txt"))
            }
            Some(_) => format!("COPY . .\n{}", install("-r requirements.txt")),
            None => format!("COPY . .\n{}", install(".")),
        };
        let program = ["main.py", "app.py", "src/main.py", "src/app.py", "src/server.py"]
            .into_iter()
            .find(|name| self.has(name))
            .unwrap_or("main.py");
        let start = given.entry.clone().unwrap_or_else(|| format!("python {program}"));
        format!(
            "FROM {image}\nWORKDIR /app\n{early}ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1\n{}",
            entry(&start)
        )
    }

    fn node(&self, given: &Given, image: &str) -> Result<String, Fault> {
        let package: PackageJson = serde_json::from_str(self.package.as_deref().unwrap_or("{}"))
            .map_err(|error| Fault::Sources(format!("package.json: {error}")))?;
        let (locks, install, run) = if self.has("pnpm-lock.yaml") {
            ("pnpm-lock.yaml", "npx --yes pnpm install --frozen-lockfile", "npx --yes pnpm run")
        } else if self.has("yarn.lock") {
            ("yarn.lock", "npx --yes yarn install --frozen-lockfile", "npx --yes yarn run")
        } else if self.has("package-lock.json") {
            ("package-lock.json", "npm ci", "npm run")
        } else {
            ("", "npm install", "npm run")
        };
        let build = match package.scripts.contains_key("build") {
            true => format!("RUN {run} build\n"),
            false => String::new(),
        };
        let early = match package.needs_files() {
            true => format!("COPY . .\nRUN {install}\n"),
            false => format!("COPY package.json {locks} ./\nRUN {install}\nCOPY . .\n"),
        };
        let script = ["prod", "start"].into_iter().find(|name| package.scripts.contains_key(*name));
        let start = match (&given.entry, script, package.main) {
            (Some(entry), _, _) => entry.clone(),
            (None, Some(script), _) => format!("{run} {script}"),
            (None, None, Some(main)) => format!("node {main}"),
            (None, None, None) => "node index.js".to_owned(),
        };
        Ok(format!("FROM {image}\nWORKDIR /app\n{early}{build}{}", entry(&start)))
    }
}

/// Returns the entry point for a command line of the shell. Its lines are joined; everything else
/// stays as it is, because it may be quoted.
fn entry(command: &str) -> String {
    let line = command.trim().replace(['\r', '\n'], " ");
    // The shell is replaced by the program, so that signals reach it.
    let line = if is_one_program(&line) { format!("exec {line}") } else { line };
    let words = serde_json::json!(["/bin/sh", "-c", line]);
    format!("ENTRYPOINT {words}\n")
}

/// Returns whether a command line does no more than start one program.
fn is_one_program(line: &str) -> bool {
    const OF_THE_SHELL: [&str; 15] = [
        "!", ".", ":", "cd", "command", "eval", "exec", "exit", "export", "set", "source", "trap",
        "ulimit", "umask", "wait",
    ];
    let first = line.split_whitespace().next().unwrap_or_default();
    let is_plain = !line.contains([';', '&', '|', '<', '>', '(', ')', '`']);
    is_plain && !first.contains('=') && !OF_THE_SHELL.contains(&first)
}

/// Parses lines such as `NAME=value`, as in `.env` files.
fn variables(text: &str) -> BTreeMap<String, String> {
    let variable = |line: &str| {
        let line = line.trim();
        let line = line.strip_prefix("export ").unwrap_or(line);
        let (name, value) = line.split_once('=').filter(|_| !line.starts_with('#'))?;
        let value = value.trim();
        let quoted = |quote: char| value.strip_prefix(quote)?.strip_suffix(quote);
        let value = quoted('"').or_else(|| quoted('\'')).unwrap_or(value);
        Some((name.trim().to_owned(), value.to_owned()))
    };
    text.lines().filter_map(variable).filter(|(name, _)| !name.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::dockerfile::Dockerfile;
    use super::*;
    use proptest::prelude::*;

    fn project(files: &[(&str, &str)]) -> Project {
        let text = |name: &str| {
            files.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).to_owned())
        };
        Project {
            dockerfile: None,
            settings: text("blaxel.toml"),
            secrets: text(".env.build"),
            registries: None,
            files: files.iter().map(|(name, _)| (*name).to_owned()).collect(),
            package: text("package.json"),
            requirements: text("requirements.txt"),
        }
    }

    fn made(files: &[(&str, &str)]) -> String {
        let project = project(files);
        let languages = Languages { python: "holm/base".into(), node: "holm/base".into() };
        let text = project.dockerfile_of_language(&project.given().unwrap(), &languages).unwrap();
        Dockerfile::parse(&text).unwrap().plan(&BTreeMap::new()).unwrap();
        text
    }

    #[test]
    fn a_program_in_a_known_language_needs_no_dockerfile() {
        let text = made(&[("package.json", r#"{"scripts":{"build":"x","start":"y"}}"#)]);
        assert!(text.contains("RUN npm run build\n"), "{text}");
        assert!(text.contains("exec npm run start"), "{text}");
        let text = made(&[
            ("requirements.txt", ""),
            ("blaxel.toml", "[entrypoint]\nprod = \"uvicorn  main:app\"\n[build]\nslim = true"),
        ]);
        assert!(text.contains("exec uvicorn  main:app"), "{text}");
        let none = project(&[("main.go", "")]);
        let languages = Languages { python: "p".into(), node: "n".into() };
        assert!(matches!(
            none.dockerfile_of_language(&Given::default(), &languages),
            Err(Fault::Sources(_))
        ));
    }

    #[test]
    fn what_an_installation_needs_is_there_before_it() {
        let early = |files: &[(&str, &str)]| made(files).contains("COPY . .\nRUN");
        for plain in
            ["httpx==1.0", "-i https://pypi.org/simple\nx", "a @ https://x.org/a.whl", "# ./x"]
        {
            assert!(!early(&[("requirements.txt", plain)]), "{plain}");
        }
        for local in ["./lib", "-r more.txt", "-c limits.txt", "-e .", "lib/a.whl", "a @ file:lib"]
        {
            assert!(early(&[("requirements.txt", local)]), "{local}");
        }
        for plain in ["{}", r#"{"dependencies": {"a": "^1"}}"#, r#"{"dependencies": [1]}"#] {
            assert!(!early(&[("package.json", plain)]), "{plain}");
        }
        for local in [
            r#"{"devDependencies": {"a": "file:../a"}}"#,
            r#"{"scripts": {"postinstall": "node x.js"}}"#,
            r#"{"workspaces": ["packages/*"]}"#,
        ] {
            assert!(early(&[("package.json", local)]), "{local}");
        }
    }

    #[test]
    fn the_program_that_is_there_is_started() {
        for (program, started) in [
            ("main.py", "main.py"),
            ("src/main.py", "src/main.py"),
            ("src/app.py", "src/app.py"),
            ("src/server.py", "src/server.py"),
            ("src/other.py", "main.py"),
        ] {
            let text = made(&[("requirements.txt", ""), ("src", ""), (program, "")]);
            assert!(text.contains(&format!("exec python {started}\"")), "{program}: {text}");
        }
    }

    #[test]
    fn a_command_line_means_what_it_means_to_the_shell() {
        for (line, expected) in [
            ("true && echo x", "x\n"),
            ("A=1 env | grep ^A=", "A=1\n"),
            ("A=1 sh -c 'echo $A'", "1\n"),
            ("cd / && pwd", "/\n"),
            ("cd /", ""),
            ("echo 'a  b'\techo", "a  b echo\n"),
            ("echo a\n b\r\n", "a b\n"),
            ("for word in a b; do echo $word; done", "a\nb\n"),
            ("echo $((1 + 1)) # both", "2\n"),
            ("exec echo a", "a\n"),
        ] {
            let text = entry(line);
            let words = text.strip_prefix("ENTRYPOINT ").unwrap();
            let words: Vec<String> = serde_json::from_str(words).unwrap();
            let output = std::process::Command::new(&words[0]).args(&words[1..]).output().unwrap();
            assert!(output.status.success(), "{line}: {output:?}");
            assert_eq!(String::from_utf8(output.stdout).unwrap(), expected, "{line}");
        }
        for line in ["python main.py", "uvicorn main:app --port $PORT", "'./my program' --a=b"] {
            assert!(entry(&format!(" {line}\n")).contains(&format!("\"exec {line}\"")), "{line}");
        }
    }

    #[test]
    fn build_arguments_come_from_two_files() {
        let given = project(&[
            ("blaxel.toml", "name = \"x\"\n[build.args]\nA = \"1\"\nB = 2"),
            (".env.build", "# no\nexport TOKEN='s3cret'\nA=3\n"),
        ])
        .given()
        .unwrap();
        let pairs = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
        };
        assert_eq!(given.arguments, pairs(&[("A", "3"), ("B", "2"), ("TOKEN", "s3cret")]));
        assert_eq!(given.secrets, pairs(&[("A", "3"), ("TOKEN", "s3cret")]));
        assert!(project(&[("blaxel.toml", "[")]).given().is_err());
    }

    proptest! {
        #[test]
        fn any_entry_makes_a_dockerfile_that_can_be_read(entry in "\\PC{0,40}") {
            let project = project(&[("package.json", "{}")]);
            let given = Given { entry: Some(entry), ..Given::default() };
            let languages = Languages { python: "p".into(), node: "n".into() };
            let text = project.dockerfile_of_language(&given, &languages)
                .map_err(|error| TestCaseError::fail(error.to_string()))?;
            let stages = Dockerfile::parse(&text).and_then(|file| file.plan(&BTreeMap::new()));
            prop_assert!(stages.is_ok(), "{text}: {stages:?}");
        }
    }
}
