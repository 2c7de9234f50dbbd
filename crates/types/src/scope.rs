//! OAuth scopes: what a token may do. Each is a noun and a verb, such as `agents:list`.

use std::fmt;

macro_rules! verbs {
    ($($verb:ident = $name:literal),+ $(,)?) => {
        /// What may be done with the things that a scope names.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Verb { $($verb),+ }

        impl Verb {
            pub const fn name(self) -> &'static str {
                match self { $(Self::$verb => $name),+ }
            }
        }
    };
}

verbs! {
    Accept = "accept", Control = "control", Create = "create", Decline = "decline",
    Delete = "delete", Get = "get", Invite = "invite", Leave = "leave", List = "list",
    Remove = "remove", Share = "share", Update = "update", Upsert = "upsert", Write = "write",
}

macro_rules! scopes {
    ($($noun:ident = $name:literal [$($verb:ident)+]),+ $(,)?) => {
        /// A scope, by its noun. Only those in [`Scope::ALL`] exist; nobody can hold another one.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Scope {
            /// Includes all others.
            Admin,
            $($noun(Verb)),+
        }

        impl Scope {
            pub const ALL: &'static [Self] = &[Self::Admin, $($(Self::$noun(Verb::$verb)),+),+];

            const fn noun(self) -> &'static str {
                match self {
                    Self::Admin => "admin",
                    $(Self::$noun(_) => $name),+
                }
            }

            pub const fn verb(self) -> Option<Verb> {
                match self {
                    Self::Admin => None,
                    $(Self::$noun(verb) => Some(verb)),+
                }
            }
        }
    };
}

scopes! {
    Agents = "agents" [Create Delete Get List Update],
    ApiKey = "apiKey" [List Write],
    Applications = "applications" [Create Delete Get List Update],
    Configurations = "configurations" [List],
    CustomDomains = "customdomains" [Create Delete Get List Update],
    Drives = "drives" [Create Delete Get List],
    EgressGateways = "egressgateways" [List],
    EgressIps = "egressips" [List],
    FeatureFlags = "featureFlags" [Get List],
    Functions = "functions" [Create Delete Get List Update],
    Images = "images" [Create Delete Get List Share],
    Integrations = "integrations" [Create Delete Get List Update],
    Invitations = "invitations" [List],
    Jobs = "jobs" [Create Delete Get List Update],
    Locations = "locations" [List],
    McpHub = "mcphub" [List],
    Models = "models" [Create Delete Get List Update],
    Policies = "policies" [Create Delete Get List Update],
    Sandboxes = "sandboxes" [Control Create Delete Get List Update],
    SandboxHub = "sandboxhub" [List],
    Templates = "templates" [Get List],
    VolumeTemplates = "volumeTemplates" [Create Delete Get List Upsert],
    Volumes = "volumes" [Create Delete Get List Update],
    Workspaces = "workspaces" [Accept Create Decline Delete Get Invite Leave List Remove Update],
}

impl Scope {
    pub fn parse(name: &str) -> Option<Self> {
        let (noun, verb) = match name.split_once(':') {
            Some((noun, verb)) => (noun, Some(verb)),
            None => (name, None),
        };
        let is_named = |scope: &Self| scope.noun() == noun && scope.verb().map(Verb::name) == verb;
        Self::ALL.iter().copied().find(is_named)
    }

    /// Returns the list that has only this scope; an empty one if there is no such scope.
    pub fn alone(self) -> &'static [Self] {
        let place = Self::ALL.iter().position(|scope| *scope == self);
        place.and_then(|place| Self::ALL.get(place..=place)).unwrap_or_default()
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.noun())?;
        self.verb().map_or(Ok(()), |verb| write!(f, ":{}", verb.name()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_scope_has_a_name_of_its_own_that_reads_back() {
        for scope in Scope::ALL {
            assert_eq!(Scope::parse(&scope.to_string()), Some(*scope));
            assert_eq!(scope.alone(), [*scope]);
        }
        let names: BTreeSet<String> = Scope::ALL.iter().map(Scope::to_string).collect();
        assert_eq!(names.len(), Scope::ALL.len());
    }

    #[test]
    fn what_is_not_listed_does_not_exist() {
        for name in ["", ":", "drives:update", "agents", "agents:", "admin:", "Agents:list"] {
            assert_eq!(Scope::parse(name), None, "{name}");
        }
        assert!(Scope::Drives(Verb::Update).alone().is_empty());
    }
}
