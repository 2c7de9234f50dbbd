//! Tests how many runners there may be, for whom, and who may ask for them.

use super::*;
use std::task::{Context, Poll, Waker};

#[tokio::test]
async fn a_job_has_no_more_runners_than_it_may() {
    let mut cloud = Cloud::start().await;
    cloud.change_job(|wish| wish["spec"]["runtime"]["maxConcurrentTasks"] = 2.into()).await;
    for id in 11..17 {
        cloud.host.queue(id, &[JOB]);
        cloud.tell(id).await;
    }
    let mut done = BTreeSet::new();
    while done.len() < 6 {
        cloud.settle().await;
        let running = cloud.queue.running();
        assert!((1..=2).contains(&running.len()) || done.len() == 5, "{running:?}");
        let runner = &running[0];
        let id = (11..17).find(|id| runner.contains(&format!("-{id}-"))).unwrap();
        cloud.host.pick_up(id, runner);
        cloud.host.complete(id);
        cloud.queue.end(runner);
        cloud.tell(id).await;
        done.insert(id);
    }
    cloud.pass_s(POLL_S);
    cloud.settle().await;
    cloud.assert_empty();
    assert_eq!(cloud.queue.started(), 6);
}

#[tokio::test]
async fn a_job_that_is_disabled_serves_nobody_any_more() {
    let mut cloud = Cloud::start().await;
    cloud.host.queue(11, &[JOB]);
    cloud.tell(11).await;
    cloud.settle().await;
    assert_eq!(cloud.queue.running().len(), 1);
    cloud.change_job(|wish| wish["spec"]["enabled"] = false.into()).await;
    cloud.pass_s(POLL_S);
    cloud.settle().await;
    cloud.settle().await;
    cloud.assert_empty();
    let asked = cloud.host.state.lock().asked.len();
    cloud.pass_s(POLL_S);
    cloud.settle().await;
    assert_eq!(
        cloud.host.state.lock().asked.len(),
        asked,
        "the repository is not asked about any more"
    );
}

#[tokio::test]
async fn an_execution_that_cannot_be_started_leaves_no_runner() {
    let cloud = Cloud::start().await;
    *cloud.queue.refuses.lock() = Some("the job has no image".into());
    cloud.host.queue(11, &[JOB]);
    cloud.tell(11).await;
    cloud.settle().await;
    assert_eq!(cloud.host.runner_names(), Vec::<String>::new());
    *cloud.queue.refuses.lock() = None;
    cloud.pass_s(POLL_S);
    cloud.settle().await;
    assert_eq!(cloud.queue.running().len(), 1);
}

#[tokio::test]
async fn an_unsigned_webhook_is_refused_alike_whatever_is_missing() {
    let cloud = Cloud::start().await;
    let empty = WorkspaceId::known("wsp_empty");
    let of = empty.clone();
    cloud.store.write(move |tx| add_workspace(tx, &of, "empty")).await.unwrap();
    let unsigned = WorkspaceId::known("wsp_unsigned");
    let of = unsigned.clone();
    cloud.store.write(move |tx| add_workspace(tx, &of, "unsigned")).await.unwrap();
    add_connection(&cloud.store, &unsigned, "github", &json!({"token": TOKEN}), "").await;
    cloud.host.queue(11, &[JOB]);
    let body = cloud.host.webhook(11);
    let wrong = [
        sign("other", &body),
        sign(SECRET, b"other"),
        sign("", &body),
        String::new(),
        "sha256=zz".into(),
    ];
    for workspace in ["main", "empty", "unsigned", "nobody"] {
        for signature in &wrong {
            let webhook = Webhook { event: "workflow_job", delivery: "d", signature, body: &body };
            let refused = cloud.runners.take(workspace, webhook).await.unwrap_err();
            assert!(matches!(refused, WebhookRefused::Unsigned), "{workspace}");
        }
    }
    cloud.host.state.lock().jobs.clear();
    cloud.settle().await;
    assert_eq!(cloud.queue.started(), 0);
    let signature = sign(SECRET, &body);
    for event in ["ping", "push", ""] {
        let webhook = Webhook { event, delivery: "d", signature: &signature, body: &body };
        cloud.runners.take("main", webhook).await.unwrap();
    }
    cloud.settle().await;
    assert_eq!(cloud.queue.started(), 0, "other events change nothing");
}

#[tokio::test]
async fn a_workspace_cannot_take_the_workflow_jobs_of_another() {
    let cloud = Cloud::start().await;
    let other = WorkspaceId::known("wsp_other");
    let of = other.clone();
    cloud.store.write(move |tx| add_workspace(tx, &of, "other")).await.unwrap();
    add_connection(
        &cloud.store,
        &other,
        "github",
        &json!({"token": TOKEN, "webhookSecret": "theirs"}),
        "",
    )
    .await;
    let wish =
        json!({"metadata": {"name": JOB}, "spec": {"githubRunner": {"repositories": ["me/repo"]}}});
    fixture::add_job(&cloud.store, &other, JOB, &wish).await;
    cloud.host.queue(11, &[JOB]);
    cloud.host.complete(11);
    let forged = cloud.host.webhook(11);
    let signature = sign("theirs", &forged);
    let webhook =
        Webhook { event: "workflow_job", delivery: "d", signature: &signature, body: &forged };
    cloud.runners.take("other", webhook).await.unwrap();
    let refused = cloud.runners.take("main", webhook).await;
    assert!(matches!(refused, Err(WebhookRefused::Unsigned)));
    cloud.host.queue(11, &["main/builder"]);
    cloud.tell(11).await;
    cloud.settle().await;
    let running = cloud.queue.running();
    assert_eq!(running.len(), 1, "what the other says of it is nothing to this workspace");
    assert!(running[0].starts_with("holm-abcdefghijkmnpqrstuv-11-"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_servers_start_no_runner_twice() {
    let cloud = Cloud::start_on_postgres().await;
    let servers = [cloud.runners.clone(), cloud.another().await, cloud.another().await];
    for id in 11..31 {
        cloud.host.queue(id, &[JOB]);
    }
    let mut turns = tokio::task::JoinSet::new();
    for (index, server) in servers.into_iter().enumerate() {
        let bodies: Vec<_> = (11..31).map(|id| cloud.host.webhook(id)).collect();
        turns.spawn(async move {
            for (number, body) in bodies.iter().enumerate() {
                let (delivery, signature) = (format!("{index}-{number}"), sign(SECRET, body));
                let webhook = Webhook {
                    event: "workflow_job",
                    delivery: &delivery,
                    signature: &signature,
                    body,
                };
                server.take("main", webhook).await.unwrap();
                server.turn().await.unwrap();
            }
        });
    }
    while let Some(turn) = turns.join_next().await {
        turn.unwrap();
    }
    cloud.settle().await;
    assert_eq!(cloud.queue.running().len(), 20);
    assert_eq!(cloud.host.state.lock().registrations, 20);
}

#[tokio::test]
async fn unsigned_webhooks_to_one_workspace_take_no_places_of_another() {
    let cloud = Cloud::start().await;
    cloud.host.queue(11, &[JOB]);
    let body = cloud.host.webhook(11);
    let unsigned = Webhook { event: "workflow_job", delivery: "d", signature: "", body: &body };
    // Each of these is handled up to its first wait, and stays there.
    let mut context = Context::from_waker(Waker::noop());
    let mut held: Vec<_> =
        (0..100).map(|_| Box::pin(cloud.runners.take("other", unsigned))).collect();
    let polled = held.iter_mut().map(|one| one.as_mut().poll(&mut context));
    let busy = polled.filter(|one| matches!(one, Poll::Ready(Err(WebhookRefused::Busy))));
    assert!(busy.count() > 50, "nothing bounds them");
    cloud.tell(11).await;
}
