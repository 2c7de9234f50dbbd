//! Secrets that all servers of one database share. The first server that needs one makes it.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use store::{Error, Store, settings};

/// Returns the 32 bytes kept under `name`; they are stored sealed.
pub(crate) async fn shared(store: &Store, name: &'static str) -> Result<[u8; 32], Error> {
    let fresh = URL_SAFE_NO_PAD.encode(store.world().random_bytes::<32>());
    let keyring = store.keyring();
    let seal_context = format!("settings/{name}");
    let work = move |tx: &mut store::Tx<'_>| {
        let sealed = keyring.read().seal(&seal_context, &fresh)?;
        let stored = settings::get_or_insert(tx, name, &sealed)?;
        keyring.read().open(&seal_context, &stored)
    };
    let text: String = store.write(work).await?;
    let bytes = URL_SAFE_NO_PAD.decode(text).ok().and_then(|bytes| bytes.try_into().ok());
    bytes.ok_or_else(|| Error::corrupt("settings", name, "it is damaged; restore a backup"))
}
