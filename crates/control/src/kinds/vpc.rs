//! Virtual private clouds.

use crate::context::Context;
use crate::egress;
use crate::engine::{Held, Managed, Paging};
use crate::error::{Error, Unfit};
use crate::workspace_defaults::DEFAULT_VPC;
use store::Tx;
use types::kinds::Vpc;

impl Managed for Vpc {
    const PAGING: Paging = Paging::Bare;

    fn require_unused(context: &Context, tx: &mut Tx<'_>, held: &Held<Self>) -> Result<(), Error> {
        match held.row.name.as_str() {
            DEFAULT_VPC => Err(Unfit::DefaultVpc { name: DEFAULT_VPC }.into()),
            _ => egress::require_vpc_unused(context, tx, held),
        }
    }
}
