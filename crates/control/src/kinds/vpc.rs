//! Virtual private clouds.

use crate::context::Context;
use crate::engine::{Held, Managed, Paging};
use crate::error::{Error, Unfit};
use crate::workspace_defaults::DEFAULT_VPC;
use store::Tx;
use types::kinds::Vpc;

impl Managed for Vpc {
    const PAGING: Paging = Paging::Bare;

    fn release(_: &Context, _: &mut Tx<'_>, held: &Held<Self>) -> Result<(), Error> {
        match held.row.name.as_str() {
            DEFAULT_VPC => Err(Unfit::DefaultVpc { name: DEFAULT_VPC }.into()),
            _ => Ok(()),
        }
    }
}
