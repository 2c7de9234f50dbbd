//! Egress addresses.

use crate::engine::{Managed, Paging};
use types::kinds::EgressIp;

impl Managed for EgressIp {
    const PAGING: Paging = Paging::Bare;
}
