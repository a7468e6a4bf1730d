//! What is written down about a snapshot. The shape changes only together with its version.

use std::collections::BTreeMap;
use std::path::PathBuf;

use belljar_backend::IsolationClass;
use belljar_policy::{Limits, NetworkMode, SandboxId, TenantId};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::Snapshot;
use crate::CreateRequest;
use crate::plan::hex;
use crate::sandbox::class_of;
use crate::time::from_ms;

pub(super) const VERSION: u32 = 1;

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
        self.version == VERSION && self.parts.iter().all(|part| is_digest(&part.digest))
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
            recorded: request(&manifest.origin),
        }
    }
}

/// A sandbox like the one that the files are from, and no weaker.
fn request(origin: &Origin) -> CreateRequest {
    let template = belljar_policy::TemplateSpec::parse(origin.template.as_ref());
    let floor = class_of(&origin.class);
    CreateRequest {
        template: template.unwrap_or_default(),
        isolation_floor: (floor != IsolationClass::None).then_some(floor),
        network: belljar_policy::NetworkPolicy { mode: origin.network, allow: Vec::new() },
        limits: origin.limits,
        user: origin.user.parse().unwrap_or_default(),
        ..CreateRequest::default()
    }
}
