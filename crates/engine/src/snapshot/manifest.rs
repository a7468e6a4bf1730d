//! What is written down about a snapshot. The shape changes only together with its version.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use belljar_backend::IsolationClass;
use belljar_codes::Code;
use belljar_policy::document::Layer;
use belljar_policy::{Limits, NetworkMode, SandboxId, TenantId};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::Snapshot;
use crate::plan::hex;
use crate::policy::{Governed, PolicyRef, SandboxPolicy};
use crate::sandbox::class_of;
use crate::store::{LayerRecord, PolicyRecord, SandboxRecord};
use crate::time::from_ms;
use crate::{CreateRequest, Error, Result};

/// Since 2 with the policy. Who knows only 1 reads nothing of it, so that nobody restores without the policy unawares.
pub(super) const VERSION: u32 = 2;
const OLDEST: u32 = 1;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Manifest {
    pub(super) version: u32,
    pub(super) id: String,
    pub(super) name: Option<String>,
    pub(super) sandbox: SandboxId,
    pub(super) tenant: TenantId,
    /// Milliseconds since 1970.
    pub(super) created_at: i64,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) skipped: u64,
    pub(super) parts: Vec<Part>,
    pub(super) origin: Origin,
    /// What the sandbox ran under.
    #[serde(default)]
    pub(super) policy: Option<Under>,
}

/// A policy with its documents, which the snapshot may outlive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Under {
    pub(super) policy: PolicyRecord,
    pub(super) documents: Vec<LayerRecord>,
    /// The network was as the policy says; otherwise the caller had asked for another one within it.
    pub(super) network: bool,
}

/// The files of one directory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Part {
    pub(super) path: PathBuf,
    /// SHA-256 of the archive, in hexadecimal, which is also what its file is called.
    pub(super) digest: String,
    /// Of the archive.
    pub(super) bytes: u64,
    /// Of all files in it.
    pub(super) contents: u64,
}

/// What the sandbox was like.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Origin {
    pub(super) template: String,
    pub(super) class: String,
    pub(super) network: NetworkMode,
    pub(super) limits: Limits,
    pub(super) user: String,
}

impl Manifest {
    pub(super) fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes).sum()
    }

    /// A name of a file is made of each digest, so it is nothing but one.
    pub(super) fn is_sound(&self) -> bool {
        let is_digest = |text: &str| {
            text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        };
        (OLDEST..=VERSION).contains(&self.version)
            && self.parts.iter().all(|part| is_digest(&part.digest))
    }

    fn digest(&self) -> String {
        let mut hash = Sha256::new();
        for part in &self.parts {
            hash.update(part.path.as_os_str().as_encoded_bytes());
            hash.update([0]);
            hash.update(&part.digest);
            hash.update([0]);
        }
        format!("sha256:{}", hex(&hash.finalize()))
    }
}

impl Under {
    /// Of a sandbox that runs.
    pub(super) fn of(governed: &Governed, record: &SandboxRecord) -> Self {
        let policy = &governed.policy;
        let (network, mode) = (&record.details.network, policy.document.network_mode());
        let as_granted = record.details.network_mode == mode.as_str()
            && !policy.is_recording()
            && !network.narrowed
            && network.deny.is_empty();
        Self {
            policy: policy.reference().into(),
            documents: policy.layers().iter().map(LayerRecord::from).collect(),
            network: as_granted,
        }
    }

    /// The documents made ready, if they say what they said then.
    pub(super) fn policy(self, snapshot: &str) -> Result<Arc<SandboxPolicy>> {
        let damaged = || {
            Error::new(
                Code::SnapshotDamaged,
                format!("the policy of snapshot `{snapshot}` is not what was saved"),
            )
            .with_remedy(
                "name another policy, or remove the snapshot; nothing was restored from it",
            )
        };
        let documents = self.documents.into_iter().map(Layer::from).collect();
        let policy =
            SandboxPolicy::kept(documents).map_err(|error| damaged().with_source(error))?;
        match policy.digest == self.policy.digest {
            true => Ok(policy.known_as(&PolicyRef::from(&self.policy))),
            false => Err(damaged()),
        }
    }
}

impl From<Manifest> for Snapshot {
    fn from(manifest: Manifest) -> Self {
        let contents = manifest.parts.iter().map(|part| part.contents);
        Self {
            bytes: manifest.bytes(),
            content_bytes: contents.sum(),
            digest: manifest.digest(),
            paths: manifest.parts.iter().map(|part| part.path.clone()).collect(),
            id: manifest.id,
            name: manifest.name,
            sandbox: manifest.sandbox,
            tenant: manifest.tenant,
            template: manifest.origin.template.clone(),
            created_at: from_ms(manifest.created_at),
            labels: manifest.labels,
            skipped: manifest.skipped,
            recorded: request(&manifest.origin, manifest.policy.as_ref()),
            policy: manifest.policy.as_ref().map(|under| PolicyRef::from(&under.policy)),
        }
    }
}

/// A sandbox like the one that the files are from, and no weaker.
fn request(origin: &Origin, under: Option<&Under>) -> CreateRequest {
    let template = belljar_policy::TemplateSpec::parse(origin.template.as_ref());
    let floor = class_of(&origin.class);
    CreateRequest {
        template: template.unwrap_or_default(),
        isolation_floor: (floor != IsolationClass::None).then_some(floor),
        network: belljar_policy::NetworkPolicy { mode: origin.network, allow: Vec::new() },
        network_asked: !under.is_some_and(|under| under.network),
        limits: origin.limits,
        user: origin.user.parse().unwrap_or_default(),
        ..CreateRequest::default()
    }
}
