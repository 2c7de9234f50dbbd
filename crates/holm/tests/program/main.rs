//! The program as people use it: a real server process, and the command line against it.

#[cfg(test)]
mod browser;
#[cfg(test)]
mod client;
#[cfg(test)]
mod command_line;
#[cfg(test)]
mod common;
#[cfg(test)]
mod copies;
#[cfg(test)]
mod deploy;
#[cfg(test)]
mod documents;
#[cfg(test)]
mod first_steps;
#[cfg(test)]
mod http2;
#[cfg(test)]
mod images;
#[cfg(test)]
mod outward;
#[cfg(test)]
mod pretend;
#[cfg(test)]
mod projects;
#[cfg(test)]
mod server;
#[cfg(test)]
mod settings;
#[cfg(test)]
mod sign_in;
#[cfg(test)]
mod upkeep;
#[cfg(test)]
mod usage;
#[cfg(test)]
mod workloads;
