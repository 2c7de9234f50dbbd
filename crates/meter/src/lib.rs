//! What ran and what was stored, as usage and as money.
//!
//! ```text
//!  facts, owners ──▶ intake ──▶ fold ──▶ hours ──(keep_up)──▶ packed days ──▶ answer ◀── prices
//! ```
//!
//! Facts and owners are the truth and are kept for ever; all sums follow from them ([`verify`]).
//! Only facts that belong to nobody are removed ([`remove_unowned`]). No part has a clock: the
//! caller says what time it is. [`roll`] and [`pack`] have to be called now and then; without them
//! answers become slow, but never wrong.
//!
//! **Why a packed row has one day of all resources**, and not all days of one resource: nearly
//! every question is about all resources over some time. With one row for each day, workspace and
//! dimension, 90 days are some hundred rows to read, whatever is asked for. With one row for each
//! resource and month the same question would read 40,000 rows, and with one for each hour some
//! millions. What a late fact changes is added beside the packed day, so that a change never waits
//! for a day to be written anew.

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
pub use intake::{Taken, put_in_order, register, take_in, take_next};
pub use keep_up::{pack, remove_unowned, roll};
pub use money::{BadAmount, Money, Price, Quantity};
pub use prices::PriceBook;
pub use question::{Answer, Entry, Filter, Key, Question, Sums, Window};
pub use store::usage::{Class, Correction, Owner, Proof, alive, proof};
pub use verify::{Difference, Verified, verify};
