//! Looking for texts in the wishes of a workspace, the same on both databases.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{Place, agent, on_both, workspace};
use store::resources::{self, Stored};
use store::revisions::{self, Revision};
use store::{Error, Store, Tx, feed, wishes};
use types::parts::Status;
use types::{KindName, Timestamp};

on_both!(every_wish_with_a_text_is_found, only_what_was_written_since_is_looked_at,);

/// More than are in memory at once.
const MANY: usize = 1200;

fn revision(of: &Stored, id: &str, wish: &str) -> Revision {
    Revision {
        id: id.to_owned(),
        resource_id: of.id.clone(),
        wish: wish.to_owned(),
        seal_key: None,
        created_at: Timestamp::from_ms(0),
        created_by: "usr_test".to_owned(),
        activated_at: None,
    }
}

/// Writes an agent with a wish, and keeps the wish as a revision.
fn write(tx: &mut Tx<'_>, name: &str, wish: &str) -> Result<Stored, Error> {
    let found = resources::find(tx, &workspace(), KindName::Agent, "", name)?;
    let written = match found {
        Some(row) => resources::update(tx, Stored { wish: wish.to_owned(), ..row })?,
        None => {
            let made = agent(tx.world(), name);
            resources::insert(tx, Stored { wish: wish.to_owned(), ..made })?
        }
    };
    revisions::insert(tx, &revision(&written, &format!("{name}-{wish}"), wish))?;
    Ok(written)
}

async fn found(store: &Store, text: &'static str, since: Option<i64>) -> Vec<String> {
    let look = move |tx: &mut Tx<'_>| {
        let mut found = Vec::new();
        let add = |wish: &str| {
            found.push(wish.to_owned());
            Ok(())
        };
        match since {
            None => wishes::each(tx, &workspace(), KindName::Agent, text, add)?,
            Some(after) => {
                wishes::each_since(tx, &workspace(), KindName::Agent, after, text, add)?;
            }
        }
        let occurs = match since {
            None => wishes::occurs(tx, &workspace(), KindName::Agent, text)?,
            Some(after) => wishes::occurs_since(tx, &workspace(), KindName::Agent, after, text)?,
        };
        assert_eq!(occurs, !found.is_empty(), "{text}");
        found.sort_unstable();
        Ok::<_, Error>(found)
    };
    store.read(look).await.unwrap()
}

async fn every_wish_with_a_text_is_found(place: Place) {
    let store = place.open().await;
    let work = |tx: &mut Tx<'_>| {
        for number in 0..MANY {
            write(tx, &format!("a{number}"), "a needle")?;
        }
        write(tx, "b", "hay")?;
        let ended = agent(tx.world(), "c");
        let status = Some(Status::Terminated);
        resources::insert(tx, Stored { wish: "an old needle".to_owned(), status, ..ended })
    };
    store.write(work).await.unwrap();
    assert_eq!(found(&store, "needle", None).await, vec!["a needle"; 2 * MANY]);
    assert_eq!(found(&store, "hay", None).await, ["hay", "hay"]);
    assert!(found(&store, "old", None).await.is_empty());
}

async fn only_what_was_written_since_is_looked_at(place: Place) {
    let store = place.open().await;
    let before = |tx: &mut Tx<'_>| {
        write(tx, "old", "old needle")?;
        write(tx, "other", "old needle")
    };
    store.write(before).await.unwrap();
    // Transactions of other tests hold it back for a moment.
    let visible = |tx: &mut Tx<'_>| feed::since(tx, Some(&workspace()), 0, 9);
    while store.read(visible).await.unwrap().len() < 2 {
        tokio::task::yield_now().await;
    }
    let seen = store.read(feed::latest).await.unwrap();
    assert!(found(&store, "needle", Some(seen)).await.is_empty());
    let after = |tx: &mut Tx<'_>| {
        write(tx, "old", "first needle")?;
        write(tx, "old", "second needle")?;
        write(tx, "new", "third needle")
    };
    store.write(after).await.unwrap();
    let all = ["first needle", "second needle", "second needle", "third needle", "third needle"];
    assert_eq!(found(&store, "needle", Some(seen)).await, all);
}
