//! Schemas of the wire types. Checking bodies against them is a feature of its own: the guest
//! program uses these types too, and would take twice as long to build with the checker.

#[cfg(feature = "checker")]
mod checker;

#[cfg(feature = "checker")]
pub use checker::Checker;
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;

/// Returns the generator of all published schemas: they describe what the server writes, with
/// read-only members marked.
pub fn generator() -> SchemaGenerator {
    SchemaSettings::draft2020_12()
        .with(|settings| settings.definitions_path = "/components/schemas".into())
        .for_serialize()
        .into_generator()
}
