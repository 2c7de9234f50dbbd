//! What a caller may not do, whatever rights it has.

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Forbidden {
    #[error("the domain belongs to the workspace `{owner}`; change it there")]
    DomainOfOther { owner: String },
    #[error("the domain has lost its records; delete it and register it anew")]
    DomainWithoutRecords,
    #[error("an account may have {max} budgets; delete one that is not needed")]
    ManyBudgets { max: i64 },
    #[error(
        "the objects of this workspace may take {bytes} bytes of the database; make some smaller, delete what is not \
         needed, or ask the operator for more (limits.objects_bytes_max)"
    )]
    ObjectRoom { bytes: u64 },
    #[error("{why}")]
    VolumeRoom { why: String },
    #[error("{why}")]
    SnapshotRoom { why: String },
    #[error(
        "{limit} snapshots of this workspace are being taken; wait until some are ready, or ask the operator for more"
    )]
    ManyPendingSnapshots { limit: i64 },
    #[error(
        "{limit} snapshots of this workspace are kept for the forks, archives and applications that begin with them; \
         delete some of these"
    )]
    ManyHiddenSnapshots { limit: i64 },
}
