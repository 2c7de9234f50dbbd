//! The data plane for workloads: finds out where a request wants to go, whether it may, wakes what
//! is paused, and hands the request on.
//!
//! It owns no database and no kernel: it is told of routes ([`Routes::apply`]) and instances
//! ([`Standby::track`]), asks about credentials ([`Guard`]), and reaches instances through
//! [`Machine`].
//!
//! ```text
//! Gateway::serve ── address       where to: parsed once, for every decision that follows
//!                ├─ destination   whether it may, and what is asked of which workload
//!                │  origin        whose origin a browser takes the answer for
//!                ├─ models        requests that no workload answers: has a map of its own
//!                ├─ answered      what the server answers itself and not a sandbox:
//!                │  drives        its drives
//!                │  tunnels       and its tunnel
//!                ├─ rewrite       what changes in the messages
//!                ├─ deployment    which replica gets the request, and waiting for one
//!                │  choice        the rules of that; traffic has the numbers, stay what binds a caller
//!                │  demands       tells that replicas are wanted
//!                │  tool_lists    what sleeping MCP servers have answered before
//!                ├─ standby       waits until the instance is awake; a visit keeps it awake
//!                ├─ exchange      one request and its answer over a wire
//!                │  wire          connections to workloads; spare ones wait for the next request
//!                ├─ body          the answer as it comes; at its end the wire is spare again and
//!                │                the visit is over
//!                └─ revocation    ends a long exchange when its request would not be let in any more
//! ```
//!
//! **A request for a workload that is paused or starts waits; it does not fail.** Waiting is bounded
//! in number and time. **A connection that carries a request belongs to a visit**, so a pause finds
//! all connections spare and closes them.

mod address;
mod answered;
mod body;
mod call;
mod choice;
mod context;
mod cookies;
mod credentials;
mod demands;
mod deployment;
mod destination;
mod drives;
mod exchange;
mod gateway;
mod guard;
mod headers;
mod hold;
mod machine;
mod models;
mod origin;
mod peer;
mod preview;
mod problem;
mod query;
mod revocation;
mod rewrite;
mod routes;
mod sandbox;
mod sessions;
mod settings;
mod socket;
mod standby;
mod stats;
mod stay;
mod timing;
mod tool_lists;
mod traffic;
mod tunnels;
mod wait_queue;
mod wire;

pub use address::{Address, BadAddress};
pub use body::{Body, BodyError};
pub use call::CallError;
pub use drives::Drives;
pub use gateway::{Gateway, Parts};
pub use guard::{BoxFuture, Caller, Guard, Refused};
pub use machine::{Machine, MachineError};
pub use models::{ModelParts, ModelSettings, OutsideError};
pub use peer::{Peer, Site};
pub use routes::Routes;
pub use settings::Settings;
pub use standby::{EnterError, Initial, Look, PauseError, Phase, Standby, Visit};
pub use tunnels::Tunnels;
pub use wire::Unanswered;
