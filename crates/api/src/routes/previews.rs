//! Previews of sandboxes, and the tokens that open private ones.

use crate::call::{Call, Wish};
use crate::engine::{self, Desk, Draft, Held, Managed, Paging};
use crate::error::Error;
use crate::query::Flag;
use crate::reply::Reply;
use auth::Member;
use schemars::JsonSchema;
use serde::Deserialize;
use store::Tx;
use store::identity::workspaces;
use types::hosts::preview_url;
use types::kinds::custom_domain::{DomainStatus, DomainType, State as DomainState};
use types::kinds::{CustomDomain, Preview, PreviewToken, Sandbox};
use types::wire::Message;
use types::{Kind, KindName};

#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct Force {
    /// Takes the address over from the preview that has it.
    #[serde(default)]
    pub force: Flag,
}

/// Makes a preview. Its host must be free, unless the caller takes it over.
pub(crate) async fn create(call: Call<Member, Force, Wish<Preview>>) -> Result<Reply<Preview>, Error> {
    let (desk, parents, wish, force) = (call.desk(), call.path.all(), call.body.0.clone(), call.query.force.0);
    call.once(move |tx| {
        if force {
            for rival in rivals(&desk, tx, &wish)? {
                engine::remove::<Preview>(&desk, tx, &rival.parents(), &rival.row.name)?;
            }
        }
        engine::create(&desk, tx, &parents, wish.clone())
    })
    .await
}

pub(crate) async fn revoke_token(call: Call<Member>) -> Result<Reply<Message>, Error> {
    let (desk, parents, name) = (call.desk(), call.path.parents(), call.path.name().to_owned());
    call.app.store.write(move |tx| engine::remove::<PreviewToken>(&desk, tx, &parents, &name)).await?;
    Ok(Reply::of(&Message { message: "the token opens nothing any more".into() }))
}

/// The label of the host that a preview asks for; without one it gets its own.
pub(crate) fn wanted_label(desk: &Desk, preview: &Preview) -> Option<String> {
    let prefix = preview.spec.prefix_url.as_deref().filter(|prefix| !prefix.is_empty())?;
    Some(match preview.spec.custom_domain.as_deref().filter(|domain| !domain.is_empty()) {
        Some(domain) => format!("{prefix}.{domain}"),
        None => format!("{prefix}-{}", desk.member.workspace_name),
    })
}

/// Previews of the workspace that have the address that this one asks for.
fn rivals(desk: &Desk, tx: &mut Tx<'_>, wish: &Preview) -> Result<Vec<Held<Preview>>, Error> {
    let Some(label) = wanted_label(desk, wish) else { return Ok(Vec::new()) };
    let query = store::resources::Query {
        workspace: &desk.member.workspace,
        kind: KindName::Preview,
        parent: None,
        statuses: &[],
        hidden_statuses: &[],
        external_id: None,
        text: None,
        order: store::resources::Order::CreatedDesc,
        after: None,
        limit: desk.app.settings.bare_list_max,
        from_end: false,
    };
    let rows = store::resources::list(tx, &query)?;
    let held = rows.into_iter().map(Held::<Preview>::read).collect::<Result<Vec<_>, _>>()?;
    Ok(held.into_iter().filter(|held| wanted_label(desk, &held.wish).as_ref() == Some(&label)).collect())
}

/// Previews that have the address in the other workspaces that share the domain.
fn rivals_elsewhere(desk: &Desk, tx: &mut Tx<'_>, wish: &Preview, domain: &str) -> Result<Vec<Held<Preview>>, Error> {
    let mut found = Vec::new();
    for other in workspaces::list_of_account(tx, &desk.member.account)? {
        let there = desk.in_workspace(&other);
        let shares =
            other.id != desk.member.workspace && there.find(tx, KindName::CustomDomain, &[], domain)?.is_some();
        if shares {
            found.extend(rivals(&there, tx, wish)?);
        }
    }
    Ok(found)
}

/// What keeps previews from answering below a domain of their workspace.
pub(crate) fn unusable(domain: &CustomDomain, state: &DomainState) -> Option<&'static str> {
    if domain.spec.domain_type == Some(DomainType::Applications) {
        return Some("is a domain of applications");
    }
    (state.status != DomainStatus::Verified).then_some("is not verified: verify the domain first")
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
        let public_url = &desk.app.settings.public_url;
        let scheme = public_url.split_once("://").map_or("http", |(scheme, _)| scheme);
        let own = held.row.id.as_str().trim_start_matches("res_").to_owned();
        Some(match (wanted_label(desk, &held.wish), held.wish.spec.custom_domain.as_deref()) {
            (Some(host), Some(_)) => format!("{scheme}://{host}"),
            (None, Some(domain)) => format!("{scheme}://{own}.{domain}"),
            (label, None) => preview_url(&desk.app.settings.content_url, &label.unwrap_or(own)),
        })
    }

    fn settle(desk: &Desk, tx: &mut Tx<'_>, draft: &mut Draft<'_, Self>) -> Result<(), Error> {
        let domain = draft.wish.spec.custom_domain.as_deref();
        let moved = draft.old.is_none_or(|old| old.spec.custom_domain.as_deref() != domain);
        if let (Some(domain), true) = (domain, moved) {
            require_usable(desk, tx, domain)?;
        }
        let mut rivals = rivals(desk, tx, draft.wish)?;
        if let Some(domain) = draft.wish.spec.custom_domain.as_deref() {
            rivals.extend(rivals_elsewhere(desk, tx, draft.wish, domain)?);
        }
        let here = |held: &Held<Self>| held.row.workspace == desk.member.workspace;
        let place = draft.parents.join("/");
        let itself = |held: &Held<Self>| here(held) && held.row.name == draft.wish.name() && held.row.parent == place;
        if let Some(rival) = rivals.iter().find(|held| !itself(held)) {
            let way = if here(rival) { ", or send `force=true`" } else { ": it is in another workspace" };
            return Err(Error::Conflict(format!(
                "the preview `{}` of the sandbox `{}` has this address; choose another prefix{way}",
                rival.row.name, rival.row.parent
            )));
        }
        if let Some((name, above)) = draft.parents.split_last() {
            let region = desk.region(Held::<Sandbox>::get(desk, tx, above, name)?.wish.spec.region.as_deref());
            draft.state.region = Some(region).filter(|region| !region.is_empty());
        }
        Ok(())
    }
}

impl Managed for PreviewToken {
    const PAGING: Paging = Paging::Bare;
    /// Who may see a preview may open it: clients read tokens back from the list.
    const SHOWS_SECRETS: bool = true;
}
