//! A server for a temporary folder, in this process or in one that can be killed.

use futures_util::future::BoxFuture;
use rustix::fd::OwnedFd;
use s3::{Access, Bucket, BucketEntry, Caller, Owner, Refused, Secret, Service, Settings};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use types::{Timestamp, World};

pub(crate) const KEY: &str = "ak_test";
pub(crate) const SECRET: &str = "a secret + of / odd = letters";
pub(crate) const BUCKET: &str = "drv-data-ws_1";

struct TestAccess(PathBuf);

/// The owner of a key, with the folder of all buckets.
struct TestCaller(PathBuf, Secret);

impl TestCaller {
    fn bucket(&self, name: &str) -> Result<Bucket, Refused> {
        if name != BUCKET && name != "other" || self.0.join("gone").exists() {
            return Err(Refused::NoBucket);
        }
        let path = self.0.join(name);
        std::fs::create_dir_all(&path).map_err(Refused::Broken)?;
        let files: OwnedFd = File::open(&path).map_err(Refused::Broken)?.into();
        let owner = Owner { user: 0, group: 0 };
        let id = name.to_owned();
        Ok(Bucket { id, files: Arc::new(files), owner, may_write: name == BUCKET })
    }
}

impl Access for TestAccess {
    fn find_key<'a>(&'a self, key_id: &'a str) -> BoxFuture<'a, Result<Arc<dyn Caller>, Refused>> {
        Box::pin(async move {
            match key_id {
                KEY => {
                    let caller = TestCaller(self.0.clone(), Secret::new(SECRET));
                    Ok(Arc::new(caller) as Arc<dyn Caller>)
                }
                "ak_old" => Err(Refused::UnusableKey("Make a new key.".into())),
                _ => Err(Refused::UnknownKey),
            }
        })
    }
}

impl Caller for TestCaller {
    fn secret(&self) -> &Secret {
        &self.1
    }

    fn enter(&self) -> Result<String, Refused> {
        Ok("somebody".into())
    }

    fn outlived(&self) -> BoxFuture<'static, ()> {
        let gone = self.0.join("revoked");
        Box::pin(async move {
            while !gone.exists() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
    }

    fn open<'a>(&'a self, bucket: &'a str) -> BoxFuture<'a, Result<Bucket, Refused>> {
        Box::pin(async move { self.bucket(bucket) })
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<BucketEntry>, Refused>> {
        let entry = BucketEntry { name: BUCKET.into(), created_at: Timestamp::from_ms(0) };
        Box::pin(async move { Ok(vec![entry]) })
    }
}

#[expect(clippy::disallowed_methods, reason = "clients sign with the clock of this machine")]
fn world() -> World {
    let now = || {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        Timestamp::from_ms(i64::try_from(since.as_millis()).unwrap())
    };
    let fill = |bytes: &mut [u8]| {
        use std::io::Read;
        File::open("/dev/urandom").unwrap().read_exact(bytes).unwrap();
    };
    World::new(now, fill)
}

/// Serves the folder `root` at `/s3` until this process ends. Returns the address.
pub(crate) async fn serve(root: &Path) -> String {
    let settings = Settings {
        base: "/s3".into(),
        uploads_max: 20,
        idle_max: Duration::from_secs(20),
        ..Settings::default()
    };
    let service = Service::new(Arc::new(TestAccess(root.to_owned())), settings, world());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/s3", listener.local_addr().unwrap());
    tokio::spawn(async move {
        // As in the program, which does the same to every request.
        let linger = admission::Linger::new(Duration::from_secs(5), 10);
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (service, linger) = (service.clone(), linger.clone());
            tokio::spawn(async move {
                let handler = hyper::service::service_fn(move |request| {
                    let (service, (request, expected)) = (service.clone(), linger.over(request));
                    async move {
                        let answer = expected.tell(service.handle(request).await);
                        Ok::<_, std::convert::Infallible>(answer)
                    }
                });
                let io = hyper_util::rt::TokioIo::new(stream);
                // If a client breaks off, that is its own business.
                let _ =
                    hyper::server::conn::http1::Builder::new().serve_connection(io, handler).await;
            });
        }
    });
    address
}

/// Returns a Python with the S3 client of AWS.
pub(crate) fn python() -> PathBuf {
    let house = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = house.join("target/s3-python");
    // Each test is a process of its own, and only one of them may create it.
    let lock = File::create(house.join("target/s3-python.lock")).unwrap();
    lock.lock().unwrap();
    let made = std::process::Command::new(house.join("tools/python-packages"))
        .arg(&folder)
        .args(["boto3==1.43.11", "urllib3==2.8.0"])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    folder.join("bin/python")
}
