//! Schemas of the wire types. Checking bodies against them is a feature of its own: the program
//! inside of instances has these types too, and would take as long again to build with it.

#[cfg(feature = "checker")]
mod checker;

#[cfg(feature = "checker")]
pub use checker::Checker;
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;

/// The generator of all published schemas: what the server writes, with read-only members marked.
pub fn generator() -> SchemaGenerator {
    SchemaSettings::draft2020_12()
        .with(|settings| settings.definitions_path = "/components/schemas".into())
        .for_serialize()
        .into_generator()
}
