//! What every kind of resource has in common. Adding a kind is one file that implements [`Kind`],
//! and a line in the list of [`KindName`].

use crate::parts::{Env, Head, Labels, RevisionConfiguration, Trigger};
use crate::{Problems, Scope, Timestamp, Verb, World};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The scope of this noun, or `admin` for kinds that have no scopes of their own.
macro_rules! scope_of {
    ($verb:ident) => {
        Scope::Admin
    };
    ($verb:ident $noun:ident) => {
        Scope::$noun($verb)
    };
}

macro_rules! kind_names {
    ($($variant:ident = $name:literal / $plural:literal
        $(scopes $noun:ident)? $(in [$($parent:ident),+])?),+ $(,)?) => {
        /// The kinds that the engine of the management API stores.
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(rename_all = "kebab-case")]
        pub enum KindName { $($variant),+ }

        impl KindName {
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Singular name, used in messages, in the store and in the change feed.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            /// Plural name, used in URLs.
            pub const fn plural(self) -> &'static str {
                match self { $(Self::$variant => $plural),+ }
            }

            /// Returns the scope that is needed to do this with objects of the kind.
            pub const fn scope(self, verb: Verb) -> Scope {
                match self { $(Self::$variant => scope_of!(verb $($noun)?)),+ }
            }

            /// Kinds of the enclosing objects, outermost first.
            pub const fn parents(self) -> &'static [Self] {
                match self { $(Self::$variant => &[$($(Self::$parent),+)?]),+ }
            }
        }
    };
}

kind_names! {
    Agent = "agent" / "agents" scopes Agents,
    Application = "application" / "applications" scopes Applications,
    CustomDomain = "custom-domain" / "customdomains" scopes CustomDomains,
    Drive = "drive" / "drives" scopes Drives,
    EgressGateway = "egress-gateway" / "egressgateways" in [Vpc],
    EgressIp = "egress-ip" / "ips" in [Vpc, EgressGateway],
    Function = "function" / "functions" scopes Functions,
    Image = "image" / "images" scopes Images,
    ImageShare = "image-share" / "pending-image-shares" scopes Images,
    IntegrationConnection = "integration-connection" / "connections" scopes Integrations,
    Job = "job" / "jobs" scopes Jobs,
    Model = "model" / "models" scopes Models,
    Policy = "policy" / "policies" scopes Policies,
    Preview = "preview" / "previews" scopes Sandboxes in [Sandbox],
    PreviewToken = "preview-token" / "tokens" scopes Sandboxes in [Sandbox, Preview],
    Sandbox = "sandbox" / "sandboxes" scopes Sandboxes,
    Schedule = "schedule" / "schedules" scopes Sandboxes in [Sandbox],
    Secret = "secret" / "secrets" scopes Integrations,
    Snapshot = "snapshot" / "snapshots" scopes Sandboxes,
    Volume = "volume" / "volumes" scopes Volumes,
    VolumeTemplate = "volume-template" / "volume_templates" scopes VolumeTemplates,
    Vpc = "vpc" / "vpcs",
}

impl KindName {
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
    }

    /// Returns the kinds that live below this one, at any depth.
    pub fn below(self) -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied().filter(move |kind| kind.parents().contains(&self))
    }
}

impl fmt::Display for KindName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Who chooses an object's name when the caller gave none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Naming {
    /// Nobody: a missing name is refused.
    Caller,
    /// The server, from this prefix and random characters.
    Server { prefix: &'static str },
}

/// Read-only metadata that the server knows about any object.
#[derive(Debug, Clone)]
pub struct ObjectMetadata {
    pub workspace: String,
    /// Names of the enclosing objects, outermost first: the sandbox of a preview, the VPC of a
    /// gateway.
    pub parents: Vec<String>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub created_by: String,
    pub updated_by: String,
    pub plan: String,
    /// Address at which the object is reached, for the kinds that have one.
    pub url: Option<String>,
}

/// One object's use of another by name, such as a policy in `spec.policies`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    pub kind: KindName,
    pub name: String,
    /// Path of the field that holds the name, for the message when the object does not exist.
    pub field: String,
}

/// One kind of resource: its wire form, what the server keeps beside it, and its rules.
///
/// The wire form is the *wish* (what the user asked for) plus read-only members. Read-only members
/// are `#[serde(skip_deserializing)]`, so what a caller sends in them is ignored; [`Kind::show`]
/// fills them from the stamp and from the [`Kind::State`] that reconcilers write.
pub trait Kind:
    Clone + fmt::Debug + Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static
{
    const NAME: KindName;
    const NAMING: Naming = Naming::Caller;
    /// Path to the name in the wire form.
    const NAME_AT: &'static [&'static str] = &["metadata", "name"];
    /// Path to the name in what some clients send instead. Empty if there is no other.
    const NAME_ALSO_AT: &'static [&'static str] = &[];
    /// Kinds of the enclosing objects, outermost first: a token lives in a preview of a sandbox.
    const PARENTS: &'static [KindName] = Self::NAME.parents();
    /// True if earlier wishes are kept as revisions that can be restored.
    const HAS_REVISIONS: bool = false;

    /// What the server keeps about an object beside its wish: events, attachments, versions.
    type State: Clone + fmt::Debug + Default + Serialize + DeserializeOwned + Send + Sync + 'static;

    /// Returns the part of the object that holds its name and labels.
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

    /// Checks the rules that a schema cannot express: dates, cron lines, members that exclude each
    /// other.
    fn check(&self, _problems: &mut Problems) {}

    /// Checks that nothing changed that is fixed once set; `old` is the stored object. Runs after
    /// [`Kind::complete`].
    fn check_change(&self, _old: &Self, _problems: &mut Problems) {}

    /// Fills in what the server assigns when the caller left it out: ids and secrets of triggers,
    /// defaults. Given `old`, also carries over members that an update must keep even when it omits
    /// them (an external id).
    fn complete(&mut self, _old: Option<&Self>, _world: &World) {}

    /// Passes each secret value to the visitor to be sealed, opened or masked, with a name that is
    /// stable within the object.
    fn secrets(&mut self, _visit: &mut dyn FnMut(&str, &mut String)) {}

    /// Returns the environment variables of the wish, some of which may be secret.
    fn envs_mut(&mut self) -> Option<&mut Vec<Env>> {
        None
    }

    /// Returns the objects of the same workspace that this one names.
    fn references(&self) -> Vec<Reference> {
        Vec::new()
    }

    /// Returns the wished region. Kinds that are not bound to one place have no such member.
    fn region_mut(&mut self) -> Option<&mut Option<String>> {
        None
    }

    fn region(&self) -> Option<&str> {
        None
    }

    /// Returns what starts or calls this object besides its own address.
    fn triggers(&self) -> &[Trigger] {
        &[]
    }

    /// Returns the most seconds one request may take, if the wish sets a limit.
    fn request_timeout_s(&self) -> Option<i64> {
        None
    }

    /// Removes secrets that are shown only in the answer to their own creation.
    fn leave_out_write_only(&mut self) {}

    /// Returns the part of the wish that says which revisions take traffic, for kinds with
    /// revisions, if the wish has it.
    fn revision(&self) -> Option<&RevisionConfiguration> {
        None
    }

    /// The same to be changed, for kinds with revisions. If the wish has no such part, it gets one.
    fn revision_mut(&mut self) -> Option<&mut RevisionConfiguration> {
        None
    }

    /// Returns the revision that serves now. The wish may ask for a newer one that is not ready
    /// yet.
    fn serving(_state: &Self::State) -> Option<&str> {
        None
    }

    /// Returns true if this revision failed to become ready.
    fn has_failed(_state: &Self::State, _revision: &str) -> bool {
        false
    }

    /// Removes what a list does not show.
    fn lighten(&mut self) {}

    /// Returns the wish's `enabled`. Kinds without this member are always enabled.
    fn enabled(&self) -> bool {
        true
    }

    /// Returns the state of an object that was just created (`old` is `None`) or changed.
    fn next_state(&self, _old: Option<(&Self, &Self::State)>, _now: Timestamp) -> Self::State {
        Self::State::default()
    }

    /// Returns the status that the list filter `status` and the store's column use; `None` for
    /// kinds without one.
    fn status(_state: &Self::State) -> Option<crate::parts::Status> {
        None
    }

    /// Fills in the read-only members.
    fn show(&mut self, stamp: &ObjectMetadata, state: &Self::State, now: Timestamp);
}
