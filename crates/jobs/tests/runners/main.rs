//! Tests runners against a stand-in for the code host, reached over HTTP, with a queue in memory.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod code_host;
mod fixture;
mod limits;

use code_host::{Mood, TOKEN};
use fixture::{Cloud, JOB, SECRET, add_connection, add_workspace, sign};
use jobs::runners::{Progress, Webhook, WebhookRefused};
use serde_json::json;
use std::collections::BTreeSet;
use types::ids::WorkspaceId;

const POLL_S: i64 = 60;

/// Each workflow job gets a runner, and nothing of it is left afterwards.
#[tokio::test]
async fn a_workflow_job_gets_a_runner_of_its_own_and_nothing_is_left_of_it() {
    let cloud = Cloud::start().await;
    cloud.settle().await;
    cloud.assert_empty();
    cloud.host.queue(11, &["self-hosted", "linux", "main/builder"]);
    cloud.tell(11).await;
    cloud.settle().await;
    let [runner] = cloud.queue.running().try_into().unwrap();
    assert_eq!(cloud.host.runner_names(), [runner.as_str()]);
    assert!(cloud.queue.executions.lock().values().all(|executed| executed.job == cloud.job.id));
    cloud.host.pick_up(11, &runner);
    cloud.tell(11).await;
    cloud.host.complete(11);
    cloud.queue.end(&runner);
    cloud.tell(11).await;
    cloud.pass_s(POLL_S);
    cloud.settle().await;
    cloud.assert_empty();
    assert_eq!(cloud.host.state.lock().registrations, 1);
    assert!(
        cloud.queue.executions.lock().values().all(|executed| !executed.cancelled),
        "it ended by itself"
    );
}

#[tokio::test]
async fn what_asks_for_other_labels_or_comes_from_another_repository_gets_none() {
    let cloud = Cloud::start().await;
    for (id, labels) in
        [(11, vec!["ubuntu-latest"]), (12, vec![JOB, "gpu"]), (13, vec!["other/builder"])]
    {
        cloud.host.queue(id, &labels);
        cloud.tell(id).await;
    }
    cloud.host.queue(14, &[JOB]);
    let elsewhere =
        String::from_utf8(cloud.host.webhook(14)).unwrap().replace("me/repo", "you/repo");
    cloud.deliver("d", elsewhere.as_bytes()).await.unwrap();
    cloud.host.state.lock().jobs.remove(&14);
    cloud.settle().await;
    cloud.assert_empty();
    assert_eq!(cloud.queue.started(), 0);
}

#[tokio::test]
async fn lost_webhooks_are_made_up_for_by_asking() {
    let cloud = Cloud::start().await;
    cloud.settle().await;
    cloud.host.queue(11, &[JOB]);
    cloud.pass_s(POLL_S);
    cloud.settle().await;
    let [runner] = cloud.queue.running().try_into().unwrap();
    cloud.host.pick_up(11, &runner);
    cloud.pass_s(POLL_S);
    cloud.settle().await;
    cloud.host.complete(11);
    for _ in 0..3 {
        cloud.pass_s(POLL_S);
        cloud.settle().await;
    }
    // The program hangs after its work, so it is ended.
    cloud.assert_empty();
    assert_eq!(cloud.queue.started(), 1);
    assert!(cloud.host.state.lock().unchanged > 0, "unchanged lists are asked for with their tag");
}

#[tokio::test]
async fn doubled_late_and_reordered_webhooks_start_nothing_twice() {
    let cloud = Cloud::start().await;
    cloud.host.queue(11, &[JOB]);
    let queued = cloud.host.webhook(11);
    for delivery in ["a", "a", "b"] {
        cloud.deliver(delivery, &queued).await.unwrap();
        cloud.settle().await;
    }
    let [runner] = cloud.queue.running().try_into().unwrap();
    cloud.host.pick_up(11, &runner);
    let picked_up = cloud.host.webhook(11);
    cloud.host.complete(11);
    cloud.queue.end(&runner);
    cloud.tell(11).await;
    for (delivery, late) in [("c", &picked_up), ("d", &queued), ("b", &queued)] {
        cloud.deliver(delivery, late).await.unwrap();
        cloud.settle().await;
    }
    cloud.pass_s(POLL_S);
    cloud.settle().await;
    cloud.assert_empty();
    assert_eq!(cloud.queue.started(), 1);
    // Nothing is started either for a workflow job that ended before its first webhook arrived.
    cloud.host.queue(12, &[JOB]);
    let queued = cloud.host.webhook(12);
    cloud.host.complete(12);
    cloud.tell(12).await;
    cloud.deliver("e", &queued).await.unwrap();
    cloud.settle().await;
    assert_eq!(cloud.queue.started(), 1);
}

#[tokio::test]
async fn a_runner_that_picks_up_anothers_workflow_job_is_changed_for_the_others() {
    let cloud = Cloud::start().await;
    for id in [11, 12] {
        cloud.host.queue(id, &[JOB]);
        cloud.tell(id).await;
        cloud.settle().await;
    }
    let (first, second): (Vec<_>, Vec<_>) =
        cloud.host.runner_names().into_iter().partition(|name| name.contains("-11-"));
    cloud.host.pick_up(12, &first[0]);
    cloud.tell(12).await;
    cloud.host.complete(12);
    cloud.queue.end(&first[0]);
    cloud.tell(12).await;
    cloud.settle().await;
    assert_eq!(cloud.host.runner_names(), second, "the other waits for the first workflow job");
    cloud.host.pick_up(11, &second[0]);
    cloud.host.complete(11);
    cloud.queue.end(&second[0]);
    cloud.tell(11).await;
    cloud.pass_s(POLL_S);
    cloud.settle().await;
    cloud.assert_empty();
    assert_eq!(cloud.queue.started(), 2);
}

#[tokio::test]
async fn a_runner_that_does_not_pick_up_in_time_is_replaced_a_bounded_number_of_times() {
    let cloud = Cloud::start().await;
    cloud.host.queue(11, &[JOB]);
    cloud.tell(11).await;
    cloud.settle().await;
    let stuck = cloud.queue.running();
    cloud.pass_s(119);
    cloud.settle().await;
    assert_eq!(cloud.queue.running(), stuck);
    cloud.pass_s(5);
    cloud.settle().await;
    cloud.pass_s(5);
    cloud.settle().await;
    let [next] = cloud.queue.running().try_into().unwrap();
    assert!(!stuck.contains(&next));
    assert_eq!(cloud.host.runner_names(), [next]);
    for _ in 0..60 {
        cloud.pass_s(POLL_S);
        cloud.settle().await;
        assert!(cloud.queue.running().len() <= 1 && cloud.host.runner_names().len() <= 1);
    }
    cloud.assert_empty();
    assert_eq!(cloud.queue.started(), 5);
}

#[tokio::test]
async fn a_runner_at_work_is_never_taken_away() {
    let cloud = Cloud::start().await;
    cloud.host.queue(11, &[JOB]);
    cloud.tell(11).await;
    cloud.settle().await;
    let [runner] = cloud.queue.running().try_into().unwrap();
    cloud.host.pick_up(11, &runner);
    // The webhook is lost, and polling fails too.
    cloud.pass_s(125);
    cloud.host.state.lock().mood = Mood::Failing(1);
    cloud.settle().await;
    for _ in 0..10 {
        cloud.pass_s(POLL_S);
        cloud.settle().await;
        assert_eq!(cloud.queue.running(), [runner.as_str()]);
    }
    assert_eq!(cloud.queue.started(), 1);
}

#[tokio::test]
async fn a_runner_whose_machine_has_no_room_yet_is_waited_for() {
    let cloud = Cloud::start().await;
    *cloud.queue.full.lock() = true;
    cloud.host.queue(11, &[JOB]);
    cloud.tell(11).await;
    cloud.settle().await;
    for _ in 0..20 {
        cloud.pass_s(POLL_S);
        cloud.settle().await;
    }
    assert_eq!(cloud.queue.started(), 1);
    assert_eq!(cloud.queue.executions.lock().values().next().unwrap().progress, Progress::Queued);
}

#[tokio::test]
async fn a_cancelled_workflow_job_loses_its_runner() {
    let cloud = Cloud::start().await;
    cloud.host.queue(11, &[JOB]);
    cloud.tell(11).await;
    cloud.settle().await;
    assert_eq!(cloud.queue.running().len(), 1);
    cloud.host.complete(11);
    cloud.tell(11).await;
    cloud.settle().await;
    cloud.assert_empty();
    assert!(cloud.queue.executions.lock().values().all(|executed| executed.cancelled));
}

#[tokio::test]
async fn a_rate_limit_is_waited_out_without_asking() {
    let cloud = Cloud::start().await;
    cloud.settle().await;
    let reset_s = 1_800_000_000 + 600;
    cloud.host.state.lock().mood = Mood::Limited { reset_s };
    cloud.host.queue(11, &[JOB]);
    cloud.tell(11).await;
    cloud.settle().await;
    let asked = cloud.host.state.lock().asked.len();
    for _ in 0..9 {
        cloud.pass_s(POLL_S);
        cloud.settle().await;
    }
    assert_eq!(
        cloud.host.state.lock().asked.len(),
        asked,
        "nothing is asked before the limit ends"
    );
    cloud.pass_s(POLL_S);
    cloud.settle().await;
    assert_eq!(cloud.queue.running().len(), 1);
}

#[tokio::test]
async fn failures_of_the_code_host_are_repeated_without_counting() {
    let cloud = Cloud::start().await;
    cloud.settle().await;
    cloud.host.queue(11, &[JOB]);
    cloud.tell(11).await;
    cloud.host.state.lock().mood = Mood::Failing(8);
    for _ in 0..10 {
        cloud.settle().await;
        cloud.pass_s(10);
    }
    assert_eq!(cloud.queue.running().len(), 1);
    assert_eq!(cloud.queue.started(), 1);
}

#[tokio::test]
async fn an_answer_that_comes_too_late_leaves_no_runner_behind() {
    let cloud = Cloud::start().await;
    cloud.settle().await;
    cloud.host.queue(11, &[JOB]);
    cloud.tell(11).await;
    cloud.host.state.lock().mood = Mood::Slow;
    cloud.settle().await;
    assert_eq!(
        (cloud.host.runner_names().len(), cloud.queue.started()),
        (1, 0),
        "the code host made it, but we know nothing of it"
    );
    cloud.host.state.lock().mood = Mood::Well;
    cloud.pass_s(POLL_S);
    cloud.settle().await;
    assert_eq!(cloud.host.runner_names(), cloud.queue.running());
    assert_eq!(cloud.queue.running().len(), 1);
}

#[tokio::test]
async fn more_open_runs_than_one_round_can_ask_about_are_found_in_several() {
    let cloud = Cloud::start().await;
    *cloud.queue.full.lock() = true;
    for run in 1..=110 {
        cloud.host.queue(run * 10, &[JOB]);
    }
    for _ in 0..29 {
        cloud.settle().await;
        cloud.pass_s(POLL_S);
    }
    let open = cloud
        .store
        .write(|tx| store::runners::count_open(tx, &WorkspaceId::known(fixture::WORKSPACE)))
        .await;
    assert_eq!(open.unwrap(), 110);
    assert_eq!(
        cloud.host.runner_names().len(),
        100,
        "as many as a job may have that says nothing else"
    );
}

#[tokio::test]
async fn runners_of_others_are_left_alone() {
    let cloud = Cloud::start().await;
    let theirs = ["holm-zzzzzzzzzzzzzzzzzzzz-1-1", "laptop"];
    for (id, name) in theirs.iter().enumerate() {
        let runner =
            code_host::Registered { name: (*name).into(), labels: vec![JOB.into()], busy: false };
        cloud.host.state.lock().runners.insert(i64::try_from(id).unwrap(), runner);
    }
    cloud.settle().await;
    assert_eq!(cloud.host.runner_names(), theirs);
    // One of their runners picks up a workflow job, so ours is not needed.
    cloud.host.queue(11, &[JOB]);
    cloud.tell(11).await;
    cloud.settle().await;
    cloud.host.pick_up(11, "laptop");
    cloud.tell(11).await;
    cloud.settle().await;
    assert_eq!(cloud.host.runner_names(), theirs);
    assert_eq!(cloud.queue.running(), Vec::<String>::new());
}

#[tokio::test]
async fn a_revoked_token_costs_no_attempts() {
    let cloud = Cloud::start().await;
    cloud.settle().await;
    cloud.host.state.lock().tokens.clear();
    cloud.host.queue(11, &[JOB]);
    cloud.tell(11).await;
    for _ in 0..20 {
        cloud.settle().await;
        cloud.pass_s(POLL_S);
    }
    assert_eq!(cloud.queue.started(), 0);
    assert!(cloud.host.count("POST") <= 20, "it is asked once a minute at most");
    cloud.host.state.lock().tokens.insert(TOKEN.into());
    cloud.settle().await;
    assert_eq!(cloud.queue.running().len(), 1);
}

#[tokio::test]
async fn an_app_gets_tokens_for_an_hour_each() {
    let (pem, public) = rsa_key();
    let secret = json!({"appId": "77", "privateKey": pem, "installationId": "99"});
    let cloud = Cloud::start_with(&secret).await;
    {
        let mut state = cloud.host.state.lock();
        state.tokens.clear();
        state.app_key = Some(public);
    }
    for id in 11..14 {
        cloud.host.queue(id, &[JOB]);
        cloud.tell(id).await;
        cloud.settle().await;
    }
    assert_eq!(cloud.queue.running().len(), 3);
    let asked = cloud.host.count("POST /app/installations/99/access_tokens");
    assert!(asked <= 3, "one token serves for many requests: {asked}");
    cloud.pass_s(3600);
    cloud.settle().await;
    assert!(cloud.host.count("POST /app/installations/99/access_tokens") > asked);
    // The code host forgets all tokens, so the next request fetches a new one.
    cloud.host.state.lock().tokens.clear();
    cloud.host.queue(14, &[JOB]);
    cloud.tell(14).await;
    for _ in 0..3 {
        cloud.settle().await;
        cloud.pass_s(POLL_S);
    }
    assert!(cloud.queue.running().iter().any(|name| name.contains("-14-")));
}

/// Returns a key that was made for this test and opens nothing.
fn rsa_key() -> (String, Vec<u8>) {
    let pem = include_str!("app_key_for_tests.pem").to_owned();
    let public = include_bytes!("app_key_for_tests.public.der").to_vec();
    (pem, public)
}
