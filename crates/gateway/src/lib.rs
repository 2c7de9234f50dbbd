//! The data plane for workloads: finds out where a request wants to go, checks whether it may go
//! there, wakes what is paused, and passes the request on.
//!
//! It has no database and does not touch the kernel: it is told about routes ([`Routes::apply`])
//! and instances ([`Standby::track`]), asks about credentials ([`Guard`]), and reaches instances
//! through [`Machine`].
//!
//! ```text
//! Gateway::serve ── address       where to: parsed once, for every decision that follows
//!                ├─ destination   whether it may, and the port and path of which workload
//!                │  origin        which origin a browser takes the answer to be from
//!                ├─ models        requests that no workload answers: has a map of its own
//!                ├─ answered      what the server itself answers in place of a sandbox:
//!                │  drives        its drives
//!                │  tunnels       and its tunnel
//!                ├─ rewrite       what changes in the messages
//!                ├─ deployment    picks the replica for the request, and waits for one
//!                │  choice        its rules; traffic has the numbers, affinity what binds a caller
//!                │  demands       reports that replicas are wanted
//!                │  tool_lists    what sleeping MCP servers have answered before
//!                ├─ standby       waits until the instance is awake; a visit keeps it awake
//!                ├─ exchange      one request and its answer over a wire
//!                │  wire          connections to workloads; spare ones wait for the next request
//!                ├─ body          passes the answer on; at its end the wire becomes spare
//!                │                and the visit ends
//!                └─ revocation    ends a long exchange when its request would no longer be let in
//! ```
//!
//! **A request for a workload that is paused or starting waits; it does not fail.** How many wait,
//! and for how long, is limited. **A connection that carries a request belongs to a visit** (a hold
//! that keeps an instance awake), so when an instance is paused all its connections are spare and
//! are closed.

mod address;
mod affinity;
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
mod inner;
mod machine;
mod models;
mod origin;
mod peer;
mod preview;
mod problem;
mod query;
mod request;
mod revocation;
mod rewrite;
mod routes;
mod sandbox;
mod sessions;
mod settings;
mod socket;
mod standby;
mod stats;
mod timing;
mod tool_lists;
mod traffic;
mod tunnels;
mod turned_off;
mod wait_queue;
mod wire;

pub use address::{Address, BadAddress};
pub use body::{Body, BodyError};
pub use call::CallError;
pub use drives::Drives;
pub use gateway::{Gateway, Parts};
pub use guard::{Caller, Guard, Refused};
pub use machine::{Machine, MachineError};
pub use models::{ModelParts, ModelSettings, OutsideError};
pub use peer::{Peer, Site};
pub use routes::Routes;
pub use settings::Settings;
pub use standby::{EnterError, Initial, Look, PauseError, Phase, Standby, Visit};
pub use tunnels::Tunnels;
pub use wire::Unanswered;
