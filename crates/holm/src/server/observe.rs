//! Logs, metrics and traces of the process.

mod outcome;

use crate::config::{Config, LogFormat, Telemetry};
use crate::error::Error;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider};
use outcome::{Outcome, Watched};
use std::time::Duration;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt};

/// Upper bounds of the latency buckets, in seconds.
const BUCKETS: [f64; 14] =
    [0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0];
/// Time that a collector has to take spans. After that they are dropped, so that shutdown does not
/// hang.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);
/// How often histograms are drained; until then they keep all samples.
const UPKEEP: Duration = Duration::from_secs(10);

/// Metrics and traces, open until the end of the process.
pub(crate) struct Observation {
    pub(crate) metrics: Option<PrometheusHandle>,
    traces: Option<Traces>,
}

struct Traces {
    provider: SdkTracerProvider,
    outcome: Outcome,
}

impl Observation {
    pub(crate) async fn start(config: &Config) -> Result<Self, Error> {
        let traces = match &config.telemetry.otlp_endpoint {
            Some(endpoint) => Some(exporter(endpoint.clone(), config.telemetry.clone()).await?),
            None => None,
        };
        start_log(config, traces.as_ref().map(|traces| traces.provider.tracer("holm")))?;
        log_panics();
        let metrics = if config.metrics.enabled { Some(start_metrics()?) } else { None };
        Ok(Self { metrics, traces })
    }

    /// Sends the traces that are still queued.
    pub(crate) async fn finish(self) {
        let Some(traces) = self.traces else { return };
        let Traces { provider, outcome } = traces;
        let done =
            tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(EXPORT_TIMEOUT))
                .await;
        // The provider says only whether it ended in time.
        if !matches!(done, Ok(Ok(()))) || outcome.has_failed() {
            tracing::warn!("the last traces could not be sent");
        }
    }
}

fn start_log(config: &Config, tracer: Option<SdkTracer>) -> Result<(), Error> {
    let wrong = |message: String| Error::Start { act: "start the log".into(), message };
    let level = config.log.targets().ok_or_else(|| wrong("log.level is wrong".into()))?;
    let log = match config.log.format {
        LogFormat::Text => fmt::layer().with_writer(std::io::stderr).with_ansi(false).boxed(),
        LogFormat::Json => {
            fmt::layer().json().flatten_event(true).with_writer(std::io::stderr).boxed()
        }
    };
    // The exporter's own requests must not be traced: each would cause another.
    let traced = Targets::new()
        .with_default(tracing::Level::INFO)
        .with_target("hyper", tracing::Level::ERROR);
    let traces =
        tracer.map(|tracer| tracing_opentelemetry::layer().with_tracer(tracer).with_filter(traced));
    tracing_subscriber::registry()
        .with(log.with_filter(level))
        .with(traces)
        .try_init()
        .map_err(|error| wrong(error.to_string()))
}

/// Logs panics. A panic ends only one request, but it must still be seen.
fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let message = message_of(panic.payload());
        tracing::error!(place, message, "a part of the server panicked");
    }));
}

/// Returns the message of a panic, which is a literal or a formatted text.
fn message_of(payload: &dyn std::any::Any) -> &str {
    let formatted = payload.downcast_ref::<String>().map(String::as_str);
    formatted.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

fn start_metrics() -> Result<PrometheusHandle, Error> {
    let wrong = |error: &dyn std::fmt::Display| Error::Start {
        act: "start the metrics".into(),
        message: error.to_string(),
    };
    let handle = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &BUCKETS)
        .and_then(PrometheusBuilder::install_recorder)
        .map_err(|error| wrong(&error))?;
    let upkeep = handle.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(UPKEEP).await;
            upkeep.run_upkeep();
        }
    });
    Ok(handle)
}

/// Makes the exporter on a separate thread, since its client blocks.
async fn exporter(endpoint: String, settings: Telemetry) -> Result<Traces, Error> {
    let made = tokio::task::spawn_blocking(move || make_exporter(&endpoint, &settings)).await;
    let wrong = |message: String| Error::Start {
        act: "export traces (telemetry.otlp_endpoint)".into(),
        message,
    };
    made.map_err(|error| wrong(error.to_string()))?.map_err(wrong)
}

fn make_exporter(endpoint: &str, settings: &Telemetry) -> Result<Traces, String> {
    let client = reqwest::blocking::Client::builder()
        .timeout(EXPORT_TIMEOUT)
        .build()
        .map_err(|error| error.to_string())?;
    let exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .with_http_client(client)
        .with_endpoint(format!("{}/v1/traces", endpoint.trim_end_matches('/')))
        .build()
        .map_err(|error| error.to_string())?;
    let sampler = Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(settings.sample_ratio)));
    let resource = opentelemetry_sdk::Resource::builder().with_service_name("holm").build();
    let outcome = Outcome::default();
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(Watched { exporter, outcome: outcome.clone() })
        .with_sampler(sampler)
        .with_resource(resource)
        .build();
    Ok(Traces { provider, outcome })
}
