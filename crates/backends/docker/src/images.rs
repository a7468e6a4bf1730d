//! Images: those that the engine has or fetches, and those that are made from directories of this host.
//!
//! A directory becomes an image once, under a name that says what was in it, and is then only used.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use belljar_backend::{Error, FetchStep, Result};
use belljar_codes::Code;
use bollard::Docker as Client;
use bollard::models::ImageInspect;
use bollard::query_parameters::CreateImageOptionsBuilder;
use bytes::Bytes;
use futures_util::StreamExt;
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;

use crate::failure::{failed, is_missing};
use crate::pull;

/// What is known of an image.
#[derive(Clone, Debug, Default)]
pub(crate) struct Image {
    /// What the engine knows it by for certain.
    pub(crate) id: String,
    pub(crate) environment: BTreeMap<String, String>,
    /// Directories that it wants to write to.
    pub(crate) volumes: Vec<String>,
    pub(crate) labels: BTreeMap<String, String>,
}

/// Names that change how programs are loaded; no image may set them for a workload.
const DANGEROUS: [&str; 3] = ["LD_", "DYLD_", "BASH_ENV"];

impl From<ImageInspect> for Image {
    fn from(image: ImageInspect) -> Self {
        let config = image.config.unwrap_or_default();
        let environment = config
            .env
            .unwrap_or_default()
            .iter()
            .filter_map(|line| line.split_once('='))
            .filter(|(name, _)| !DANGEROUS.iter().any(|start| name.starts_with(start)))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        Self {
            id: image.id.unwrap_or_default(),
            environment,
            volumes: config.volumes.unwrap_or_default(),
            labels: config.labels.unwrap_or_default().into_iter().collect(),
        }
    }
}

/// An image by its name, fetched if the engine does not have it and that is wanted.
///
/// `steps`: for whoever watches.
pub(crate) async fn find(
    client: &Client,
    name: &str,
    may_pull: bool,
    steps: Option<&mpsc::Sender<FetchStep>>,
) -> Result<Image> {
    if let Some(image) = look(client, name).await? {
        return Ok(image);
    }
    let missing = || {
        Error::new(Code::TemplateNotFound, format!("the engine has no image `{name}`"))
            .with_remedy("fetch it with the engine's own `pull`, or set BELLJAR_DOCKER_PULL=1")
    };
    if !may_pull {
        return Err(missing());
    }
    pull::fetch(client, name, steps).await?;
    look(client, name).await?.ok_or_else(missing)
}

pub(crate) async fn look(client: &Client, name: &str) -> Result<Option<Image>> {
    match client.inspect_image(name).await {
        Ok(image) => Ok(Some(image.into())),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(failed(format!("the engine does not tell of image `{name}`"), error)),
    }
}

/// The image that has what `directory` has, made if the engine does not have it yet. `kind` and `digest` name it.
pub(crate) async fn import(
    client: &Client,
    kind: &str,
    digest: &str,
    directory: PathBuf,
) -> Result<Image> {
    let name = format!("belljar-{kind}:{digest}");
    if let Some(image) = look(client, &name).await? {
        return Ok(image);
    }
    let (sender, mut receiver) = mpsc::channel::<io::Result<Bytes>>(8);
    let writer = tokio::task::spawn_blocking(move || {
        let mut pieces = BufWriter::with_capacity(PIECE, Pieces(sender.clone()));
        if let Err(error) = write_archive(&directory, &mut pieces).and_then(|()| pieces.flush()) {
            let _ = sender.blocking_send(Err(error));
        }
    });
    let body = bollard::body_try_stream(futures_util::stream::poll_fn(move |context| {
        receiver.poll_recv(context)
    }));
    let options = CreateImageOptionsBuilder::new()
        .from_src("-")
        .repo(&name) // with the tag in it: Podman takes no other
        .build();
    let mut answers = client.create_image(Some(options), Some(body), None);
    while let Some(answer) = answers.next().await {
        answer.map_err(|error| failed("the template cannot be made an image", error))?;
    }
    let _ = writer.await;
    look(client, &name).await?.ok_or_else(|| {
        Error::new(Code::StartFailed, "the engine has lost the image of the template")
            .with_remedy("try again; the engine may be short of space")
    })
}

const PIECE: usize = 256 * 1024;

/// A writer whose bytes become the body of a request.
struct Pieces(mpsc::Sender<io::Result<Bytes>>);

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.0.blocking_send(Ok(Bytes::copy_from_slice(bytes)));
        sent.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write_archive(directory: &Path, to: &mut impl Write) -> io::Result<()> {
    let mut builder = tar::Builder::new(to);
    builder.follow_symlinks(false);
    builder.append_dir_all(".", directory)?;
    builder.finish()
}

/// What a directory is like, as far as one can tell without reading its files: names, kinds, owners, sizes, times.
pub(crate) fn digest(directory: &Path) -> io::Result<String> {
    let mut hasher = Sha256::new();
    let mut waiting = vec![directory.to_owned()];
    while let Some(path) = waiting.pop() {
        let mut entries: Vec<_> = fs::read_dir(&path)?.collect::<io::Result<_>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let metadata = entry.metadata()?;
            let path = entry.path();
            let name = path.strip_prefix(directory).unwrap_or(&path).as_os_str().as_bytes();
            hasher.update((name.len() as u64).to_le_bytes());
            hasher.update(name);
            for number in [
                u64::from(metadata.mode()),
                u64::from(metadata.uid()),
                u64::from(metadata.gid()),
                metadata.size(),
                metadata.mtime().cast_unsigned(),
                metadata.mtime_nsec().cast_unsigned(),
            ] {
                hasher.update(number.to_le_bytes());
            }
            if metadata.is_dir() {
                waiting.push(path);
            }
        }
    }
    Ok(hasher.finalize().iter().take(12).map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bollard::models::ImageConfig;

    #[test]
    fn a_digest_tells_directories_apart() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("a")).unwrap();
        fs::write(directory.path().join("a/b"), "1").unwrap();
        let first = digest(directory.path()).unwrap();
        assert_eq!(first, digest(directory.path()).unwrap());
        fs::write(directory.path().join("a/b"), "12").unwrap();
        assert_ne!(first, digest(directory.path()).unwrap());
    }

    #[test]
    fn an_image_cannot_change_how_programs_are_loaded() {
        let config = ImageConfig {
            env: Some(vec!["PATH=/bin".into(), "LD_PRELOAD=/evil.so".into(), "BASH_ENV=x".into()]),
            ..ImageConfig::default()
        };
        let image = Image::from(ImageInspect { config: Some(config), ..ImageInspect::default() });
        assert_eq!(image.environment.into_keys().collect::<Vec<_>>(), ["PATH"]);
    }
}
