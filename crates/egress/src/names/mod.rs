//! Answers the name queries of instances.
//!
//! ```text
//! an instance ─→ server ─→ question   by the rules: refuse, answer from here, or ask
//!                              │
//! dial ───────────────────→ resolver  from the cache, or else
//!                              └─→ ask      from the machine's name servers
//!                                    └─→ answers  keeps only what belongs to the question
//! ```
//!
//! An instance with rules can reach no other name server. So names that are not allowed cannot
//! carry data out, and it is known what the instance was told (`given_out`).

mod answers;
mod ask;
pub(crate) mod given_out;
mod question;
mod resolver;
mod server;

pub(crate) use resolver::Resolver;
pub(crate) use server::{serve_tcp, serve_udp};
