//! Events as callers see them.

use belljar_api::v1;
use belljar_engine::{Event, EventKind};

use super::timestamp;

pub(crate) fn event(event: &Event) -> v1::Event {
    v1::Event {
        seq: event.seq,
        at: Some(timestamp(event.at)),
        kind: kind(event.kind).into(),
        tenant: event.tenant.to_string(),
        sandbox_id: event.sandbox.as_str().to_owned(),
        process_id: event.process.as_ref().map(|id| id.as_str().to_owned()),
        detail: event.detail.clone(),
    }
}

pub(crate) fn kind(kind: EventKind) -> v1::EventKind {
    match kind {
        EventKind::SandboxCreated => v1::EventKind::SandboxCreated,
        EventKind::SandboxReady => v1::EventKind::SandboxReady,
        EventKind::SandboxPaused => v1::EventKind::SandboxPaused,
        EventKind::SandboxResumed => v1::EventKind::SandboxResumed,
        EventKind::SandboxExtended => v1::EventKind::SandboxExtended,
        EventKind::SandboxDestroyed => v1::EventKind::SandboxDestroyed,
        EventKind::SandboxFailed => v1::EventKind::SandboxFailed,
        EventKind::ProcessStarted => v1::EventKind::ProcessStarted,
        EventKind::ProcessEnded => v1::EventKind::ProcessEnded,
        EventKind::SnapshotCreated => v1::EventKind::SnapshotCreated,
        EventKind::SnapshotRestored => v1::EventKind::SnapshotRestored,
        EventKind::SnapshotRemoved => v1::EventKind::SnapshotRemoved,
    }
}

/// `None` for a number that stands for no kind.
pub(crate) fn kind_of(number: i32) -> Option<EventKind> {
    match v1::EventKind::try_from(number).ok()? {
        v1::EventKind::Unspecified => None,
        v1::EventKind::SandboxCreated => Some(EventKind::SandboxCreated),
        v1::EventKind::SandboxReady => Some(EventKind::SandboxReady),
        v1::EventKind::SandboxPaused => Some(EventKind::SandboxPaused),
        v1::EventKind::SandboxResumed => Some(EventKind::SandboxResumed),
        v1::EventKind::SandboxExtended => Some(EventKind::SandboxExtended),
        v1::EventKind::SandboxDestroyed => Some(EventKind::SandboxDestroyed),
        v1::EventKind::SandboxFailed => Some(EventKind::SandboxFailed),
        v1::EventKind::ProcessStarted => Some(EventKind::ProcessStarted),
        v1::EventKind::ProcessEnded => Some(EventKind::ProcessEnded),
        v1::EventKind::SnapshotCreated => Some(EventKind::SnapshotCreated),
        v1::EventKind::SnapshotRestored => Some(EventKind::SnapshotRestored),
        v1::EventKind::SnapshotRemoved => Some(EventKind::SnapshotRemoved),
    }
}
