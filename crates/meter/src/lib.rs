//! What ran and what was kept, as usage and as money.

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

pub use answer::{answer, resource_types, spent};
pub use facts::{Happened, UsageFact, boot};
pub use intake::{Taken, register, take_in};
pub use keep_up::{pack, roll};
pub use money::{BadAmount, Money, Price, Quantity};
pub use prices::PriceBook;
pub use question::{Answer, Entry, Filter, Key, Question, Sums, Window};
pub use store::usage::{ANY_BOOT, Owner, Proof, Stamp, alive, proof};
pub use verify::{Difference, Verified, verify};
