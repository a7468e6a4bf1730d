//! Snapshots: the files of a sandbox, kept; new sandboxes from them.

use belljar_api::v1;
use belljar_engine::{NewSnapshot, SnapshotQuery};
use belljar_policy::SandboxName;

use super::Api;
use super::sandboxes::{files, or_nothing, write_files};
use crate::action;
use crate::call::Call;
use crate::convert::{self, required};
use crate::measure::{self, Stage};
use crate::problem::Result;

impl Api {
    pub async fn create_snapshot(
        &self,
        call: &Call,
        request: v1::CreateSnapshotRequest,
    ) -> Result<v1::Snapshot> {
        let work = async {
            let engine = self.engine(call);
            let id = self.subject(call, &request.sandbox).await?;
            let new = NewSnapshot {
                name: request.name.as_deref().map(SandboxName::parse).transpose()?,
                labels: request.labels.clone(),
                paths: request.paths.iter().map(Into::into).collect(),
            };
            Ok(convert::snapshot(&engine.snapshots().create(id.as_str(), new).await?))
        };
        self.act(call, action::CREATE_SNAPSHOT, &request.sandbox, work).await
    }

    pub async fn get_snapshot(
        &self,
        call: &Call,
        request: v1::GetSnapshotRequest,
    ) -> Result<v1::Snapshot> {
        let work = async {
            let reference = required("snapshot_id", &request.snapshot_id)?;
            Ok(convert::snapshot(&self.engine(call).snapshots().get(reference).await?))
        };
        self.act(call, action::GET_SNAPSHOT, &request.snapshot_id, work).await
    }

    pub async fn list_snapshots(
        &self,
        call: &Call,
        request: v1::ListSnapshotsRequest,
    ) -> Result<v1::ListSnapshotsResponse> {
        let work = async {
            let scope = call.caller.scope_for(request.tenant.as_deref())?;
            let query = SnapshotQuery {
                sandbox: request.sandbox.clone(),
                labels: request.labels.clone(),
                after: request.page_token.clone(),
                limit: request.page_size,
            };
            let page = self.engine.scoped(scope).snapshots().list(&query).await?;
            Ok(v1::ListSnapshotsResponse {
                snapshots: page.items.iter().map(convert::snapshot).collect(),
                next_page_token: page.next,
            })
        };
        self.act(call, action::LIST_SNAPSHOTS, "", work).await
    }

    pub async fn restore_snapshot(
        &self,
        call: &Call,
        request: v1::RestoreSnapshotRequest,
    ) -> Result<v1::Sandbox> {
        let work = async {
            let snapshots = self.engine(call).snapshots();
            let found = snapshots.get(required("snapshot_id", &request.snapshot_id)?).await?;
            let wire = request.create.clone().unwrap_or_default();
            let create = convert::restored(&call.caller, &found, &wire).await?;
            let files = files("files", &wire.files)?;
            let sandbox = Stage::Create.time(snapshots.restore(&found.id, create)).await?;
            call.concerns(&sandbox.id, &sandbox.tenant);
            measure::created();
            let engine = self.engine(call);
            let written = write_files(&engine, &sandbox.id, &files).await;
            or_nothing(&engine, &sandbox.id, written).await?;
            Ok(convert::sandbox(&sandbox))
        };
        self.act(call, action::RESTORE_SNAPSHOT, &request.snapshot_id, work).await
    }

    pub async fn remove_snapshot(
        &self,
        call: &Call,
        request: v1::RemoveSnapshotRequest,
    ) -> Result<v1::RemoveSnapshotResponse> {
        let work = async {
            let reference = required("snapshot_id", &request.snapshot_id)?;
            let snapshots = self.engine(call).snapshots();
            // One that cannot be read can be removed all the same.
            if let Ok(snapshot) = snapshots.get(reference).await {
                call.belongs_to(&snapshot.tenant);
            }
            let snapshot_id = snapshots.remove(reference).await?;
            Ok(v1::RemoveSnapshotResponse { snapshot_id })
        };
        self.act(call, action::REMOVE_SNAPSHOT, &request.snapshot_id, work).await
    }
}
