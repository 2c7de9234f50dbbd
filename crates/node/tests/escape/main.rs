//! What a hostile tenant would try: from inside and as root, with an image made for the purpose,
//! and against its neighbours.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed step is a failed test"
)]

mod descriptors;
mod exhaustion;
mod images;
#[path = "../machine/mod.rs"]
mod machine;
mod program;
mod shell;
mod system_calls;
