//! Builds: from `upload=true` to an image that runs.
//!
//! ```text
//! ask ──address──▶ upload ──sources──▶ Builder
//!  └─wish─▶ row ◀──queued──┘              │
//!             └──▶ dispatch ──▶ attempt ──┘──▶ made ──seen──▶ end: tag, right, wish, revision
//! ```
//!
//! A wish that needs a build waits beside the object, which goes on as it was: readers see
//! `UPLOADING` and `BUILDING`, while what served before keeps serving. Everything is stored before
//! it is acknowledged, so a kill loses nothing: an acknowledged upload is built, an interrupted
//! build starts over, and an image is put into place exactly once.

mod ask;
mod attempt;
mod buildable;
mod dispatch;
mod elsewhere;
mod end;
mod kept;
mod log;
mod own_images;
mod settings;
pub(crate) mod shared;
mod upload;

pub(crate) use ask::await_upload;
pub use ask::{UPLOADS_PATH, UploadAddress, create, image, replace};
pub use buildable::Buildable;
pub(crate) use dispatch::run;
pub(crate) use kept::clear_deleted;
pub use settings::Settings;
pub use upload::{Source, Upload, admit};
