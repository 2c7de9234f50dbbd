//! The server is killed while it asks models: limits hold, and answers are counted.

use crate::provider::Provider;
use crate::settings_models::{chat, model, path};
use crate::setup::{Client, Place, eventually};
use serde_json::{Value, json};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const REQUESTS: usize = 60;
const ASKERS: usize = 4;
const KILLS: usize = 3;

/// Asks until the limit is reached. Counts the answers.
fn ask(client: &Mutex<Client>, answered: &AtomicUsize, over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        let client = client.lock().unwrap().clone();
        match client.ask("POST", &path("m"), Some(&chat("hi", false))) {
            Some((200, _)) => drop(answered.fetch_add(1, Ordering::Relaxed)),
            Some((429, _)) => over.store(true, Ordering::Relaxed),
            // The server is being killed, or is restarting.
            _ => std::thread::yield_now(),
        }
    }
}

fn usage(client: &Client) -> Value {
    client.done("GET", "/v0/models/m/usage", None)["total"].clone()
}

#[test]
fn limits_of_models_hold_and_answers_are_counted_through_kills() {
    let provider = Provider::start();
    let mut place = Place::new("15s");
    let text = "[models]\ninside = [\"127.0.0.1\"]";
    std::fs::write(place.data().join("holm.toml"), text).unwrap();
    let (mut server, client) = place.start();
    let limit = json!({"granularity": "month", "requests": REQUESTS});
    let wish = json!({"metadata": {"name": "few"},
        "spec": {"type": "maxToken", "maxTokens": limit}});
    client.done("POST", "/v0/policies", Some(&wish));
    model(&client, "m", &provider.at("slow=20"), &json!({"policies": ["few"]}));
    let (now, answered, over) = (Mutex::new(client), AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..ASKERS {
            scope.spawn(|| ask(&now, &answered, &over));
        }
        for kill in 1..=KILLS {
            eventually("some more are asked", || provider.asked("slow=20") >= kill * 12);
            server.kill();
            let started = place.start();
            server = started.0;
            *now.lock().unwrap() = started.1;
        }
        eventually("the limit is reached", || over.load(Ordering::Relaxed));
    });
    let (client, answered) = (now.into_inner().unwrap(), answered.into_inner());
    let asked = provider.asked("slow=20");
    let in_flight = KILLS * ASKERS;
    assert!(answered <= asked && asked <= REQUESTS, "{answered} of {asked}");
    assert!(asked + in_flight >= REQUESTS, "{asked}: more was refused than could have been lost");
    eventually("all of it is counted", || usage(&client)["calls"] == REQUESTS);
    let used = usage(&client);
    let tokens = |name: &str| usize::try_from(used[name].as_u64().unwrap()).unwrap();
    assert!(
        tokens("outputTokens") >= 2 * answered && tokens("inputTokens") >= 3 * answered,
        "{used}"
    );
    place.clear(server, &client);
}
