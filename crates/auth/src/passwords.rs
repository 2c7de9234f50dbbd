//! Passwords, hashed with Argon2id.

use admission::{Limits, Pool};
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use argon2::{Algorithm, Argon2, Params, Version};
use std::sync::Arc;
use tokio::sync::Semaphore;
use types::{Problems, Remote, World};

/// Most hashes computed at once; each takes 19 MiB and one core.
const AT_ONCE_MAX: usize = 2;
/// Most sign-ins that wait for their turn, in total and for one client; further ones are refused.
pub(crate) const WAITING: Limits = Limits { total: 64, share: 16 };
/// Lengths in characters.
const LENGTH_MIN: usize = 10;
const LENGTH_MAX: usize = 256;

/// Computes and compares hashes on threads that serve no requests, a limited number at once.
#[derive(Clone)]
pub(crate) struct Passwords {
    waiting: Pool<Remote>,
    running: Arc<Semaphore>,
}

#[derive(Debug, thiserror::Error)]
#[error("too many people are signing in; try again in a few seconds")]
pub struct Crowded;

/// Checks that a password may be chosen.
pub(crate) fn check(password: &str) -> Result<(), Problems> {
    let mut problems = Problems::default();
    let fits = (LENGTH_MIN..=LENGTH_MAX).contains(&password.chars().count());
    problems.require(
        fits,
        "password",
        format!("must have {LENGTH_MIN} to {LENGTH_MAX} characters"),
    );
    problems.into_result()
}

impl Passwords {
    pub(crate) fn new() -> Self {
        Self {
            waiting: Pool::new("sign-ins in a queue", WAITING),
            running: Arc::new(Semaphore::new(AT_ONCE_MAX)),
        }
    }

    /// Returns the PHC string to store.
    pub(crate) async fn hash(
        &self,
        from: Remote,
        password: String,
        world: &World,
    ) -> Result<String, Crowded> {
        let salt = world.random_bytes::<16>();
        self.run(from, move || hash(&password, &salt)).await?.ok_or(Crowded)
    }

    /// Compares a password with a stored hash. Without one it takes as long and returns `false`, so
    /// that nobody can find out which addresses have an account.
    pub(crate) async fn matches(
        &self,
        from: Remote,
        password: String,
        stored: Option<String>,
    ) -> Result<bool, Crowded> {
        self.run(from, move || match stored {
            Some(stored) => verify(&password, &stored),
            None => {
                hash(&password, &[0; 16]);
                false
            }
        })
        .await
    }

    async fn run<T: Send + 'static>(
        &self,
        from: Remote,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Crowded> {
        let _waiting = self.waiting.take(&from, 1).map_err(|_| Crowded)?;
        let running = self.running.clone().acquire_owned().await.map_err(|_| Crowded)?;
        // The permit moves into the task: if the caller hangs up, no other hash may start while
        // this one is still running.
        let done = tokio::task::spawn_blocking(move || (work(), running)).await;
        done.map(|(value, _)| value).map_err(|_| Crowded)
    }
}

fn argon2() -> Argon2<'static> {
    Argon2::new(Algorithm::Argon2id, Version::V0x13, Params::DEFAULT)
}

/// Returns `None` only if there is not enough memory.
fn hash(password: &str, salt: &[u8]) -> Option<String> {
    argon2().hash_password_with_salt(password.as_bytes(), salt).ok().map(|hash| hash.to_string())
}

fn verify(password: &str, stored: &str) -> bool {
    PasswordHash::new(stored)
        .is_ok_and(|stored| argon2().verify_password(password.as_bytes(), &stored).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_a_password_is_counted_in_characters() {
        check(&"ü".repeat(LENGTH_MIN - 1)).unwrap_err();
        check(&"ü".repeat(LENGTH_MIN)).unwrap();
        check(&"ü".repeat(LENGTH_MAX)).unwrap();
        check(&"ü".repeat(LENGTH_MAX + 1)).unwrap_err();
    }
}
