//! Waits for what the kernel does with a control group in its own time.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

/// How long the kernel may take to freeze, thaw, or release a group. Far more than it needs.
pub(super) const KERNEL_TIMEOUT: Duration = Duration::from_secs(10);
pub(super) const PAUSE: Duration = Duration::from_micros(200);

pub(super) fn wait_until(what: &str, done: impl FnMut() -> io::Result<bool>) -> io::Result<()> {
    wait_at_most(KERNEL_TIMEOUT, what, done)
}

pub(super) fn wait_at_most(
    timeout: Duration,
    what: &str,
    mut done: impl FnMut() -> io::Result<bool>,
) -> io::Result<()> {
    let deadline = Instant::now() + timeout;
    while !done()? {
        if Instant::now() > deadline {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("the kernel did not {what}"),
            ));
        }
        thread::sleep(PAUSE);
    }
    Ok(())
}
