//! Lists of objects, which may take long to read: each workspace has a share of the store's
//! readers, and so has each account for its figures.

use admission::Turns;
use std::sync::Arc;
use store::{Store, Tx};

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct Lists {
    store: Store,
    turns: Arc<Turns>,
}

impl Lists {
    pub(crate) fn new(store: Store) -> Self {
        // However many lists are asked for, one reader is left for all else, and a workspace has
        // half of all. With a single reader, lists and all else take turns.
        let readers = store.readers();
        Self { turns: Arc::new(Turns::new(readers - 1, readers / 2)), store }
    }

    /// Reads a list when it is the turn of its workspace, or of its account if it belongs to none.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        sharer: &str,
        mut work: impl FnMut(&mut Tx<'_>) -> Result<T, control::Error> + Send + 'static,
    ) -> Result<T, control::Error> {
        let turn = self.turns.take(sharer).await;
        let in_turn = move |tx: &mut Tx<'_>| {
            // Kept here: reading goes on when the caller has gone.
            let _turn = &turn;
            work(tx)
        };
        self.store.read(in_turn).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use store::{Settings, Target};
    use types::{Timestamp, World};

    const READERS: usize = 4;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn lists_of_one_workspace_leave_readers_to_another() {
        let folder = tempfile::tempdir().unwrap();
        let target = Target::Sqlite { file: folder.path().join("holm.db") };
        let settings =
            Settings { connections: READERS, ..Settings::new(target, folder.path().join("keys")) };
        let world = World::new(|| Timestamp::from_ms(1_776_300_000_000), |bytes| bytes.fill(7));
        let store = Store::open(settings, world).await.unwrap();
        let lists = Lists::new(store.clone());
        let (begin, begun) = mpsc::channel();
        let greedy: Vec<_> = (0..2 * READERS)
            .map(|_| {
                let (lists, begin) = (lists.clone(), begin.clone());
                tokio::spawn(async move {
                    let work = move |_: &mut Tx<'_>| {
                        let (end, ended) = mpsc::channel::<()>();
                        begin.send(end).unwrap();
                        // Until the test drops the other side.
                        let _ = ended.recv();
                        Ok(())
                    };
                    lists.read("greedy", work).await
                })
            })
            .collect();
        let held: Vec<_> = begun.iter().take(READERS / 2).collect();
        lists.read("neighbour", |_| Ok(())).await.unwrap();
        store.read(|_| Ok::<_, store::Error>(())).await.unwrap();
        assert!(begun.try_recv().is_err(), "it has more than its share");
        drop((held, begin));
        for end in begun {
            drop(end);
        }
        for list in greedy {
            list.await.unwrap().unwrap();
        }
    }
}
