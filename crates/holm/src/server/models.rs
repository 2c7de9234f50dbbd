//! Setup for serving models: the ledger of limits and usage, and the price table.

use crate::config::Config;
use crate::error::Error;
use gateway::{Gateway, ModelParts};
use models::ledger::{Ledger, Settings};
use models::prices::PriceTable;
use std::path::Path;
use std::sync::Arc;
use store::Store;
use types::World;

/// Folder of the ledger, below the data folder.
const FOLDER: &str = "models";
/// Identifies the current boot of the machine.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// Opens the ledger and lets the gateway serve models. The caller closes the ledger at shutdown, so
/// that nothing is counted that was not used.
pub(super) async fn open(
    config: &Config,
    store: &Store,
    world: &World,
    gateway: &Gateway,
) -> Result<Ledger, Error> {
    let prices = Arc::new(prices(config.models.prices.as_deref())?);
    let boot = std::fs::read_to_string(BOOT).map_err(Error::io(format!("read {BOOT}")))?;
    let wishes = &config.models;
    let settings = Settings {
        wait_max: wishes.limit_wait_max.0,
        waiting: wishes.waiting(),
        accounts: wishes.accounts(),
        usage_max: wishes.usage_rows_max,
        wants_max: wishes.limit_wants_max,
        journal_max: wishes.journal_bytes_max,
        ..Settings::new(config.data.folder.join(FOLDER), boot.trim().to_owned())
    };
    let books = control::models::ledger::books(store);
    let opened = Ledger::open(settings, books, world.clone()).await;
    let ledger = opened.map_err(|error| Error::Start {
        act: "open the limits of models".to_owned(),
        message: types::chain(&error),
    })?;
    let installation = control::installation::name(store).await;
    let installation = installation.map_err(|source| Error::Store {
        act: "find the name of this installation".to_owned(),
        source,
    })?;
    gateway.serve_models(ModelParts { ledger: ledger.clone(), prices, installation });
    Ok(ledger)
}

/// Returns the built-in prices, extended and overridden by the operator's file.
fn prices(file: Option<&Path>) -> Result<PriceTable, Error> {
    let builtin = PriceTable::builtin();
    let Some(file) = file else { return Ok(builtin.clone()) };
    let act = || format!("read the prices {} (models.prices)", file.display());
    let text = std::fs::read_to_string(file).map_err(Error::io(act()))?;
    let own = PriceTable::parse(&text)
        .map_err(|error| Error::Start { act: act(), message: types::chain(&error) })?;
    Ok(builtin.extended_by(&own))
}
