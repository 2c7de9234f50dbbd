//! Shares of an image with a workspace of another account, until that workspace accepts or
//! declines.

use crate::parts::{Head, limits};
use crate::{Kind, KindName, Naming, ObjectMetadata, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "PendingImageShare")]
pub struct ImageShare {
    #[schemars(length(max = 64), regex(pattern = limits::PATH_SEGMENT))]
    pub id: Option<String>,
    pub expires_at: Option<Timestamp>,
    pub image_name: Option<String>,
    pub resource_type: Option<String>,
    pub shared_by: Option<String>,
    pub source_account_id: Option<String>,
    pub source_workspace: Option<String>,
    pub target_account_id: Option<String>,
    pub target_workspace: Option<String>,
    #[serde(skip_deserializing)]
    pub created_at: Option<Timestamp>,
    #[serde(skip_deserializing)]
    pub updated_at: Option<Timestamp>,
    #[serde(skip_deserializing)]
    pub created_by: Option<String>,
    #[serde(skip_deserializing)]
    pub updated_by: Option<String>,
}

impl Head for ImageShare {
    fn name(&self) -> &str {
        self.id.as_deref().unwrap_or_default()
    }

    fn set_name(&mut self, name: String) {
        self.id = Some(name);
    }
}

impl Kind for ImageShare {
    const NAME: KindName = KindName::ImageShare;
    const NAMING: Naming = Naming::Server { prefix: "share" };
    const NAME_AT: &'static [&'static str] = &["id"];

    type State = ();

    fn head(&self) -> &dyn Head {
        self
    }

    fn head_mut(&mut self) -> &mut dyn Head {
        self
    }

    fn show(&mut self, stamp: &ObjectMetadata, _state: &(), _now: Timestamp) {
        self.created_at = Some(stamp.created_at);
        self.updated_at = Some(stamp.updated_at);
        self.created_by = Some(stamp.created_by.clone());
        self.updated_by = Some(stamp.updated_by.clone());
    }
}
