//! Holds the page that explains errors of the edge against what they say.

use super::*;

const PAGE: &str = include_str!("../../../../docs/edge-errors.md");
const ALL: [&Page; 29] = [
    &NO_ROUTE,
    &NO_WORKLOAD,
    &UNAVAILABLE,
    &NO_CREDENTIALS,
    &BAD_CREDENTIALS,
    &FORBIDDEN,
    &BAD_REQUEST,
    &TOO_LARGE,
    &TOO_MANY,
    &NO_CAPACITY,
    &NOT_LISTENING,
    &NO_ANSWER,
    &TIMED_OUT,
    &SESSION_LOST,
    &LIMIT_REACHED,
    &LIMIT_TOO_SMALL,
    &LIMITS_UNAVAILABLE,
    &UNPRICED,
    &UNCOUNTED,
    &HOOK_BLOCKED,
    &HOOK_FAILED,
    &BAD_CONNECTION,
    &LOOP,
    &RESTING,
    &PROVIDER_FAILED,
    &PROVIDER_SLOW,
    &SLOW_BODY,
    &AWAY,
    &BROKEN,
];

#[test]
fn each_section_begins_with_the_status_and_ends_with_what_to_do() {
    let sections: Vec<_> = PAGE.split("\n## ").skip(1).collect();
    assert_eq!(sections.len(), ALL.len());
    for page in ALL {
        let heading = format!("{}\n", page.code);
        let found = sections.iter().find(|section| section.starts_with(&heading));
        let text = found.unwrap_or_else(|| panic!("{} has no section", page.code));
        // The heading of the part about models is behind the last section before it.
        let text = text.split("\n# ").next().unwrap_or_default();
        let (_, text) = text.split_once("\n\n").unwrap_or_default();
        let (_, last) = text.trim_end().rsplit_once("\n\n").unwrap_or_default();
        let words = last.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(words, format!("{} {}", page.action, page.do_not), "{}", page.code);
        let again = if page.retryable { "may be tried again" } else { "will not change by itself" };
        let begin = format!("{}, {again}", page.status.as_u16());
        assert!(text.starts_with(&begin), "{} does not begin with `{begin}`", page.code);
    }
}
