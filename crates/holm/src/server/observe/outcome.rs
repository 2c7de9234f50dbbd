//! Whether traces reach the collector. The library that sends them keeps failures to itself.

use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Whether the last traces were lost.
#[derive(Debug, Clone, Default)]
pub(super) struct Outcome(Arc<AtomicBool>);

impl Outcome {
    pub(super) fn has_failed(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Notes how sending has ended. Returns true if it ended differently before.
    fn note(&self, sent: &OTelSdkResult) -> bool {
        self.0.swap(sent.is_err(), Ordering::Relaxed) != sent.is_err()
    }
}

/// An exporter that logs when the collector stops taking traces, and when it takes them again.
#[derive(Debug)]
pub(super) struct Watched<E> {
    pub(super) exporter: E,
    pub(super) outcome: Outcome,
}

impl<E: SpanExporter> SpanExporter for Watched<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let sent = self.exporter.export(batch).await;
        match (self.outcome.note(&sent), &sent) {
            (true, Err(error)) => {
                tracing::warn!(%error, "traces cannot be sent (telemetry.otlp_endpoint); those in between are lost");
            }
            (true, Ok(())) => tracing::info!("traces are sent again"),
            (false, _) => {}
        }
        sent
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use opentelemetry_sdk::error::OTelSdkError;

    #[test]
    fn each_change_of_the_outcome_is_noted_once() {
        let outcome = Outcome::default();
        let failed = || Err(OTelSdkError::InternalFailure("nobody listens".into()));
        let noted = [Ok(()), failed(), failed(), Ok(()), Ok(())].map(|sent| outcome.note(&sent));
        assert_eq!(noted, [false, true, false, true, false]);
        outcome.note(&failed());
        assert!(outcome.has_failed());
    }
}
