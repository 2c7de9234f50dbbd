//! Virtual private clouds.

use crate::context::Context;
use crate::engine::{Held, Managed, Paging};
use crate::error::Error;
use crate::workspace_defaults::DEFAULT_VPC;
use store::Tx;
use types::kinds::Vpc;

impl Managed for Vpc {
    const PAGING: Paging = Paging::Bare;

    fn release(_: &Context, _: &mut Tx<'_>, held: &Held<Self>) -> Result<(), Error> {
        match held.row.name.as_str() {
            DEFAULT_VPC => Err(Error::Malformed(format!(
                "the VPC `{DEFAULT_VPC}` belongs to the workspace and stays"
            ))),
            _ => Ok(()),
        }
    }
}
