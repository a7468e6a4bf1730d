//! The services, method by method.

use belljar_api::v1;
use futures_util::StreamExt;
use tonic::service::{Routes, RoutesBuilder};
use tonic::{Request, Response, Status};

use super::{Outgoing, Services, answer, answers, call_of, rest};
use crate::api::Api;
use crate::callbacks;

/// The largest message that is taken: files travel in pieces, so none needs to be larger.
const MAX_MESSAGE: usize = 32 << 20;

pub(crate) fn routes(api: &Api) -> Routes {
    use v1::{
        callbacks_server::CallbacksServer, files_server::FilesServer,
        networks_server::NetworksServer, policies_server::PoliciesServer,
        ports_server::PortsServer, processes_server::ProcessesServer,
        sandboxes_server::SandboxesServer, secrets_server::SecretsServer,
        snapshots_server::SnapshotsServer, system_server::SystemServer,
        templates_server::TemplatesServer,
    };
    let services = || Services(api.clone());
    let mut routes = RoutesBuilder::default();
    routes
        .add_service(SandboxesServer::new(services()).max_decoding_message_size(MAX_MESSAGE))
        .add_service(ProcessesServer::new(services()).max_decoding_message_size(MAX_MESSAGE))
        .add_service(FilesServer::new(services()).max_decoding_message_size(MAX_MESSAGE))
        .add_service(SnapshotsServer::new(services()).max_decoding_message_size(MAX_MESSAGE))
        .add_service(
            CallbacksServer::new(services()).max_decoding_message_size(callbacks::MAX_MESSAGE),
        )
        .add_service(NetworksServer::new(services()))
        .add_service(TemplatesServer::new(services()))
        .add_service(PoliciesServer::new(services()).max_decoding_message_size(MAX_MESSAGE))
        .add_service(SecretsServer::new(services()))
        .add_service(PortsServer::new(services()).max_decoding_message_size(MAX_MESSAGE))
        .add_service(SystemServer::new(services()));
    routes.routes()
}

/// Implements a service whose methods have the names of the [`Api`]'s.
macro_rules! service {
    (
        $service:path {
            $(one $one:ident($one_request:ident) -> $one_answer:ident;)*
            $(many $many:ident($many_request:ident) -> $many_answer:ident as $stream:ident;)*
        }
        $($by_hand:item)*
    ) => {
        #[tonic::async_trait]
        impl $service for Services {
            $(type $stream = Outgoing<v1::$many_answer>;)*
            $(
                async fn $one(
                    &self,
                    request: Request<v1::$one_request>,
                ) -> Result<Response<v1::$one_answer>, Status> {
                    let call = call_of(&request)?;
                    let result = self.0.$one(&call, request.into_inner()).await;
                    answer(&call, result)
                }
            )*
            $(
                async fn $many(
                    &self,
                    request: Request<v1::$many_request>,
                ) -> Result<Response<Outgoing<v1::$many_answer>>, Status> {
                    let call = call_of(&request)?;
                    let result = self.0.$many(&call, request.into_inner()).await;
                    answers(call, result)
                }
            )*
            $($by_hand)*
        }
    };
}

service! {
    v1::sandboxes_server::Sandboxes {
        one create_sandbox(CreateSandboxRequest) -> Sandbox;
        one get_sandbox(GetSandboxRequest) -> Sandbox;
        one list_sandboxes(ListSandboxesRequest) -> ListSandboxesResponse;
        one destroy_sandbox(DestroySandboxRequest) -> DestroySandboxResponse;
        one extend_sandbox(ExtendSandboxRequest) -> Sandbox;
        one pause_sandbox(PauseSandboxRequest) -> Sandbox;
        one resume_sandbox(ResumeSandboxRequest) -> Sandbox;
        one explain_sandbox(ExplainSandboxRequest) -> Explanation;
        one diff_layer(DiffLayerRequest) -> DiffLayerResponse;
        one apply_layer(ApplyLayerRequest) -> ApplyLayerResponse;
        one discard_layer(DiscardLayerRequest) -> DiscardLayerResponse;
        many watch_events(WatchEventsRequest) -> Event as WatchEventsStream;
    }
}

service! {
    v1::processes_server::Processes {
        one exec(ExecRequest) -> ExecResponse;
        one start_process(StartProcessRequest) -> Process;
        one get_process(GetProcessRequest) -> Process;
        one list_processes(ListProcessesRequest) -> ListProcessesResponse;
        one wait_process(WaitProcessRequest) -> Process;
        one cancel_process(CancelProcessRequest) -> Process;
        one signal_process(SignalProcessRequest) -> SignalProcessResponse;
        one resize_terminal(ResizeTerminalRequest) -> ResizeTerminalResponse;
        many run(RunRequest) -> RunResponse as RunStream;
        many exec_stream(ExecStreamRequest) -> ProcessOutput as ExecStreamStream;
        many follow_log(FollowLogRequest) -> ProcessOutput as FollowLogStream;
    }

    async fn write_input(
        &self,
        request: Request<tonic::Streaming<v1::WriteInputRequest>>,
    ) -> Result<Response<v1::WriteInputResponse>, Status> {
        let call = call_of(&request)?;
        let mut messages = request.into_inner();
        let head = self.first(&call, &mut messages).await?;
        answer(&call, self.0.write_input(&call, head, rest(messages)).await)
    }
}

service! {
    v1::files_server::Files {
        one stat_file(StatFileRequest) -> FileInfo;
        one list_files(ListFilesRequest) -> ListFilesResponse;
        one make_directory(MakeDirectoryRequest) -> FileInfo;
        one move_file(MoveFileRequest) -> FileInfo;
        one copy_file(CopyFileRequest) -> CopyFileResponse;
        one remove_file(RemoveFileRequest) -> RemoveFileResponse;
        one change_mode(ChangeModeRequest) -> FileInfo;
        many read_file(ReadFileRequest) -> FileChunk as ReadFileStream;
        many watch_files(WatchFilesRequest) -> FileEvent as WatchFilesStream;
        many search_files(SearchFilesRequest) -> SearchHit as SearchFilesStream;
        many read_archive(ReadArchiveRequest) -> FileChunk as ReadArchiveStream;
    }

    async fn write_file(
        &self,
        request: Request<tonic::Streaming<v1::WriteFileRequest>>,
    ) -> Result<Response<v1::FileInfo>, Status> {
        let call = call_of(&request)?;
        let mut messages = request.into_inner();
        let head = self.first(&call, &mut messages).await?;
        let pieces = rest(messages).map(|message| message.map(|message| message.data));
        answer(&call, self.0.write_file(&call, head, pieces).await)
    }

    async fn write_archive(
        &self,
        request: Request<tonic::Streaming<v1::WriteArchiveRequest>>,
    ) -> Result<Response<v1::WriteArchiveResponse>, Status> {
        let call = call_of(&request)?;
        let mut messages = request.into_inner();
        let head = self.first(&call, &mut messages).await?;
        let pieces = rest(messages).map(|message| message.map(|message| message.data));
        answer(&call, self.0.write_archive(&call, head, pieces).await)
    }
}

service! {
    v1::snapshots_server::Snapshots {
        one create_snapshot(CreateSnapshotRequest) -> Snapshot;
        one get_snapshot(GetSnapshotRequest) -> Snapshot;
        one list_snapshots(ListSnapshotsRequest) -> ListSnapshotsResponse;
        one restore_snapshot(RestoreSnapshotRequest) -> Sandbox;
        one remove_snapshot(RemoveSnapshotRequest) -> RemoveSnapshotResponse;
    }
}

service! {
    v1::networks_server::Networks {
        one get_network(GetNetworkRequest) -> SandboxNetwork;
        one change_network(ChangeNetworkRequest) -> SandboxNetwork;
        one list_approvals(ListApprovalsRequest) -> ListApprovalsResponse;
        one answer_approval(AnswerApprovalRequest) -> Approval;
        many read_network_log(ReadNetworkLogRequest) -> NetworkDecision as ReadNetworkLogStream;
    }
}

service! {
    v1::templates_server::Templates {
        one list_templates(ListTemplatesRequest) -> ListTemplatesResponse;
        many fetch_template(FetchTemplateRequest) -> FetchStep as FetchTemplateStream;
    }
}

service! {
    v1::policies_server::Policies {
        one list_profiles(ListProfilesRequest) -> ListProfilesResponse;
        one put_policy(PutPolicyRequest) -> Policy;
        one get_policy(GetPolicyRequest) -> Policy;
        one list_policies(ListPoliciesRequest) -> ListPoliciesResponse;
        one remove_policy(RemovePolicyRequest) -> RemovePolicyResponse;
        one learn_policy(LearnPolicyRequest) -> LearnPolicyResponse;
    }
}

service! {
    v1::secrets_server::Secrets {
        one set_secret(SetSecretRequest) -> Secret;
        one list_secrets(ListSecretsRequest) -> ListSecretsResponse;
        one remove_secret(RemoveSecretRequest) -> RemoveSecretResponse;
    }
}

service! {
    v1::system_server::System {
        one get_server(GetServerRequest) -> Server;
        one stop_server(StopServerRequest) -> StopServerResponse;
        one get_caller(GetCallerRequest) -> Caller;
        one probe_backends(ProbeBackendsRequest) -> ProbeBackendsResponse;
        one find_leaks(FindLeaksRequest) -> FindLeaksResponse;
        one create_key(CreateKeyRequest) -> CreateKeyResponse;
        one list_keys(ListKeysRequest) -> ListKeysResponse;
        one revoke_key(RevokeKeyRequest) -> Key;
        one create_tenant(CreateTenantRequest) -> Tenant;
        one get_tenant(GetTenantRequest) -> Tenant;
        one list_tenants(ListTenantsRequest) -> ListTenantsResponse;
        one set_quotas(SetQuotasRequest) -> Tenant;
        one remove_tenant(RemoveTenantRequest) -> RemoveTenantResponse;
        one issue_token(IssueTokenRequest) -> IssueTokenResponse;
        one create_webhook(CreateWebhookRequest) -> Webhook;
        one list_webhooks(ListWebhooksRequest) -> ListWebhooksResponse;
        one remove_webhook(RemoveWebhookRequest) -> RemoveWebhookResponse;
        many query_audit(QueryAuditRequest) -> AuditRecord as QueryAuditStream;
    }
}

#[tonic::async_trait]
impl v1::callbacks_server::Callbacks for Services {
    type ServeStream = Outgoing<v1::ServerCallback>;

    async fn serve(
        &self,
        request: Request<tonic::Streaming<v1::ClientCallback>>,
    ) -> Result<Response<Self::ServeStream>, Status> {
        let call = call_of(&request)?;
        let outgoing = self.0.serve_callbacks(&call, rest(request.into_inner()));
        answers(call, Ok(outgoing))
    }
}

service! {
    v1::ports_server::Ports {
        one expose_port(ExposePortRequest) -> ExposedPort;
        one list_ports(ListPortsRequest) -> ListPortsResponse;
        one hide_port(HidePortRequest) -> HidePortResponse;
    }

    type ForwardPortStream = Outgoing<v1::ForwardPortResponse>;

    async fn forward_port(
        &self,
        request: Request<tonic::Streaming<v1::ForwardPortRequest>>,
    ) -> Result<Response<Self::ForwardPortStream>, Status> {
        let call = call_of(&request)?;
        let mut messages = request.into_inner();
        let head = self.first(&call, &mut messages).await?;
        let result = self.0.forward_port(&call, head, rest(messages)).await;
        answers(call, result)
    }
}
