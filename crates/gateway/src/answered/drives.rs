//! The part of the sandbox API for mounting drives. The server answers it and not the sandbox,
//! because root inside a sandbox must not decide which drives are mounted where.

use super::{Answered, read_object, refuse, respond, respond_empty};
use crate::body::Body;
use crate::drives::Drives;
use http::header::ALLOW;
use http::{HeaderValue, Method, Response, StatusCode};
use percent_encoding::percent_decode_str;
use serde_json::json;
use types::drive_mounts::{DriveOrder, DriveRefusal};
use types::ids::ResourceId;
use types::parts::mount_place;

/// Largest body of an order, which has two paths, a name and two numbers.
const ORDER_BYTES_MAX: usize = 16 << 10;
const PATH: &str = "/drives/mount";

/// A request about drives.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum DriveRequest {
    List,
    Mount,
    Unmount {
        place: String,
    },
    /// Only whether the path is there (`HEAD`), or whether a page of another origin may ask
    /// (`OPTIONS`): the status says it all, as in the guest.
    Status(StatusCode),
    /// A method that is not supported here; has those that are.
    Nothing(&'static str),
}

impl DriveRequest {
    /// `None` means the request is about something else.
    pub(crate) fn read(method: &Method, path: &str) -> Option<Self> {
        let rest =
            path.strip_prefix(PATH).filter(|rest| rest.is_empty() || rest.starts_with('/'))?;
        Some(match (rest, method) {
            (_, &Method::OPTIONS) => Self::Status(StatusCode::NO_CONTENT),
            ("" | "/", &Method::HEAD) => Self::Status(StatusCode::OK),
            ("" | "/", &Method::GET) => Self::List,
            ("" | "/", &Method::POST) => Self::Mount,
            ("" | "/", _) => Self::Nothing("GET, POST"),
            (place, &Method::DELETE) => {
                let place = percent_decode_str(place).decode_utf8_lossy();
                Self::Unmount { place: mount_place(&place) }
            }
            _ => Self::Nothing("DELETE"),
        })
    }
}

impl Answered for DriveRequest {
    type By = dyn Drives;
    const BODY_BYTES_MAX: usize = ORDER_BYTES_MAX;

    fn needs_instance(&self) -> bool {
        matches!(self, Self::Mount | Self::Unmount { .. })
    }

    /// `order` is the body of a [`DriveRequest::Mount`].
    async fn answer(
        self,
        drives: &dyn Drives,
        sandbox: &ResourceId,
        order: &[u8],
    ) -> Response<Body> {
        let answered = match self {
            Self::List => drives.list(sandbox).await.map(|mounts| json!({"mounts": mounts})),
            Self::Mount => mount(drives, sandbox, order).await,
            Self::Unmount { place } => drives.unmount(sandbox, &place).await.map(|()| {
                let message = "Drive unmounted successfully";
                json!({"success": true, "message": message, "mountPath": place})
            }),
            Self::Status(status) => return respond_empty(status),
            Self::Nothing(methods) => {
                let why = json!({"error": format!("here are {methods}")});
                let mut response = respond(StatusCode::METHOD_NOT_ALLOWED, &why);
                response.headers_mut().insert(ALLOW, HeaderValue::from_static(methods));
                return response;
            }
        };
        match answered {
            Ok(body) => respond(StatusCode::OK, &body),
            Err(refusal) => refuse(status(&refusal), &refusal),
        }
    }
}

async fn mount(
    drives: &dyn Drives,
    sandbox: &ResourceId,
    order: &[u8],
) -> Result<serde_json::Value, DriveRefusal> {
    let order = read_object::<DriveOrder>(order)
        .map_err(|error| DriveRefusal::Bad(format!("the body cannot be read: {error}")))?;
    let mounted = drives.mount(sandbox, order).await?;
    let mut body = json!(mounted);
    body["success"] = true.into();
    body["message"] = "Drive mounted successfully".into();
    Ok(body)
}

fn status(refusal: &DriveRefusal) -> StatusCode {
    match refusal {
        DriveRefusal::Bad(_) => StatusCode::BAD_REQUEST,
        DriveRefusal::Busy(_) => StatusCode::CONFLICT,
        DriveRefusal::Full(_) => StatusCode::INSUFFICIENT_STORAGE,
        DriveRefusal::Away(_) => StatusCode::SERVICE_UNAVAILABLE,
        DriveRefusal::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::header::RETRY_AFTER;
    use proptest::prelude::*;

    fn read(method: &Method, path: &str) -> Option<DriveRequest> {
        DriveRequest::read(method, path)
    }

    #[test]
    fn only_mounts_of_drives_are_answered_here() {
        assert_eq!(read(&Method::GET, "/drives/mount"), Some(DriveRequest::List));
        assert_eq!(read(&Method::POST, "/drives/mount"), Some(DriveRequest::Mount));
        assert_eq!(read(&Method::PUT, "/drives/mount"), Some(DriveRequest::Nothing("GET, POST")));
        assert_eq!(read(&Method::GET, "/drives/mount/mnt"), Some(DriveRequest::Nothing("DELETE")));
        for path in
            ["/drives/mount/mnt/data", "/drives/mount//mnt/data/", "/drives/mount/%2Fmnt%2Fdata"]
        {
            let place = "/mnt/data".to_owned();
            assert_eq!(
                read(&Method::DELETE, path),
                Some(DriveRequest::Unmount { place }),
                "{path}"
            );
        }
        for path in ["/drives", "/drives/mounts", "/process", "/drives/mount2/x"] {
            assert_eq!(read(&Method::GET, path), None, "{path}");
            assert_eq!(read(&Method::OPTIONS, path), None, "{path}");
        }
    }

    #[test]
    fn each_refusal_has_its_status() {
        let why = || "x".to_owned();
        for (refusal, wanted) in [
            (DriveRefusal::Bad(why()), 400),
            (DriveRefusal::Busy(why()), 409),
            (DriveRefusal::Full(why()), 507),
            (DriveRefusal::Away(why()), 503),
            (DriveRefusal::Failed(why()), 500),
        ] {
            let response = refuse(status(&refusal), &refusal);
            assert_eq!(response.status(), wanted, "{refusal:?}");
            assert_eq!(response.headers().contains_key(RETRY_AFTER), wanted == 503, "{refusal:?}");
        }
    }

    proptest! {
        #[test]
        fn no_path_is_trouble(path in "(/drives/mount)?[/%.a-zA-Z0-9]{0,20}") {
            if let Some(DriveRequest::Unmount { place }) = read(&Method::DELETE, &path) {
                prop_assert!(place.is_empty() || place.starts_with('/'));
                prop_assert!(!place.contains("//") && !place.ends_with('/'));
            }
        }
    }
}
