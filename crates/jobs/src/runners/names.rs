//! The names of runners, and the labels that ask for one.

use types::ids::WorkspaceId;

const PREFIX: &str = "holm";

/// Returns what the names of all runners of a workspace begin with. It contains the workspace's id,
/// so that two workspaces that serve one repository, even those of two installations, leave each
/// other's runners alone.
pub(super) fn prefix(workspace: &WorkspaceId) -> String {
    let id = workspace.as_str();
    format!("{PREFIX}-{}-", id.split_once('_').map_or(id, |(_, stem)| stem))
}

/// Returns a name that no other runner ever has, within the 64 characters that the code host
/// allows.
pub(super) fn runner(workspace: &WorkspaceId, workflow_job: i64, serial: i64) -> String {
    format!("{}{workflow_job}-{serial}", prefix(workspace))
}

/// Returns the labels of a job's runners: its name, its full name, and the labels that describe the
/// machine.
pub(super) fn labels(workspace: &str, job: &str, machine: &[String]) -> Vec<String> {
    let own = [job.to_owned(), format!("{workspace}/{job}")];
    own.into_iter().chain(machine.iter().cloned()).collect()
}

/// True if runners with these [`labels`] serve a workflow job: it must name the job, and ask for no
/// label they lack.
pub(super) fn serves(ours: &[String], asked: &[String]) -> bool {
    let is = |one: &String, other: &String| one.eq_ignore_ascii_case(other);
    let named = asked.iter().any(|label| ours.iter().take(2).any(|own| is(own, label)));
    named && asked.iter().all(|label| ours.iter().any(|own| is(own, label)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(asked: &[&str], expected: bool) {
        let ours = labels("main", "builder", &["self-hosted".into(), "linux".into()]);
        let asked: Vec<String> = asked.iter().map(|label| (*label).to_owned()).collect();
        assert_eq!(serves(&ours, &asked), expected, "{asked:?}");
    }

    #[test]
    fn a_workflow_job_must_name_the_job_and_ask_for_nothing_else() {
        check(&["builder"], true);
        check(&["main/builder"], true);
        check(&["self-hosted", "Linux", "Builder"], true);
        check(&["self-hosted", "linux"], false);
        check(&["other/builder"], false);
        check(&["builder", "gpu"], false);
        check(&[], false);
    }

    #[test]
    fn names_differ_and_are_short_enough() {
        let workspace = WorkspaceId::known("wsp_abcdefghijkmnpqrstuv");
        assert_eq!(runner(&workspace, 7, 2), "holm-abcdefghijkmnpqrstuv-7-2");
        assert!(runner(&workspace, i64::MAX, 99_999).len() <= 64);
    }
}
