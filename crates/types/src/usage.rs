//! What is metered: resource types, billing dimensions and their units.

use std::fmt;

macro_rules! names {
    ($(#[$doc:meta])* $name:ident { $($(#[$note:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$note])* $variant),+ }

        impl $name {
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }

            pub fn parse(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|known| known.name() == name)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

names!(
    /// Types of resources on a bill, ordered by name.
    ResourceType {
        Agent = "agent",
        CustomDomain = "custom_domain",
        Job = "job",
        McpServer = "mcp_server",
        Sandbox = "sandbox",
        Volume = "volume",
    }
);

names!(
    /// Dimensions in which usage is counted, ordered by name.
    Dimension {
        AgentRequests = "agent_async_requests_count",
        AgentRuntime = "agent_compute_runtime_gbs",
        AgentImages = "agent_image_storage_gbs",
        CustomDomainTime = "custom_domain_active_time_hours",
        JobRuntime = "job_compute_runtime_gbs",
        JobImages = "job_image_storage_gbs",
        McpServerRuntime = "mcp_server_compute_runtime_gbs",
        McpServerImages = "mcp_server_image_storage_gbs",
        SandboxRuntime = "sandbox_compute_runtime_gbs",
        SandboxImages = "sandbox_image_storage_gbs",
        SandboxSnapshots = "sandbox_snapshot_storage_gbs",
        VolumeStorage = "volume_storage_gbs",
    }
);

names!(
    /// Units in which dimensions are billed.
    Unit {
        /// 1024 MB for a second; for storage, 2^30 bytes for a second.
        GbSeconds = "gbs",
        Count = "count",
        Hours = "hours",
    }
);

/// How usage of a dimension arises, which determines the exact integers in which it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// Megabytes times milliseconds of what runs on a machine.
    Runtime,
    /// KiB times milliseconds of what is stored.
    Storage,
    /// Number of events.
    Events,
    /// Milliseconds.
    Time,
}

impl Dimension {
    pub const fn resource_type(self) -> ResourceType {
        match self {
            Self::AgentRequests | Self::AgentRuntime | Self::AgentImages => ResourceType::Agent,
            Self::CustomDomainTime => ResourceType::CustomDomain,
            Self::JobRuntime | Self::JobImages => ResourceType::Job,
            Self::McpServerRuntime | Self::McpServerImages => ResourceType::McpServer,
            Self::SandboxRuntime | Self::SandboxImages | Self::SandboxSnapshots => {
                ResourceType::Sandbox
            }
            Self::VolumeStorage => ResourceType::Volume,
        }
    }

    pub const fn measure(self) -> Measure {
        match self {
            Self::AgentRuntime
            | Self::JobRuntime
            | Self::McpServerRuntime
            | Self::SandboxRuntime => Measure::Runtime,
            Self::AgentImages
            | Self::JobImages
            | Self::McpServerImages
            | Self::SandboxImages
            | Self::SandboxSnapshots
            | Self::VolumeStorage => Measure::Storage,
            Self::AgentRequests => Measure::Events,
            Self::CustomDomainTime => Measure::Time,
        }
    }

    pub const fn unit(self) -> Unit {
        match self.measure() {
            Measure::Runtime | Measure::Storage => Unit::GbSeconds,
            Measure::Events => Unit::Count,
            Measure::Time => Unit::Hours,
        }
    }
}

impl Measure {
    /// Returns how many of the stored integers make one unit of the bill.
    pub const fn per_unit(self) -> i128 {
        match self {
            Self::Runtime => 1024 * 1000,
            Self::Storage => 1024 * 1024 * 1000,
            Self::Events => 1,
            Self::Time => 3_600_000,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_name_their_type_and_unit() {
        assert!(Dimension::ALL.windows(2).all(|pair| pair[0].name() < pair[1].name()));
        assert!(ResourceType::ALL.windows(2).all(|pair| pair[0].name() < pair[1].name()));
        for dimension in Dimension::ALL {
            assert!(dimension.name().starts_with(dimension.resource_type().name()), "{dimension}");
            assert!(dimension.name().ends_with(dimension.unit().name()), "{dimension}");
            assert_eq!(Dimension::parse(dimension.name()), Some(*dimension));
        }
    }
}
