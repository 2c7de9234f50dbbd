//! Volume templates.

use crate::engine::{Managed, Paging};
use types::kinds::VolumeTemplate;

impl Managed for VolumeTemplate {
    const PAGING: Paging = Paging::Bare;
}
