//! Tokens that open private previews.

use crate::context::Context;
use crate::engine::{self, Held, Managed, Paging, ShowsSecrets};
use crate::error::{Absent, Error};
use store::Tx;
use store::resources::{self, Query};
use types::Kind;
use types::kinds::PreviewToken;

/// Most tokens of one preview that are read. There are few: clients make one for each session.
const TOKENS_MAX: i64 = 10_000;

/// Returns the tokens of a preview, each as stored and with its secret opened. `place` is the
/// sandbox and the preview.
pub fn tokens(
    context: &Context,
    tx: &mut Tx<'_>,
    place: &[String],
) -> Result<Vec<(Held<PreviewToken>, PreviewToken)>, Error> {
    let parent = place.join("/");
    let query = Query {
        limit: TOKENS_MAX,
        ..Query::new(&context.member.workspace, PreviewToken::NAME, Some(parent.as_str()))
    };
    let rows = resources::list(tx, &query)?;
    let open = |row| {
        let held = Held::<PreviewToken>::read(row)?;
        engine::opened(context, &held).map(|token| (held, token))
    };
    rows.into_iter().map(open).collect()
}

impl Managed for PreviewToken {
    const PAGING: Paging = Paging::Bare;
    /// Whoever may see a preview may open it: clients read tokens back from the list.
    const SHOWS_SECRETS: ShowsSecrets = ShowsSecrets::ToAll;

    /// Clients name tokens after their clock, and two may do so in the same millisecond.
    fn row_name(
        context: &Context,
        tx: &mut Tx<'_>,
        parents: &[String],
        wish: &Self,
    ) -> Result<String, Error> {
        Ok(match context.find(tx, Self::NAME, parents, wish.name())? {
            None => wish.name().to_owned(),
            // No token's own name has a `#`.
            Some(_) => format!("{}#{}", wish.name(), context.world().random_text(20)),
        })
    }
}

/// Revokes the tokens of a preview with this name or value.
pub fn revoke(
    context: &Context,
    tx: &mut Tx<'_>,
    place: &[String],
    called: &str,
) -> Result<(), Error> {
    let shown =
        |token: &PreviewToken| token.spec.token.as_ref().is_some_and(|text| text.0 == called);
    let meant = |token: &PreviewToken| shown(token) || token.name() == called;
    let found = tokens(context, tx, place)?.into_iter().filter(|(_, token)| meant(token));
    let rows: Vec<String> = found.map(|(held, _)| held.row.name).collect();
    if rows.is_empty() {
        return Err(Absent::PreviewToken.into());
    }
    for row in rows {
        engine::remove::<PreviewToken>(context, tx, place, &row)?;
    }
    Ok(())
}
