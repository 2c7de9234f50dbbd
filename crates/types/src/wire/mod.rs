//! What is sent and answered beside the kinds of the engine.

mod image;

pub use image::ImageShareTarget;
