//! What images say, in the words of the control plane.

use crate::refusals::no_space;
use control::registry::{Referrer, RegistryFault};
use images::{Error, Filed, PushFault};

pub(super) fn refused(fault: &PushFault) -> RegistryFault {
    match fault {
        PushFault::Malformed(why) => RegistryFault::Malformed(why.clone()),
        PushFault::Unknown(digest) => RegistryFault::NoPart(digest.to_string()),
        PushFault::Size(digest) => RegistryFault::WrongSize(digest.to_string()),
        PushFault::Store(error) => broken(error),
    }
}

pub(super) fn referrer(filed: Filed) -> Referrer {
    Referrer {
        digest: filed.digest.to_string(),
        media_type: filed.media_type,
        size: filed.size,
        artifact_type: filed.artifact_type,
        annotations: filed.annotations,
    }
}

pub(super) fn broken(error: &Error) -> RegistryFault {
    tracing::error!(error = error as &dyn std::error::Error, "the content of the registry failed");
    if no_space(error).is_some() {
        return RegistryFault::DiskFull;
    }
    RegistryFault::Broken("its content cannot be read or written now".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{self, ErrorKind};

    #[test]
    fn a_full_disk_is_told_from_other_failures() {
        let fault = |kind: ErrorKind| broken(&Error::Read(io::Error::from(kind)));
        for full in [ErrorKind::StorageFull, ErrorKind::QuotaExceeded] {
            assert!(matches!(fault(full), RegistryFault::DiskFull));
        }
        assert!(matches!(fault(ErrorKind::NotFound), RegistryFault::Broken(_)));
    }
}
