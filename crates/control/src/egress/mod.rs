//! The way out of workloads, as their rows ask for it: rules, the addresses that traffic leaves
//! with, and the log of what rules did.
//!
//! ```text
//! wish ─→ rules ─→ Launch::egress            what is started keeps to them from its first packet
//!            └───→ Machine::set_egress       what runs is told before the change is answered (change)
//! Machine::egress_events ─→ log ─→ jobs::logs
//! ```

mod addresses;
mod change;
mod gateways;
mod log;
mod pool;
mod rules;
mod tell;
pub(crate) mod told;

pub use addresses::public_ips;
pub(crate) use addresses::{give_back, require_address_unused, take};
pub use change::replace;
pub use gateways::sandboxes_of;
pub(crate) use gateways::{
    addresses_changed, require_alone, require_gateway, require_unused, require_vpc_unused,
};
pub(crate) use log::run;
pub use pool::EgressPool;
pub(crate) use rules::{has_rules, of_sandbox, plain};
pub(crate) use tell::{keep_to, tell, tell_again};
