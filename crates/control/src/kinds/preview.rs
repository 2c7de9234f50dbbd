//! Previews of sandboxes.

use crate::addresses;
use crate::context::Context;
use crate::engine::{self, Draft, Held, Managed, Paging};
use crate::error::Error;
use store::Tx;
use types::Problems;
use types::edge::PreviewAddress;
use types::hosts::{custom_url, preview_url};
use types::kinds::custom_domain::{DomainStatus, DomainType, State as DomainState};
use types::kinds::{CustomDomain, Preview, Sandbox};

/// Returns what keeps previews from answering below a domain of their workspace.
fn unusable(domain: &CustomDomain, state: &DomainState) -> Option<&'static str> {
    if domain.spec.domain_type == Some(DomainType::Applications) {
        return Some("is a domain of applications");
    }
    (state.status != DomainStatus::Verified).then_some("is not verified: verify the domain first")
}

/// Checks whether previews may answer below a domain now. That ends with the domain or its share.
pub fn is_usable(context: &Context, tx: &mut Tx<'_>, domain: &str) -> Result<bool, Error> {
    let held = Held::<CustomDomain>::find(context, tx, &[], domain)?;
    Ok(held.is_some_and(|held| unusable(&held.wish, &held.state).is_none()))
}

fn require_usable(context: &Context, tx: &mut Tx<'_>, domain: &str) -> Result<(), Error> {
    // A missing domain was refused with the other references.
    let Some(held) = Held::<CustomDomain>::find(context, tx, &[], domain)? else { return Ok(()) };
    let Some(why) = unusable(&held.wish, &held.state) else { return Ok(()) };
    Err(Problems::one("spec.customDomain", why).into())
}

impl Managed for Preview {
    const PAGING: Paging = Paging::Bare;

    fn url(context: &Context, held: &Held<Self>) -> Option<String> {
        let (control, machine) = (&context.control, held.state.machine.as_deref());
        Some(match held.state.at.as_ref()? {
            PreviewAddress::Label(label) => preview_url(&control.content_url_at(machine), label),
            PreviewAddress::Host(host) => custom_url(&control.public_url_at(machine), host),
        })
    }

    fn prepare(
        context: &Context,
        tx: &mut Tx<'_>,
        draft: &mut Draft<'_, Self>,
    ) -> Result<(), Error> {
        let domain = draft.wish.spec.custom_domain.as_deref();
        let moved = draft.old.is_none_or(|old| old.spec.custom_domain.as_deref() != domain);
        if let (Some(domain), true) = (domain, moved) {
            require_usable(context, tx, domain)?;
        }
        let sandbox = match draft.old {
            // Locked, because a sandbox tells only the previews that are there when it moves.
            None => Held::<Sandbox>::lock_around(context, tx, draft.parents)?,
            // Whoever moves it waits for the lock of this preview.
            Some(_) => Held::<Sandbox>::get_around(context, tx, draft.parents)?,
        };
        let region = context.region(sandbox.wish.spec.region.as_deref());
        draft.state.region = Some(region).filter(|region| !region.is_empty());
        draft.state.machine = sandbox.state.placed.as_ref().map(|placed| placed.machine.clone());
        let at = addresses::of_draft(context, draft, &sandbox.row.id);
        if let PreviewAddress::Host(host) = &at {
            addresses::refuse_own(context, host, "spec.prefixUrl".into())?;
        }
        addresses::claim(context, tx, draft.id, &at, draft.wish)?;
        draft.state.at = Some(at);
        Ok(())
    }
}

/// Removes the preview of the same workspace that has the address which a wish asks for.
pub fn vacate(context: &Context, tx: &mut Tx<'_>, wish: &Preview) -> Result<(), Error> {
    let Some(at) = addresses::wanted(context, wish) else { return Ok(()) };
    let Some(rival) = addresses::own_preview_at(context, tx, &at)? else { return Ok(()) };
    engine::remove::<Preview>(context, tx, &rival.parents(), &rival.row.name).map(drop)
}
