//! The way out for programs in here: the machine sends the address of its proxy and the
//! certificates to trust for it.

use crate::environment;
use crate::guest::Guest;
use crate::http::{Answer, Error, Request};
use crate::trust::Trust;
use http::StatusCode;
use std::collections::BTreeMap;
use std::io::{self, Write};
use types::guest::ProxySettings;

/// Applies the initial settings, before any program runs.
pub(crate) fn begin(guest: &Guest) {
    let settings = guest.instance.settings.given.proxy.clone();
    // Needed without a proxy too, because the files may come from a snapshot of an instance that
    // had one.
    if let Err(error) = apply(guest, settings) {
        let _ = writeln!(io::stderr(), "holm-guest: the proxy is not trusted in here: {error}");
    }
}

/// Applies new settings from the machine, for programs that are started from now on.
pub(crate) async fn set(guest: &Guest, mut request: Request) -> Result<Answer, Error> {
    guest.require_machine(&request)?;
    let settings: ProxySettings = request.json().await?;
    let applied = apply(guest, settings);
    applied
        .map_err(|error| Error::Internal(format!("the proxy is not trusted in here: {error}")))?;
    environment::write_file(&guest.instance.settings, &guest.instance.environment());
    Ok(Answer::empty(StatusCode::NO_CONTENT))
}

/// Sets the variables even if the files cannot be written: without the proxy, programs could reach
/// nothing and would not know why.
fn apply(guest: &Guest, settings: ProxySettings) -> io::Result<()> {
    let trusted = Trust::default().follow(&settings);
    let mut variables: BTreeMap<String, String> = settings.environment.clone();
    if let Ok(of_trust) = &trusted {
        variables.extend(of_trust.clone());
    }
    guest.instance.environment.lock().set_proxy(variables);
    *guest.proxy.lock() = settings;
    trusted.map(drop)
}
