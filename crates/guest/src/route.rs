//! Finds the operation that a request asks for. The only place that takes a request path apart.
//!
//! File paths come in three spellings: `/filesystem/%2Fetc`, `/filesystem//etc` and
//! `/filesystem%2Fetc` are all the absolute path `/etc`, while `/filesystem/etc` is relative. So
//! the path stays encoded until its prefix is known, and the rest is decoded once, to bytes: file
//! names need not be UTF-8.

use http::Method;
use percent_encoding::percent_decode_str;

/// A path as the caller gave it, decoded. It may contain any byte, `..` or double slashes, or be
/// empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PathArgument(pub(crate) Vec<u8>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Route {
    Welcome,
    Reference,
    Health,
    Upgrade,
    /// Where the machine uploads the program that an upgrade waits for.
    UpgradeProgram,
    /// Where the machine asks how the start of the image went.
    Start,
    /// Where the machine sets the proxy through which programs reach the network.
    Proxy,
    ReloadEnvironment,
    Processes,
    Process(String),
    ProcessKill(String),
    ProcessInput(String),
    ProcessWait(String),
    ProcessLogs(String),
    ProcessLogStream(String),
    Ports(String),
    PortMonitor(String),
    Tunnel,
    TunnelSettings,
    Drives,
    Drive(PathArgument),
    Terminal,
    TerminalSocket,
    /// The operations, offered as tools of the Model Context Protocol.
    Tools,
    Files(Files),
}

/// The operations on files, served by the module `files`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Files {
    Entry(PathArgument),
    /// Always absolute, whichever the spelling.
    Tree(PathArgument),
    Uploads,
    UploadStart(PathArgument),
    UploadPart(String),
    UploadParts(String),
    UploadComplete(String),
    UploadAbort(String),
    Find(PathArgument),
    /// The argument is the text to search for, not a place.
    Search(PathArgument),
    ContentSearch(PathArgument),
    /// Both paths are in the body.
    Copy,
    Watch(PathArgument),
    FastApply(PathArgument),
    Reranking(PathArgument),
}

/// The reason why no operation was found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Miss {
    Path,
    /// The path exists, but only with these methods.
    Method(&'static [Method]),
}

/// Finds the operation. HEAD is treated like GET.
pub(crate) fn find(method: &Method, path: &str) -> Result<Route, Miss> {
    let route = find_path(path, method).ok_or(Miss::Path)?;
    let asked = if method == Method::HEAD { &Method::GET } else { method };
    match route.methods() {
        None => Ok(route),
        Some(methods) if methods.contains(asked) => Ok(route),
        Some(methods) => Err(Miss::Method(methods)),
    }
}

fn find_path(path: &str, method: &Method) -> Option<Route> {
    if let Some(route) = find_files(path, method) {
        return Some(Route::Files(route));
    }
    if let Some(mounted) = argument(path, "/drives/mount").filter(|mounted| !mounted.0.is_empty()) {
        return Some(Route::Drive(mounted));
    }
    let trimmed = path.strip_suffix('/').unwrap_or(path);
    let segments: Vec<&str> = trimmed.split('/').skip(1).collect();
    Some(match segments.as_slice() {
        [] => Route::Welcome,
        ["swagger"] | ["swagger", "index.html"] => Route::Reference,
        ["health"] => Route::Health,
        ["upgrade"] => Route::Upgrade,
        ["upgrade", "program"] => Route::UpgradeProgram,
        ["machine", "start"] => Route::Start,
        ["machine", "proxy"] => Route::Proxy,
        ["environment", "reload"] => Route::ReloadEnvironment,
        ["process"] => Route::Processes,
        ["process", id] => Route::Process(text(id)),
        ["process", id, "kill"] => Route::ProcessKill(text(id)),
        ["process", id, "stdin"] => Route::ProcessInput(text(id)),
        ["process", id, "wait"] => Route::ProcessWait(text(id)),
        ["process", id, "logs"] => Route::ProcessLogs(text(id)),
        ["process", id, "logs", "stream"] => Route::ProcessLogStream(text(id)),
        ["network", "process", pid, "ports"] => Route::Ports(text(pid)),
        ["network", "process", pid, "monitor"] => Route::PortMonitor(text(pid)),
        ["network", "tunnel"] => Route::Tunnel,
        ["network", "tunnel", "config"] => Route::TunnelSettings,
        ["drives", "mount"] => Route::Drives,
        ["terminal"] => Route::Terminal,
        ["terminal", "ws"] => Route::TerminalSocket,
        ["mcp"] => Route::Tools,
        ["filesystem-copy"] => Route::Files(Files::Copy),
        _ => return None,
    })
}

fn find_files(path: &str, method: &Method) -> Option<Files> {
    let after = |prefix| argument(path, prefix);
    // A POST to a file named `tree` would not match, but files are never sent a POST.
    if let Some(PathArgument(rest)) = after("/filesystem/tree").filter(|_| is_tree_method(method)) {
        return Some(Files::Tree(PathArgument([b"/", rest.as_slice()].concat())));
    }
    if let Some(rest) = after("/filesystem-multipart") {
        return find_upload(path, &rest);
    }
    None.or_else(|| after("/filesystem-find").map(Files::Find))
        .or_else(|| after("/filesystem-search").map(Files::Search))
        .or_else(|| after("/filesystem-content-search").map(Files::ContentSearch))
        .or_else(|| after("/watch/filesystem").map(Files::Watch))
        .or_else(|| after("/codegen/fastapply").map(Files::FastApply))
        .or_else(|| after("/codegen/reranking").map(Files::Reranking))
        .or_else(|| after("/filesystem").map(Files::Entry))
}

fn find_upload(path: &str, rest: &PathArgument) -> Option<Files> {
    if rest.0.is_empty() {
        return Some(Files::Uploads);
    }
    if let Some(target) = argument(path, "/filesystem-multipart/initiate") {
        return Some(Files::UploadStart(target));
    }
    match path.split('/').collect::<Vec<_>>().as_slice() {
        ["", _, id, "part"] => Some(Files::UploadPart(text(id))),
        ["", _, id, "parts"] => Some(Files::UploadParts(text(id))),
        ["", _, id, "complete"] => Some(Files::UploadComplete(text(id))),
        ["", _, id, "abort"] => Some(Files::UploadAbort(text(id))),
        _ => None,
    }
}

/// Returns what follows a prefix. One separating slash is dropped; an encoded one belongs to the
/// argument.
fn argument(path: &str, prefix: &str) -> Option<PathArgument> {
    let rest = path.strip_prefix(prefix)?;
    let encoded = rest.get(..3).is_some_and(|start| start.eq_ignore_ascii_case("%2f"));
    let rest = match rest.strip_prefix('/') {
        Some(rest) => rest,
        None if rest.is_empty() || encoded => rest,
        None => return None,
    };
    Some(PathArgument(percent_decode_str(rest).collect()))
}

fn text(segment: &str) -> String {
    percent_decode_str(segment).decode_utf8_lossy().into_owned()
}

fn is_tree_method(method: &Method) -> bool {
    [Method::GET, Method::HEAD, Method::PUT, Method::DELETE, Method::OPTIONS].contains(method)
}

impl Route {
    /// Returns the methods that are served; `None` means all.
    fn methods(&self) -> Option<&'static [Method]> {
        Some(match self {
            Self::Welcome => return None,
            Self::Health | Self::ProcessLogs(_) | Self::ProcessLogStream(_) | Self::Ports(_) => {
                &[Method::GET]
            }
            Self::Terminal | Self::TerminalSocket | Self::Reference | Self::Start => &[Method::GET],
            Self::ProcessWait(_) => &[Method::GET],
            Self::ReloadEnvironment | Self::Tools | Self::Upgrade => &[Method::POST],
            Self::Drives => &[Method::GET, Method::POST],
            Self::TunnelSettings | Self::UpgradeProgram | Self::Proxy => &[Method::PUT],
            Self::Processes => &[Method::GET, Method::POST],
            Self::Process(_) => &[Method::GET, Method::DELETE],
            Self::ProcessKill(_) | Self::Tunnel | Self::Drive(_) => &[Method::DELETE],
            Self::PortMonitor(_) | Self::ProcessInput(_) => &[Method::POST, Method::DELETE],
            Self::Files(files) => files.methods(),
        })
    }
}

impl Files {
    fn methods(&self) -> &'static [Method] {
        match self {
            Self::Entry(_) | Self::Tree(_) => &[Method::GET, Method::PUT, Method::DELETE],
            Self::UploadStart(_) | Self::UploadComplete(_) | Self::Copy => &[Method::POST],
            Self::UploadPart(_) | Self::FastApply(_) => &[Method::PUT],
            Self::UploadAbort(_) => &[Method::DELETE],
            Self::Uploads | Self::UploadParts(_) | Self::Find(_) | Self::Search(_) => {
                &[Method::GET]
            }
            Self::ContentSearch(_) | Self::Watch(_) | Self::Reranking(_) => &[Method::GET],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
    use proptest::prelude::*;

    #[track_caller]
    fn check(method: Method, path: &str, expect: Result<Route, Miss>) {
        assert_eq!(find(&method, path), expect, "{method} {path}");
    }

    fn entry(path: &str) -> Result<Route, Miss> {
        Ok(Route::Files(Files::Entry(PathArgument(path.into()))))
    }

    fn tree(path: &str) -> Result<Route, Miss> {
        Ok(Route::Files(Files::Tree(PathArgument(path.into()))))
    }

    #[test]
    fn three_spellings_are_one_absolute_path() {
        for path in [
            "/filesystem/%2Ftmp%2Fx",
            "/filesystem//tmp/x",
            "/filesystem%2Ftmp/x",
            "/filesystem%2ftmp%2fx",
        ] {
            check(Method::GET, path, entry("/tmp/x"));
        }
        check(Method::GET, "/filesystem/tmp/x", entry("tmp/x"));
        check(Method::GET, "/filesystem/~/x", entry("~/x"));
        check(Method::GET, "/filesystem", entry(""));
        check(Method::GET, "/filesystem/", entry(""));
    }

    #[test]
    fn the_tree_is_a_segment_and_not_a_prefix() {
        check(Method::GET, "/filesystem/treehouse", entry("treehouse"));
        check(Method::PUT, "/filesystem/tree/a/b", tree("/a/b"));
        check(Method::DELETE, "/filesystem/tree//etc", tree("//etc"));
        check(Method::GET, "/filesystem/tree%2Fetc", tree("//etc"));
    }

    #[test]
    fn uploads_keep_the_slashes_of_their_target() {
        let start = |path: &str| Ok(Route::Files(Files::UploadStart(PathArgument(path.into()))));
        check(Method::POST, "/filesystem-multipart/initiate/%2Ftmp%2Fx", start("/tmp/x"));
        check(Method::POST, "/filesystem-multipart/initiate//tmp/x", start("/tmp/x"));
        check(
            Method::PUT,
            "/filesystem-multipart/u/part",
            Ok(Route::Files(Files::UploadPart("u".into()))),
        );
        check(Method::GET, "/filesystem-multipart", Ok(Route::Files(Files::Uploads)));
        check(Method::GET, "/filesystem-multipart/u/nothing", Err(Miss::Path));
    }

    #[test]
    fn wrong_methods_and_paths_are_told_apart() {
        check(Method::PATCH, "/process", Err(Miss::Method(&[Method::GET, Method::POST])));
        check(Method::HEAD, "/process", Ok(Route::Processes));
        check(Method::GET, "/processes", Err(Miss::Path));
        check(Method::GET, "/process/a%2Fb/logs", Ok(Route::ProcessLogs("a/b".into())));
        check(Method::TRACE, "/", Ok(Route::Welcome));
    }

    proptest! {
        #[test]
        fn any_name_survives_encoding(name in proptest::collection::vec(any::<u8>(), 1..40)) {
            let encoded = percent_encode(&name, NON_ALPHANUMERIC).to_string();
            let expect = Ok(Route::Files(Files::Entry(PathArgument(name.clone()))));
            if name != b"tree" {
                prop_assert_eq!(find(&Method::GET, &format!("/filesystem/{encoded}")), expect);
            }
        }

        #[test]
        fn any_text_is_routed_or_missed(path in "\\PC{0,60}", method in "[A-Z]{1,8}") {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            let _ = find(&method, &path);
            let _ = find(&method, &format!("/filesystem{path}"));
            let _ = find(&method, &format!("/filesystem-multipart/{path}"));
        }
    }
}
