//! What the tests of several crates need: a real PostgreSQL.
