//! Previews of sandboxes, and the tokens that open private ones.

use crate::addresses;
use crate::call::{Call, Wish};
use crate::engine::{self, Desk, Draft, Held, Managed, Paging};
use crate::error::Error;
use crate::query::Flag;
use crate::reply::Reply;
use auth::Member;
use schemars::JsonSchema;
use serde::Deserialize;
use store::Tx;
use store::resources::{self, Query};
use types::Kind;
use types::edge::PreviewAddress;
use types::hosts::{preview_url, scheme};
use types::kinds::custom_domain::{DomainStatus, DomainType, State as DomainState};
use types::kinds::{CustomDomain, Preview, PreviewToken, Sandbox};
use types::wire::Message;

/// A preview has few tokens: clients make one for each session.
const TOKENS_MAX: i64 = 10_000;

#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct Force {
    /// Takes the address over from the preview that has it.
    #[serde(default)]
    pub force: Flag,
}

/// Makes a preview. Its host must be free, unless the caller takes it over.
pub(crate) async fn create(
    call: Call<Member, Force, Wish<Preview>>,
) -> Result<Reply<Preview>, Error> {
    let (desk, parents, wish, force) =
        (call.desk(), call.path.all(), call.body.0.clone(), call.query.force.0);
    call.once(move |tx| {
        if let (true, Some(at)) = (force, addresses::wanted(&desk, &wish))
            && let Some(rival) = addresses::own_preview_at(&desk, tx, &at)?
        {
            engine::remove::<Preview>(&desk, tx, &rival.parents(), &rival.row.name)?;
        }
        engine::create(&desk, tx, &parents, wish.clone())
    })
    .await
}

/// Revokes the token that a caller shows, or all of a name: names may be made from a clock that two callers share.
pub(crate) async fn revoke_token(call: Call<Member>) -> Result<Reply<Message>, Error> {
    let (desk, parents, called) = (call.desk(), call.path.parents(), call.path.name().to_owned());
    let work = move |tx: &mut Tx<'_>| {
        let tokens = tokens(&desk, tx, &parents)?;
        let shown =
            |token: &PreviewToken| token.spec.token.as_ref().is_some_and(|text| text.0 == called);
        let meant = |token: &PreviewToken| shown(token) || token.name() == called;
        let rows: Vec<String> = tokens
            .into_iter()
            .filter(|(_, token)| meant(token))
            .map(|(held, _)| held.row.name)
            .collect();
        if rows.is_empty() {
            return Err(Error::NotFound(
                "the preview has no token of this name or value".to_owned(),
            ));
        }
        rows.iter()
            .try_for_each(|row| engine::remove::<PreviewToken>(&desk, tx, &parents, row).map(drop))
    };
    call.app.store.write(work).await?;
    Ok(Reply::of(&Message { message: "the token opens nothing any more".into() }))
}

/// The tokens of a preview, each as it is stored and with its secret open. `place` is the sandbox and the preview.
pub(crate) fn tokens(
    desk: &Desk,
    tx: &mut Tx<'_>,
    place: &[String],
) -> Result<Vec<(Held<PreviewToken>, PreviewToken)>, Error> {
    let parent = place.join("/");
    let query = Query {
        limit: TOKENS_MAX,
        ..Query::new(&desk.member.workspace, PreviewToken::NAME, Some(parent.as_str()))
    };
    let rows = resources::list(tx, &query)?;
    let open = |row| {
        let held = Held::<PreviewToken>::read(row)?;
        engine::opened(desk, &held).map(|token| (held, token))
    };
    rows.into_iter().map(open).collect()
}

/// What keeps previews from answering below a domain of their workspace.
fn unusable(domain: &CustomDomain, state: &DomainState) -> Option<&'static str> {
    if domain.spec.domain_type == Some(DomainType::Applications) {
        return Some("is a domain of applications");
    }
    (state.status != DomainStatus::Verified).then_some("is not verified: verify the domain first")
}

/// What a preview was allowed once ends with the domain, and with the sharing of it.
pub(crate) fn is_usable(desk: &Desk, tx: &mut Tx<'_>, domain: &str) -> Result<bool, Error> {
    let held = Held::<CustomDomain>::find(desk, tx, &[], domain)?;
    Ok(held.is_some_and(|held| unusable(&held.wish, &held.state).is_none()))
}

fn require_usable(desk: &Desk, tx: &mut Tx<'_>, domain: &str) -> Result<(), Error> {
    // Whether it exists was asked with the other references.
    let Some(held) = Held::<CustomDomain>::find(desk, tx, &[], domain)? else { return Ok(()) };
    let Some(why) = unusable(&held.wish, &held.state) else { return Ok(()) };
    let mut problems = types::Problems::default();
    problems.add("spec.customDomain", why);
    Err(problems.into())
}

impl Managed for Preview {
    const PAGING: Paging = Paging::Bare;

    fn url(desk: &Desk, held: &Held<Self>) -> Option<String> {
        let settings = &desk.app.settings;
        Some(match held.state.at.as_ref()? {
            PreviewAddress::Label(label) => preview_url(&settings.content_url, label),
            PreviewAddress::Host(host) => format!("{}://{host}", scheme(&settings.public_url)),
        })
    }

    fn settle(desk: &Desk, tx: &mut Tx<'_>, draft: &mut Draft<'_, Self>) -> Result<(), Error> {
        let domain = draft.wish.spec.custom_domain.as_deref();
        let moved = draft.old.is_none_or(|old| old.spec.custom_domain.as_deref() != domain);
        if let (Some(domain), true) = (domain, moved) {
            require_usable(desk, tx, domain)?;
        }
        let Some((name, above)) = draft.parents.split_last() else { return Err(Error::NoRoute) };
        let sandbox = Held::<Sandbox>::get(desk, tx, above, name)?;
        let region = desk.region(sandbox.wish.spec.region.as_deref());
        draft.state.region = Some(region).filter(|region| !region.is_empty());
        let at = addresses::of_draft(desk, draft, &sandbox.row.id);
        addresses::claim(desk, tx, draft.id, &at, draft.wish)?;
        draft.state.at = Some(at);
        Ok(())
    }
}

impl Managed for PreviewToken {
    const PAGING: Paging = Paging::Bare;
    /// Who may see a preview may open it: clients read tokens back from the list.
    const SHOWS_SECRETS: bool = true;

    /// Clients name tokens after their clock, and two of them may look at it within the same millisecond.
    fn row_name(
        desk: &Desk,
        tx: &mut Tx<'_>,
        parents: &[String],
        wish: &Self,
    ) -> Result<String, Error> {
        Ok(match desk.find(tx, Self::NAME, parents, wish.name())? {
            None => wish.name().to_owned(),
            // No name has a `#`.
            Some(_) => format!("{}#{}", wish.name(), desk.world().random_text(20)),
        })
    }
}
