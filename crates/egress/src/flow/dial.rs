//! Connecting outwards: only to addresses that may be reached, for names that they belong to.

use std::net::IpAddr;
use std::time::Duration;

use belljar_policy::NetworkMode;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::judge::Judge;
use super::permit::Refusal;
use super::room::Dialled;
use crate::names::Unresolved;
use crate::{Reason, address};

/// Whoever does not answer a connection for this long is not there.
const CONNECT_TIME: Duration = Duration::from_secs(10);

impl Judge {
    /// Whether connections to addresses without a name can be allowed at all.
    pub(crate) fn allows_addresses(&self) -> bool {
        let rules = self.rules();
        rules.mode == NetworkMode::Full || rules.ask.is_some() || rules.callback.connections
    }

    /// Where `host` (a name, or an address as text) is: at `wanted` while that is known to be its own.
    pub(crate) async fn locate(
        &self,
        host: &str,
        wanted: Option<IpAddr>,
    ) -> Result<IpAddr, Refusal> {
        let rules = self.rules();
        let located = match host.parse::<IpAddr>() {
            Ok(literal) if address::admits(literal, &rules.cidrs) => Ok(literal),
            Ok(literal) => Err(Unresolved::NotPublic(literal)),
            Err(_) => self.names.locate(host, wanted, &rules.cidrs).await,
        };
        located.map_err(|unresolved| unresolved.reason().into())
    }

    /// Connects to `host`: at `address` while that is known to be its own, else where the name is now. What may not be
    /// reached is refused, whoever says that the name is there.
    pub(crate) async fn dial(
        &self,
        host: &str,
        port: u16,
        address: Option<IpAddr>,
    ) -> Result<Dialled, Refusal> {
        let address = self.locate(host, address).await?;
        let place = self.enter().ok_or(Reason::TooMany)?;
        let connected = timeout(CONNECT_TIME, TcpStream::connect((address, port))).await;
        match connected {
            Ok(Ok(stream)) => {
                // Bytes go on as they come: whoever wants them gathered has gathered them already.
                let _ = stream.set_nodelay(true);
                Ok(Dialled::new(stream, place))
            }
            Ok(Err(error)) => {
                tracing::debug!(host, port, %error, "a connection outwards failed");
                Err(Reason::ConnectFailed.into())
            }
            Err(_) => Err(Reason::ConnectFailed.into()),
        }
    }
}
