//! Lines that servers write about a workload are kept, whichever server writes them.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{Place, on_both, workspace};
use store::Store;
use store::logs::{Chunk, Mark, Printer, Source, Window, append, last, page};
use types::KindName;
use types::ids::ResourceId;

on_both!(
    lines_of_servers_that_write_at_once_are_all_kept,
    lines_that_are_written_again_are_kept_once,
);

fn source() -> Source {
    Source {
        workspace: workspace(),
        kind: KindName::Model,
        name: "gpt".into(),
        printer: Printer::Requests(ResourceId::known("res_1")),
    }
}

fn chunk(number: u32, text: &str) -> Chunk {
    let mark = Mark { total_bytes: text.len() as u64, ..Mark::default() };
    let (first_ns, last_ns) = (i64::from(number), i64::from(number));
    Chunk { number, first_ns, last_ns, lines: 1, severities: 1, text: text.to_owned(), mark }
}

async fn write(store: &Store, chunks: Vec<Chunk>) {
    store.write(move |tx| append(tx, &source(), &chunks)).await.unwrap();
}

async fn texts(store: &Store) -> Vec<String> {
    let window = Window {
        workspace: workspace(),
        kind: KindName::Model,
        name: "gpt".into(),
        execution: None,
        task: None,
        from_ns: 0,
        to_ns: i64::MAX,
        severities: 1,
    };
    let found = store.read(move |tx| page(tx, &window, None, 100)).await.unwrap();
    let mut texts: Vec<_> = found.into_iter().map(|chunk| chunk.text).collect();
    texts.sort();
    texts
}

async fn lines_of_servers_that_write_at_once_are_all_kept(place: Place) {
    let store = place.open().await;
    // Both found the log empty, so both begin with the number 1.
    write(&store, vec![chunk(1, "a1"), chunk(2, "a2")]).await;
    write(&store, vec![chunk(1, "b1"), chunk(2, "b2")]).await;
    assert_eq!(texts(&store).await, ["a1", "a2", "b1", "b2"]);
    let (number, _, mark) = store.read(|tx| last(tx, &source())).await.unwrap().unwrap();
    assert_eq!((number, mark.total_bytes), (4, 6), "the bytes of all count");
}

async fn lines_that_are_written_again_are_kept_once(place: Place) {
    let store = place.open().await;
    write(&store, vec![chunk(1, "a1")]).await;
    for _ in 0..2 {
        write(&store, vec![chunk(1, "b1"), chunk(2, "b2")]).await;
    }
    assert_eq!(texts(&store).await, ["a1", "b1", "b2"]);
}
