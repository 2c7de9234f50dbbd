//! What ran and what was kept, as usage and as money.

mod money;
mod prices;
mod question;

pub use money::{BadAmount, Money, Price, Quantity};
pub use prices::PriceBook;
pub use question::{Answer, Entry, Filter, Key, Question, Sums, Window};
