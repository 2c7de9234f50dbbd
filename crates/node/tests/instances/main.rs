//! Real containers on this machine. Each test has a network of its own and control groups under a name of its own, and
//! fails if it leaves one behind.

mod adoption;
mod apart;
mod leaks;
mod life;
mod limits;
mod machine;
mod network;
mod speed;
