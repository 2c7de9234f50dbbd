//! What Holm knows of models and their providers: how to call them, how to read what they answer,
//! what that costs, and how much of a limit is left.
//!
//! ```text
//! operation   what a path asks for, and in which dialect
//! chat        a request and its answer in a neutral form that belongs to no dialect
//! dialect     readers and writers of each provider's format: requests, answers, streams, errors
//! translate   one call, translated from one dialect into another
//! embeddings  the same for embeddings
//! listing     the models that a provider says it has
//! provider    where a provider is, and which paths and headers it expects
//! catalogue   the data about all providers
//! events      server-sent events, cut out of a stream of bytes
//! tokens      what an answer used: read from it while it passes, or estimated here
//! prices      what that costs
//! ledger      limits: an amount is reserved before a call, and the unused part given back after it
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
