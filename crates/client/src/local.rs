//! The server of a state directory of this machine.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use belljar_api::v1::{GetServerRequest, Server, StopServerRequest};
use belljar_codes::Code;

use crate::address::{connect_socket, connect_unix};
use crate::end::Ending;
use crate::start::{StartLock, start};
use crate::{Client, Failure};

/// A server drains before it ends: requests that are under way get this long.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// Where the server of a state directory is, and how it is started.
#[derive(Clone, Debug)]
pub struct Local {
    pub state_dir: PathBuf,
    /// Starts a server when run with `serve`.
    pub program: PathBuf,
    /// Of this program; an automatic server of another one is replaced.
    pub version: &'static str,
}

impl Local {
    /// Where it listens.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        socket(&self.state_dir)
    }

    /// The server that runs, if one does.
    ///
    /// # Errors
    /// Where there is one but it may not be used.
    pub async fn find(&self) -> Result<Option<(Client, Server)>, Failure> {
        let path = self.socket();
        // A plain connection first: only it tells "nobody listens" from other failures.
        let stream = match connect_socket(&path).await {
            Ok(stream) => stream,
            Err(error) if is_nobody(error.kind()) => return Ok(None),
            Err(error) => {
                return Err(Failure::new(
                    Code::ServerUnreachable,
                    format!("the server's socket `{}` cannot be used", path.display()),
                )
                .caused_by(&error)
                .with_remedy("use another `--state-dir`, or run as the user who owns it"));
            }
        };
        let Ok(channel) = connect_unix(&path, Some(stream)).await else { return Ok(None) };
        let client = Client::new(channel, None)?;
        match client.system.clone().get_server(GetServerRequest {}).await {
            Ok(server) => Ok(Some((client, server.into_inner()))),
            Err(status) => match Failure::from(status) {
                // It is on its way out; whoever starts the next one waits for it.
                failure if is_leaving(failure.code) => Ok(None),
                failure => Err(failure),
            },
        }
    }

    /// The server that runs, or one that is started now. However many ask at once, one is started.
    ///
    /// # Errors
    /// Where none can be started; the server's own words are in the failure.
    pub async fn find_or_start(&self) -> Result<Client, Failure> {
        if let Some(client) = self.usable().await? {
            return Ok(client);
        }
        let lock = StartLock::take(&self.state_dir).await?;
        // Somebody else may have started it while we waited for the lock.
        if let Some((client, server)) = self.find().await? {
            if !self.is_outdated(&server) {
                return Ok(client);
            }
            stop(&client, &server).await?;
        }
        start(self).await?;
        drop(lock);
        let channel = connect_unix(&self.socket(), None).await.map_err(|error| {
            Failure::new(Code::ServerUnreachable, "the server ended right after its start")
                .caused_by(&error)
                .with_remedy(format!("look into `{}`", log(&self.state_dir).display()))
        })?;
        Client::new(channel, None)
    }

    /// Asks `server` to stop, and waits for its end.
    ///
    /// # Errors
    /// Where it refuses, or does not end.
    pub async fn stop(&self, client: &Client, server: &Server) -> Result<(), Failure> {
        stop(client, server).await
    }

    async fn usable(&self) -> Result<Option<Client>, Failure> {
        let found = self.find().await?;
        Ok(found.filter(|(_, server)| !self.is_outdated(server)).map(|(client, _)| client))
    }

    /// One that somebody started on purpose is used whatever its version is.
    fn is_outdated(&self, server: &Server) -> bool {
        server.automatic && server.version != self.version
    }
}

async fn stop(client: &Client, server: &Server) -> Result<(), Failure> {
    let ending = Ending::of(server.pid);
    client.system.clone().stop_server(StopServerRequest {}).await?;
    let ended = match ending {
        Some(ending) => ending.within(STOP_TIMEOUT).await,
        None => true,
    };
    if ended {
        return Ok(());
    }
    Err(Failure::new(
        Code::ServerStopping,
        format!("the server (process {}) did not end within a minute", server.pid),
    )
    .with_remedy("wait for the requests that are under way, or end the process"))
}

/// Where even the directory is not one, whoever starts a server finds the better words.
fn is_nobody(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::NotFound | ErrorKind::ConnectionRefused | ErrorKind::NotADirectory)
}

fn is_leaving(code: Code) -> bool {
    matches!(code, Code::ServerStopping | Code::ServerUnreachable)
}

fn socket(state_dir: &Path) -> PathBuf {
    state_dir.join("server.sock")
}

/// What a server that was started by itself has to say.
pub(crate) fn log(state_dir: &Path) -> PathBuf {
    state_dir.join("server.log")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_automatic_server_of_another_version_is_replaced() {
        let local = Local { state_dir: "/x".into(), program: "/y".into(), version: "2.0.0" };
        let check = |automatic: bool, version: &str, expected: bool| {
            let server = Server { automatic, version: version.to_owned(), ..Server::default() };
            assert_eq!(local.is_outdated(&server), expected, "{automatic} {version}");
        };
        check(true, "1.0.0", true);
        check(true, "2.0.0", false);
        check(false, "1.0.0", false);
    }
}
