//! The addresses of sandboxes, applications and previews. An address belongs to one holder in the
//! whole server: it is taken in the transaction that writes the holder, kept in its state, and told
//! to the edge for as long as the holder has it.

use crate::context::Context;
use crate::engine::{Draft, Held};
use crate::error::{Conflict, Error};
use crate::kinds::custom_domain::is_verified;
use crate::kinds::preview::is_usable;
use sha2::{Digest, Sha256};
use store::edge_names::{self, Holder, Taken};
use store::identity::workspaces;
use store::{Tx, resources};
use types::edge::{PreviewAddress, application_name, sandbox_label, sandbox_name};
use types::ids::ResourceId;
use types::kinds::Preview;
use types::kinds::application::AppUrl;
use types::{KindName, Problems, hex};

/// Length of a label that the server chooses; it has 100 bits.
const OWN_LABEL_CHARACTERS: usize = 25;

/// Returns the address that a preview asks for, or `None` if it has no prefix and gets one chosen
/// for it.
pub(crate) fn wanted(context: &Context, preview: &Preview) -> Option<PreviewAddress> {
    let prefix = filled(preview.spec.prefix_url.as_deref())?;
    Some(match filled(preview.spec.custom_domain.as_deref()) {
        Some(domain) => PreviewAddress::Host(format!("{prefix}.{domain}")),
        None => PreviewAddress::Label(format!("{prefix}-{}", context.member.workspace_name)),
    })
}

fn filled(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
}

/// Returns the address of a preview that is being written. One that the server chose stays the
/// same, even if a preview of the same name is deleted and created again in the same sandbox.
pub(crate) fn of_draft(
    context: &Context,
    draft: &Draft<'_, Preview>,
    sandbox: &ResourceId,
) -> PreviewAddress {
    if let Some(at) = wanted(context, draft.wish) {
        return at;
    }
    let domain = filled(draft.wish.spec.custom_domain.as_deref());
    let same = |old: &Preview| {
        wanted(context, old).is_none() && filled(old.spec.custom_domain.as_deref()) == domain
    };
    if let (Some(at), true) = (&draft.state.at, draft.old.is_some_and(same)) {
        return at.clone();
    }
    chosen(&own_label(sandbox, &draft.wish.metadata.name), domain)
}

/// Returns an address with a label that the server has chosen.
fn chosen(label: &str, domain: Option<&str>) -> PreviewAddress {
    match domain {
        Some(domain) => PreviewAddress::Host(format!("{label}.{domain}")),
        None => PreviewAddress::Label(label.to_owned()),
    }
}

/// Returns a label without a hyphen, so that it cannot equal one with a prefix, which always has
/// one.
fn own_label(sandbox: &ResourceId, preview: &str) -> String {
    chosen_label(&format!("preview {sandbox} {preview}"))
}

fn chosen_label(of: &str) -> String {
    hex::encode(&Sha256::digest(of)).chars().take(OWN_LABEL_CHARACTERS).collect()
}

/// Returns the address at which a preview answered before addresses were kept in the state, and the
/// one that it may have if somebody else holds that address.
pub(crate) fn before_states(
    context: &Context,
    held: &Held<Preview>,
) -> (PreviewAddress, PreviewAddress) {
    let own = held.row.id.as_str().trim_start_matches("res_");
    let fallback = chosen(own, filled(held.wish.spec.custom_domain.as_deref()));
    (wanted(context, &held.wish).unwrap_or_else(|| fallback.clone()), fallback)
}

pub(crate) fn holder(context: &Context, resource: &ResourceId) -> Holder {
    Holder { workspace: context.member.workspace.clone(), resource: resource.clone() }
}

/// Refuses a host that is the server's own name or below it: callers would never get from there to
/// what a workspace has.
pub(crate) fn refuse_own(context: &Context, host: &str, field: String) -> Result<(), Error> {
    let Some(own) = context.control.settings.own_name(host) else { return Ok(()) };
    let why = format!(
        "asks for `{host}`, but `{own}` and all hosts below it are this server's own: choose \
         another name"
    );
    Err(Problems::one(field, why).into())
}

/// Takes the address for a preview, and gives back the one that it had. If the address is taken,
/// its holder is named only if it is in the same workspace.
pub(crate) fn claim(
    context: &Context,
    tx: &mut Tx<'_>,
    id: &ResourceId,
    at: &PreviewAddress,
    wish: &Preview,
) -> Result<(), Error> {
    let (name, wanted) = (at.name(), holder(context, id));
    if let Taken::By(holder) = edge_names::take(tx, &name, &wanted)? {
        let domain = filled(wish.spec.custom_domain.as_deref());
        if answers(context, tx, &holder, domain, is_usable)? {
            return Err(taken(context, tx, at, &holder)?);
        }
        edge_names::hand_over(tx, &name, &wanted)?;
    }
    Ok(edge_names::keep_only(tx, id, &name)?)
}

/// Checks whether the holder of a host may still answer there. The domain may have passed to other
/// people since.
fn answers(
    context: &Context,
    tx: &mut Tx<'_>,
    holder: &Holder,
    domain: Option<&str>,
    usable: fn(&Context, &mut Tx<'_>, &str) -> Result<bool, Error>,
) -> Result<bool, Error> {
    let Some(domain) = domain else { return Ok(true) };
    match workspaces::find(tx, &holder.workspace)? {
        Some(workspace) => usable(&context.in_workspace(&workspace), tx, domain),
        None => Ok(false),
    }
}

fn taken(
    context: &Context,
    tx: &mut Tx<'_>,
    at: &PreviewAddress,
    holder: &Holder,
) -> Result<Error, Error> {
    let rival =
        own_preview_at(context, tx, at)?.filter(|_| holder.workspace == context.member.workspace);
    Ok(match rival {
        Some(rival) => {
            Conflict::OwnPreviewThere { preview: rival.row.name, sandbox: rival.row.parent }
        }
        None => Conflict::AddressTaken { address: at.name() },
    }
    .into())
}

/// Finds the preview that has an address, if it is in the caller's workspace.
pub(crate) fn own_preview_at(
    context: &Context,
    tx: &mut Tx<'_>,
    at: &PreviewAddress,
) -> Result<Option<Held<Preview>>, Error> {
    let own = edge_names::holder(tx, &at.name())?
        .filter(|holder| holder.workspace == context.member.workspace);
    let Some(holder) = own else { return Ok(None) };
    let row =
        resources::find_by_id(tx, &holder.resource)?.filter(|row| row.kind == KindName::Preview);
    row.map(Held::read).transpose()
}

/// Checks whether an address still belongs to a preview.
pub(crate) fn has(tx: &mut Tx<'_>, id: &ResourceId, at: &PreviewAddress) -> Result<bool, Error> {
    Ok(edge_names::holder(tx, &at.name())?.is_some_and(|holder| holder.resource == *id))
}

/// Takes the label of a sandbox's host. Sandboxes and workspaces are named freely, so two sandboxes
/// may want the same label. The second goes without it for good, and answers by its path, which is
/// its `metadata.url`. Refusing the second would reveal the first and let strangers block names;
/// passing the label on later would lead callers of one sandbox to the other.
pub(crate) fn take_label(
    context: &Context,
    tx: &mut Tx<'_>,
    id: &ResourceId,
    name: &str,
) -> Result<Option<String>, Error> {
    let label = sandbox_label(name, &context.member.workspace_name);
    let taken = edge_names::take(tx, &sandbox_name(&label), &holder(context, id))?;
    Ok(matches!(taken, Taken::Own).then_some(label))
}

/// Takes the label of an application's host. An application has no other address, so if another
/// workspace has that label, it gets one that nobody can choose.
pub(crate) fn take_application_label(
    context: &Context,
    tx: &mut Tx<'_>,
    id: &ResourceId,
    name: &str,
) -> Result<String, Error> {
    let wanted = sandbox_label(name, &context.member.workspace_name);
    let own = chosen_label(&format!("application {id}"));
    for label in [wanted, own] {
        let taken = edge_names::take(tx, &application_name(&label), &holder(context, id))?;
        if taken == Taken::Own {
            return Ok(label);
        }
    }
    Err(Conflict::AddressTaken { address: application_name(name) }.into())
}

/// Returns the host that an application's URL means.
fn host(url: &AppUrl) -> String {
    match filled(url.subdomain.as_deref()) {
        Some(subdomain) => format!("{subdomain}.{}", url.domain),
        None => url.domain.clone(),
    }
}

/// Returns the hosts at which an application answers: those that it holds, below domains that its
/// workspace has verified.
pub(crate) fn hosts_of(
    context: &Context,
    tx: &mut Tx<'_>,
    id: &ResourceId,
    urls: &[AppUrl],
) -> Result<Vec<String>, Error> {
    let mut hosts = Vec::new();
    for url in urls {
        let host = host(url);
        if is_verified(context, tx, &url.domain)?
            && edge_names::holder(tx, &host)?.is_some_and(|holder| holder.resource == *id)
        {
            hosts.push(host);
        }
    }
    Ok(hosts)
}

/// Takes the hosts that an application asks for below verified domains, and gives back those that
/// it no longer asks for.
pub(crate) fn take_hosts(
    context: &Context,
    tx: &mut Tx<'_>,
    id: &ResourceId,
    (label, urls): (&str, &[AppUrl]),
) -> Result<(), Error> {
    let mut kept = vec![application_name(label)];
    for (index, url) in urls.iter().enumerate() {
        let host = host(url);
        refuse_own(context, &host, format!("spec.urls[{index}]"))?;
        if is_verified(context, tx, &url.domain)? && !take_host(context, tx, id, url, &host)? {
            return Err(Conflict::AddressTaken { address: host }.into());
        }
        kept.push(host);
    }
    for name in edge_names::names_of(tx, id)?.iter().filter(|name| !kept.contains(name)) {
        edge_names::give_back_one(tx, id, name)?;
    }
    Ok(())
}

/// Like [`take_hosts`], but skips hosts that somebody else has, or the server itself.
pub(crate) fn take_free_hosts(
    context: &Context,
    tx: &mut Tx<'_>,
    id: &ResourceId,
    urls: &[AppUrl],
) -> Result<(), Error> {
    for url in urls {
        let host = host(url);
        let own = context.control.settings.own_name(&host).is_some();
        if !own && is_verified(context, tx, &url.domain)? {
            take_host(context, tx, id, url, &host)?;
        }
    }
    Ok(())
}

/// Takes one host. Returns whether the application has it now.
fn take_host(
    context: &Context,
    tx: &mut Tx<'_>,
    id: &ResourceId,
    url: &AppUrl,
    host: &str,
) -> Result<bool, Error> {
    let wanted = holder(context, id);
    let Taken::By(other) = edge_names::take(tx, host, &wanted)? else { return Ok(true) };
    // The domain may have passed to other people since.
    if other.workspace == wanted.workspace
        || answers(context, tx, &other, Some(&url.domain), is_verified)?
    {
        return Ok(false);
    }
    edge_names::hand_over(tx, host, &wanted)?;
    Ok(true)
}
