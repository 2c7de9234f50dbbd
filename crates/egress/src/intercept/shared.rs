//! What the opened connections of a machine share, and their limits.

use super::body_slots::BodySlots;
use crate::authority::Authority;
use crate::dial::Dial;
use crate::events::Events;
use crate::upstream_tls::UpstreamTls;
use admission::{Linger, Pool};
use std::sync::Arc;
use std::time::Duration;
use types::World;

/// What all opened connections of this machine share.
pub(crate) struct Shared {
    pub(crate) authority: Arc<Authority>,
    pub(crate) dial: Arc<dyn Dial>,
    pub(crate) upstream_tls: UpstreamTls,
    pub(crate) world: World,
    pub(crate) events: Arc<Events>,
    pub(crate) limits: Limits,
    pub(super) bodies: BodySlots,
    /// Memory of open requests, by owner.
    pub(super) heads: Pool<String>,
}

/// Limits and timeouts for a request, a connection or an instance.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    /// Size of a message's head, at least 8 KiB.
    pub(crate) head_bytes_max: usize,
    /// Time for the head of a request, and for a connection without requests.
    pub(crate) head_timeout: Duration,
    /// Time for TLS on either side.
    pub(crate) handshake_timeout: Duration,
    /// Time for a free place, a connection and the head of an answer, counted while nothing is
    /// sent.
    pub(crate) answer_timeout: Duration,
    /// How long nothing may move in either direction.
    pub(crate) idle_timeout: Duration,
    /// Concurrent requests on one connection.
    pub(crate) streams_max: u32,
    /// Connections to hosts that one connection of an instance may use at once, if each carries one
    /// request.
    pub(crate) upstreams_max: usize,
    /// Request bodies of one instance that are held in memory, up to a mebibyte each, because
    /// something is injected into them.
    pub(crate) bodies_max: usize,
    /// The same of one owner, and of all together.
    pub(crate) bodies_shared: admission::Limits,
    /// Bytes of open requests, beyond what each connection may have, of one owner and of all together.
    pub(crate) heads_shared: admission::Limits,
    /// Reads the rest of requests that were refused.
    pub(crate) linger: Linger,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head_bytes_max: 128 << 10,
            head_timeout: Duration::from_secs(60),
            handshake_timeout: Duration::from_secs(10),
            answer_timeout: Duration::from_secs(300),
            idle_timeout: Duration::from_secs(900),
            streams_max: 100,
            upstreams_max: 16,
            bodies_max: 16,
            bodies_shared: admission::Limits { total: 512, share: 64 },
            heads_shared: admission::Limits { total: 256 << 20, share: 64 << 20 },
            linger: Linger::new(Duration::from_secs(5), 256),
        }
    }
}

/// The smallest head that hyper accepts.
const HEAD_BYTES_MIN: usize = 8192;

impl Shared {
    pub(crate) fn new(
        authority: Arc<Authority>,
        dial: Arc<dyn Dial>,
        upstream_tls: UpstreamTls,
        world: World,
        events: Arc<Events>,
        limits: Limits,
    ) -> Self {
        let bodies = BodySlots::new(limits.bodies_max, limits.bodies_shared);
        let heads = Pool::new("bytes of open requests of instances", limits.heads_shared);
        Self { authority, dial, upstream_tls, world, events, limits, bodies, heads }
    }

    pub(super) fn head_bytes_max(&self) -> usize {
        self.limits.head_bytes_max.max(HEAD_BYTES_MIN)
    }
}
