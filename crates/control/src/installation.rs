//! The name of an installation: of all servers that share one database.

use store::{Error, Store, settings};

const SETTING: &str = "installation";
const CHARACTERS: usize = 12;

/// Returns the name, which the first server that needs it makes. What several servers keep at one
/// place outside is kept under it, so that another installation's is not taken for it.
pub async fn name(store: &Store) -> Result<String, Error> {
    let fresh = store.world().random_text(CHARACTERS);
    store.write(move |tx| settings::get_or_insert(tx, SETTING, &fresh)).await
}
