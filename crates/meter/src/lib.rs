//! What ran and what was kept, as usage and as money.
//!
//! ```text
//!  facts, owners ──▶ intake ──▶ fold ──▶ hours ──(keep_up)──▶ packed days ──▶ answer ◀── prices
//! ```
//!
//! Facts and owners are the truth and are kept for ever; all sums follow from them ([`verify`]).
//! The parts have no clock: who calls says what time it is. [`roll`] and [`pack`] have to be called
//! now and then, or questions become slow, never wrong.
//!
//! **Why days are packed across resources**, and not resources across days: nearly every question
//! goes over all resources for some time. One row for each day, workspace and dimension makes 90
//! days some hundred rows to read, whoever is asked for; one row for each resource and month would
//! be 40,000 rows for the same, and one for each hour some millions. What a late fact changes is
//! added beside the packed day, so a change never waits for a day to be written anew.

mod answer;
mod calendar;
mod facts;
mod fold;
mod groups;
mod hours;
mod intake;
mod keep_up;
mod money;
mod packed;
mod prices;
mod question;
mod resources;
mod verify;

pub use answer::{answer, corrections, resource_types, spent};
pub use facts::{Change, UsageFact};
pub use intake::{Taken, register, take_in};
pub use keep_up::{pack, roll};
pub use money::{BadAmount, Money, Price, Quantity};
pub use prices::PriceBook;
pub use question::{Answer, Entry, Filter, Key, Question, Sums, Window};
pub use store::usage::{Class, Correction, Owner, Proof, alive, proof};
pub use verify::{Difference, Verified, verify};
