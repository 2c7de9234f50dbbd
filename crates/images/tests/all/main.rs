//! The promises of the image store, tested on real folders and against a registry on loopback.

#[cfg(test)]
mod archive;
#[cfg(test)]
mod contents;
#[cfg(test)]
mod extend;
#[cfg(test)]
mod faulty_registry;
#[cfg(test)]
mod fixture;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod hub;
#[cfg(test)]
mod import;
#[cfg(test)]
mod pull;
#[cfg(test)]
mod recipe;
#[cfg(test)]
mod registry;
#[cfg(test)]
mod store;
#[cfg(test)]
mod unpack;

#[cfg(test)]
use fixture::{Fixture, OWN, digest_of, reference};
