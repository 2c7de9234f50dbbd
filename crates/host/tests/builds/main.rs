//! Builds of Dockerfiles: beside `buildah`, and what only builds here have to stand.

mod bad_input;
mod cases;
mod corpus;
mod place;
mod tree;
