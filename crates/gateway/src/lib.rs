//! The data plane for sandboxes: finds out where a request wants to go, whether it may, wakes what
//! sleeps, and hands the request on.
//!
//! It owns no database and no kernel: it is told of routes ([`Routes::apply`]) and instances
//! ([`Keeper::start`]), asks about credentials ([`Guard`]), and reaches instances through
//! [`Machine`].
//!
//! ```text
//! Gateway::serve ── address    where to: one parser for the check and for the way
//!                ├─ way        whether it may, and what is asked of whom
//!                │  origin   whose origin a browser takes the answer for
//!                ├─ keeper     held until the instance is awake, which the visit keeps so
//!                ├─ exchange   sent over a wire; spare wires are kept while the instance is awake
//!                ├─ body       the answer as it comes; at its end the wire is spare again and the visit over
//!                └─ lasting    what goes on for long ends when the request would not be let in any more
//! ```
//!
//! **A request for a sandbox that sleeps or starts waits; it does not fail.** Whoever waits is
//! counted and timed. **A connection of a request is never out of sight of a visit**, so a pause
//! finds all of them spare and ends them.

mod address;
mod body;
mod cookies;
mod credentials;
mod exchange;
mod gateway;
mod guard;
mod headers;
mod keeper;
mod lasting;
mod machine;
mod origin;
mod preview;
mod problem;
mod query;
mod routes;
mod settings;
mod socket;
mod spares;
mod timing;
mod wait_queue;
mod way;
mod wire;

pub use body::{Body, BodyError};
pub use exchange::{GUEST_PORT, Unanswered};
pub use gateway::{Gateway, Parts, Peer};
pub use guard::{BoxFuture, Caller, Guard, Refused};
pub use keeper::{CallError, EnterError, Found, Keeper, Look, Phase, RestError, Visit};
pub use machine::{Machine, MachineError};
pub use origin::Site;
pub use routes::Routes;
pub use settings::Settings;
