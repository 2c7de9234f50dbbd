//! The way out of instances: which names they may reach, what is added to their requests, and what
//! came of it.
//!
//! ```text
//! an instance ─→ its firewall (node) ─→ names        answers questions for names, by the rules
//!                                    ├→ explicit     the proxy that programs are told of
//!                                    └→ transparent  for programs that ask nobody
//!                                          │
//!                        Policy: pass, look at requests, or block
//!                          │                  │
//!                        relay             intercept ── TLS opened, secrets put in
//!                          └───── Dial ───────┘
//! ```
//!
//! It knows instances by their addresses, which the machine's firewall vouches for, and never whose
//! they are.

mod authority;
mod client;
mod dial;
mod events;
#[cfg(test)]
mod fixture;
mod host;
mod inject;
mod intercept;
mod pattern;
mod policy;

pub use authority::AuthorityError;
pub use intercept::RootsError;
