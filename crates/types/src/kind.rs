//! What every kind of resource has in common. Adding a kind is one file that implements [`Kind`].

use crate::parts::{Head, Labels, RevisionConfiguration, Trigger};
use crate::{Problems, Timestamp, World};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! kind_names {
    ($($variant:ident = $name:literal / $plural:literal $(in [$($parent:ident),+])?),+ $(,)?) => {
        /// The kinds that the engine of the management API stores.
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(rename_all = "kebab-case")]
        pub enum KindName { $($variant),+ }

        impl KindName {
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Singular: in messages, in the store and in the change feed.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            /// The word of the URL.
            pub const fn plural(self) -> &'static str {
                match self { $(Self::$variant => $plural),+ }
            }

            /// The kinds of the objects around one, outermost first.
            pub const fn parents(self) -> &'static [Self] {
                match self { $(Self::$variant => &[$($(Self::$parent),+)?]),+ }
            }
        }
    };
}

kind_names! {
    Agent = "agent" / "agents",
    Application = "application" / "applications",
    CustomDomain = "custom-domain" / "customdomains",
    Drive = "drive" / "drives",
    EgressGateway = "egress-gateway" / "egressgateways" in [Vpc],
    EgressIp = "egress-ip" / "ips" in [Vpc, EgressGateway],
    Function = "function" / "functions",
    Image = "image" / "images",
    ImageShare = "image-share" / "pending-image-shares",
    IntegrationConnection = "integration-connection" / "connections",
    Job = "job" / "jobs",
    Model = "model" / "models",
    Policy = "policy" / "policies",
    Preview = "preview" / "previews" in [Sandbox],
    PreviewToken = "preview-token" / "tokens" in [Sandbox, Preview],
    Sandbox = "sandbox" / "sandboxes",
    Schedule = "schedule" / "schedules" in [Sandbox],
    Secret = "secret" / "secrets",
    Snapshot = "snapshot" / "snapshots",
    Volume = "volume" / "volumes",
    VolumeTemplate = "volume-template" / "volume_templates",
    Vpc = "vpc" / "vpcs",
}

impl KindName {
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
    }
}

impl fmt::Display for KindName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Who names an object of a kind when the caller did not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Naming {
    /// A missing name is refused.
    Caller,
    /// The server makes one of this prefix and random characters.
    Server { prefix: &'static str },
}

/// What the server knows of any object and shows in its read-only metadata.
#[derive(Debug, Clone)]
pub struct Stamp {
    pub workspace: String,
    /// Names of the objects around it, outermost first: the sandbox of a preview, the VPC of a gateway.
    pub parents: Vec<String>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub created_by: String,
    pub updated_by: String,
    pub plan: String,
    /// Where it is reached, for the kinds that are.
    pub url: Option<String>,
}

/// One object's use of another by name, such as a policy in `spec.policies`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    pub kind: KindName,
    pub name: String,
    /// The field that names it, for the message when it does not exist.
    pub field: String,
}

/// One kind of resource: its wire form, what the server keeps beside it, and its rules.
///
/// The wire form is the *wish* of the user plus read-only members. Read-only members are
/// `#[serde(skip_deserializing)]`, so what a caller sends in them is ignored; [`Kind::show`] fills them
/// from the stamp and from the [`Kind::State`] that reconcilers write.
pub trait Kind:
    Clone + fmt::Debug + Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static
{
    const NAME: KindName;
    const NAMING: Naming = Naming::Caller;
    /// Where the wire form holds the name.
    const NAME_AT: &'static [&'static str] = &["metadata", "name"];
    /// The kinds of the objects around it, outermost first: a token lives in a preview of a sandbox.
    const PARENTS: &'static [KindName] = Self::NAME.parents();
    /// Whether earlier wishes are kept to go back to.
    const HAS_REVISIONS: bool = false;

    /// What the server alone knows of an object beside its wish: events, attachments, versions.
    type State: Clone + fmt::Debug + Default + Serialize + DeserializeOwned + Send + Sync + 'static;

    /// The part that names it.
    fn head(&self) -> &dyn Head;
    fn head_mut(&mut self) -> &mut dyn Head;

    fn name(&self) -> &str {
        self.head().name()
    }
    fn set_name(&mut self, name: String) {
        self.head_mut().set_name(name);
    }
    fn display_name(&self) -> Option<&str> {
        self.head().display_name()
    }
    fn labels(&self) -> Option<&Labels> {
        self.head().labels()
    }
    fn external_id(&self) -> Option<&str> {
        self.head().external_id()
    }

    /// The rules that a schema cannot say: dates, cron lines, members that exclude each other.
    fn check(&self, _problems: &mut Problems) {}

    /// What may not change once it was set; `old` is what is stored. Runs after [`Kind::complete`].
    fn check_change(&self, _old: &Self, _problems: &mut Problems) {}

    /// Fills what the server assigns when the caller left it out: ids and secrets of triggers, defaults.
    /// With `old`, also carries over what an update that leaves it out must keep (an external id).
    fn complete(&mut self, _old: Option<&Self>, _world: &World) {}

    /// Shows each secret value, with a name that is stable within the object, to be sealed, opened or masked.
    fn secrets(&mut self, _visit: &mut dyn FnMut(&str, &mut String)) {}

    /// What it names of the same workspace.
    fn references(&self) -> Vec<Reference> {
        Vec::new()
    }

    /// Where it is to be. Kinds that are not in one place have no such member.
    fn region_mut(&mut self) -> Option<&mut Option<String>> {
        None
    }

    fn region(&self) -> Option<&str> {
        None
    }

    /// What starts or calls it beside its own address.
    fn triggers(&self) -> &[Trigger] {
        &[]
    }

    /// Seconds that one request to it may take, where the wish says.
    fn request_timeout_s(&self) -> Option<i64> {
        None
    }

    /// Leaves out secrets that only the answer to their own creation shows.
    fn leave_out_write_only(&mut self) {}

    /// The part of the wish that says which revisions take traffic. Kinds with revisions have it.
    fn revision_mut(&mut self) -> Option<&mut RevisionConfiguration> {
        None
    }

    /// The revision that serves now. The wish may ask for another one, which is not ready yet.
    fn serving(_state: &Self::State) -> Option<&str> {
        None
    }

    /// Whether a revision of the wish did not become ready.
    fn has_failed(_state: &Self::State, _revision: &str) -> bool {
        false
    }

    /// Leaves out what a list does not show.
    fn lighten(&mut self) {}

    /// Whether the wish says `enabled`. Kinds without the member are always enabled.
    fn enabled(&self) -> bool {
        true
    }

    /// The state of an object just made (`old` is `None`) or just changed.
    fn next_state(&self, _old: Option<(&Self, &Self::State)>, _now: Timestamp) -> Self::State {
        Self::State::default()
    }

    /// The status that the list filter `status` and the store's column see; `None` for kinds without one.
    fn status(_state: &Self::State) -> Option<crate::parts::Status> {
        None
    }

    /// Fills the read-only members.
    fn show(&mut self, stamp: &Stamp, state: &Self::State, now: Timestamp);
}
