//! The durable queue: executions of jobs and their tasks, what starts them, and the callbacks at
//! their end.
//!
//! The queue is tables. A machine that runs a task holds it by a lease and by the number of the
//! attempt; the outcome is accepted only once, and only from that attempt. Running tasks is left to
//! a [`TaskRunner`], so nothing here knows of containers.

pub mod callbacks;
pub mod cron;
mod daily;
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

pub use daily::Daily;
pub use dispatch::run;
pub use plan::{Assignment, Call, CallAnswer, Order, Plan, plan};
pub use queue::{Caller, Hooks, NewExecution, Queue, StartError};
pub use rules::status;
pub use settings::{BadSetting, Settings};
pub use task_runner::{TaskRunner, failure_of_row};
