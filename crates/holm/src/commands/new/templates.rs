//! Built-in project templates. They need only what the base image contains.

/// A file's path and text. `{{name}}` in the text stands for the name of the project.
type File = (&'static str, &'static str);

#[derive(Debug)]
pub(super) struct Template {
    pub(super) kind: &'static str,
    pub(super) language: &'static str,
    pub(super) files: &'static [File],
}

macro_rules! file {
    ($folder:literal, $file:literal) => {
        ($file, include_str!(concat!("../../../templates/", $folder, "/", $file)))
    };
}

macro_rules! template {
    ($kind:literal, $language:literal, $folder:literal, $main:literal) => {
        Template {
            kind: $kind,
            language: $language,
            files: &[
                file!($folder, "blaxel.toml"),
                file!($folder, "Dockerfile"),
                file!($folder, $main),
            ],
        }
    };
}

/// The first template of each kind is the default.
pub(super) const TEMPLATES: &[Template] = &[
    template!("agent", "python", "agent-python", "main.py"),
    template!("agent", "node", "agent-node", "main.js"),
    template!("function", "python", "function-python", "main.py"),
    template!("function", "node", "function-node", "main.js"),
    template!("application", "python", "application-python", "main.py"),
    template!("application", "node", "application-node", "main.js"),
    template!("job", "python", "job-python", "main.py"),
    template!("job", "node", "job-node", "main.js"),
    template!("sandbox", "python", "sandbox", "hello.py"),
];
