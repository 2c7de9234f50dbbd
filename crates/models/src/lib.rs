//! What is known of models and their providers: how they are asked, what they say, what they cost,
//! and what of it is still left to whom.
//!
//! ```text
//! operation   what a path asks for, and in which dialect
//! chat        a request and its answer in nobody's dialect
//! dialect     readers and writers of each provider's own words: requests, answers, streams, errors
//! translate   one call from one dialect into another
//! embeddings  the same for embeddings
//! listing     which models a provider says it has
//! provider    where a provider is and what it wants to see; the catalogue of all of them
//! tokens      what an answer used: read out of it as it passes, or counted here
//! prices      what that costs
//! ledger      limits that hold: an amount is taken before a call, and what was not used given back
//! ```
//!
//! Nothing here opens a connection or knows a database.

pub mod catalogue;
pub mod chat;
pub mod dialect;
pub mod embeddings;
pub mod events;
pub mod ledger;
pub mod listing;
pub mod operation;
pub mod prices;
pub mod provider;
pub mod tokens;
pub mod translate;
