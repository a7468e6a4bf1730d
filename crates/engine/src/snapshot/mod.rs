//! Snapshots: the files of a sandbox, kept, and new sandboxes from them.
//!
//! A snapshot has the files, directories and links of the directories that a sandbox writes to, read by the agent with
//! the workload's own identity while the sandbox goes on. It does not have processes, memory, the rest of a writable
//! root, owners, times, or anything that a file system has beside (holes, second names of a file, extended attributes).
//!
//! - A snapshot exists completely or not at all, whatever dies while it is taken.
//! - What is restored is what was saved: digests are compared before a sandbox is made.
//! - It is never larger than the sandbox's disk, by the sizes of files as they would be restored.
//! - The policy of a sandbox comes with its files: what is restored runs under it unless another one is named.
//! - A tenant's snapshots, and all they are made of, are its own: nothing is shared with another's.

mod check;
mod manifest;
mod restore;
mod take;
mod vault;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use belljar_codes::Code;
use belljar_policy::mounts::WORKSPACE_TARGET;
use belljar_policy::{SandboxId, SandboxName, TenantId};

use self::check::{check_paths, check_request, put_back};
use self::manifest::{Manifest, Origin, Under, VERSION};
use self::take::{Allowance, Taken, quota_reached, take};
use self::vault::Vault;
use crate::aside::{aside, blocking};
use crate::background::to_the_end;
use crate::create::Life;
use crate::destroy::destroy;
use crate::engine::Inner;
use crate::events::EventKind;
use crate::fault::point;
use crate::plan::check_labels;
use crate::policy::{PolicyChoice, PolicyRef};
use crate::query::{self, Page, Place};
use crate::store::{End, SandboxRecord};
use crate::time::now_ms;
use crate::{
    CreateRequest, Engine, Error, Result, Sandbox, Scope, ensure, once, policy, random, tenants,
};

/// Where a sandbox's own files are.
const DIRECTORIES: [&str; 3] = [WORKSPACE_TARGET, "/home/user", "/output"];

/// Snapshots that a tenant may have; each is looked at for a listing.
const MOST_SNAPSHOTS: usize = 1000;

/// A snapshot to be taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewSnapshot {
    /// Unique among the snapshots of a tenant; follows the rules for names of sandboxes.
    pub name: Option<SandboxName>,
    pub labels: BTreeMap<String, String>,
    /// Directories inside the sandbox. Empty: those that it writes to by itself, as far as they are there.
    pub paths: Vec<PathBuf>,
}

/// A snapshot as it is recorded.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub id: String,
    pub name: Option<String>,
    /// Where the files are from.
    pub sandbox: SandboxId,
    pub tenant: TenantId,
    pub template: String,
    pub created_at: SystemTime,
    /// What is stored.
    pub bytes: u64,
    /// The sizes of all files.
    pub content_bytes: u64,
    pub digest: String,
    pub paths: Vec<PathBuf>,
    pub labels: BTreeMap<String, String>,
    /// Entries that were left out: pipes, sockets, and what could not be read.
    pub skipped: u64,
    /// What the sandbox ran under, and what a restored one runs under unless another policy is named.
    pub policy: Option<PolicyRef>,
    /// A sandbox like the one that the files are from, but for its policy, which comes by itself.
    pub recorded: CreateRequest,
}

/// Which snapshots; oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotQuery {
    /// Name or id.
    pub sandbox: Option<String>,
    /// All of them must be there with these values.
    pub labels: BTreeMap<String, String>,
    /// [`Page::next`] of the page before.
    pub after: Option<String>,
    /// At most 1000; 100 unless given.
    pub limit: Option<u32>,
}

/// The snapshots of a state directory that the scope lets see.
#[derive(Clone, Debug)]
pub struct Snapshots {
    engine: Engine,
}

impl Engine {
    /// Files that were kept, and sandboxes from them.
    #[must_use]
    pub fn snapshots(&self) -> Snapshots {
        Snapshots { engine: self.clone() }
    }
}

impl Snapshots {
    /// Keeps the files of a sandbox, given by name or id.
    pub async fn create(&self, sandbox: &str, new: NewSnapshot) -> Result<Snapshot> {
        check_labels(&new.labels)?;
        check_paths(&new.paths)?;
        let record = self.engine.find(sandbox).await?;
        let engine = self.engine.clone();
        // A caller that goes away gives up what is not complete, and nothing of it stays.
        let vault = Vault::of(&engine.inner, &record.tenant);
        vault.make()?;
        let (manifests, _) = read_all(&vault).await?;
        let allowance = allowance(&engine.inner, &record, &new, &manifests).await?;
        let taken = self.take(&record, &new, &vault, allowance).await?;
        to_the_end(async move { commit(&engine.inner, vault, &record, new, taken).await }).await
    }

    async fn take(
        &self,
        record: &SandboxRecord,
        new: &NewSnapshot,
        vault: &Vault,
        mut allowance: Allowance,
    ) -> Result<Vec<Taken>> {
        let files = self.engine.files(&record.id).await?;
        let usual: Vec<PathBuf> = DIRECTORIES.map(PathBuf::from).into();
        let paths = if new.paths.is_empty() { &usual } else { &new.paths };
        let mut taken = Vec::new();
        for path in paths {
            match take(&files, vault, path, allowance).await? {
                Some(part) => {
                    allowance = allowance.less(&part.part);
                    taken.push(part);
                }
                // A template need not have all of the usual ones.
                None if new.paths.is_empty() => {}
                None => {
                    let shown = belljar_policy::shown(&path.to_string_lossy());
                    return Err(Error::new(
                        Code::FileNotFound,
                        format!("there is no directory `{shown}` in the sandbox"),
                    ));
                }
            }
        }
        Ok(taken)
    }

    /// One snapshot, by name or id.
    pub async fn get(&self, reference: &str) -> Result<Snapshot> {
        Ok(self.find(reference).await?.1.into())
    }

    /// The snapshots that the query means, oldest first.
    pub async fn list(&self, query: &SnapshotQuery) -> Result<Page<Snapshot>> {
        let (after, limit) = (query::after(query.after.as_deref())?, query::limit(query.limit)?);
        // Snapshots outlive their sandbox, and its record too.
        let sandbox = match &query.sandbox {
            Some(reference) => match self.engine.identify(reference).await {
                Ok(id) => Some(id.to_string()),
                Err(error) if error.code() == Code::SandboxNotFound => Some(reference.clone()),
                Err(error) => return Err(error),
            },
            None => None,
        };
        let mut found = Vec::new();
        for vault in self.vaults()? {
            found.extend(read_all(&vault).await?.0);
        }
        let labels = |manifest: &Manifest| {
            query.labels.iter().all(|(key, value)| manifest.labels.get(key) == Some(value))
        };
        let place =
            |manifest: &Manifest| Place { at: manifest.created_at, id: manifest.id.clone() };
        found.retain(|manifest| {
            let beyond = after.as_ref().is_none_or(|after| {
                (after.at, after.id.as_str()) < (manifest.created_at, manifest.id.as_str())
            });
            let of = sandbox.as_ref().is_none_or(|id| manifest.sandbox.as_str() == id);
            beyond && of && self.sees(manifest) && labels(manifest)
        });
        found.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
        found.truncate(limit + 1);
        Ok(query::page(found, limit, Snapshot::from, place))
    }

    /// Creates a sandbox of the snapshot's tenant and puts the files into it. [`Snapshot::recorded`] asks for one like
    /// the one they are from. Where putting them in fails, the sandbox goes again.
    ///
    /// It runs under the policy that the other one ran under, unless the request names another.
    pub async fn restore(&self, reference: &str, mut request: CreateRequest) -> Result<Sandbox> {
        self.engine.scope.may_create()?;
        let (vault, mut manifest) = self.find(reference).await?;
        if let (Some(under), None) = (manifest.policy.take(), &request.policy) {
            let id = manifest.id.clone();
            let policy = aside(move || under.policy(&id)).await??;
            request.policy = Some(PolicyChoice::Documents(policy));
        }
        check_request(&request)?;
        let engine = self.engine.clone();
        to_the_end(async move {
            let tenant = manifest.tenant.clone();
            let (id, name) = (manifest.id.clone(), manifest.name.clone());
            let governed = policy::govern(&engine.inner, &tenant, &request).await?;
            manifest.parts = put_back(manifest.parts, &governed.mounts)?;
            let parts = blocking(move || restore::verify(&vault, &manifest)).await?;
            let inner = &engine.inner;
            // Until all of it is there, the sandbox ends with this engine: nobody is to work with half of the files.
            let life = Life::Filling;
            let mut record = once::create(inner, &engine.asker, &tenant, &request, life).await?;
            let filled = async {
                // What was saved is put back as a whole; the policy was asked about the creation.
                let files = engine.files(&record.id).await?.unguarded();
                for part in parts {
                    restore::extract(&files, part).await?;
                    point("restore.filling");
                }
                inner.store.filled(&record.id, &id, name.as_deref()).await
            };
            if let Err(error) = filled.await {
                let end = End::Destroyed(Some("a snapshot could not be restored".to_owned()));
                if let Err(left) = destroy(inner, &record.id, end).await {
                    tracing::warn!(error = %left, sandbox = %record.id, "left after a failed restore");
                }
                return Err(error);
            }
            record.owner = None;
            ensure::ensure(inner, &engine.asker, &record.id, &request.ensure).await?;
            Ok(record.into())
        })
        .await
    }

    /// Removes a snapshot, by name or id, and returns its id.
    pub async fn remove(&self, reference: &str) -> Result<String> {
        let (vault, manifest) = match self.find(reference).await {
            // What cannot be read can be removed, by whoever may remove anything.
            Err(error)
                if error.code() == Code::SnapshotDamaged && self.engine.scope == Scope::All =>
            {
                return self.remove_damaged(reference).await;
            }
            other => other?,
        };
        if let Scope::Sandbox { .. } = self.engine.scope {
            return Err(Error::new(
                Code::PermissionDenied,
                "a caller for one sandbox does not remove what outlives it",
            )
            .with_remedy("use a key of the tenant"));
        }
        let id = manifest.id.clone();
        let inner = Arc::clone(&self.engine.inner);
        to_the_end(async move {
            let _lock = vault.lock().await?;
            let gone = manifest.id.clone();
            blocking(move || vault.remove(&gone)).await?;
            tell(&inner, EventKind::SnapshotRemoved, &manifest).await
        })
        .await?;
        Ok(id)
    }

    async fn remove_damaged(&self, id: &str) -> Result<String> {
        for vault in self.vaults()? {
            if vault.read(id).is_err() {
                let _lock = vault.lock().await?;
                vault.remove(id)?;
            }
        }
        Ok(id.to_owned())
    }

    async fn find(&self, reference: &str) -> Result<(Vault, Manifest)> {
        for vault in self.vaults()? {
            if let Some(manifest) = vault.read(reference)?.filter(|found| self.sees(found)) {
                return Ok((vault, manifest));
            }
        }
        let vault = Vault::of(&self.engine.inner, &self.engine.scope.tenant());
        let (manifests, _) = read_all(&vault).await?;
        manifests
            .into_iter()
            .find(|found| found.name.as_deref() == Some(reference) && self.sees(found))
            .map(|manifest| (vault, manifest))
            .ok_or_else(|| {
                let shown = belljar_policy::shown(reference);
                Error::new(Code::SnapshotNotFound, format!("there is no snapshot `{shown}`"))
                    .with_remedy("`belljar snapshot list` shows the snapshots that exist")
            })
    }

    fn vaults(&self) -> Result<Vec<Vault>> {
        match &self.engine.scope {
            Scope::All => Vault::all(&self.engine.inner),
            scope => Ok(vec![Vault::of(&self.engine.inner, &scope.tenant())]),
        }
    }

    fn sees(&self, manifest: &Manifest) -> bool {
        self.engine.scope.sees(&manifest.tenant, &manifest.sandbox)
    }
}

/// Removes everything that was kept for a tenant.
pub(crate) async fn remove_all(inner: &Inner, tenant: &TenantId) -> Result<()> {
    Vault::of(inner, tenant).remove_all().await
}

/// Refuses what is known to be too much before anything is read.
async fn allowance(
    inner: &Inner,
    record: &SandboxRecord,
    new: &NewSnapshot,
    manifests: &[Manifest],
) -> Result<Allowance> {
    let name = new.name.as_ref().map(SandboxName::as_str);
    if let Some(name) = name
        && manifests.iter().any(|manifest| manifest.name.as_deref() == Some(name))
    {
        return Err(Error::new(
            Code::SnapshotExists,
            format!("there is a snapshot named `{name}` already"),
        )
        .with_remedy("choose another name, or remove that snapshot"));
    }
    if manifests.len() >= MOST_SNAPSHOTS {
        return Err(Error::new(
            Code::QuotaExceeded,
            format!("the tenant has {MOST_SNAPSHOTS} snapshots already"),
        )
        .with_remedy("remove some"));
    }
    let tenant = inner.store.tenant(&record.tenant).await?;
    let quota = tenant.ok_or_else(|| tenants::not_found(&record.tenant))?.quotas.disk_bytes;
    let kept: u64 = manifests.iter().map(Manifest::bytes).sum();
    if quota.is_some_and(|most| kept >= most) {
        return Err(quota_reached());
    }
    let disk = record.details.limits.disk_bytes.value;
    let stored = quota.map(|most| most - kept);
    Ok(Allowance { contents: disk, disk, stored })
}

/// Gives what was taken its names. From the last of them on the snapshot exists.
async fn commit(
    inner: &Inner,
    vault: Vault,
    record: &SandboxRecord,
    new: NewSnapshot,
    taken: Vec<Taken>,
) -> Result<Snapshot> {
    let _lock = vault.lock().await?;
    // The tenant may have gone, and others may have come first.
    let (manifests, _) = read_all(&vault).await?;
    let allowed = allowance(inner, record, &new, &manifests).await?;
    let stored: u64 = taken.iter().map(|taken| taken.part.bytes).sum();
    if allowed.stored.is_some_and(|most| stored > most) {
        return Err(quota_reached());
    }
    let governed = inner.policies.of(inner, &record.id).await?;
    let details = &record.details;
    let manifest = Manifest {
        version: VERSION,
        id: format!("s{}", random::token()),
        name: new.name.as_ref().map(SandboxName::as_str).map(str::to_owned),
        sandbox: record.id.clone(),
        tenant: record.tenant.clone(),
        created_at: now_ms(),
        labels: new.labels,
        skipped: taken.iter().map(|taken| taken.skipped).sum(),
        parts: taken.iter().map(|taken| taken.part.clone()).collect(),
        origin: Origin {
            template: details.template.clone(),
            class: details.class.clone(),
            network: details.network.mode_without_hosts(details.network_mode.parse()?),
            limits: details.limits,
            user: details.user.clone(),
        },
        policy: governed.map(|governed| Under::of(&governed, record)),
    };
    let manifest = blocking(move || {
        vault.sweep()?;
        for taken in &taken {
            vault.keep(&taken.archive, &taken.part.digest)?;
        }
        vault.write(&manifest)?;
        Ok(manifest)
    })
    .await?;
    tell(inner, EventKind::SnapshotCreated, &manifest).await?;
    Ok(manifest.into())
}

/// Tells what became of a snapshot. Files and events are two places: who dies between them leaves the event untold.
async fn tell(inner: &Inner, kind: EventKind, manifest: &Manifest) -> Result<()> {
    let Manifest { tenant, sandbox, id, name, .. } = manifest;
    inner.store.tell_of_snapshot(kind, tenant, sandbox, id, name.as_deref()).await
}

async fn read_all(vault: &Vault) -> Result<(Vec<Manifest>, bool)> {
    let vault = vault.clone();
    blocking(move || vault.manifests()).await
}
