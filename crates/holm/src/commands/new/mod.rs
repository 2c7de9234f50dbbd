//! `holm new`: starts a project from a template.

mod templates;

use crate::error::Error;
use crate::exit::Exit;
use crate::project::resource::Deployed;
use crate::term;
use std::fs;
use std::path::{Path, PathBuf};
use templates::{TEMPLATES, Template};

/// Starts a project in a new folder
///
/// The project has a `blaxel.toml`, a `Dockerfile` and one small program without dependencies. Run
/// it on this machine with `holm serve`, and on the server with `holm deploy`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  holm new agent helper
  holm new function tools --template node
  holm new --list")]
pub(crate) struct Args {
    /// agent, function (an MCP server), application, job or sandbox
    #[arg(required_unless_present = "list")]
    kind: Option<String>,
    /// Folder to make, which names the project; by default the name of the kind
    folder: Option<PathBuf>,
    /// Language: python or node
    #[arg(long, value_name = "NAME")]
    template: Option<String>,
    /// Only list the templates
    #[arg(long)]
    list: bool,
}

const NAME: &str = "{{name}}";
/// What agents, functions, jobs and sandboxes may have.
const NAME_CHARS_MAX: usize = 49;

pub(crate) fn run(args: Args) -> Result<Exit, Error> {
    let Some(kind) = args.kind.filter(|_| !args.list) else {
        for template in TEMPLATES {
            term::say(format!("{} --template {}", template.kind, template.language));
        }
        return Ok(Exit::Success);
    };
    let template = choose(&kind, args.template.as_deref())?;
    let folder = args.folder.unwrap_or_else(|| PathBuf::from(template.kind));
    let name = name_of(&folder)?;
    write(template, &folder, &name)?;
    term::say(folder.display());
    term::note(format!("next: cd {} && holm serve --watch", folder.display()));
    Ok(Exit::Success)
}

fn choose(kind: &str, language: Option<&str>) -> Result<&'static Template, Error> {
    let kind = Deployed::read(Some(kind))?.name();
    let mut all = TEMPLATES.iter().filter(|template| template.kind == kind);
    let wanted = language.map(str::to_ascii_lowercase);
    let wanted = wanted.as_deref().map(|word| match word {
        "py" => "python",
        "js" | "javascript" | "ts" | "typescript" => "node",
        word => word,
    });
    let found = all.clone().find(|template| wanted.is_none_or(|word| word == template.language));
    let known = || {
        let known = all.by_ref().map(|template| template.language).collect::<Vec<_>>().join(", ");
        let asked = language.unwrap_or_default();
        Error::Usage(format!("there is no template `{asked}` of {kind}; there is {known}"))
    };
    found.ok_or_else(known)
}

/// Returns the project's name, which may have lower-case letters, digits and hyphens.
fn name_of(folder: &Path) -> Result<String, Error> {
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let ends = |c: Option<char>| c.is_some_and(|c| c != '-');
    let is_name = name.len() <= NAME_CHARS_MAX
        && name.chars().all(plain)
        && ends(name.chars().next())
        && ends(name.chars().next_back());
    if is_name {
        return Ok(name.to_owned());
    }
    let message = format!(
        "`{}` cannot be the name of a project: use small letters, digits and hyphens, at most \
         {NAME_CHARS_MAX}",
        folder.display()
    );
    Err(Error::Usage(message))
}

/// Writes the files, but only into an empty or new folder, so that nothing is ever overwritten.
fn write(template: &Template, folder: &Path, name: &str) -> Result<(), Error> {
    let act = |path: &Path| Error::io(format!("write {}", path.display()));
    fs::create_dir_all(folder).map_err(act(folder))?;
    let mut there = fs::read_dir(folder).map_err(act(folder))?;
    if there.next().is_some() {
        return Err(Error::Taken(format!("{} is not empty", folder.display())));
    }
    for (path, text) in template.files {
        let file = folder.join(path);
        fs::write(&file, text.replace(NAME, name)).map_err(act(&file))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::project::manifest::Manifest;

    #[test]
    fn every_template_is_a_project_of_its_kind() {
        for template in TEMPLATES {
            let place = tempfile::tempdir().unwrap();
            let folder = place.path().join("my-thing");
            write(template, &folder, "my-thing").unwrap();
            let manifest = Manifest::read(&folder).unwrap();
            assert_eq!(manifest.unknown().count(), 0, "{template:?}");
            let said = (manifest.name.as_deref(), manifest.kind.as_deref());
            assert_eq!(said, (Some("my-thing"), Some(template.kind)));
            let again = write(template, &folder, "my-thing").unwrap_err();
            assert!(again.to_string().contains("not empty"));
        }
    }

    #[test]
    fn a_template_has_a_kind_and_a_language() {
        assert_eq!(choose("mcp", None).unwrap().language, "python");
        assert_eq!(choose("agent", Some("TypeScript")).unwrap().language, "node");
        let refused = choose("agent", Some("cobol")).unwrap_err().to_string();
        assert!(refused.contains("python, node"), "{refused}");
        for wrong in ["A", "-a", "a-", "..", "/", "a b", "a\"b"] {
            assert!(name_of(Path::new(wrong)).is_err(), "{wrong}");
        }
        assert_eq!(name_of(Path::new("x/helper")).unwrap(), "helper");
    }
}
