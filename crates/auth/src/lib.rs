//! Who is calling and what they may do: accounts, members, keys, OAuth, scopes.
//!
//! Servers hold an [`Auth`], which tells who a credential stands for, from memory when it can. What
//! people manage (workspaces, members, keys, …) are plain functions on a store transaction, with
//! one module for each noun. Run those that write through [`Auth::change`], so that outdated memory
//! is dropped before the answer. OAuth is in [`oauth`], without HTTP.

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
pub mod known_browser;
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
pub use store::identity::{Role, Subject};
pub use throttle::Throttled;
pub use ticket::Ticket;
