//! The durable queue: executions of jobs and their tasks, what fires them, and what they call back.
//!
//! The queue is tables. Whoever runs a task holds it by a lease and by the number of the attempt;
//! what came of it is accepted once, from that attempt. Running itself is left to a [`TaskRunner`], so
//! nothing here knows of containers.

pub mod callbacks;
pub mod cron;
pub mod deliveries;
mod dispatch;
pub mod logs;
mod plan;
mod queue;
mod rules;
pub mod runners;
mod settings;
mod share;
mod task_runner;

pub use dispatch::run;
pub use plan::{Assignment, Call, CallAnswer, Order, Plan, plan};
pub use queue::{Caller, Hooks, NewExecution, Queue, StartError};
pub use rules::status;
pub use settings::Settings;
pub use task_runner::{Running, TaskRunner, failure_of_row};
