//! What the server answers in place of a sandbox.

use crate::stage::{Reply, Stage, request, settings};
use futures_util::future::BoxFuture;
use gateway::{Drives, Settings};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use types::drive_mounts::{DriveOrder, DriveRefusal, MountedDrive};
use types::ids::ResourceId;

/// Has no drives.
struct None;

impl Drives for None {
    fn list<'a>(
        &'a self,
        _: &'a ResourceId,
    ) -> BoxFuture<'a, Result<Vec<MountedDrive>, DriveRefusal>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn mount<'a>(
        &'a self,
        _: &'a ResourceId,
        _: DriveOrder,
    ) -> BoxFuture<'a, Result<MountedDrive, DriveRefusal>> {
        Box::pin(async { Err(DriveRefusal::Bad("there are none".into())) })
    }

    fn unmount<'a>(
        &'a self,
        _: &'a ResourceId,
        _: &'a str,
    ) -> BoxFuture<'a, Result<(), DriveRefusal>> {
        Box::pin(async { Ok(()) })
    }
}

async fn ask(stage: &Stage, method: &str, path: &str) -> Reply {
    let path = format!("/acme/sandboxes/box/drives/mount{path}");
    stage.send(request(method, "h", &path, &[("authorization", "Bearer key-of-acme")])).await
}

#[tokio::test]
async fn an_answer_in_place_of_a_sandbox_looks_like_one_of_it() {
    let stage = Stage::start(settings()).await;
    let workload = stage.sandbox("box", &[8080]).await;
    let drives: Arc<dyn Drives> = Arc::new(None);
    stage.gateway.serve_drives(&drives);
    for (method, path, status) in [
        ("GET", "", 200),
        ("HEAD", "", 200),
        ("OPTIONS", "", 204),
        ("POST", "", 400),
        ("PUT", "", 405),
        ("DELETE", "/mnt/a", 200),
        ("OPTIONS", "/mnt/a", 204),
        ("HEAD", "/mnt/a", 405),
    ] {
        let reply = ask(&stage, method, path).await;
        assert_eq!(reply.status.as_u16(), status, "{method} {path}");
        assert_eq!(reply.body.is_empty(), ["HEAD", "OPTIONS"].contains(&method), "{method}");
        for (name, value) in [
            ("access-control-allow-origin", "*"),
            ("access-control-allow-methods", "GET, POST, PUT, DELETE, HEAD, OPTIONS"),
            ("access-control-allow-headers", "Content-Type, Authorization"),
            ("cache-control", "no-cache, no-store, must-revalidate"),
            ("pragma", "no-cache"),
            ("expires", "0"),
            ("x-content-type-options", "nosniff"),
        ] {
            assert_eq!(reply.headers[name], value, "{method} {path}");
        }
    }
    assert_eq!(workload.served.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn an_order_that_never_comes_is_not_waited_for() {
    let soon = Duration::from_millis(50);
    let stage = Stage::start(Settings { answer_idle: soon, ..settings() }).await;
    stage.sandbox("box", &[8080]).await;
    let drives: Arc<dyn Drives> = Arc::new(None);
    stage.gateway.serve_drives(&drives);
    let mut stream = TcpStream::connect(stage.address).await.unwrap();
    let head = "POST /acme/sandboxes/box/drives/mount HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\
                authorization: Bearer key-of-acme\r\ncontent-length: 2\r\n\r\n{";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("REQUEST_TIMEOUT"), "{answer}");
}
