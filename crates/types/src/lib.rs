//! Vocabulary of the interface: wire types of every kind of resource, their names and rules,
//! versions, scopes, ids and errors.
//!
//! Nothing here does I/O, waits, or knows a database. Each kind is one file under [`kinds`]; what
//! all kinds share is under [`parts`], and everything else that is sent or answered is under
//! [`wire`]. The JSON schema that a type derives is both the published OpenAPI schema and the first
//! check of what callers send ([`schema`]); rules that a schema cannot express are in
//! [`Kind::check`].

pub mod browser;
mod causes;
pub mod drive_mounts;
pub mod edge;
pub mod egress;
pub mod error;
pub mod guest;
pub mod hex;
pub mod hosts;
pub mod ids;
pub mod instance;
pub mod kind;
pub mod kinds;
pub mod model_books;
pub mod models;
pub mod own_image;
pub mod parts;
pub mod problems;
mod remote;
pub mod schema;
pub mod scope;
pub mod start;
pub mod time;
pub mod tunnel;
pub mod usage;
pub mod version;
pub mod wire;
pub mod work;
pub mod world;

pub use causes::chain;
pub use error::ErrorBody;
pub use kind::{Kind, KindName, Naming, ObjectMetadata, Reference};
pub use problems::Problems;
pub use remote::Remote;
pub use scope::{Scope, Verb};
pub use time::Timestamp;
pub use version::ApiVersion;
pub use world::World;
