//! Databases that cannot hold every text.

use crate::common::Place;
use store::{Error, Store};

#[tokio::test]
async fn a_database_that_lacks_letters_is_refused() {
    let latin = ["--encoding=LATIN1", "--template=template0", "--locale=C"];
    let place = Place::postgres_at(testing::postgres_with(&latin));
    let opened = Store::open(place.settings.clone(), place.world()).await.map(drop);
    let looked = store::replication(place.settings.clone()).await.map(drop);
    for refused in [opened, looked] {
        let Err(Error::Unusable(why)) = refused else { panic!("{refused:?}") };
        assert!(why.contains("LATIN1") && why.contains("--encoding=UTF8"), "{why}");
    }
    let place = Place::postgres();
    store::replication(place.settings.clone()).await.unwrap();
}
