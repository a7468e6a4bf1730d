//! How a [`Problem`](crate::v1::Problem) travels with a gRPC status.

use prost::Message;
use tonic::metadata::MetadataValue;
use tonic::{Code, Status};

use crate::v1::Problem;

/// The metadata entry that carries the whole problem beside the status.
pub const METADATA_KEY: &str = "belljar-problem-bin";

/// A status of that kind which carries the problem.
#[must_use]
pub fn to_status(kind: Code, problem: &Problem) -> Status {
    let mut status = Status::new(kind, problem.message.clone());
    let value = MetadataValue::from_bytes(&problem.encode_to_vec());
    status.metadata_mut().insert_bin(METADATA_KEY, value);
    status
}

/// The problem that a status carries; `None` if it did not come from a Belljar server.
#[must_use]
pub fn from_status(status: &Status) -> Option<Problem> {
    let value = status.metadata().get_bin(METADATA_KEY)?;
    Problem::decode(value.to_bytes().ok()?).ok()
}
