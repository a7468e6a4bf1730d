//! The keys that tokens are signed with: a file that is replaced as a whole, by whoever first needs a newer key.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use belljar_codes::Code;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::LONGEST;
use crate::problem::{Problem, Result};

/// A key signs for this long, in seconds.
pub(super) const SIGNS: u64 = 7 * 24 * 3600;

/// After that it is known until the last token that it signed has expired.
const KNOWN: u64 = SIGNS + LONGEST.as_secs() + 60;

/// A key whose making lies in the future by more than this comes from a clock that was set back.
const AHEAD: u64 = 60;

#[derive(Clone, Debug)]
pub(super) struct Key {
    pub(super) id: String,
    pub(super) secret: [u8; 32],
    created: u64,
}

/// The keys of a state directory, as they were last read.
#[derive(Debug)]
pub(super) struct Ring {
    path: PathBuf,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    keys: Vec<Key>,
    /// Inode and time of the file that they are from.
    file: Option<(u64, i64, i64)>,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    keys: Vec<StoredKey>,
}

#[derive(Serialize, Deserialize)]
struct StoredKey {
    id: String,
    created: u64,
    secret: String,
}

impl Ring {
    pub(super) fn new(state_dir: &Path) -> Self {
        Self { path: state_dir.join("tokens.json"), known: Mutex::default() }
    }

    /// The key to sign with at this time; made where there is none that is young enough.
    pub(super) fn signing(&self, now: u64) -> Result<Key> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(key) = newest(&known.keys, now) {
            return Ok(key);
        }
        let _lock = self.lock().map_err(|error| self.failed(&error))?;
        // Somebody else may have made one meanwhile.
        self.read(&mut known)?;
        if let Some(key) = newest(&known.keys, now) {
            return Ok(key);
        }
        let key = Key { id: crate::random::id(), secret: crate::random::bytes(), created: now };
        known.keys.retain(|key| is_known(key, now));
        known.keys.push(key.clone());
        self.write(&known.keys).map_err(|error| self.failed(&error))?;
        Ok(key)
    }

    /// The key of that name, if tokens that it signed can still be valid.
    pub(super) fn find(&self, id: &str, now: u64) -> Result<Option<Key>> {
        let find =
            |keys: &[Key]| keys.iter().find(|key| key.id == id && is_known(key, now)).cloned();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(key) = find(&known.keys) {
            return Ok(Some(key));
        }
        self.read(&mut known)?;
        Ok(find(&known.keys))
    }

    /// Reads the file, unless it is the one that was read last: anybody may name keys that there never were.
    fn read(&self, known: &mut Known) -> Result<()> {
        let file = match std::fs::metadata(&self.path) {
            Ok(found) => (found.ino(), found.mtime(), found.mtime_nsec()),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                *known = Known::default();
                return Ok(());
            }
            Err(error) => return Err(self.failed(&error)),
        };
        if known.file == Some(file) {
            return Ok(());
        }
        let text = std::fs::read(&self.path).map_err(|error| self.failed(&error))?;
        let stored: Stored = serde_json::from_slice(&text).map_err(|error| self.failed(&error))?;
        let decode = |stored: StoredKey| {
            let secret = URL_SAFE_NO_PAD.decode(&stored.secret).ok()?.try_into().ok()?;
            Some(Key { id: stored.id, secret, created: stored.created })
        };
        let keys = stored.keys.into_iter().filter_map(decode).collect();
        *known = Known { keys, file: Some(file) };
        Ok(())
    }

    fn write(&self, keys: &[Key]) -> std::io::Result<()> {
        let keys = keys.iter().map(|key| StoredKey {
            id: key.id.clone(),
            created: key.created,
            secret: URL_SAFE_NO_PAD.encode(key.secret),
        });
        let stored = Stored { keys: keys.collect() };
        let fresh = self.path.with_extension("new");
        let _ = std::fs::remove_file(&fresh);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh)?;
        file.write_all(&serde_json::to_vec(&stored)?)?;
        file.sync_all()?;
        std::fs::rename(&fresh, &self.path)
    }

    fn lock(&self) -> std::io::Result<File> {
        let path = self.path.with_extension("lock");
        let mut options = OpenOptions::new();
        let file = options.create(true).truncate(false).write(true).mode(0o600).open(path)?;
        flock(&file, FlockOperation::LockExclusive)?;
        Ok(file)
    }

    fn failed(&self, error: &dyn std::error::Error) -> Problem {
        Problem::new(Code::StateFailed, format!("the keys in `{}`", self.path.display()))
            .caused_by(error)
    }
}

fn newest(keys: &[Key], now: u64) -> Option<Key> {
    let young = |key: &&Key| now < key.created + SIGNS && key.created <= now + AHEAD;
    keys.iter().filter(young).max_by_key(|key| key.created).cloned()
}

fn is_known(key: &Key, now: u64) -> bool {
    now < key.created + KNOWN
}
