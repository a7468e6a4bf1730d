//! Files of a container that does not run, as the engine shows them.

use std::io;

use bollard::Docker as Client;
use bollard::errors::Error;
use bollard::query_parameters::{
    ContainerArchiveInfoOptionsBuilder, DownloadFromContainerOptionsBuilder,
};
use futures_util::StreamExt;
use tokio::sync::mpsc;

use crate::archive::{self, Entry, Incoming};

/// What engines call a directory and a link, in their own kind of mode.
const DIRECTORY: u32 = 1 << 31;
const LINK: u32 = 1 << 27;
/// Pieces of an archive that wait for who reads it.
const WAITING: usize = 8;

/// What a path leads to.
pub(crate) struct Found {
    /// Its real path; links in it are followed within the container.
    pub(crate) path: String,
    pub(crate) is_directory: bool,
}

/// Follows a path to its end.
pub(crate) async fn look(client: &Client, container: &str, path: &str) -> Result<Found, Error> {
    let stat = async |path: &str| {
        let options = ContainerArchiveInfoOptionsBuilder::new().path(path).build();
        client.get_container_archive_info(container, Some(options)).await
    };
    let mut found = stat(path).await?;
    let mut path = path.to_owned();
    if found.file_mode & LINK != 0 {
        // The engine has followed every link there is.
        path.clone_from(&found.link_target);
        found = stat(&path).await?;
    }
    Ok(Found { path, is_directory: found.file_mode & DIRECTORY != 0 })
}

/// What is right below a directory.
pub(crate) async fn list(
    client: &Client,
    container: &str,
    directory: &str,
) -> Result<Vec<Entry>, Error> {
    let options = DownloadFromContainerOptionsBuilder::new().path(directory).build();
    let mut pieces = client.download_from_container(container, Some(options));
    let (sender, receiver) = mpsc::channel(WAITING);
    let reading = tokio::task::spawn_blocking(move || archive::children(Incoming::new(receiver)));
    while let Some(piece) = pieces.next().await {
        if sender.send(piece?).await.is_err() {
            break; // it has seen enough, or something that it does not understand
        }
    }
    drop(sender);
    Ok(reading.await.map_err(io::Error::from)??)
}
