//! Makes images on top of others: the recipe runs in an overlay over the layers of its base image,
//! and what it changed becomes one more layer.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::bootstrap::download_options;
use crate::builder::{Builder, RecipeError, pass_over, run};
use crate::digest::Digest;
use crate::disk;
use crate::error::Error;
use crate::leases::Lease;
use crate::manifest::Config;
use crate::recipe::Recipe;
use crate::settings::Overlay;
use crate::store::{Image, Store};
use crate::tar::{Difference, write_difference};

const SCRIPT: &str = include_str!("extend.sh");
/// Variables that help this machine reach registries. The commands of a recipe get them, but they
/// do not become part of the image.
const PASSED_ON: [&str; 12] = [
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "PIP_INDEX_URL",
    "PIP_EXTRA_INDEX_URL",
    "PIP_TRUSTED_HOST",
    "UV_DEFAULT_INDEX",
    "NPM_CONFIG_REGISTRY",
    "npm_config_registry",
];
/// Variables in which common programs look for trusted certificate authorities.
const CERTIFICATE_VARIABLES: [&str; 7] = [
    "SSL_CERT_FILE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "PIP_CERT",
    "REQUESTS_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "npm_config_cafile",
];
const CERTIFICATES_HERE: &str = "/etc/ssl/certs/ca-certificates.crt";
const CERTIFICATES_INSIDE: &str = "/run/certificates";
/// Set only while an image is made. The image contains neither `/tmp` nor the address of the
/// registry that this machine uses, and its users have homes of their own.
const WHILE_MADE: [(&str, &str); 8] = [
    ("HOME", "/root"),
    ("DEBIAN_FRONTEND", "noninteractive"),
    ("APT_CONFIG", "/run/build/apt.conf"),
    ("PIP_NO_CACHE_DIR", "1"),
    ("PIP_DISABLE_PIP_VERSION_CHECK", "1"),
    ("npm_config_cache", "/tmp/npm"),
    ("npm_config_update_notifier", "false"),
    ("npm_config_omit_lockfile_registry_resolved", "true"),
];

/// Returns how many steps [`Extension::make`] reports.
pub(crate) fn steps(recipe: &Recipe) -> usize {
    usize::from(!recipe.packages.is_empty()) + recipe.run.len() + 1
}

/// A recipe that extends another image.
pub(crate) struct Extension<'a> {
    pub(crate) recipe: &'a Recipe,
    pub(crate) builder: &'a Builder,
    pub(crate) parent: &'a Image,
}

impl Extension<'_> {
    pub(crate) fn make(
        &self,
        store: &Store,
        progress: &mut dyn FnMut(&str),
        lease: &Lease,
    ) -> Result<Digest, RecipeError> {
        let folder = store.0.scratch();
        let made = self.change(store, &folder, progress).and_then(|()| {
            progress("storing what has changed");
            Ok(store.0.store_difference(
                &folder.join("upper"),
                self.parent,
                &self.config(),
                lease,
            )?)
        });
        disk::remove_tree(&folder)?;
        made
    }

    fn change(
        &self,
        store: &Store,
        folder: &Path,
        progress: &mut dyn FnMut(&str),
    ) -> Result<(), RecipeError> {
        for name in ["work", "root", "build/files"] {
            disk::make_folder(&folder.join(name))?;
        }
        // It gives the root inside its mode, and commands may run as other users.
        disk::make_open_folder(&folder.join("upper"))?;
        let inputs = folder.join("build");
        write(&inputs.join("inside"), self.inside()?.as_bytes())?;
        write(&inputs.join("apt.conf"), &apt_options())?;
        for (number, content) in self.recipe.files.values().enumerate() {
            write(&inputs.join("files").join(number.to_string()), &content.0)?;
        }
        let mut tool = self.builder.tool(Path::new("unshare"), "util-linux");
        let command = &mut tool.command;
        command.args([
            "--mount",
            "--pid",
            "--ipc",
            "--uts",
            "--fork",
            "--kill-child",
            "/bin/sh",
            "-c",
            SCRIPT,
            "-",
        ]);
        command
            .arg(overlay_options(store, self.parent, folder)?)
            .arg(folder.join("root"))
            .arg(&inputs);
        command.current_dir(&store.0.folder).env_clear().envs(Self::environment());
        run(self.recipe, self.builder, tool, progress, pass_over)
    }

    /// Returns the script that runs in the image. The output of its commands counts as messages of
    /// the tool.
    fn inside(&self) -> Result<String, Error> {
        let mut script = String::from("set -eu\nexec 1>&2\n");
        let config = self.config();
        for (name, value) in config.env.iter().filter(|(name, _)| is_variable(name)) {
            let _ = writeln!(script, "export {name}={}", quoted(value));
        }
        for (number, path) in self.recipe.files.keys().enumerate() {
            let path = quoted(path);
            // Not `cp`, which would give it the mode of a file that is nobody's business.
            let _ = writeln!(
                script,
                "mkdir -p \"$(dirname {path})\"\ncat /run/build/files/{number} >{path}"
            );
        }
        if !self.recipe.packages.is_empty() {
            let packages = self.recipe.packages.join(" ");
            let _ = writeln!(
                script,
                "echo 'I: installing packages'\napt-get -q update\napt-get -qy install {packages}"
            );
            script.push_str(
                "apt-get clean\nrm -rf /var/lib/apt/lists/* /var/log/apt /var/log/dpkg.log\n",
            );
        }
        if !config.workdir.is_empty() {
            let workdir = quoted(&config.workdir);
            let _ = writeln!(script, "mkdir -p {workdir}\ncd {workdir}");
        }
        for line in &self.recipe.run {
            let first = line.trim().lines().next().unwrap_or_default();
            let step = first.trim_start_matches("# ");
            let _ = writeln!(
                script,
                "printf 'I: %s\\n' {}\n/bin/sh -euc {}",
                quoted(step),
                quoted(line)
            );
        }
        Ok(script)
    }

    /// Returns the environment of the tool. Inside, the variables of the image override it.
    fn environment() -> BTreeMap<String, String> {
        let path = (
            "PATH".to_owned(),
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned(),
        );
        let mut all = BTreeMap::from([path]);
        all.extend(
            PASSED_ON
                .iter()
                .filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?))),
        );
        all.extend(WHILE_MADE.map(|(name, value)| (name.to_owned(), value.to_owned())));
        let here = std::env::var("SSL_CERT_FILE").unwrap_or_else(|_| CERTIFICATES_HERE.to_owned());
        if Path::new(&here).is_file() {
            all.extend(
                CERTIFICATE_VARIABLES.map(|name| (name.to_owned(), CERTIFICATES_INSIDE.to_owned())),
            );
            all.insert("HOLM_CERTIFICATES".to_owned(), here);
        }
        all
    }

    fn config(&self) -> Config {
        self.recipe.config.over(&self.parent.config)
    }
}

/// Builds the mount options. All folders are relative to the store's, because an absolute path may
/// contain characters that separate options.
fn overlay_options(store: &Store, parent: &Image, folder: &Path) -> Result<String, Error> {
    let inside = |path: &Path| -> Result<String, Error> {
        let inside: PathBuf = path
            .strip_prefix(&store.0.folder)
            .map_err(|error| Error::malformed("store", error))?
            .into();
        Ok(inside.display().to_string())
    };
    let lower = parent
        .layers
        .iter()
        .rev()
        .map(|layer| inside(layer))
        .collect::<Result<Vec<_>, _>>()?
        .join(":");
    let (upper, work) = (inside(&folder.join("upper"))?, inside(&folder.join("work"))?);
    let form = match store.0.settings.overlay {
        Overlay::Trusted => "",
        Overlay::User => ",userxattr",
    };
    // The upper folder must contain whole files only, and need not survive a crash.
    let plain = "redirect_dir=nofollow,metacopy=off,index=off,volatile";
    Ok(format!("lowerdir={lower},upperdir={upper},workdir={work},{plain}{form}"))
}

fn apt_options() -> Vec<u8> {
    let mut options = download_options();
    options.extend_from_slice(
        b"DPkg::Options:: \"--force-unsafe-io\";\nAPT::Sandbox::User \"root\";\n",
    );
    options
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    fs::write(path, bytes).map_err(Error::io("write", path))
}

/// A shell does not accept other names as variables.
fn is_variable(name: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !name.is_empty() && !name.as_bytes()[0].is_ascii_digit() && name.bytes().all(word)
}

/// Quotes a text as one word for a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

impl crate::store::Parts {
    /// Stores the changes that an overlay has collected over an image as that image with one more
    /// layer.
    fn store_difference(
        &self,
        upper: &Path,
        parent: &Image,
        config: &Config,
        lease: &Lease,
    ) -> Result<Digest, Error> {
        let (overlay, limits) = (self.settings.overlay, &self.settings.limits);
        let difference = Difference { upper, overlay, root: 0, with_capabilities: false, limits };
        let layer =
            self.pack_layer(lease, |archive| write_difference(&difference, archive).map(drop))?;
        let (mut manifest, setup) = self.documents(&parent.digest)?;
        let mut diff_ids = setup.rootfs.diff_ids;
        diff_ids.push(layer.unpacked);
        manifest.layers.push(layer.packed);
        self.store_image(manifest.layers, diff_ids, config, lease)
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_command_stays_one_word() {
        let output = Command::new("sh")
            .arg("-c")
            .arg(format!("printf %s {}", quoted("it's $HOME `x`")))
            .output()
            .unwrap();
        assert_eq!(output.stdout, b"it's $HOME `x`");
    }
}
