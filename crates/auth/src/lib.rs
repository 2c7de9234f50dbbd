//! Who is calling and what may they do: accounts, members, keys, OAuth, scopes.
//!
//! [`Auth`] is what servers hold: it tells who stands behind a credential, from memory when it can.
//! What people manage (workspaces, members, keys, …) are plain functions on a store transaction,
//! one module for each noun; run those that write through [`Auth::change`], so that what memory
//! holds is dropped before the answer. OAuth is in [`oauth`], without HTTP.

pub mod accounts;
pub mod api_keys;
mod auth;
mod cache;
pub mod clients;
mod denied;
mod error;
#[cfg(test)]
mod fixture;
mod identity;
pub mod invitations;
mod jwt;
pub mod oauth;
pub mod outside;
mod passwords;
pub mod people;
pub mod registry_tokens;
mod roles;
mod scopes;
mod secrets;
pub mod service_accounts;
pub mod sessions;
pub mod setup;
mod signing;
#[cfg(test)]
mod tests;
mod throttle;
mod ticket;
mod tokens;
pub mod workspaces;

pub use auth::{Auth, Limits, Settings};
pub use denied::{Blame, Denied};
pub use error::Error;
pub use identity::{Grant, Identity, Member, Membership, is_still_member};
pub use passwords::Crowded;
pub use roles::allows;
pub use scopes::ScopeSet;
pub use secrets::is_api_key;
pub use store::identity::{Role, Subject};
pub use throttle::Throttled;
pub use ticket::Ticket;
