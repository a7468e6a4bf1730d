//! The services of a server on one connection.

use belljar_api::v1::callbacks_client::CallbacksClient;
use belljar_api::v1::files_client::FilesClient;
use belljar_api::v1::networks_client::NetworksClient;
use belljar_api::v1::policies_client::PoliciesClient;
use belljar_api::v1::ports_client::PortsClient;
use belljar_api::v1::processes_client::ProcessesClient;
use belljar_api::v1::sandboxes_client::SandboxesClient;
use belljar_api::v1::secrets_client::SecretsClient;
use belljar_api::v1::snapshots_client::SnapshotsClient;
use belljar_api::v1::system_client::SystemClient;
use belljar_api::v1::templates_client::TemplatesClient;
use belljar_codes::Code;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Request, Status};

use crate::{Address, Failure};

/// The collected output of a command, and the files that are read with it, come in one message.
const MAX_MESSAGE: usize = 64 * 1024 * 1024;

/// A connection that says who calls.
pub type Service = InterceptedService<Channel, Authorize>;

/// All services of one server. Clones share the connection.
#[derive(Clone, Debug)]
pub struct Client {
    pub sandboxes: SandboxesClient<Service>,
    pub processes: ProcessesClient<Service>,
    pub files: FilesClient<Service>,
    pub snapshots: SnapshotsClient<Service>,
    pub networks: NetworksClient<Service>,
    pub templates: TemplatesClient<Service>,
    pub policies: PoliciesClient<Service>,
    pub callbacks: CallbacksClient<Service>,
    pub secrets: SecretsClient<Service>,
    pub ports: PortsClient<Service>,
    pub system: SystemClient<Service>,
}

impl Client {
    /// Talks over `channel`, with `key` if there is one.
    ///
    /// # Errors
    /// Where the key cannot be one.
    pub fn new(channel: Channel, key: Option<&str>) -> Result<Self, Failure> {
        let service = InterceptedService::new(channel, Authorize::with(key)?);
        Ok(Self {
            sandboxes: SandboxesClient::new(service.clone()).max_decoding_message_size(MAX_MESSAGE),
            processes: ProcessesClient::new(service.clone()).max_decoding_message_size(MAX_MESSAGE),
            files: FilesClient::new(service.clone()).max_decoding_message_size(MAX_MESSAGE),
            snapshots: SnapshotsClient::new(service.clone()),
            networks: NetworksClient::new(service.clone()),
            templates: TemplatesClient::new(service.clone()),
            policies: PoliciesClient::new(service.clone()),
            callbacks: CallbacksClient::new(service.clone()),
            secrets: SecretsClient::new(service.clone()),
            ports: PortsClient::new(service.clone()),
            system: SystemClient::new(service),
        })
    }

    /// Connects to the server at `address`.
    ///
    /// # Errors
    /// Where none answers there.
    pub async fn connect(address: &Address, key: Option<&str>) -> Result<Self, Failure> {
        Self::new(address.connect().await?, key)
    }
}

/// Puts the caller's key on every request.
#[derive(Clone)]
pub struct Authorize {
    value: Option<MetadataValue<Ascii>>,
}

impl Authorize {
    fn with(key: Option<&str>) -> Result<Self, Failure> {
        let Some(key) = key else { return Ok(Self { value: None }) };
        let mut value: MetadataValue<Ascii> =
            format!("Bearer {}", key.trim()).parse().map_err(|_| {
                Failure::new(Code::InvalidArgument, "the API key has characters that no key has")
                    .with_remedy("copy the key again")
            })?;
        value.set_sensitive(true);
        Ok(Self { value: Some(value) })
    }
}

impl Interceptor for Authorize {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(value) = &self.value {
            request.metadata_mut().insert("authorization", value.clone());
        }
        Ok(request)
    }
}

/// A key is never shown.
impl std::fmt::Debug for Authorize {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authorize").field("key", &self.value.is_some()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_goes_with_every_request_and_is_not_shown() {
        let mut authorize = Authorize::with(Some("secret\n")).unwrap();
        let request = authorize.call(Request::new(())).unwrap();
        assert_eq!(request.metadata().get("authorization").unwrap(), "Bearer secret");
        assert!(!format!("{authorize:?}{:?}", request.metadata()).contains("secret"));
        assert!(Authorize::with(Some("a\nb")).is_err());
        let request = Authorize::with(None).unwrap().call(Request::new(())).unwrap();
        assert!(request.metadata().get("authorization").is_none());
    }
}
