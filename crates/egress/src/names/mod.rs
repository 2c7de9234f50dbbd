//! Questions for names.
//!
//! ```text
//! an instance ─→ server ─→ question   by the rules: refuse, answer from here, or ask
//!                              │
//! dial ───────────────────→ resolver  what was asked lately, else
//!                              └─→ ask      the name servers of the machine
//!                                    └─→ answers  only what belongs to the question
//! ```
//!
//! An instance with rules reaches no other name server, so names that are not allowed carry nothing
//! out, and what it was told is known (`given_out`).

mod answers;
mod ask;
pub(crate) mod given_out;
mod question;
mod resolver;
mod server;

pub(crate) use resolver::Resolver;
pub(crate) use server::{serve_tcp, serve_udp};
