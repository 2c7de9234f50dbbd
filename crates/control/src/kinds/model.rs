//! Model APIs.

use crate::context::Context;
use crate::engine::{Held, Managed};
use types::Kind;
use types::kinds::Model;

impl Managed for Model {
    fn url(context: &Context, held: &Held<Self>) -> Option<String> {
        Some(super::inference_url(context, Self::NAME, &held.row.name))
    }
}
