//! Sign-ins of clients, and their refresh tokens.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{Place, on_both};
use store::Error;
use store::identity::grants::{self, Grant};
use store::identity::{Digest, Subject};
use types::ids::{ClientId, GrantId, UserId};

on_both!(a_grant_keeps_a_number_of_used_tokens);

async fn a_grant_keeps_a_number_of_used_tokens(place: Place) {
    let (store, world) = (place.open().await, place.world());
    let now = world.now();
    let grant = Grant {
        id: GrantId::new(&world),
        client: ClientId::known("cli_test"),
        subject: Subject::User(UserId::new(&world)),
        scope: String::new(),
        created_at: now,
        expires_at: now.plus_s(60),
    };
    let token = |number: usize| Digest::of(&format!("token {number}"));
    let known = store
        .write(move |tx| {
            grants::create(tx, &grant)?;
            for number in 0..250 {
                grants::add_refresh(tx, &grant.id, &token(number), grant.expires_at)?;
                if number != 249 {
                    grants::use_refresh(tx, &token(number))?;
                }
            }
            let mut known = Vec::new();
            for number in 0..250 {
                if let Some(refresh) = grants::lock_refresh(tx, &token(number))? {
                    known.push((number, refresh.used_at.is_some()));
                }
            }
            Ok::<_, Error>(known)
        })
        .await
        .unwrap();
    let wanted: Vec<_> = (149..250).map(|number| (number, number != 249)).collect();
    assert_eq!(known, wanted);
}
