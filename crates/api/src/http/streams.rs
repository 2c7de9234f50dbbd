//! Long-lived answers such as change streams: how many of them a workspace and a holder of
//! credentials may have open.

use admission::{Limits, Permit, Pool, Refused};
use control::StreamLimits;
use types::ids::WorkspaceId;

pub(crate) struct Streams {
    workspaces: Pool<WorkspaceId>,
    holders: Pool<String>,
}

/// One open stream; it counts until it is dropped.
#[derive(Debug)]
pub(crate) struct OpenStream {
    _workspace: Permit<WorkspaceId>,
    _holder: Permit<String>,
}

impl Streams {
    pub(crate) fn new(limits: StreamLimits) -> Self {
        let StreamLimits { total, workspace, holder } = limits;
        Self {
            workspaces: Pool::new("open streams", Limits { total, share: workspace }),
            holders: Pool::new(
                "open streams with the same credentials",
                Limits { total, share: holder },
            ),
        }
    }

    pub(crate) fn take(
        &self,
        workspace: &WorkspaceId,
        holder: &str,
    ) -> Result<OpenStream, Refused> {
        let holder = self.holders.take(&holder.to_owned(), 1)?;
        Ok(OpenStream { _workspace: self.workspaces.take(workspace, 1)?, _holder: holder })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_key_and_one_workspace_leave_the_rest_to_others() {
        let streams = Streams::new(StreamLimits { total: 4, workspace: 3, holder: 2 });
        let (one, two) = (WorkspaceId::known("wsp_1"), WorkspaceId::known("wsp_2"));
        let held = [streams.take(&one, "a").unwrap(), streams.take(&one, "a").unwrap()];
        assert!(matches!(streams.take(&one, "a"), Err(Refused::Share { limit: 2, .. })));
        let _third = streams.take(&one, "b").unwrap();
        assert!(matches!(streams.take(&one, "c"), Err(Refused::Share { limit: 3, .. })));
        let _fourth = streams.take(&two, "d").unwrap();
        assert!(matches!(streams.take(&two, "d"), Err(Refused::Total { .. })));
        drop(held);
        streams.take(&one, "c").unwrap();
    }
}
