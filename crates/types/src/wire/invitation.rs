//! Invitations into a workspace.

use super::{Free, Role, Workspace};
use crate::Timestamp;
use crate::parts::{Sensitive, Stamped};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// Longest email address.
const EMAIL_MAX: usize = 254;

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InviteUserRequest {
    #[schemars(email, length(max = EMAIL_MAX))]
    pub email: Option<String>,
    /// Role in the workspace. Default: `member`.
    pub role: Option<Role>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PendingInvitation {
    pub email: Option<String>,
    pub expires_at: Option<Timestamp>,
    pub invited_by: Option<String>,
    /// Address of the page for joining. Whoever has it can join, so it is sent to nobody but the
    /// invited person.
    pub link: Option<Sensitive<String>>,
    pub role: Option<Role>,
    /// With the workspace.
    #[serde(flatten, skip_deserializing)]
    pub stamped: Stamped,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PendingInvitationAccept {
    pub email: Option<String>,
    pub workspace: Option<Workspace>,
}

/// An invitation, with details for the invited person.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PendingInvitationRender {
    pub account: Option<PendingInvitationRenderAccount>,
    pub email: Option<String>,
    pub expires_at: Option<Timestamp>,
    pub invitation_id: Option<String>,
    pub invited_at: Option<Timestamp>,
    pub invited_by: Option<PendingInvitationRenderInvitedBy>,
    pub role: Option<Role>,
    #[serde(rename = "type")]
    pub kind: Option<String>,
    pub workspace: Option<PendingInvitationRenderWorkspace>,
    pub workspace_details: Option<PendingInvitationWorkspaceDetails>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PendingInvitationRenderAccount {
    pub display_name: Option<String>,
    pub id: Option<String>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PendingInvitationRenderInvitedBy {
    pub email: Option<String>,
    pub family_name: Option<String>,
    pub given_name: Option<String>,
    pub sub: Option<String>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PendingInvitationRenderWorkspace {
    pub display_name: Option<String>,
    pub name: Option<String>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PendingInvitationWorkspaceDetails {
    pub emails: Option<Vec<Free>>,
    /// Number of people in the workspace.
    pub user_number: Option<f64>,
}
