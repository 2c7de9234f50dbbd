//! One workspace's searches leave turns to others.

use super::open;
use super::writing::all;
use crate::logs::{Question, SearchLimits, Searches};
use std::task::{Context, Waker};
use types::ids::WorkspaceId;

#[tokio::test]
async fn whoever_searches_a_lot_waits_for_itself() {
    let (store, _folder) = open(false).await;
    let searches = Searches::new(store, SearchLimits { total: 3, workspace: 2 });
    let mine = [searches.turns().take("wsp_a").await, searches.turns().take("wsp_a").await];
    let mut third = Box::pin(searches.find(all()));
    let mut look = Context::from_waker(Waker::noop());
    assert!(third.as_mut().poll(&mut look).is_pending());
    let of_another = Question { workspace: WorkspaceId::known("wsp_b"), ..all() };
    assert_eq!(searches.find(of_another).await.unwrap().total, 0);
    assert!(third.as_mut().poll(&mut look).is_pending());
    drop(mine);
    assert_eq!(third.await.unwrap().total, 0);
}
