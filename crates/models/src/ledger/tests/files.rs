//! Tests of the files in which a ledger keeps what its store has not got yet.

use super::*;
use proptest::prelude::*;

#[tokio::test]
async fn a_long_journal_goes_on_in_new_files() {
    let place = Place::new();
    let settings = Settings { file_max: 2000, ..place.settings("a") };
    let (ledger, money) = (place.open_with(settings).await, limit(LimitMeasure::Cost, 100_000));
    let open = reserve(&ledger, &money, 7).await.unwrap();
    for _ in 0..20 {
        for _ in 0..10 {
            reserve(&ledger, &money, 5).await.unwrap().settle(&call(3));
        }
        ledger.flush().await;
    }
    let files = journal::list(&place.folder.path().join("a")).unwrap();
    assert!(files.len() <= 2, "{files:?}");
    assert!(!files[0].ends_with("journal-00000000000000000001"), "{files:?}");
    // A call that was open all the time is still known after a kill.
    let settings = place.kill(ledger, "b");
    std::mem::forget(open);
    place.open_with(settings).await.close().await;
    assert_eq!((place.books.used(), place.books.usage().calls), (607, 201));
}

#[tokio::test]
async fn a_folder_serves_one_process() {
    let place = Place::new();
    let _ledger = place.open().await;
    let again = Ledger::open(place.settings("a"), place.books.clone(), place.world()).await;
    assert!(matches!(again, Err(OpenError::InUse { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever is torn off the end of a journal, everything before it is read and nothing is made
    /// up.
    #[test]
    fn a_torn_journal_is_read_up_to_the_tear(count in 0u64..12, cut in 0usize..400, flip in any::<Option<u8>>()) {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = journal::Journal::begin(folder.path(), "boot", 5).unwrap();
        let end = Some(journal::End::of(&call(3)));
        for id in 0..count {
            journal.append(&journal::settled(id, &[3], end).unwrap()).unwrap();
        }
        let path = journal::list(folder.path()).unwrap().remove(0);
        let mut bytes = std::fs::read(&path).unwrap();
        let length = bytes.len() - cut.min(bytes.len());
        match flip {
            Some(bits) if length < bytes.len() => bytes[length] ^= bits | 1,
            Some(_) => {}
            None => bytes.truncate(length),
        }
        std::fs::write(&path, &bytes).unwrap();
        let mut read = Vec::new();
        let last = journal::read(&path, |number, record| read.push((number, record)));
        let last = last.map_or(0, |found| found.map_or(0, |(_, last)| last));
        for (place, (number, record)) in read.iter().enumerate() {
            prop_assert_eq!(*number, 5 + i64::try_from(place).unwrap());
            let id = u64::try_from(place).unwrap();
            let wanted = journal::Record::Settled { id, used: vec![3], end };
            prop_assert_eq!(record, &wanted);
        }
        if cut == 0 {
            prop_assert_eq!(last, 4 + i64::try_from(count).unwrap());
        }
    }
}
