//! What every workload finds in its environment, whatever it is.

use crate::context::Context;
use types::parts::Generation;

pub(crate) fn common(
    context: &Context,
    kind: &str,
    name: &str,
    region: String,
    generation: Option<Generation>,
) -> Vec<(&'static str, String)> {
    vec![
        ("BL_WORKSPACE", context.member.workspace_name.clone()),
        ("BL_WORKSPACE_ID", context.member.workspace.to_string()),
        ("BL_NAME", name.to_owned()),
        ("BL_TYPE", kind.to_owned()),
        ("BL_REGION", region),
        ("BL_ENV", "prod".to_owned()),
        ("BL_CLOUD", "true".to_owned()),
        ("BL_GENERATION", generation.unwrap_or_default().name().to_owned()),
    ]
}
