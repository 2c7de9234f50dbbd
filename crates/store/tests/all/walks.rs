//! Going through all objects of a kind, and looking for them by name and by whom they are offered
//! to, the same on both databases.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{Place, object, on_both, workspace};
use store::resources::{self, offers};
use store::{Error, Tx};
use types::KindName;
use types::ids::WorkspaceId;

on_both!(a_walk_meets_each_object_once_under_any_parent, an_offer_is_found_by_whom_it_is_made_to,);

async fn a_walk_meets_each_object_once_under_any_parent(place: Place) {
    let store = place.open().await;
    let paths = [("a", "x"), ("a", "y"), ("a/b", "x"), ("ab", "a"), ("b", "x")];
    let work = move |tx: &mut Tx<'_>| {
        for (parent, name) in paths.into_iter().rev() {
            let made = object(tx.world(), KindName::Image, parent, name);
            resources::insert(tx, made)?;
        }
        let (mut met, mut last) = (Vec::new(), None);
        loop {
            let page = resources::walk(tx, &workspace(), KindName::Image, last.as_ref(), 2)?;
            last = page.last().cloned();
            met.extend(page.into_iter().map(|row| (row.parent, row.name)));
            if last.is_none() {
                let named = resources::named(tx, &workspace(), KindName::Image, "x")?;
                return Ok::<_, Error>((met, named.len()));
            }
        }
    };
    let (met, named) = store.write(work).await.unwrap();
    let all: Vec<_> = paths.map(|(parent, name)| (parent.to_owned(), name.to_owned())).into();
    assert_eq!(met, all);
    assert_eq!(named, 3);
}

async fn an_offer_is_found_by_whom_it_is_made_to(place: Place) {
    let store = place.open().await;
    let work = |tx: &mut Tx<'_>| {
        let (one, other) = (WorkspaceId::known("wsp_one"), WorkspaceId::known("wsp_other"));
        for (name, to) in [("first", &one), ("second", &one), ("third", &other)] {
            let made = object(tx.world(), KindName::ImageShare, "", name);
            let made = resources::insert(tx, made)?;
            offers::address(tx, made, to)?;
        }
        let mut names: Vec<String> =
            offers::list(tx, &one, 10)?.into_iter().map(|row| row.name).collect();
        names.sort_unstable();
        assert_eq!(names, ["first", "second"]);
        assert_eq!(offers::list(tx, &one, 1)?.len(), 1);
        assert!(offers::find(tx, &one, "first")?.is_some());
        assert!(offers::find(tx, &one, "third")?.is_none());
        Ok::<_, Error>(())
    };
    store.write(work).await.unwrap();
}
